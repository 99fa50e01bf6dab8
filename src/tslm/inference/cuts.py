"""How much a sentence's two halves have to say to each other: the effective rank across each cut of the chain.

A TSLM of one layer is a chain: for words x₁…x_T the logits are y = V̂ h_T with h_t = D(x_t)(Ŵ h_{t−1}), everything with
one more, constant, coordinate for the biases. Cut behind word t, the logits of *all* sentences of length T are a matrix

    Y[(x₁…x_t), (x_{t+1}…x_T, y)] = right(x_{t+1}…x_T, y) · left(x₁…x_t)

of rank at most R + 1. To ask about one sentence, rows and columns are weighted by the root of the probability of their
words when every word of the sentence is kept with probability ½ and otherwise replaced by any word, all equally likely;
and the mean row is taken off, for what does not depend on the words before the cut is nothing they have to say. The
effective rank is exp of the entropy of this matrix's squared singular values, as shares of their sum.

There are |V|ᵗ rows, but none is ever formed: the singular values need only the R+1 × R+1 Gram matrices of the two
sides, and these follow a recursion, since the mean of D(x) G D(x) over words is G ⊙ E[f fᵀ]; the mean row follows
E[f] ⊙ (Ŵ ·).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

KEPT = 0.5
"""The probability that a word stays as it is."""


def effective_ranks(
    W_RR: Float[Tensor, "R R"],
    b_R: Float[Tensor, " R"],
    factors_TR: Float[Tensor, "T R"],
    all_VR: Float[Tensor, "X R"],
    V_VR: Float[Tensor, "V R"],
    bias_V: Float[Tensor, " V"],
    *,
    scales_T: Float[Tensor, " T"] | None = None,
    centred: bool = True,
) -> Float[Tensor, " T-1"]:
    """Return the effective rank across the cut behind each word.

    Args:
        W_RR: the hidden-to-hidden matrix.
        b_R: its bias.
        factors_TR: the factors of the words read; the first begins every text and is never replaced.
        all_VR: the factors of all words.
        V_VR: the output matrix.
        bias_V: its bias.
        scales_T: multiplies each word's factors; for a normalised recurrence, whose scales are held fixed.
        centred: take the mean off the logits, which a softmax does not see.

    Returns:
        One number per word but the first: 1 where a single feature of the words before matters, R + 1 at most.
    """
    R = len(W_RR)
    W_hat = torch.zeros(R + 1, R + 1, dtype=W_RR.dtype)
    W_hat[:R, :R], W_hat[:R, R], W_hat[R, R] = W_RR, b_R, 1
    V_hat = torch.cat([V_VR, bias_V.unsqueeze(1)], 1)
    if centred:
        V_hat = V_hat - V_hat.mean(0)
    moments = _moments(factors_TR, all_VR, scales_T)
    mean = _lift(factors_TR[0] * (1 if scales_T is None else scales_T[0]))
    covariance = torch.zeros_like(W_hat)
    covariances: list[Tensor] = []
    for moment in moments:
        # Spread and mean apart, not their sum less the mean again: that would lose the small spread to rounding.
        before, mean = W_hat @ mean, W_hat @ mean * moment[-1]
        centred_moment = moment - torch.outer(moment[-1], moment[-1])
        covariance = (W_hat @ covariance @ W_hat.mT) * moment + centred_moment * torch.outer(before, before)
        scale = covariance.diagonal().sum().clamp(min=torch.finfo(covariance.dtype).tiny)
        covariance, mean = covariance / scale, mean / scale.sqrt()
        covariances.append(covariance)
    rights = [V_hat.mT @ V_hat]
    for moment in reversed(moments[1:]):
        rights.append(_rescale(W_hat.mT @ (rights[-1] * moment) @ W_hat))
    with _one_thread():
        return torch.stack(
            [effective_rank(left, right) for left, right in zip(covariances, reversed(rights), strict=True)]
        )


@contextmanager
def _one_thread() -> Generator[None, None, None]:
    """Compute with one thread: eigenvalues of matrices this small take ten times as long with two on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def effective_rank(left_RR: Float[Tensor, "R R"], right_RR: Float[Tensor, "R R"]) -> Float[Tensor, ""]:
    """Return exp of the entropy of the squared singular values of A Bᵀ, given AᵀA and BᵀB."""
    values, vectors = torch.linalg.eigh(left_RR)
    root = vectors * values.clamp(min=0).sqrt()
    shares = torch.linalg.eigvalsh(root.mT @ right_RR @ root).clamp(min=0)
    shares = shares / shares.sum()
    return (-torch.special.xlogy(shares, shares).sum()).exp()


def _moments(factors_TR: Tensor, all_VR: Tensor, scales_T: Tensor | None) -> list[Tensor]:
    """Return E[f fᵀ] in the place of each word but the first, the constant coordinate included."""
    others = torch.cat([all_VR, all_VR.new_ones(len(all_VR), 1)], 1)
    mixed = others.mT @ others / len(others)
    moments: list[Tensor] = []
    for place in range(1, len(factors_TR)):
        own = _lift(factors_TR[place])
        scale = torch.ones_like(own)
        if scales_T is not None:
            scale[:-1] = scales_T[place]
        moment = KEPT * torch.outer(own, own) + (1 - KEPT) * mixed
        # Its last row is E[f], for the constant coordinate is 1.
        moments.append(moment * torch.outer(scale, scale))
    return moments


def _lift(factor_R: Tensor) -> Tensor:
    return torch.cat([factor_R, factor_R.new_ones(1)])


def _rescale(gram: Tensor) -> Tensor:
    """Divide by the trace: the scale of a Gram matrix changes no share, and the pure recurrence may overflow."""
    return gram / gram.diagonal().sum().clamp(min=torch.finfo(gram.dtype).tiny)
