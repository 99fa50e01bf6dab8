"""What training may add to the loss. A new penalty is a function, a line here, and its weight in ``TrainConfig``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jaxtyping import Float
from torch import Tensor

from tslm.training.config import TrainConfig


def activation(
    _outputs_TBR: Float[Tensor, "T B R"], latents_NKM: Float[Tensor, "N K M"]
) -> Float[Tensor, ""]:
    """Return the mean square of what the head makes of the (dropped-out) last states."""
    return latents_NKM.pow(2).mean()


def change(outputs_TBR: Float[Tensor, "T B R"], _latents_NKM: Float[Tensor, "N K M"]) -> Float[Tensor, ""]:
    """Return the mean square of the change of what is read out, from word to word."""
    return outputs_TBR.diff(dim=0).pow(2).mean() if len(outputs_TBR) > 1 else outputs_TBR.new_zeros(())


PENALTIES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "activation_penalty": activation,
    "change_penalty": change,
}
"""The name of each penalty's weight in ``TrainConfig`` → the penalty."""


def penalise(
    loss: Float[Tensor, ""],
    config: TrainConfig,
    outputs_TBR: Float[Tensor, "T B R"],
    latents_NKM: Float[Tensor, "N K M"],
) -> Float[Tensor, ""]:
    """Return the loss with every penalty that has a weight."""
    for name, penalty in PENALTIES.items():
        if (weight := getattr(config, name)) > 0:
            loss = loss + weight * penalty(outputs_TBR, latents_NKM)
    return loss
