"""What is read out of a cell's states: all of them, through a gate of the last word, or products of two of them."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tslm.models.recurrent.products import linear

OutputGate = Literal["none", "linear", "tanh", "product"]

GATE_GAIN = 1.3
"""How far the output gate can open: a little above one, so that an open gate need not be saturated."""


def make_gate(kind: OutputGate, inputs: int, rank: int) -> nn.Linear | None:
    """Return G and g of o(x) = 1.3 σ(G α + g), which starts nearly open for every word."""
    if kind == "none":
        return None
    gate = nn.Linear(inputs, rank)
    with torch.no_grad():
        gate.weight.copy_(torch.randn(rank, inputs) * 0.5 / math.sqrt(inputs))
        gate.bias.fill_(1.0)
    return gate


def make_product(kind: OutputGate, rank: int) -> nn.Parameter | None:
    """Return Q. It starts small: the state is read out as it is, until training finds a use for products."""
    return nn.Parameter(torch.randn(rank, rank) * 0.1 / math.sqrt(rank)) if kind == "product" else None


def open_gate(words_NM: Float[Tensor, "*N M"], gate: nn.Linear) -> Float[Tensor, "*N R"]:
    """Return o(x) of the words just read."""
    return GATE_GAIN * torch.sigmoid(linear(words_NM, gate.weight, gate.bias))


def read_out(
    states_NR: Float[Tensor, "*N R"],
    words_NM: Float[Tensor, "*N M"],
    kind: OutputGate,
    gate: nn.Linear | None,
    product: Tensor | None,
) -> Float[Tensor, "*N R"]:
    """Return states as they are read out, behind the words just read.

    With products, o ⊙ h ⊙ (1 + Q h): each number is a quadratic form of the state, hence linear in (h, 1) ⊗ (h, 1).
    That is the state of two copies of the network, whose words are copied by the δ-tensors of Eq. 3: where h is a
    contraction of a tensor network of bond R + 1, what is read out is one of bond (R + 1)².
    """
    if gate is None:
        return states_NR
    if product is not None:
        states_NR = states_NR * (1 + linear(states_NR, product))
    elif kind == "tanh":
        states_NR = states_NR.tanh()
    return open_gate(words_NM, gate) * states_NR
