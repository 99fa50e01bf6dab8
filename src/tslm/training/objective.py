"""What training minimises: the exact cross entropy, or an estimate of it from a part of the vocabulary.

Both are the same computation over a list of *candidate* words. With all words as candidates the partition function is
exact. With the most frequent words plus a weighted uniform sample of the others it is an estimate, at the price of the
candidates alone. In both, the target's own term is exact and is never counted twice.

The loss of a step and its gradients are formed by :mod:`tslm.training.cross_entropy`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.devices import widest
from tslm.training.config import ObjectiveConfig
from tslm.training.cross_entropy import CandidateCrossEntropy, Candidates, Scratch


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
        self._scratch = Scratch(keep)
        self._counts_V = counts_V
        self._whole = config.sampled == 0 or config.frequent + config.sampled >= vocabulary
        if not self._whole:
            counts_V = torch.zeros(vocabulary, dtype=torch.int64) if counts_V is None else counts_V
            self._chance_V = draw_chances(counts_V[config.frequent :], config.sampled, config.power)

    @property
    def estimates(self) -> bool:
        """Whether it sums over a part of the vocabulary."""
        return not self._whole

    def begun_anew(self, seed: int) -> Objective:
        """Return one that draws as this one does, from a generator of its own."""
        return Objective(self.config, self.vocabulary, torch.Generator().manual_seed(seed), self._counts_V)

    @property
    def scores_N(self) -> Float[Tensor, " N"] | None:
        """Ln p of each target of the last loss."""
        return self._scratch.scores_N

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
        loss: Tensor = CandidateCrossEntropy.apply(  # pyright: ignore[reportAssignmentType]
            latents_NKM,
            log_prior_NK,
            weight_VM,
            bias_V,
            counted_N2,
            targets_N,
            self.config.counts,
            self.draw(latents_NKM.device),
            self._scratch,
        )
        return loss


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
