"""The loss of a training step over its candidates, and all its gradients, in one pass over chunks of tokens.

The logits of a window are by far the largest array of a training step. They are formed in one buffer that is kept
from step to step (fresh memory costs as much as the product that fills it), turned into probabilities in place,
and used up for the gradients at once, so nothing of size tokens × vocabulary outlives the forward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tslm.devices import widest
from tslm.models.recurrent.kernel import Kernel, active
from tslm.models.recurrent.products import by_onednn, in_bfloat16, multiply

TINY = 1e-30
"""Probabilities below it are formed from logits: single precision ends soon after."""


@dataclass(frozen=True)
class Candidates:
    """The words that one step sums over. ``None`` for ``words_C`` means the whole vocabulary."""

    words_C: Tensor | None
    column_V: Tensor | None
    """The place of each word among the candidates, -1 for the others."""
    frequent: int
    log_weight_S: Tensor | None
    """ln of how many words each sampled one stands for: minus ln of its chance to be drawn."""


class Scratch:
    """Memory that is kept from step to step, and what the last step left in it.

    Args:
        keep: form the gradient by the output matrix in memory that is kept too: it lasts until the next loss.
    """

    def __init__(self, keep: bool = False) -> None:
        self.scores_N: Tensor | None = None
        self._keep = keep
        self._gradient_CM: Tensor | None = None
        self._buffers: dict[torch.dtype, Tensor] = {}

    def buffer(self, rows: int, columns: int, like: Tensor) -> Tensor:
        """Return a rows × columns scratch array, allocated once for each type of number and kept."""
        kept = self._buffers.get(like.dtype)
        if kept is None or kept.numel() < rows * columns or kept.device != like.device:
            kept = self._buffers[like.dtype] = like.new_empty(rows * columns)
        return kept[: rows * columns].view(rows, columns)

    def gradient(self, weight_CM: Tensor) -> Tensor:
        """Return memory for the gradient by the output matrix."""
        kept = self._gradient_CM
        if kept is None or kept.shape != weight_CM.shape or kept.device != weight_CM.device:
            kept = torch.empty_like(weight_CM)
        if self._keep:
            self._gradient_CM = kept
        return kept


class Rows(NamedTuple):
    """What the softmaxes of a chunk are taken of, a row for each token and expert (n of them)."""

    factor_nM: Tensor
    """The latents as they are multiplied: in bfloat16 where training asks for it."""
    factor_CM: Tensor
    """The candidates' vectors, likewise."""
    offset_C: Tensor
    target_n: Tensor
    """The target's own logit, exact."""
    column_n: Tensor
    """Where the target stands among the candidates, too, and must not be counted again; -1 for nowhere."""


class PlainSoftmax:
    """The softmaxes of a chunk: first what the targets have, then the gradient by the candidates' logits.

    By PyTorch's operations, in one array of a column more than candidates: the target's own logit.
    """

    def __init__(self, rows: Rows, scratch: Scratch) -> None:
        n, C = len(rows.target_n), len(rows.offset_C)
        logits_nC = scratch.buffer(n, C + 1, rows.target_n)
        self._low_nC: Tensor | None = None
        if rows.factor_nM.dtype != rows.target_n.dtype:
            self._low_nC = scratch.buffer(n, C, rows.factor_nM)
            torch.mm(rows.factor_nM, rows.factor_CM.t(), out=self._low_nC)
            torch.add(self._low_nC, rows.offset_C, out=logits_nC[:, :C])
        elif by_onednn(rows.factor_nM):
            torch.add(multiply(rows.factor_nM, rows.factor_CM), rows.offset_C, out=logits_nC[:, :C])
        else:
            torch.addmm(rows.offset_C, rows.factor_nM, rows.factor_CM.t(), out=logits_nC[:, :C])
        logits_nC[:, C] = rows.target_n
        present = (rows.column_n >= 0).nonzero().squeeze(1)
        logits_nC[present, rows.column_n[present]] = -math.inf
        torch.softmax(logits_nC, dim=1, out=logits_nC)
        self.probability_n = logits_nC[:, C].clone()
        self.log_n = self.probability_n.log()
        tiny = (self.probability_n < TINY).nonzero().squeeze(1)
        if len(tiny):
            # Too small for its logarithm: go back from the row's largest probability to its partition function.
            largest, column = logits_nC[tiny].max(1)
            logit = (rows.factor_nM[tiny] * rows.factor_CM[column]).sum(1) + rows.offset_C[column]
            self.log_n[tiny] = rows.target_n[tiny] - logit + largest.log()
        self._gradient_nC = logits_nC[:, :C]

    def spread(self, scale_n: Tensor | None, total_C: Tensor) -> Tensor:
        """Return scale · p of every candidate, as it is multiplied next; add the sums over the rows to ``total_C``."""
        if scale_n is not None:
            self._gradient_nC *= scale_n.unsqueeze(1)
        total_C += self._gradient_nC.sum(0)
        return self._gradient_nC if self._low_nC is None else self._low_nC.copy_(self._gradient_nC)


class CompiledSoftmax:
    """The same by the kernel, but for rounding: two passes over each row and no other array."""

    def __init__(self, rows: Rows, scratch: Scratch, kernel: Kernel) -> None:
        self._rows, self._kernel = rows, kernel
        n, C = len(rows.target_n), len(rows.offset_C)
        self._sizes = (1, n, C)
        memory_nC = scratch.buffer(n, C, rows.factor_nM)
        self._logits_nC = multiply(rows.factor_nM, rows.factor_CM, memory_NR=memory_nC)
        self._log_sum_n = torch.empty_like(rows.target_n)
        kernel.run(
            "partition",
            self._sizes,
            self._logits_nC,
            rows.offset_C,
            rows.target_n,
            rows.column_n,
            self._log_sum_n,
        )
        self.log_n = rows.target_n - self._log_sum_n
        self.probability_n = self.log_n.exp()

    def spread(self, scale_n: Tensor | None, total_C: Tensor) -> Tensor:
        """Return scale · p of every candidate, in the place of the logits; add the sums to ``total_C``."""
        scale_n = torch.ones_like(self._log_sum_n) if scale_n is None else scale_n.contiguous()
        self._kernel.run(
            "spread",
            self._sizes,
            self._logits_nC,
            self._rows.offset_C,
            self._log_sum_n,
            scale_n,
            self._rows.column_n,
            total_C,
        )
        return self._logits_nC


def take_softmax(rows: Rows, scratch: Scratch) -> PlainSoftmax | CompiledSoftmax:
    """Return the softmaxes of a chunk, by the kernel where it is in use."""
    kernel = active()
    if kernel is not None and kernel.takes(rows.target_n, rows.offset_C):
        return CompiledSoftmax(rows, scratch, kernel)
    return PlainSoftmax(rows, scratch)


class CandidateCrossEntropy(torch.autograd.Function):
    """The loss and all its gradients."""

    chunk_rows = 256
    """Tokens × experts per chunk: enough to keep the matrix products at their peak, little enough for the caches."""

    low_logits = 3_000_000
    """In bfloat16 a chunk may have more rows, up to this many logits: each has conversions and sums of its own."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        latents_NKM: Tensor,
        log_prior_NK: Tensor,
        weight_VM: Tensor,
        bias_V: Tensor,
        counted_N2: Tensor | None,
        targets_N: Tensor,
        counts: float,
        candidates: Candidates,
        scratch: Scratch,
    ) -> Tensor:
        """Return the loss; its gradients are kept for ``backward``."""
        N, K, M = latents_NKM.shape
        words_C = candidates.words_C
        if words_C is None:
            weight_CM, offset_C, columns_N = weight_VM, bias_V, targets_N
        else:
            assert candidates.column_V is not None and candidates.log_weight_S is not None  # noqa: S101, PT018
            weight_CM, offset_C = weight_VM.index_select(0, words_C), bias_V[words_C]
            offset_C[candidates.frequent :] += candidates.log_weight_S.to(offset_C.dtype)
            columns_N = candidates.column_V[targets_N]
        C = weight_CM.shape[0]
        target_weight_NM, target_bias_N = weight_VM.index_select(0, targets_N), bias_V[targets_N]
        latents_gradient_NKM = torch.empty_like(latents_NKM)
        posterior_NK = torch.empty_like(log_prior_NK)
        offset_gradient_C = torch.zeros_like(offset_C)
        target_weight_gradient_NM = torch.empty_like(target_weight_NM)
        target_bias_gradient_N = torch.empty_like(target_bias_N)
        scores_N = scratch.scores_N = torch.empty_like(target_bias_N)
        # What is multiplied; the same arrays again unless training asks for products in bfloat16.
        factor_dtype = torch.bfloat16 if in_bfloat16(latents_NKM) else latents_NKM.dtype
        low = factor_dtype != latents_NKM.dtype
        quick = by_onednn(latents_NKM)
        factor_CM, factor_NKM = weight_CM.to(factor_dtype), latents_NKM.to(factor_dtype)
        # Filled by the first chunk, where there is one: a process may have nothing but padding in its last window.
        weight_gradient_CM = (
            scratch.gradient(weight_CM) if N and not (low or quick) else torch.zeros_like(weight_CM)
        )
        wide = widest(latents_NKM.device)
        total = latents_NKM.new_zeros((), dtype=wide)
        counted_gradient_N2 = latents_NKM.new_empty(0) if counted_N2 is None else torch.empty_like(counted_N2)
        chunk_rows = CandidateCrossEntropy.chunk_rows
        if low:
            chunk_rows = max(chunk_rows, CandidateCrossEntropy.low_logits // C)
        step = max(1, chunk_rows // K)
        share = 1 / max(N, 1)
        for begin in range(0, N, step):
            part = slice(begin, min(begin + step, N))
            latents_nKM, weight_nM = latents_NKM[part], target_weight_NM[part]
            n = latents_nKM.shape[0]
            factor_nM = factor_NKM[part].reshape(n * K, M)
            # Not vecdot, which training in bfloat16 would lower: the target's logit is exact.
            target_nK = (latents_nKM * weight_nM.unsqueeze(1)).sum(-1)
            target_nK += target_bias_N[part].unsqueeze(1)
            column_n = columns_N[part].repeat_interleave(K)
            softmax = take_softmax(
                Rows(factor_nM, factor_CM, offset_C, target_nK.view(-1), column_n), scratch
            )
            joint_nK = log_prior_NK[part] + softmax.log_n.view(n, K)
            log_likelihood_n = joint_nK.logsumexp(1)
            posterior_nK = (joint_nK - log_likelihood_n.unsqueeze(1)).exp()
            if counted_N2 is not None:
                log_likelihood_n, own_n = _beside(
                    log_likelihood_n, counted_N2[part], counts, counted_gradient_N2[part]
                )
                posterior_nK *= own_n.unsqueeze(1)
            total -= log_likelihood_n.sum(dtype=wide)
            scores_N[part] = log_likelihood_n
            posterior_NK[part] = posterior_nK
            # One expert alone has all of the posterior.
            scale_n = posterior_nK.view(-1) if K > 1 or counted_N2 is not None else None
            gradient_nC = softmax.spread(scale_n, offset_gradient_C)
            pull_nK1 = (posterior_nK * (softmax.probability_n.view(n, K) - 1)).unsqueeze(-1)
            latents_gradient_nKM = latents_gradient_NKM[part]
            if low or quick:
                latents_gradient_nKM.copy_(multiply(gradient_nC, factor_CM.t()).view(n, K, M))
                weight_gradient_CM.add_(multiply(gradient_nC.t(), factor_nM.t()), alpha=share)
            else:
                torch.mm(gradient_nC, factor_CM, out=latents_gradient_nKM.view(n * K, M))
                weight_gradient_CM.addmm_(gradient_nC.t(), factor_nM, beta=float(begin > 0), alpha=share)
            latents_gradient_nKM.addcmul_(pull_nK1, weight_nM.unsqueeze(1))
            torch.sum(pull_nK1 * latents_nKM, 1, out=target_weight_gradient_NM[part])
            target_bias_gradient_N[part] = pull_nK1.sum((1, 2))
        offset_gradient_C *= share
        target_weight_gradient_NM.mul_(share)
        if words_C is None:
            bias_gradient_V = offset_gradient_C
            weight_gradient_VM = weight_gradient_CM.index_add_(0, targets_N, target_weight_gradient_NM)
        else:
            bias_gradient_V = torch.zeros_like(bias_V).index_copy_(0, words_C, offset_gradient_C)
            weight_gradient_VM = _rows(
                torch.cat([words_C, targets_N]),
                torch.cat([weight_gradient_CM, target_weight_gradient_NM]),
                weight_VM,
            )
        bias_gradient_V.index_add_(0, targets_N, target_bias_gradient_N, alpha=share)
        # Not save_for_backward: what is handed out must have no second owner, so that autograd may add to it in place.
        ctx.gradients = (
            latents_gradient_NKM.mul_(share),
            posterior_NK.mul_(-share),
            weight_gradient_VM,
            bias_gradient_V,
            None if counted_N2 is None else counted_gradient_N2.mul_(share),
        )
        return (total * share).to(latents_NKM.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients, scaled."""
        made: tuple[Tensor | None, ...] = ctx.gradients
        del ctx.gradients
        scale = float(gradients[0])
        if scale != 1:
            for gradient in made:
                if gradient is not None:
                    gradient.mul_(scale)
        return (*made, None, None, None, None)


def _beside(log_n: Tensor, counted_n2: Tensor, share: float, gradient_n2: Tensor) -> tuple[Tensor, Tensor]:
    """Return ln p of words beside counts, and its derivative by ln p of the model alone; fill in that by the rest."""
    counts_n, trust_n = counted_n2.unbind(1)
    mixed_n = torch.logaddexp(counts_n, trust_n + log_n)
    own_n = (trust_n + log_n - mixed_n).exp()
    gradient_n2[:, 0] = share * (own_n - 1)
    gradient_n2[:, 1] = -share * own_n
    return log_n.lerp(mixed_n, share), 1 - share + share * own_n


def _rows(words_n: Tensor, gradient_nM: Tensor, weight_VM: Tensor) -> Tensor:
    """Return a gradient that is zero but for some words, which may come twice."""
    if weight_VM.device.type != "cpu":
        return torch.zeros_like(weight_VM).index_add_(0, words_n, gradient_nM)
    # Fresh memory for a large vocabulary would cost more than all that is added to it.
    return torch.sparse_coo_tensor(words_n.unsqueeze(0), gradient_nM, weight_VM.shape, check_invariants=False)
