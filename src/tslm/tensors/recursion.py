"""The recursion of Eqs. 17–20, written straight from the equations: the reference for every trainable cell.

With g₁ = **1** and g_{t+1} = W h_t, the states are h_t = g_t ⊙ Uα_t, where α_t is the vector of word t. Then
⟨T₍t₊₁₎, A₍t₎⟩ = V h_t: the tensor of t words and one output needs only the state after t words. The paper's
h₀ = W⁻¹**1** is never formed, so W need not be invertible.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tslm.errors import ShapeError
from tslm.tensors.algebra import check_size, contract, rank_one, show
from tslm.tensors.network import MEMORY_LIMIT


def explicit_tensor(
    W_RR: Float[Tensor, "R R"],
    U_RM: Float[Tensor, "R M"],
    V_VR: Float[Tensor, "V R"],
    order: int,
    *,
    start_R: Float[Tensor, "R"] | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Float[Tensor, "..."]:
    """Eq. 18. Return T₍t₎ of the given order t: t−1 word modes of size M and one mode of size V.

    T₍t₎,ₖ = Σᵢ V_ki S₍t₋₁₎,ᵢ ⊗ uᵢ with S of Eq. 16 and one W and U for all levels.

    Args:
        W_RR: hidden to hidden.
        U_RM: input to hidden.
        V_VR: hidden to output.
        order: t, at least 2.
        start_R: S₍₁₎, all ones unless given.
        memory_limit: the most bytes the tensor may take.

    Raises:
        ShapeError: the matrices do not fit together.
        SizeLimitError: the tensor would take more memory.
    """
    _check_shapes(W_RR, U_RM, V_VR, start_R)
    if order < 2:
        raise ShapeError(f"T₍t₎ of order {order}; expected at least 2: one word and the output")
    rank, embedding = U_RM.shape
    shape = [*[embedding] * (order - 1), len(V_VR)]
    instead = "use recursive_logits, which never builds it"
    check_size(shape, U_RM.dtype, memory_limit, "the explicit tensor", instead)
    check_size([*shape[:-1], rank], U_RM.dtype, memory_limit, "a level of the explicit tensor", instead)
    level = torch.ones_like(U_RM[:, 0]) if start_R is None else start_R  # S₍₁₎, rank index last
    for step in range(order - 1):
        if step:
            level = level @ W_RR.mT
        level = level[..., None, :] * U_RM.mT  # S ⊗ u, the rank index tied by δ
    return level @ V_VR.mT


def recurse(
    W_RR: Float[Tensor, "R R"],
    U_RM: Float[Tensor, "R M"],
    alphas_TM: Float[Tensor, "*batch T M"],
    *,
    start_R: Float[Tensor, "R"] | None = None,
) -> Float[Tensor, "*batch T R"]:
    """Eq. 19. Return h₁ … h_T with h_t = W h_{t−1} ⊙ Uα_t and W h₀ = **1** (or ``start_R``).

    Raises:
        ShapeError: the matrices do not fit together.
    """
    _check_shapes(W_RR, U_RM, None, start_R, alphas_TM)
    factors_TR = alphas_TM @ U_RM.mT
    gate = _first_gate(factors_TR, start_R)
    states: list[Tensor] = []
    for factor in factors_TR.unbind(-2):
        state = gate * factor
        states.append(state)
        gate = state @ W_RR.mT
    return torch.stack(states, -2)


def recurse_scaled(
    W_RR: Float[Tensor, "R R"],
    U_RM: Float[Tensor, "R M"],
    alphas_TM: Float[Tensor, "*batch T M"],
    *,
    start_R: Float[Tensor, "R"] | None = None,
) -> tuple[Float[Tensor, "*batch T R"], Float[Tensor, "*batch T"]]:
    """Eq. 19. Return (s_t, ln c_t) with h_t = c_t·s_t and max|s_t| = 1: no overflow or underflow at any length.

    A state that becomes exactly zero stays zero with ln c = −∞. Values and gradients of s and ln c are those of
    the exact contraction; only the split into direction and scale differs from ``recurse``.
    """
    _check_shapes(W_RR, U_RM, None, start_R, alphas_TM)
    factors_TR = alphas_TM @ U_RM.mT
    gate = _first_gate(factors_TR, start_R)
    states: list[Tensor] = []
    scales: list[Tensor] = []
    log_scale = torch.zeros_like(factors_TR[..., 0, 0])
    for factor in factors_TR.unbind(-2):
        state = gate * factor
        size = state.abs().amax(-1)
        zero = size == 0
        state = state / torch.where(zero, torch.ones_like(size), size)[..., None]
        log_scale = torch.where(
            zero, -torch.inf, log_scale + torch.where(zero, torch.ones_like(size), size).log()
        )
        states.append(state)
        scales.append(log_scale)
        gate = state @ W_RR.mT
    return torch.stack(states, -2), torch.stack(scales, -1)


def recursive_logits(
    W_RR: Float[Tensor, "R R"],
    U_RM: Float[Tensor, "R M"],
    V_VR: Float[Tensor, "V R"],
    alphas_TM: Float[Tensor, "*batch T M"],
    *,
    start_R: Float[Tensor, "R"] | None = None,
) -> Float[Tensor, "*batch T V"]:
    """Eq. 20. Return y after each word: ⟨T₍t₊₁₎, A₍t₎⟩ = V h_t for t = 1 … T, without building T."""
    _check_shapes(W_RR, U_RM, V_VR, start_R, alphas_TM)
    return recurse(W_RR, U_RM, alphas_TM, start_R=start_R) @ V_VR.mT


def explicit_logits(tensor: Float[Tensor, "..."], alphas_TM: Float[Tensor, "T M"]) -> Float[Tensor, "V"]:
    """Eq. 17. Return ⟨T₍t₎, A₍t−1₎⟩, the rank-one input contracted with all word modes of the explicit tensor.

    Raises:
        ShapeError: the number of words or their size differs from the word modes.
    """
    words, embedding = alphas_TM.shape
    if tuple(tensor.shape[:-1]) != (embedding,) * words:
        raise ShapeError(
            f"T is {show(tensor)}, but {words} words of size {embedding} were given: {show(alphas_TM)}"
        )
    inputs = rank_one(list(alphas_TM))
    return contract(inputs, tensor, [(mode, mode) for mode in range(words)])


def predict_next(
    W_RR: Float[Tensor, "R R"],
    U_RM: Float[Tensor, "R M"],
    V_VR: Float[Tensor, "V R"],
    alphas_TM: Float[Tensor, "*batch T M"],
) -> Float[Tensor, "*batch T V"]:
    """Eqs. 17, 20. Return p(next word | words so far) = softmax(V h_t) after each word."""
    return recursive_logits(W_RR, U_RM, V_VR, alphas_TM).softmax(-1)


@dataclass(frozen=True)
class PureRecursion:
    """W, U, V and S₍₁₎ of a pure multiplicative recursion."""

    W_RR: Tensor
    U_RM: Tensor
    V_VR: Tensor
    start_R: Tensor

    def lift_words(self, alphas_TM: Float[Tensor, "*batch T M"]) -> Float[Tensor, "*batch T L"]:
        """Return words with the homogeneous coordinate 1 appended."""
        return torch.cat([alphas_TM, torch.ones_like(alphas_TM[..., :1])], -1)

    def logits(self, alphas_TM: Float[Tensor, "*batch T M"]) -> Float[Tensor, "*batch T V"]:
        """Return V h_t after each (unlifted) word."""
        lifted = self.lift_words(alphas_TM)
        return recursive_logits(self.W_RR, self.U_RM, self.V_VR, lifted, start_R=self.start_R)


def lift_biases(
    W_RR: Float[Tensor, "R R"],
    U_RM: Float[Tensor, "R M"],
    V_VR: Float[Tensor, "V R"],
    *,
    hidden_bias_R: Float[Tensor, "R"] | None = None,
    input_bias_R: Float[Tensor, "R"] | None = None,
    output_bias_V: Float[Tensor, "V"] | None = None,
    initial_R: Float[Tensor, "R"] | None = None,
) -> PureRecursion:
    """Eq. 19. Return the biased cell h = (W h + b) ⊙ (Uα + c), y = V h + d as a pure one of rank R+1.

    One homogeneous coordinate, always 1, is appended to the state and to each word, so biases stay inside the theory:
    W' = [[W, b], [0, 1]], U' = [[U, c], [0, 1]], V' = [V, d], and S₍₁₎ = (W h₀ + b, 1).

    Args:
        W_RR: hidden to hidden.
        U_RM: input to hidden.
        V_VR: hidden to output.
        hidden_bias_R: b, zero unless given.
        input_bias_R: c, zero unless given.
        output_bias_V: d, zero unless given.
        initial_R: h₀, zero unless given.
    """
    rank, embedding = U_RM.shape
    b = W_RR.new_zeros(rank) if hidden_bias_R is None else hidden_bias_R
    c = W_RR.new_zeros(rank) if input_bias_R is None else input_bias_R
    d = W_RR.new_zeros(len(V_VR)) if output_bias_V is None else output_bias_V
    h = W_RR.new_zeros(rank) if initial_R is None else initial_R
    one = W_RR.new_ones(1)
    last_W = torch.cat([W_RR.new_zeros(rank), one])[None]
    last_U = torch.cat([W_RR.new_zeros(embedding), one])[None]
    return PureRecursion(
        W_RR=torch.cat([torch.cat([W_RR, b[:, None]], 1), last_W]),
        U_RM=torch.cat([torch.cat([U_RM, c[:, None]], 1), last_U]),
        V_VR=torch.cat([V_VR, d[:, None]], 1),
        start_R=torch.cat([W_RR @ h + b, one]),
    )


def _first_gate(factors_TR: Tensor, start_R: Tensor | None) -> Tensor:
    """Return g₁: all ones, or what the caller starts from."""
    first = factors_TR[..., 0, :]
    return torch.ones_like(first) if start_R is None else start_R.expand_as(first)


def _check_shapes(
    W: Tensor, U: Tensor, V: Tensor | None, start: Tensor | None, alphas: Tensor | None = None
) -> None:
    """Refuse matrices that do not fit together, printing both shapes."""
    rank, embedding = U.shape
    if tuple(W.shape) != (rank, rank):
        raise ShapeError(f"U is {show(U)}, rank × embedding, so W must be ({rank}×{rank}), not {show(W)}")
    if V is not None and V.shape[1] != rank:
        raise ShapeError(f"U is {show(U)}, rank × embedding, so V must be (vocabulary×{rank}), not {show(V)}")
    if start is not None and tuple(start.shape) != (rank,):
        raise ShapeError(
            f"U is {show(U)}, rank × embedding, so the start must be ({rank}), not {show(start)}"
        )
    if alphas is not None and (alphas.ndim < 2 or alphas.shape[-1] != embedding or alphas.shape[-2] == 0):
        raise ShapeError(
            f"U is {show(U)}, so words must be (…×time×{embedding}) with time ≥ 1, not {show(alphas)}"
        )
