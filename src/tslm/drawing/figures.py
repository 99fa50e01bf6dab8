"""Figures 1, 2 and 3 of the paper, drawn from real tensors, and the network of a sentence.

Each figure is a list of panels; a panel is a chain of networks that all stand for the same tensor, with signs of
equality between. The tests contract every one of them and compare.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tslm.drawing.diagram import Open, Place
from tslm.drawing.picture import (
    INK,
    RADIUS,
    TENSOR,
    VECTOR,
    Disc,
    Line,
    Picture,
    Shape,
    arrange,
    beside,
    caption,
)
from tslm.drawing.sentence import View, view_sentence
from tslm.errors import ShapeError
from tslm.tensors.algebra import rank_one
from tslm.tensors.decompose import RecursiveDecomposition, decompose
from tslm.tensors.network import TensorNetwork, delta_node, tensor_node
from tslm.tensors.recursion import explicit_tensor
from tslm.tensors.sentence import sentence_network

DOWN, LEFT, RIGHT = Open(0, 1), Open(-1, 0), Open(1, 0)


@dataclass(frozen=True)
class Panel:
    """Views of one tensor, set equal."""

    title: str
    views: tuple[View, ...]
    joined: bool = True
    """False where the views only stand beside each other."""

    def draw(self) -> Picture:
        """Return the panel with its title underneath."""
        parts: list[Picture | str] = []
        for view in self.views:
            parts += ["=", view.draw()] if parts and self.joined else [view.draw()]
        return caption(beside(parts), self.title)


def figure_1() -> list[Panel]:
    """Figure 1. Notation: tensors, contraction, the singular value decomposition, the inner product."""
    numbers = torch.Generator().manual_seed(1)
    v, A, T = (
        torch.randn(shape, generator=numbers, dtype=torch.float64) for shape in [(4,), (3, 4), (3, 3, 3, 3)]
    )
    alphas = list(torch.randn(4, 3, generator=numbers, dtype=torch.float64))
    subscripts = "₁₂₃₄"
    legs = [f"d{k}" for k in range(1, 5)]
    across = [-0.9, -0.3, 0.3, 0.9]
    fan = {leg: Open(0, 1, at) for leg, at in zip(legs, across, strict=True)}
    labels = {leg: f"d{subscript}=3" for leg, subscript in zip(legs, subscripts, strict=True)}
    tensors = (
        View(TensorNetwork([tensor_node("v", v, "i")]), {"v": Place(0, 0)}, {"i": DOWN}),
        View(TensorNetwork([tensor_node("A", A, "ij")]), {"A": Place(0, 0)}, {"i": LEFT, "j": RIGHT}),
        View(
            TensorNetwork([delta_node("δ", 3, "ijk")]),
            {"δ": Place(0, 0)},
            {"i": LEFT, "j": RIGHT, "k": DOWN},
        ),
        View(TensorNetwork([tensor_node("T", T, legs)]), {"T": Place(0, 0, 0.95, "T")}, fan, labels),
    )
    product = TensorNetwork([tensor_node(f"α{k}", alpha, [f"d{k}"]) for k, alpha in enumerate(alphas, 1)])
    one = (
        View(
            TensorNetwork([tensor_node("A", rank_one(alphas), legs)]),
            {"A": Place(0, 0, 0.95, "A")},
            fan,
            labels,
        ),
        View(
            product,
            {f"α{k}": Place(0.6 * k, 0, label=f"α{subscripts[k - 1]}") for k in range(1, 5)},
            dict.fromkeys(legs, DOWN),
            labels,
        ),
    )
    multiplied = (
        View(
            TensorNetwork([tensor_node("A", A, "ij"), tensor_node("v", v, "j")]),
            {"A": Place(0, 0), "v": Place(1.1, 0)},
            {"i": LEFT},
        ),
        View(TensorNetwork([tensor_node("u", A @ v, "i")]), {"u": Place(0, 0)}, {"i": LEFT}),
    )
    left, values, right = torch.linalg.svd(A, full_matrices=False)
    svd = (
        View(TensorNetwork([tensor_node("A", A, "ij")]), {"A": Place(0, 0)}, {"i": LEFT, "j": RIGHT}),
        View(
            TensorNetwork(
                [
                    tensor_node("U", left, ["i", "a"]),
                    delta_node("δ", 3, "abc"),
                    tensor_node("λ", values, "b"),
                    tensor_node("V", right, ["c", "j"]),
                ]
            ),
            {"U": Place(0, 0), "δ": Place(1.1, 0), "λ": Place(1.1, 0.9), "V": Place(2.2, 0)},
            {"i": LEFT, "j": RIGHT},
            {"a": "r=3", "b": "r=3", "c": "r=3", "i": "i=3", "j": "j=4"},
        ),
    )
    inner = View(
        TensorNetwork(
            [
                tensor_node("T", T, legs),
                *[tensor_node(f"α{k}", a, [f"d{k}"]) for k, a in enumerate(alphas, 1)],
            ]
        ),
        {
            "T": Place(0, 0, 1.1, "T"),
            **{f"α{k}": Place(-1.05 + 0.7 * (k - 1), 1, label=f"α{subscripts[k - 1]}") for k in range(1, 5)},
        },
        leg_labels=dict.fromkeys(legs, "m=3"),
    )
    return [
        Panel("(a) a vector, a matrix, a δ-tensor, a tensor of order 4", tensors, joined=False),
        Panel("a rank-one tensor: A = α₁ ⊗ α₂ ⊗ α₃ ⊗ α₄", one),
        Panel("(b) contraction: A v = u", multiplied),
        Panel("(c) A = Σ λᵢ uᵢ ⊗ vᵢ", svd),
        Panel("(d) inner product ⟨T, A⟩", (inner,)),
    ]


def figure_2(form: RecursiveDecomposition | None = None) -> list[Panel]:
    """Figure 2. The recursive decomposition (Eq. 16) of a tensor of order 3, one level at a time.

    Args:
        form: a decomposition of order 3; that of a random tensor when left out.
    """
    if form is None:
        numbers = torch.Generator().manual_seed(2)
        form = decompose(torch.randn(3, 3, 3, generator=numbers, dtype=torch.float64), rank=4).form
    if len(form.U) != 3:
        raise ShapeError(f"Figure 2 shows a tensor of order 3, not {len(form.U)}")
    first, second, last = form.ranks
    S2 = form.W[0] * 1.0 @ form.U[0]  # S₍₂₎ as (r₂ × m₁)
    S3 = torch.einsum("jk,ka,kb->jab", form.W[1], S2, form.U[1])
    T = form.to_tensor()
    m = {"d1": f"m={T.shape[0]}", "d2": f"m={T.shape[1]}", "d3": f"m={T.shape[2]}"}
    whole = View(
        TensorNetwork([tensor_node("T", T, ["d1", "d2", "d3"])]),
        {"T": Place(0, 0, 0.7, "T")},
        {"d1": Open(0, 1, -0.7), "d2": Open(0, 1, 0), "d3": Open(0, 1, 0.7)},
        m,
    )
    outer = View(
        TensorNetwork(
            [
                tensor_node("S", S3, ["s", "d1", "d2"]),
                delta_node("δ", last, ["s", "u", "l"]),
                tensor_node("U", form.U[2], ["u", "d3"]),
                tensor_node("λ", form.weights, ["l"]),
            ],
            ["d1", "d2", "d3"],
        ),
        {"S": Place(0, 0, 0.4, "S₍₃₎"), "δ": Place(1.55, 0), "U": Place(1.55, 0.95), "λ": Place(2.55, 0)},
        {"d1": Open(0, 1, -0.4), "d2": Open(0, 1, 0.4), "d3": DOWN},
        {**m, "s": f"r={last}", "u": f"r={last}", "l": f"r={last}"},
    )
    level = View(
        TensorNetwork([tensor_node("S", S3, ["k", "d1", "d2"])], ["d1", "d2", "k"]),
        {"S": Place(0, 0, 0.4, "S₍₃₎")},
        {"d1": Open(0, 1, -0.4), "d2": Open(0, 1, 0.4), "k": RIGHT},
        {**m, "k": f"r={last}"},
    )
    inner = View(
        TensorNetwork(
            [
                tensor_node("S", S2, ["s", "d1"]),
                delta_node("δ", second, ["s", "u", "w"]),
                tensor_node("U", form.U[1], ["u", "d2"]),
                tensor_node("W", form.W[1], ["k", "w"]),
            ],
            ["d1", "d2", "k"],
        ),
        {"S": Place(0, 0, 0.12, "S₍₂₎"), "δ": Place(1.2, 0), "U": Place(1.2, 0.95), "W": Place(2.2, 0)},
        {"d1": DOWN, "d2": DOWN, "k": RIGHT},
        {**m, "s": f"r={second}", "u": f"r={second}", "w": f"r={second}", "k": f"r={last}"},
    )
    r = {f"{leg}{k}": f"r={rank}" for k, rank in ((1, first), (2, second), (3, last)) for leg in "ugh"}
    unrolled = View(
        form.to_network(),
        {
            **{f"U{k}": Place(2 * k, 0.95, label=f"U{'₁₂₃'[k - 1]}") for k in (1, 2, 3)},
            **{f"δ{k}": Place(2 * k, 0) for k in (1, 2, 3)},
            **{f"W{k}": Place(2 * k + 1, 0, label=f"W{'₁₂'[k - 1]}") for k in (1, 2)},
            "λ": Place(7, 0),
        },
        dict.fromkeys(("d1", "d2", "d3"), DOWN),
        {**m, **r},
    )
    return [
        Panel("(a) T = Σ λᵢ S₍₃₎,ᵢ ⊗ uᵢ", (whole, outer)),
        Panel("(b) S₍₃₎,ⱼ = Σ Wⱼᵢ S₍₂₎,ᵢ ⊗ uᵢ", (level, inner)),
        Panel("(c) all levels, S₍₁₎ = 1", (unrolled,)),
    ]


def figure_3(rank: int = 4, embedding: int = 3, vocabulary: int = 5) -> list[Panel]:
    """Figure 3. The recursion: ⟨T, A⟩ as a chain, T₍t₎ from S₍t−1₎, and h_t from h_{t−1}."""
    numbers = torch.Generator().manual_seed(3)
    W, U, V, alphas = (
        torch.randn(shape, generator=numbers, dtype=torch.float64)
        for shape in [(rank, rank), (rank, embedding), (vocabulary, rank), (3, embedding)]
    )
    T = explicit_tensor(W, U, V, 3)
    r, m = f"r={rank}", f"m={embedding}"
    labels = {"d1": m, "d2": m, "y": f"|V|={vocabulary}", "s": r, "u": r, "h": r, "g": r, "w": r, "m": m}
    explicit = View(
        TensorNetwork([tensor_node("T", T, ["d1", "d2", "y"])]),
        {"T": Place(0, 0, 0.4, "T₍₃₎")},
        {"d1": Open(0, 1, -0.4), "d2": Open(0, 1, 0.4), "y": RIGHT},
        labels,
    )
    level = View(
        TensorNetwork(
            [
                tensor_node("S", torch.einsum("ji,ia->ja", W, U), ["s", "d1"]),
                delta_node("δ", rank, ["s", "u", "h"]),
                tensor_node("U", U, ["u", "d2"]),
                tensor_node("V", V, ["y", "h"]),
            ],
            ["d1", "d2", "y"],
        ),
        {"S": Place(0, 0, 0.12, "S₍₂₎"), "δ": Place(1.2, 0), "U": Place(1.2, 0.95), "V": Place(2.2, 0)},
        {"d1": DOWN, "d2": DOWN, "y": RIGHT},
        labels,
    )
    before = alphas[0] @ U.mT
    state = View(
        TensorNetwork([tensor_node("h", (W @ before) * (U @ alphas[1]), ["h"])]),
        {"h": Place(0, 0, 0, "hₜ")},
        {"h": RIGHT},
        labels,
    )
    step = View(
        TensorNetwork(
            [
                tensor_node("p", before, ["w"]),
                tensor_node("W", W, ["g", "w"]),
                delta_node("δ", rank, ["g", "u", "h"]),
                tensor_node("U", U, ["u", "m"]),
                tensor_node("α", alphas[1], ["m"]),
            ]
        ),
        {
            "p": Place(0, 0, 0.08, "hₜ₋₁"),
            "W": Place(1.15, 0),
            "δ": Place(2.15, 0),
            "U": Place(2.15, 0.95),
            "α": Place(2.15, 1.9, 0, "αₜ"),
        },
        {"h": RIGHT},
        labels,
    )
    return [
        Panel("(a) yₜ = ⟨T₍ₜ₎, A₍ₜ₋₁₎⟩ for three words", (view_sentence(sentence_network(W, U, V, alphas)),)),
        Panel("(b) T₍ₜ₎,ₖ = Σ Vₖᵢ S₍ₜ₋₁₎,ᵢ ⊗ uᵢ", (explicit, level)),
        Panel("(c) hₜ = W hₜ₋₁ ⊙ U αₜ", (state, step)),
    ]


def draw_figure(number: int) -> Picture:
    """Figures 1, 2, 3. Return a whole figure of the paper."""
    if number == 1:
        a, rank, b, c, d = (panel.draw() for panel in figure_1())
        return arrange([[a], [rank, b], [c, d]])
    if number == 2:
        a, b, c = (panel.draw() for panel in figure_2())
        return arrange([[a], [b], [c]])
    if number == 3:
        a, b, c = (panel.draw() for panel in figure_3())
        return arrange([[a], [b], [c, _draw_general_step()]])
    raise ShapeError(f"the paper has no tensor-network Figure {number}; expected 1, 2 or 3")


def _draw_general_step() -> Picture:
    """Return Figure 3 (d): the step of any recurrent network, which is no tensor network, so g is a box."""
    cell = 74.0
    spots = {
        "h": (0.0, "hₜ₋₁", VECTOR),
        "W": (1.0, "W", TENSOR),
        "g": (2.0, "g", INK),
        "o": (3.0, "hₜ", VECTOR),
    }
    shapes: list[Shape] = [
        Disc(name, x * cell, 0, RADIUS, label, colour, 5.0 if name in "hg" else 0.0)
        for name, (x, label, colour) in spots.items()
    ]
    shapes += [
        Disc("U", 2 * cell, 0.95 * cell, RADIUS, "U", TENSOR),
        Disc("α", 2 * cell, 1.9 * cell, RADIUS, "αₜ", VECTOR),
    ]
    for one, other in (("h", "W"), ("W", "g"), ("g", "o")):
        x1, x2 = spots[one][0] * cell, spots[other][0] * cell
        wide = {name: RADIUS + (5.0 if name in "hg" else 0.0) for name in (one, other)}
        shapes.append(Line(x1 + wide[one], 0, x2 - wide[other], 0, (one, other)))
    for one, other, top in (("g", "U", 0.0), ("U", "α", 0.95)):
        shapes.append(
            Line(2 * cell, top * cell + RADIUS, 2 * cell, (top + 0.95) * cell - RADIUS, (one, other))
        )
    return caption(Picture(tuple(shapes)), "(d) hₜ = g(W hₜ₋₁, U αₜ)")
