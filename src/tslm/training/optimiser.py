"""What moves the weights: AdamW, with second moments of numbers or of words, and plain SGD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tslm.models.recurrent.kernel import Kernel, active
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
        _prepare(state, "exp_avg", len(matrix_VM), matrix_VM)
        if self.spelling is not None:
            _prepare(state, "shared_avg", self.spelling.parts, matrix_VM)
        kernel = active()
        whole = gradient_VM.is_contiguous() and matrix_VM.is_contiguous()
        if kernel is not None and whole and kernel.takes(matrix_VM, gradient_VM):
            self._move_by_kernel(kernel, matrix_VM, gradient_VM, group, state)
            return
        _follow(state, "exp_avg", gradient_VM, group)
        step_V1 = _step_sizes(state, "exp_avg", group, group["adaptation"])
        matrix_VM.addcmul_(state["exp_avg"], step_V1, value=-rate)
        if self.spelling is not None:
            _follow(state, "shared_avg", self.spelling.gather(gradient_VM), group)
            moved_CM = state["shared_avg"] * _step_sizes(state, "shared_avg", group, 1.0)
            matrix_VM.add_(self.spelling.spread(moved_CM), alpha=-rate * self.spelling_rate)

    def _move_by_kernel(
        self,
        kernel: Kernel,
        matrix_VM: Tensor,
        gradient_VM: Tensor,
        group: dict[str, Any],
        state: dict[str, Tensor],
    ) -> None:
        """Do the same, passing twice over the matrix, and over those rows of its gradient that are not zero."""
        (V, M), rate, spelling = matrix_VM.shape, group["lr"], self.spelling
        sizes_V, shares = matrix_VM.new_empty(V), matrix_VM.new_tensor([1 - beta for beta in group["betas"]])
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        kernel.run("row_moments", (1, V, M), gradient_VM, sizes_V, None, None, None, shares, mean, square)
        step_V1 = rate * _step_sizes(state, "exp_avg", group, group["adaptation"])
        shared: tuple[Tensor | None, ...] = (None,) * 5
        if spelling is not None:
            words, parts, C = spelling.by_part, spelling.by_word, spelling.parts
            bags = (words.starts, words.rows_E, words.weight_E(matrix_VM))
            moments = (state["shared_avg"], state["shared_avg_sq"])
            kernel.run("row_moments", (1, C, M), gradient_VM, sizes_V, *bags, shares, *moments)
            step_C1 = rate * self.spelling_rate * _step_sizes(state, "shared_avg", group, 1.0)
            shared = (parts.starts, parts.rows_E, parts.weight_E(matrix_VM), state["shared_avg"], step_C1)
        kernel.run("row_move", (1, V, M), mean, step_V1, *shared, matrix_VM)


def _prepare(state: dict[str, Tensor], name: str, rows: int, like_VM: Tensor) -> None:
    if name not in state:
        state[name] = like_VM.new_zeros(rows, like_VM.shape[1])
        state[f"{name}_sq"] = like_VM.new_zeros(rows, 1)


def _follow(state: dict[str, Tensor], name: str, gradient_NM: Tensor, group: dict[str, Any]) -> None:
    """Bring the mean of each row's gradients up to date, and that of its mean squares."""
    beta1, beta2 = group["betas"]
    norm_N1 = torch.linalg.vector_norm(gradient_NM, dim=1, keepdim=True)
    state[f"{name}_sq"].lerp_(norm_N1.square_().div_(gradient_NM.shape[1]), 1 - beta2)
    state[name].lerp_(gradient_NM, 1 - beta1)


def _step_sizes(state: dict[str, Tensor], name: str, group: dict[str, Any], own: float) -> Tensor:
    """Return what a step of rate 1 multiplies each row's mean by: 1 over the root mean square, both corrected."""
    (beta1, beta2), step = group["betas"], int(state["step"])
    now_N1 = state[f"{name}_sq"] / (1 - beta2**step)
    if own < 1:
        now_N1 = now_N1**own * now_N1.mean() ** (1 - own)
    return now_N1.sqrt_().add_(group["eps"]).mul_(1 - beta1**step).reciprocal_()
