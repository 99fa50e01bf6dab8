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
from tslm.tensors.recursion import explicit_tensor, recurse
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
    legs = [f"d{k}" for k in range(1, 5)]
    across = [-0.9, -0.3, 0.3, 0.9]
    fan = {leg: Open(0, 1, at) for leg, at in zip(legs, across, strict=True)}
    # Legs carry sizes: m and n as in the paper's text, so that a letter is one number throughout.
    labels = {**dict.fromkeys([*legs, "i", "k", "l"], "m=3"), "j": "n=4", **dict.fromkeys("abc", "r=3")}
    matrix = View(
        TensorNetwork([tensor_node("A", A, "ij")]), {"A": Place(0, 0)}, {"i": LEFT, "j": RIGHT}, labels
    )
    tensors = (
        View(TensorNetwork([tensor_node("v", v, "j")]), {"v": Place(0, 0)}, {"j": DOWN}, labels),
        matrix,
        View(
            TensorNetwork([delta_node("δ", 3, "ikl")]),
            {"δ": Place(0, 0)},
            {"i": LEFT, "k": RIGHT, "l": DOWN},
            labels,
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
            {f"α{k}": Place(0.6 * k, 0, label=_number("α", k)) for k in range(1, 5)},
            dict.fromkeys(legs, DOWN),
            labels,
        ),
    )
    multiplied = (
        View(
            TensorNetwork([tensor_node("A", A, "ij"), tensor_node("v", v, "j")]),
            {"A": Place(0, 0), "v": Place(1.1, 0)},
            {"i": LEFT},
            labels,
        ),
        View(TensorNetwork([tensor_node("u", A @ v, "i")]), {"u": Place(0, 0)}, {"i": LEFT}, labels),
    )
    left, values, right = torch.linalg.svd(A, full_matrices=False)
    svd = (
        matrix,
        View(
            TensorNetwork(
                [
                    tensor_node("U", left, ["i", "a"]),
                    delta_node("δ", 3, "abc"),
                    tensor_node("λ", values, "b"),
                    tensor_node("V", right, ["c", "j"]),
                ]
            ),
            {"U": Place(0, 0), "δ": Place(1, 0), "λ": Place(1, 0.9), "V": Place(2, 0)},
            {"i": LEFT, "j": RIGHT},
            labels,
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
            **{f"α{k}": Place(-1.05 + 0.7 * (k - 1), 1, label=_number("α", k)) for k in range(1, 5)},
        },
        leg_labels=labels,
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

    Every level has a U and a rank of its own, so they carry its number.

    Args:
        form: a decomposition of order 3; that of a random tensor when left out.
    """
    if form is None:
        numbers = torch.Generator().manual_seed(2)
        form = decompose(torch.randn(3, 3, 3, generator=numbers, dtype=torch.float64), rank=4).form
    if len(form.U) != 3:
        raise ShapeError(f"Figure 2 shows a tensor of order 3, not {len(form.U)}")
    S2 = form.W[0] @ form.U[0]  # S₍₂₎ as (r₂ × m₁)
    S3 = torch.einsum("jk,ka,kb->jab", form.W[1], S2, form.U[1])
    T = form.to_tensor()
    same = len(set(form.shape)) == 1
    m = {f"d{k}": f"m={size}" if same else _number("m", k, size) for k, size in enumerate(form.shape, 1)}
    r = {k: _number("r", k, rank) for k, rank in enumerate(form.ranks, 1)}
    bonds = {f"{leg}{k}": r[k] for k in r for leg in "ugh"}
    whole = View(
        TensorNetwork([tensor_node("T", T, ["d1", "d2", "d3"])]),
        {"T": Place(0, 0, 0.7, "T")},
        {"d1": Open(0, 1, -0.7), "d2": Open(0, 1, 0), "d3": Open(0, 1, 0.7)},
        m,
    )
    outer = View(
        TensorNetwork(
            [
                tensor_node("S", S3, ["g3", "d1", "d2"]),
                delta_node("δ", form.ranks[2], ["g3", "u3", "h3"]),
                tensor_node("U", form.U[2], ["u3", "d3"]),
                tensor_node("λ", form.weights, ["h3"]),
            ],
            ["d1", "d2", "d3"],
        ),
        {
            "S": Place(0, 0, 0.4, "S₍₃₎"),
            "δ": Place(1.55, 0),
            "U": Place(1.55, 0.95, label="U₃"),
            "λ": Place(2.55, 0),
        },
        {"d1": Open(0, 1, -0.4), "d2": Open(0, 1, 0.4), "d3": DOWN},
        {**m, **bonds},
    )
    level = View(
        TensorNetwork([tensor_node("S", S3, ["g3", "d1", "d2"])], ["d1", "d2", "g3"]),
        {"S": Place(0, 0, 0.4, "S₍₃₎")},
        {"d1": Open(0, 1, -0.4), "d2": Open(0, 1, 0.4), "g3": RIGHT},
        {**m, **bonds},
    )
    inner = View(
        TensorNetwork(
            [
                tensor_node("S", S2, ["g2", "d1"]),
                delta_node("δ", form.ranks[1], ["g2", "u2", "h2"]),
                tensor_node("U", form.U[1], ["u2", "d2"]),
                tensor_node("W", form.W[1], ["g3", "h2"]),
            ],
            ["d1", "d2", "g3"],
        ),
        {
            "S": Place(0, 0, 0.12, "S₍₂₎"),
            "δ": Place(1.25, 0),
            "U": Place(1.25, 0.95, label="U₂"),
            "W": Place(2.3, 0, label="W₂"),
        },
        {"d1": DOWN, "d2": DOWN, "g3": RIGHT},
        {**m, **bonds},
    )
    unrolled = View(
        form.to_network(),
        {
            **{f"U{k}": Place(2 * k, 0.95, label=_number("U", k)) for k in (1, 2, 3)},
            **{f"δ{k}": Place(2 * k, 0) for k in (1, 2, 3)},
            **{f"W{k}": Place(2 * k + 1, 0, label=_number("W", k)) for k in (1, 2)},
            "λ": Place(7, 0),
        },
        dict.fromkeys(("d1", "d2", "d3"), DOWN),
        {**m, **bonds},
    )
    return [
        Panel("(a) T = Σᵢ λᵢ S₍₃₎,ᵢ ⊗ uᵢ, with uᵢ the rows of U₃", (whole, outer)),
        Panel("(b) S₍₃₎,ⱼ = Σᵢ Wⱼᵢ S₍₂₎,ᵢ ⊗ uᵢ, with W₂ and the rows of U₂", (level, inner)),
        Panel("(c) T with all levels, S₍₁₎ = 1", (whole, unrolled)),
    ]


def figure_3(rank: int = 4, embedding: int = 3, vocabulary: int = 5) -> list[Panel]:
    """Figure 3. The recursion at t = 4, behind three words: ⟨T₍₄₎, A₍₃₎⟩ as a chain, T₍₄₎ from S₍₃₎, h₃ from h₂.

    The paper counts the state that predicts word t as h_t; it is the state after t − 1 words (see equations.md), h₃.
    """
    numbers = torch.Generator().manual_seed(3)
    W, U, V, alphas = (
        torch.randn(shape, generator=numbers, dtype=torch.float64)
        for shape in [(rank, rank), (rank, embedding), (vocabulary, rank), (3, embedding)]
    )
    words = ["d1", "d2", "d3"]
    T = explicit_tensor(W, U, V, 4)
    S2 = torch.einsum("ji,ia->ja", W, U)
    S3 = torch.einsum("kj,jb,ja->kab", W, U, S2)
    r, m = f"r={rank}", f"m={embedding}"
    labels = {**dict.fromkeys([*words, "m"], m), **dict.fromkeys("suhgw", r), "y": f"vocabulary={vocabulary}"}
    explicit = View(
        TensorNetwork([tensor_node("T", T, [*words, "y"])]),
        {"T": Place(0, 0, 0.7, "T₍₄₎")},
        {"d1": Open(0, 1, -0.7), "d2": Open(0, 1, 0), "d3": Open(0, 1, 0.7), "y": RIGHT},
        labels,
    )
    level = View(
        TensorNetwork(
            [
                tensor_node("S", S3, ["s", "d1", "d2"]),
                delta_node("δ", rank, ["s", "u", "h"]),
                tensor_node("U", U, ["u", "d3"]),
                tensor_node("V", V, ["y", "h"]),
            ],
            [*words, "y"],
        ),
        {"S": Place(0, 0, 0.4, "S₍₃₎"), "δ": Place(1.5, 0), "U": Place(1.5, 0.95), "V": Place(2.5, 0)},
        {"d1": Open(0, 1, -0.4), "d2": Open(0, 1, 0.4), "d3": DOWN, "y": RIGHT},
        labels,
    )
    _, before, state = recurse(W, U, alphas)
    after = View(
        TensorNetwork([tensor_node("h", state, ["h"])]), {"h": Place(0, 0, 0, "h₃")}, {"h": RIGHT}, labels
    )
    step = View(
        TensorNetwork(
            [
                tensor_node("p", before, ["w"]),
                tensor_node("W", W, ["g", "w"]),
                delta_node("δ", rank, ["g", "u", "h"]),
                tensor_node("U", U, ["u", "m"]),
                tensor_node("α", alphas[2], ["m"]),
            ]
        ),
        {
            "p": Place(0, 0, 0, "h₂"),
            "W": Place(1, 0),
            "δ": Place(2, 0),
            "U": Place(2, 0.95),
            "α": Place(2, 1.9, 0, "α₃"),
        },
        {"h": RIGHT},
        labels,
    )
    return [
        Panel("(a) y₄ = ⟨T₍₄₎, A₍₃₎⟩", (view_sentence(sentence_network(W, U, V, alphas)),)),
        Panel("(b) T₍₄₎,ₖ = Σᵢ Vₖᵢ S₍₃₎,ᵢ ⊗ uᵢ", (explicit, level)),
        Panel("(c) h₃ = W h₂ ⊙ U α₃, and y₄ = V h₃", (after, step)),
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
        "h": (0.0, "h₂", VECTOR),
        "W": (1.0, "W", TENSOR),
        "g": (2.0, "g", INK),
        "o": (3.0, "h₃", VECTOR),
    }
    shapes: list[Shape] = [
        Disc(name, x * cell, 0, RADIUS, label, colour, 5.0 if name == "g" else 0.0)
        for name, (x, label, colour) in spots.items()
    ]
    shapes += [
        Disc("U", 2 * cell, 0.95 * cell, RADIUS, "U", TENSOR),
        Disc("α", 2 * cell, 1.9 * cell, RADIUS, "α₃", VECTOR),
    ]
    for one, other in (("h", "W"), ("W", "g"), ("g", "o")):
        x1, x2 = spots[one][0] * cell, spots[other][0] * cell
        wide = {name: RADIUS + (5.0 if name == "g" else 0.0) for name in (one, other)}
        shapes.append(Line(x1 + wide[one], 0, x2 - wide[other], 0, (one, other)))
    for one, other, top in (("g", "U", 0.0), ("U", "α", 0.95)):
        shapes.append(
            Line(2 * cell, top * cell + RADIUS, 2 * cell, (top + 0.95) * cell - RADIUS, (one, other))
        )
    return caption(Picture(tuple(shapes)), "(d) any recurrent network: h₃ = g(W h₂, U α₃)")


def _number(letter: str, number: int, size: int | None = None) -> str:
    """Return a letter with its number as a subscript, and its size where it has one."""
    return letter + "₁₂₃₄"[number - 1] + ("" if size is None else f"={size}")
