"""What training minimises: the exact cross entropy, or an estimate of it from a part of the vocabulary.

Both are the same computation over a list of *candidate* words. With all words as candidates the partition function is
exact. With the most frequent words plus a weighted uniform sample of the others it is an estimate, at the price of the
candidates alone. In both, the target's own term is exact and is never counted twice.

The logits of a window are by far the largest array of a training step. They are formed in one buffer that is kept
from step to step (fresh memory costs as much as the product that fills it), turned into probabilities in place,
and used up for the gradients at once, so nothing of size tokens × vocabulary outlives the forward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.devices import widest
from tslm.models.recurrent.products import in_bfloat16
from tslm.training.config import ObjectiveConfig

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


class Objective:
    """Mean negative log-likelihood of the targets, with its gradients, from a kept buffer."""

    def __init__(
        self,
        config: ObjectiveConfig,
        vocabulary: int,
        generator: torch.Generator,
        counts_V: Int[Tensor, " V"] | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """Prepare the draws.

        Args:
            config: how many candidates, and which.
            vocabulary: V.
            generator: of the draws.
            counts_V: how often each word occurs, the most frequent first; all alike when left out.
            keep: form the gradient by the output matrix in memory that is kept too: it lasts until the next loss.
        """
        self.config = config
        self.vocabulary = vocabulary
        self.generator = generator
        self.scores_N: Tensor | None = None
        """ln p of each target of the last loss."""
        self._keep = keep
        self._gradient_CM: Tensor | None = None
        self._buffers: dict[torch.dtype, Tensor] = {}
        self._whole = config.sampled == 0 or config.frequent + config.sampled >= vocabulary
        if not self._whole:
            counts_V = torch.zeros(vocabulary, dtype=torch.int64) if counts_V is None else counts_V
            self._chance_V = draw_chances(counts_V[config.frequent :], config.sampled, config.power)

    def draw(self, device: torch.device | None = None) -> Candidates:
        """Return the candidates of the next step, drawn on the CPU: the same words whatever the device."""
        device = device or torch.device("cpu")
        frequent, sampled = self.config.frequent, self.config.sampled
        if self._whole:
            return Candidates(None, None, self.vocabulary, None)
        if self.config.power > 0:
            rare_S = draw_systematically(self._chance_V, self.generator)
        else:
            # As ever: runs that began before there was a power go on bit for bit.
            rare_S = torch.randperm(len(self._chance_V), generator=self.generator)[:sampled]
        words_C = torch.cat([torch.arange(frequent), rare_S + frequent])
        column_V = torch.full((self.vocabulary,), -1)
        column_V[words_C] = torch.arange(len(words_C))
        log_weight_S = -self._chance_V[rare_S].log()
        return Candidates(
            words_C.to(device), column_V.to(device), frequent, log_weight_S.to(device, dtype=widest(device))
        )

    def loss(
        self,
        latents_NKM: Float[Tensor, "N K M"],
        log_prior_NK: Float[Tensor, "N K"] | None,
        weight_VM: Float[Tensor, "V M"],
        bias_V: Float[Tensor, " V"],
        targets_N: Int[Tensor, " N"],
        counted_N2: Float[Tensor, "N 2"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the mean of −ln Σ_k π_k softmax(V z_k + b)[target] over the targets (those below 0 are left out).

        Beside counts, a share of the loss (``objective.counts``) is the mean of −ln (λ p_counts + (1 − λ) p) instead;
        ``counted_N2`` has ln λ p_counts and ln (1 − λ) of each target.
        """
        count = int((targets_N >= 0).sum())
        if count < len(targets_N):
            keep = targets_N >= 0
            latents_NKM, targets_N = latents_NKM[keep], targets_N[keep]
            log_prior_NK = log_prior_NK[keep] if log_prior_NK is not None else None
            counted_N2 = counted_N2[keep] if counted_N2 is not None else None
        if log_prior_NK is None:
            log_prior_NK = latents_NKM.new_zeros(latents_NKM.shape[:2])
        loss: Tensor = _CandidateCrossEntropy.apply(  # pyright: ignore[reportAssignmentType]
            latents_NKM,
            log_prior_NK,
            weight_VM,
            bias_V,
            counted_N2,
            targets_N,
            self.draw(latents_NKM.device),
            self,
        )
        return loss

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


def draw_chances(counts_V: Int[Tensor, " V"], number: int, power: float) -> Float[Tensor, " V"]:
    """Return each word's chance to be among ``number`` draws: ∝ (count + 1)^power, but at most 1."""
    wanted_V = (counts_V.double() + 1) ** power
    certain_V = torch.zeros_like(wanted_V, dtype=torch.bool)
    while True:
        left = number - int(certain_V.sum())
        chance_V = torch.where(certain_V, 1.0, wanted_V * left / wanted_V[~certain_V].sum())
        if not bool((chance_V > 1).any()):
            return chance_V
        certain_V |= chance_V > 1


def draw_systematically(chance_V: Float[Tensor, " V"], generator: torch.Generator) -> Int[Tensor, " S"]:
    """Return different words, each with its own chance: where equal steps from a random start fall along them."""
    edges_V = chance_V.cumsum(0)
    number = round(float(edges_V[-1]))
    start = torch.rand((), generator=generator, dtype=torch.float64)
    places_S = torch.searchsorted(edges_V, torch.arange(number) + start, right=True)
    return places_S.clamp_(max=len(chance_V) - 1)


class _CandidateCrossEntropy(torch.autograd.Function):
    """The loss and all its gradients in one pass over chunks of tokens."""

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
        candidates: Candidates,
        objective: Objective,
    ) -> Tensor:
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
        scores_N = objective.scores_N = torch.empty_like(target_bias_N)
        # What is multiplied; the same arrays again unless training asks for products in bfloat16.
        factor_dtype = torch.bfloat16 if in_bfloat16(latents_NKM) else latents_NKM.dtype
        low = factor_dtype != latents_NKM.dtype
        factor_CM, factor_NKM = weight_CM.to(factor_dtype), latents_NKM.to(factor_dtype)
        # Filled by the first chunk, where there is one: a process may have nothing but padding in its last window.
        weight_gradient_CM = objective.gradient(weight_CM) if N and not low else torch.zeros_like(weight_CM)
        wide = widest(latents_NKM.device)
        total = latents_NKM.new_zeros((), dtype=wide)
        counted = objective.config.counts
        counted_gradient_N2 = latents_NKM.new_empty(0) if counted_N2 is None else torch.empty_like(counted_N2)
        chunk_rows = _CandidateCrossEntropy.chunk_rows
        if low:
            chunk_rows = max(chunk_rows, _CandidateCrossEntropy.low_logits // C)
        step = max(1, chunk_rows // K)
        share = 1 / max(N, 1)
        for begin in range(0, N, step):
            part = slice(begin, min(begin + step, N))
            latents_nKM, weight_nM = latents_NKM[part], target_weight_NM[part]
            n = latents_nKM.shape[0]
            latents_nM, factor_nM = latents_nKM.reshape(n * K, M), factor_NKM[part].reshape(n * K, M)
            # One column more than candidates: the target's own logit, exact.
            logits_nC = objective.buffer(n * K, C + 1, latents_NKM)
            if low:
                factor_nC = objective.buffer(n * K, C, factor_CM)
                torch.mm(factor_nM, factor_CM.t(), out=factor_nC)
                torch.add(factor_nC, offset_C, out=logits_nC[:, :C])
            else:
                factor_nC = logits_nC[:, :C]
                torch.addmm(offset_C, factor_nM, factor_CM.t(), out=factor_nC)
            target_nK = torch.linalg.vecdot(latents_nKM, weight_nM.unsqueeze(1))
            target_nK += target_bias_N[part].unsqueeze(1)
            logits_nC[:, C] = target_nK.view(-1)
            present = (columns_N[part] >= 0).nonzero().squeeze(1)
            rows = (present.unsqueeze(1) * K + torch.arange(K, device=present.device)).view(-1)
            logits_nC[rows, columns_N[part][present].repeat_interleave(K)] = -math.inf
            torch.softmax(logits_nC, dim=1, out=logits_nC)
            probability_nK = logits_nC[:, C].clone().view(n, K)
            log_nK = probability_nK.log()
            tiny = (probability_nK < TINY).view(-1).nonzero().squeeze(1)
            if len(tiny):
                # Too small for its logarithm: go back from the row's largest probability to its partition function.
                largest, column = logits_nC[tiny].max(1)
                logit = (latents_nM[tiny] * weight_CM[column]).sum(1) + offset_C[column]
                log_nK.view(-1)[tiny] = target_nK.view(-1)[tiny] - logit + largest.log()
            joint_nK = log_prior_NK[part] + log_nK
            log_likelihood_n = joint_nK.logsumexp(1)
            posterior_nK = (joint_nK - log_likelihood_n.unsqueeze(1)).exp()
            if counted_N2 is not None:
                log_likelihood_n, own_n = _beside(
                    log_likelihood_n, counted_N2[part], counted, counted_gradient_N2[part]
                )
                posterior_nK *= own_n.unsqueeze(1)
            total -= log_likelihood_n.sum(dtype=wide)
            scores_N[part] = log_likelihood_n
            posterior_NK[part] = posterior_nK
            if K > 1 or counted_N2 is not None:
                logits_nC *= posterior_nK.view(-1, 1)
            gradient_nC = logits_nC[:, :C]
            pull_nK1 = (posterior_nK * (probability_nK - 1)).unsqueeze(-1)
            latents_gradient_nKM = latents_gradient_NKM[part]
            if low:
                factor_nC.copy_(gradient_nC)
                latents_gradient_nKM.copy_((factor_nC @ factor_CM).view(n, K, M))
                weight_gradient_CM.add_(factor_nC.t() @ factor_nM, alpha=share)
            else:
                torch.mm(gradient_nC, weight_CM, out=latents_gradient_nKM.view(n * K, M))
                weight_gradient_CM.addmm_(gradient_nC.t(), latents_nM, beta=float(begin > 0), alpha=share)
            latents_gradient_nKM.addcmul_(pull_nK1, weight_nM.unsqueeze(1))
            offset_gradient_C += gradient_nC.sum(0)
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
        made: tuple[Tensor | None, ...] = ctx.gradients
        del ctx.gradients
        scale = float(gradients[0])
        if scale != 1:
            for gradient in made:
                if gradient is not None:
                    gradient.mul_(scale)
        return (*made, None, None, None)


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
