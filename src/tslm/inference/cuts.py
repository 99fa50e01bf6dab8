"""How much a sentence's two halves have to say to each other: the effective rank across each cut of the chain.

A chain of one layer has logits y = V h_T + bias with h_t = A(x_t) h_{t−1} + c(x_t). Cut behind word t, the logits of
*all* sentences of length T are a matrix

    Y[(x₁…x_t), (x_{t+1}…x_T, y)] = right(x_{t+1}…x_T, y) · left(x₁…x_t)

of rank at most R + 1. To ask about one sentence, rows and columns are weighted by the root of the probability of their
words when every word of the sentence is kept with probability ½ and otherwise replaced by any word, all equally likely;
and the mean row is taken off, for what does not depend on the words before the cut is nothing they have to say. The
effective rank is exp of the entropy of this matrix's squared singular values, as shares of their sum.

There are |V|ᵗ rows, but none is ever formed: the singular values need only the covariance of the states on the left and
the R × R Gram matrix of the right, and both follow a recursion. With A = D(a) + D(m) W the mean of A G Aᵀ over words
is made of products like G ⊙ E[a aᵀ]. A gate on the other side of W too, A = D(a) + D(m) W D(k), joins every row with
every column of W: then A itself is averaged, over words spread evenly over the vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

KEPT = 0.5
"""The probability that a word stays as it is."""

SPREAD = 32
"""Words that stand for all others where whole matrices are averaged; each costs four products of matrices per cut."""

Spread = tuple[Tensor, Tensor, Tensor]
"""Covariance and mean of the state, and the constant 1, all divided by one scale."""


class Step(ABC):
    """What a random word in one place does to the states before it, and to what is seen of those behind it."""

    @abstractmethod
    def push(self, left: Spread) -> Spread:
        """Return the spread of the states behind the word."""

    @abstractmethod
    def pull(self, right_RR: Float[Tensor, "R R"]) -> Float[Tensor, "R R"]:
        """Return E[Aᵀ G A]: what is seen of the states before the word."""


@dataclass(frozen=True)
class Parts:
    """What words bring, one row each: A = D(hold) + D(mix) W D(keep), c = add."""

    hold_NR: Float[Tensor, "N R"]
    mix_NR: Float[Tensor, "N R"]
    add_NR: Float[Tensor, "N R"]
    keep_NR: Float[Tensor, "N R"] | None = None
    """None for **1**."""

    def scaled(self, gates_NR: Float[Tensor, "N R"]) -> Parts:
        """Return the parts of states that are multiplied by gates of their words."""
        return Parts(self.hold_NR * gates_NR, self.mix_NR * gates_NR, self.add_NR * gates_NR, self.keep_NR)

    def at(self, places: slice | Tensor) -> Parts:
        """Return some of the words."""
        kept = None if self.keep_NR is None else self.keep_NR[places]
        return Parts(self.hold_NR[places], self.mix_NR[places], self.add_NR[places], kept)

    def joined(self, other: Parts) -> Parts:
        """Return these words and others."""
        keep = None if self.keep_NR is None or other.keep_NR is None else [self.keep_NR, other.keep_NR]
        return Parts(
            torch.cat([self.hold_NR, other.hold_NR]),
            torch.cat([self.mix_NR, other.mix_NR]),
            torch.cat([self.add_NR, other.add_NR]),
            None if keep is None else torch.cat(keep),
        )

    def __len__(self) -> int:
        return len(self.hold_NR)


@dataclass(frozen=True)
class Moments:
    """Means and mean products of a, m and c over words."""

    means_3R: Float[Tensor, "3 R"]
    squares_33RR: Float[Tensor, "3 3 R R"]

    @classmethod
    def of(cls, parts: Parts) -> Moments:
        """Average over words, all equally likely."""
        three_3NR = torch.stack([parts.hold_NR, parts.mix_NR, parts.add_NR])
        squares = torch.einsum("jni,knl->jkil", three_3NR, three_3NR) / len(parts)
        return cls(three_3NR.mean(1), squares)


class MomentStep(Step):
    """A word whose gates stand on one side of W: exact, by second moments of what words bring."""

    def __init__(self, W_RR: Tensor, own: Parts, others: Moments, scale: float = 1.0) -> None:
        mine = Moments.of(own)
        self.W_RR = W_RR
        self.means = scale * (KEPT * mine.means_3R + (1 - KEPT) * others.means_3R)
        self.squares = scale**2 * (KEPT * mine.squares_33RR + (1 - KEPT) * others.squares_33RR)

    def push(self, left: Spread) -> Spread:
        """Return the spread of a ⊙ h + m ⊙ W h + c: that of the states before, and the word's own about their mean."""
        covariance_RR, mean_R, one = left
        moved_RR = self.W_RR @ covariance_RR
        crossed_RR = moved_RR * self.squares[1, 0]
        after_RR = covariance_RR * self.squares[0, 0] + crossed_RR + crossed_RR.mT
        after_RR = after_RR + (moved_RR @ self.W_RR.mT) * self.squares[1, 1]
        # Spread and mean apart, not their sum less the mean again: that would lose the small spread to rounding.
        before_3R = torch.stack([mean_R, self.W_RR @ mean_R, one.expand_as(mean_R)])
        spread_33RR = self.squares - torch.einsum("ji,kl->jkil", self.means, self.means)
        after_RR = after_RR + torch.einsum("jkil,ji,kl->il", spread_33RR, before_3R, before_3R)
        return after_RR, (self.means * before_3R).sum(0), one

    def pull(self, right_RR: Float[Tensor, "R R"]) -> Float[Tensor, "R R"]:
        """Return the mean of (D(a) + D(m) W)ᵀ G (D(a) + D(m) W)."""
        crossed_RR = self.W_RR.mT @ (right_RR * self.squares[1, 0])
        through_RR = self.W_RR.mT @ (right_RR * self.squares[1, 1]) @ self.W_RR
        return right_RR * self.squares[0, 0] + crossed_RR + crossed_RR.mT + through_RR


class OperatorStep(Step):
    """A word as the mean of whole matrices: for gates on both sides of W, and the slow twin of ``MomentStep``."""

    def __init__(self, W_RR: Tensor, own: Parts, others: Parts, scale: float = 1.0) -> None:
        both = own.joined(others)
        self.add_NR = scale * both.add_NR
        mix_NRR = both.mix_NR[:, :, None] * W_RR
        if both.keep_NR is not None:
            mix_NRR = mix_NRR * both.keep_NR[:, None, :]
        self.A_NRR = scale * (mix_NRR + torch.diag_embed(both.hold_NR))
        shares = [KEPT / len(own)] * len(own) + [(1 - KEPT) / len(others)] * len(others)
        self.shares_N = W_RR.new_tensor(shares)

    def push(self, left: Spread) -> Spread:
        """Return the mean spread of A h + c, and the spread of its means."""
        covariance_RR, mean_R, one = left
        means_NR = self.A_NRR @ mean_R + self.add_NR * one
        after_R = self.shares_N @ means_NR
        spread_NR = means_NR - after_R
        moved_RR = torch.einsum("n,nij,njk->ik", self.shares_N, self.A_NRR @ covariance_RR, self.A_NRR.mT)
        return moved_RR + spread_NR.mT @ (spread_NR * self.shares_N[:, None]), after_R, one

    def pull(self, right_RR: Float[Tensor, "R R"]) -> Float[Tensor, "R R"]:
        """Return the mean of Aᵀ G A."""
        return torch.einsum("n,nij,njk->ik", self.shares_N, self.A_NRR.mT @ right_RR, self.A_NRR)


def effective_ranks(
    W_RR: Float[Tensor, "R R"],
    first_R: Float[Tensor, " R"],
    words: Parts,
    everything: Parts,
    V_VR: Float[Tensor, "V R"],
    *,
    scales_T: Float[Tensor, " T"] | None = None,
    gates: tuple[Float[Tensor, "1 R"], Float[Tensor, "X R"]] | None = None,
    centred: bool = True,
) -> Float[Tensor, " T"]:
    """Return the effective rank across the cut behind each word.

    Args:
        W_RR: the hidden-to-hidden matrix.
        first_R: the state after the word that begins every text and is never replaced.
        words: what the other words bring, in their order.
        everything: what all words of the vocabulary bring.
        V_VR: the output matrix; its bias says nothing of the words before.
        scales_T: multiplies the state behind each word; for a normalised recurrence, whose scales are held fixed.
        gates: the output gates of the last word and of all words, through which the last state is read.
        centred: take the mean off the logits, which a softmax does not see.

    Returns:
        One number per word: 1 where a single feature of the words before matters, R at most.
    """
    scales = [1.0] * len(words) if scales_T is None else scales_T.tolist()
    steps = _make_steps(W_RR, words, everything, scales, gates)
    left: Spread = torch.zeros_like(W_RR), first_R, torch.ones_like(first_R[0])
    covariances: list[Tensor] = []
    for step in steps:
        covariance, mean, one = step.push(left)
        scale = covariance.diagonal().sum().clamp(min=torch.finfo(covariance.dtype).tiny)
        left = covariance / scale, mean / scale.sqrt(), one / scale.sqrt()
        covariances.append(left[0])
    output = V_VR - V_VR.mean(0) if centred else V_VR
    rights = [output.mT @ output]
    for step in reversed(steps[1:]):
        rights.append(_rescale(step.pull(rights[-1])))
    with _one_thread():
        return torch.stack(
            [effective_rank(left, right) for left, right in zip(covariances, reversed(rights), strict=True)]
        )


def effective_rank(left_RR: Float[Tensor, "R R"], right_RR: Float[Tensor, "R R"]) -> Float[Tensor, ""]:
    """Return exp of the entropy of the squared singular values of A Bᵀ, given AᵀA and BᵀB."""
    values, vectors = torch.linalg.eigh(left_RR)
    root = vectors * values.clamp(min=0).sqrt()
    shares = torch.linalg.eigvalsh(root.mT @ right_RR @ root).clamp(min=0)
    shares = shares / shares.sum()
    return (-torch.special.xlogy(shares, shares).sum()).exp()


def _make_steps(
    W_RR: Tensor, words: Parts, everything: Parts, scales: list[float], gates: tuple[Tensor, Tensor] | None
) -> list[Step]:
    """Return the step of each place; the last word's parts go through the output gate."""
    last = words.at(slice(len(words) - 1, len(words)))
    places = [words.at(slice(place, place + 1)) for place in range(len(words) - 1)]
    if words.keep_NR is not None:
        some = torch.linspace(0, len(everything) - 1, min(SPREAD, len(everything))).round().long()
        behind = everything.scaled(gates[1]).at(some) if gates else everything.at(some)
        everything = everything.at(some)
        steps: list[Step] = [
            OperatorStep(W_RR, own, everything, scale) for own, scale in zip(places, scales, strict=False)
        ]
        return [*steps, OperatorStep(W_RR, last.scaled(gates[0]) if gates else last, behind, scales[-1])]
    moments = Moments.of(everything)
    steps = [MomentStep(W_RR, own, moments, scale) for own, scale in zip(places, scales, strict=False)]
    if gates:
        last, moments = last.scaled(gates[0]), Moments.of(everything.scaled(gates[1]))
    return [*steps, MomentStep(W_RR, last, moments, scales[-1])]


@contextmanager
def _one_thread() -> Generator[None, None, None]:
    """Compute with one thread: eigenvalues of matrices this small take ten times as long with two on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _rescale(gram: Tensor) -> Tensor:
    """Divide by the trace: the scale of a Gram matrix changes no share, and the pure recurrence may overflow."""
    return gram / gram.diagonal().sum().clamp(min=torch.finfo(gram.dtype).tiny)
