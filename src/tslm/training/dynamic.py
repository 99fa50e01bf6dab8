"""Dynamic evaluation (Krause et al. 2018): a model goes on learning from the text that it has just scored."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tslm.config import check
from tslm.errors import NumberError
from tslm.evaluation.scoring import Tick
from tslm.models.recurrent.heads.base import direct
from tslm.models.trainable import Carried, Trainable
from tslm.training.config import ObjectiveConfig
from tslm.training.objective import Objective

FLOOR = 1.0
"""What is added to a weight's root mean square gradient, as a share of the mean of its matrix: rarely moved weights,
such as the vectors of rare words, would otherwise leap."""


@dataclass(frozen=True, kw_only=True)
class DynamicConfig:
    """How a model learns while it reads."""

    rate: float = 1e-4
    """η: about the step of a weight whose gradient is as large as it was on average in training."""

    decay: float = 0.003
    """λ: the share of the way back to the trained weights that is gone at each step."""

    segment: int = 16
    """How many words are scored before the next step; they are scored with the weights from before them."""

    def __post_init__(self) -> None:
        check(self.rate >= 0, f"rate = {self.rate} must not be negative")
        check(0 <= self.decay < 1, f"decay = {self.decay} must lie in [0, 1)")
        check(self.segment >= 1, f"segment = {self.segment} must be 1 or more")


class Dynamic:
    """A trained model that learns from what it reads; ``restored`` gives it its trained weights back.

    Each weight moves by −η g / (RMS + ε) + λ (trained − now) · RMS / ε. RMS is the root mean square of its gradient
    over text that the model was trained on, and ε the mean of these over its matrix: weights move, and are held, as
    training moved them.

    Args:
        model: the trained model, whose loss is the cross entropy it is given. Its weights change while it reads.
        known: text it was trained on.
        segment: how many words lie between two steps.
        tick: told how many more tokens have been read.
    """

    def __init__(
        self, model: Trainable[Any], known: NDArray[np.int32], segment: int, *, tick: Tick | None = None
    ) -> None:
        self.model = model
        self.segment = segment
        self.parameters = list(model.parameters())
        self.trained = [parameter.detach().clone() for parameter in self.parameters]
        vocabulary = len(model.vocabulary)
        self._objective = Objective(ObjectiveConfig(), vocabulary, torch.Generator(), keep=True)
        self._last: _Last | None = None
        squares = [torch.zeros_like(parameter) for parameter in self.trained]
        count = 0
        for part in self._read(known, tick):
            for square, gradient in zip(squares, part.gradients, strict=True):
                square.addcmul_(gradient, gradient)
            count += 1
        check(count > 0, "there is no text that the model was trained on; give at least a few hundred words")
        sizes = [square.div_(count).sqrt_() for square in squares]
        means = [float(size.mean()) for size in sizes]
        if not all(mean > 0 for mean in means):
            raise NumberError(
                "a weight has no gradient on the training text; the model cannot learn while reading"
            )
        self._scale = [1 / (size + FLOOR * mean) for size, mean in zip(sizes, means, strict=True)]
        self._hold = [size / mean for size, mean in zip(sizes, means, strict=True)]

    @contextmanager
    def restored(self) -> Generator[None, None, None]:
        """Give the trained weights back at the end of a block."""
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, trained in zip(self.parameters, self.trained, strict=True):
                    parameter.copy_(trained)

    def nats(self, ids: NDArray[np.int32], config: DynamicConfig, *, tick: Tick | None = None) -> float:
        """Return −ln p of a text read from its beginning, the model learning after each segment."""
        return -sum(
            float(scores_T.sum(dtype=np.float64)) for scores_T, _ in self.read(ids, config, tick=tick)
        )

    def read(
        self, ids: NDArray[np.int32], config: DynamicConfig, *, tick: Tick | None = None
    ) -> Iterator[tuple[Float[np.ndarray, " T"], Float[np.ndarray, "T M"]]]:
        """Read a text from its beginning, the model learning after each segment.

        Yields:
            ln p of each word of a segment, and the direction of the latent from which it was predicted.
        """
        hold = [(part * config.decay).clamp_(max=1.0) for part in self._hold]
        for part in self._read(ids, tick):
            yield part.scores_T.cpu().numpy(), part.vectors_TM.cpu().numpy()
            self._step(part.gradients, hold, config.rate)

    @torch.no_grad()
    def _step(self, gradients: list[Tensor], hold: list[Tensor], rate: float) -> None:
        """Move every weight back towards where training left it, and against its gradient."""
        held = zip(self.parameters, gradients, self.trained, self._scale, hold, strict=True)
        for parameter, gradient, trained, scale, back in held:
            parameter.lerp_(trained, back)
            parameter.addcmul_(gradient, scale, value=-rate)

    def _read(self, ids: NDArray[np.int32], tick: Tick | None) -> Iterator[_Segment]:
        """Yield what the model makes of each segment, before it has learnt from it."""
        model = self.model.eval()
        carried = model.begin(1)
        text = np.concatenate([[model.vocabulary.eos_id], ids]).astype(np.int64)
        for begin in range(0, len(ids), self.segment):
            part_T = torch.from_numpy(text[begin : begin + self.segment + 1]).to(self.trained[0].device)
            window = model.read_window(part_T[:-1, None], part_T[1:, None], carried, self._cross_entropy)
            carried = _detach(window.carried)
            last = self._last
            assert last is not None and self._objective.scores_N is not None  # noqa: S101, PT018
            wanted = [*self.parameters, last.output_VM]
            gradients: list[Any] = list(torch.autograd.grad(window.nats, wanted, allow_unused=True))
            by_output_VM, by_words_VM = gradients.pop(), gradients[last.place]
            # An output matrix of its own is known by its other name only.
            gradients[last.place] = by_output_VM if by_words_VM is None else by_output_VM.add_(by_words_VM)
            yield _Segment(self._objective.scores_N, last.vectors_NM, gradients)
            if tick is not None:
                tick(len(part_T) - 1)

    def _cross_entropy(
        self,
        latents_NKM: Float[Tensor, "N K M"],
        log_prior_NK: Float[Tensor, "N K"] | None,
        weight_VM: Float[Tensor, "V M"],
        bias_V: Float[Tensor, " V"],
        targets_N: Int[Tensor, " N"],
    ) -> Float[Tensor, ""]:
        """Return the cross entropy of a segment, and remember what it was made from.

        The output matrix is given another name here: as an embedding, the same matrix has a gradient for a few rows
        only, and autograd would copy the whole to add them.
        """
        output_VM = weight_VM.detach().requires_grad_()
        place = next(place for place, own in enumerate(self.parameters) if own is weight_VM)
        self._last = _Last(place, output_VM, direct(latents_NKM, log_prior_NK).detach())
        return self._objective.loss(latents_NKM, log_prior_NK, output_VM, bias_V, targets_N)


class _Segment(NamedTuple):
    """A few words as they were read."""

    scores_T: Tensor
    """ln p of each."""
    vectors_TM: Tensor
    """The direction of the latent from which each was predicted."""
    gradients: list[Tensor]
    """Of the mean of −ln p; they last until the next segment is read."""


class _Last(NamedTuple):
    """What the last cross entropy was made from."""

    place: int
    """Of the output matrix among the parameters."""
    output_VM: Tensor
    vectors_NM: Tensor


def _detach(carried: Carried) -> Carried:
    return tuple(tuple(tensor.detach() for tensor in cell) for cell in carried)
