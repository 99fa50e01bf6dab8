"""What moves the weights: AdamW, with second moments of numbers or of words, and plain SGD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tslm.training.config import TrainConfig


def make_optimiser(
    config: TrainConfig, model: nn.Module, word_vectors: Sequence[Tensor] = ()
) -> torch.optim.Optimizer:
    """Return AdamW or plain SGD over a model's parameters, decaying matrices but no vectors, not those of words either.

    Args:
        config: which, and its settings.
        model: what is trained.
        word_vectors: those of its matrices that have a row for each word.
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
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
        {"params": words, "weight_decay": 0.0, "rows": by_words, "adaptation": config.adaptation},
    ]
    for group in groups:
        group["share"] = config.word_rate if group["params"] is words else 1.0
    if config.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=config.learning_rate)
    kind = WordAdamW if by_words else torch.optim.AdamW
    return kind(groups, lr=config.learning_rate, betas=(0.9, config.beta2), fused=True)


class WordAdamW(torch.optim.AdamW):
    """AdamW with one second moment for each row of the matrices in groups marked ``rows``.

    A rare word has a gradient once in thousands of steps. With a second moment for each number, AdamW then takes nearly
    the sign of every one of them, the smallest noise as far as what matters; with one for the whole row, the mean of
    the squares, the word moves along its gradient. It still moves as far as a frequent word, each time it is seen much
    further: with an ``adaptation`` of p the moment is that of the word to the power p times the mean over all words to
    the power 1 − p, so that at 0 all words move as under SGD.
    """

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
        gradient_VM, (beta1, beta2), rate = matrix_VM.grad, group["betas"], group["lr"]
        if gradient_VM is None:
            return
        state = self.state[matrix_VM]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(matrix_VM)
            state["exp_avg_sq"] = matrix_VM.new_zeros(len(matrix_VM), 1)
        state["step"] += 1
        steps, mean_VM, square_V1 = int(state["step"]), state["exp_avg"], state["exp_avg_sq"]
        norm_V1 = torch.linalg.vector_norm(gradient_VM, dim=1, keepdim=True)
        square_V1.lerp_(norm_V1.square_().div_(matrix_VM.shape[1]), 1 - beta2)
        mean_VM.lerp_(gradient_VM, 1 - beta1)
        now_V1 = square_V1 / (1 - beta2**steps)
        if (own := group["adaptation"]) < 1:
            now_V1 = now_V1**own * now_V1.mean() ** (1 - own)
        size_V1 = now_V1.sqrt_().add_(group["eps"])
        matrix_VM.addcdiv_(mean_VM, size_V1, value=-rate / (1 - beta1**steps))
