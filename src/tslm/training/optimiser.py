"""What moves the weights: AdamW, with second moments of numbers or of words, and plain SGD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tslm.training.config import TrainConfig
from tslm.training.spelling import Spelling


def make_optimiser(
    config: TrainConfig,
    model: nn.Module,
    word_vectors: Sequence[Tensor] = (),
    spelling: Spelling | None = None,
) -> torch.optim.Optimizer:
    """Return AdamW or plain SGD over a model's parameters, decaying matrices but no vectors, not those of words either.

    Args:
        config: which, and its settings.
        model: what is trained.
        word_vectors: those of its matrices that have a row for each word.
        spelling: what words share, where ``config.spelling`` asks for it.
    """
    by_words = config.moments == "words"
    # Apart only where it matters: the moments of a run that was broken off stand in the order of the groups.
    apart = by_words or config.weight_decay > 0 or config.word_rate != 1
    rows = {id(matrix) for matrix in word_vectors} if apart else set[int]()
    parameters = list(model.parameters())
    matrices = [parameter for parameter in parameters if parameter.dim() >= 2 and id(parameter) not in rows]
    vectors = [parameter for parameter in parameters if parameter.dim() < 2]
    words = [parameter for parameter in parameters if id(parameter) in rows]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": config.weight_decay, "share": 1.0},
        {"params": vectors, "weight_decay": 0.0, "share": 1.0},
        {"params": words, "weight_decay": 0.0, "share": config.word_rate}
        | {"rows": by_words, "adaptation": config.adaptation},
    ]
    settings: dict[str, Any] = {"lr": config.learning_rate, "betas": (0.9, config.beta2), "fused": True}
    if config.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=config.learning_rate)
    if not by_words:
        return torch.optim.AdamW(groups, **settings)
    optimiser = WordAdamW(groups, **settings)
    optimiser.spelling, optimiser.spelling_rate = spelling, config.spelling
    return optimiser


class WordAdamW(torch.optim.AdamW):
    """AdamW with one second moment for each row of the matrices in groups marked ``rows``.

    A rare word has a gradient once in thousands of steps. With a second moment for each number, AdamW then takes nearly
    the sign of every one of them, the smallest noise as far as what matters; with one for the whole row, the mean of
    the squares, the word moves along its gradient. It still moves as far as a frequent word, each time it is seen much
    further: with an ``adaptation`` of p the moment is that of the word to the power p times the mean over all words to
    the power 1 − p, so that at 0 all words move as under SGD.

    With a ``spelling`` S, words move as if each vector were one of its own plus a sum of vectors of its parts,
    E = own + S C, and each row of own and of C had its moments. Only the sum E is kept: it is all that a model knows.
    """

    spelling: Spelling | None = None
    spelling_rate: float = 0.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step."""
        marked = [group for group in self.param_groups if group.get("rows")]
        for group in marked:
            for matrix in group["params"]:
                self._move_rows(matrix, group)
        # Without a gradient a parameter is passed over.
        gradients = [[matrix.grad for matrix in group["params"]] for group in marked]
        for group in marked:
            for matrix in group["params"]:
                matrix.grad = None
        loss = super().step(closure)
        for group, kept in zip(marked, gradients, strict=True):
            for matrix, gradient in zip(group["params"], kept, strict=True):
                matrix.grad = gradient
        return loss

    def _move_rows(self, matrix_VM: Tensor, group: dict[str, Any]) -> None:
        gradient_VM, rate = matrix_VM.grad, group["lr"]
        if gradient_VM is None:
            return
        state = self.state[matrix_VM]
        state["step"] = state.get("step", torch.zeros(())) + 1
        moved_VM = self._direct(state, "exp_avg", gradient_VM, group, group["adaptation"])
        matrix_VM.add_(moved_VM, alpha=-rate)
        if self.spelling is not None:
            moved_CM = self._direct(state, "shared_avg", self.spelling.gather(gradient_VM), group, 1.0)
            matrix_VM.add_(self.spelling.spread(moved_CM), alpha=-rate * self.spelling_rate)

    def _direct(
        self, state: dict[str, Tensor], name: str, gradient_NM: Tensor, group: dict[str, Any], own: float
    ) -> Tensor:
        """Return where each row goes in a step of rate 1: the mean of its gradients over their root mean square."""
        (beta1, beta2), step = group["betas"], int(state["step"])
        if name not in state:
            state[name] = torch.zeros_like(gradient_NM)
            state[f"{name}_sq"] = gradient_NM.new_zeros(len(gradient_NM), 1)
        mean_NM, square_N1 = state[name], state[f"{name}_sq"]
        norm_N1 = torch.linalg.vector_norm(gradient_NM, dim=1, keepdim=True)
        square_N1.lerp_(norm_N1.square_().div_(gradient_NM.shape[1]), 1 - beta2)
        mean_NM.lerp_(gradient_NM, 1 - beta1)
        now_N1 = square_N1 / (1 - beta2**step)
        if own < 1:
            now_N1 = now_N1**own * now_N1.mean() ** (1 - own)
        return mean_NM / now_N1.sqrt_().add_(group["eps"]).mul_(1 - beta1**step)
