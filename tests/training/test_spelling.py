from __future__ import annotations

import torch

from tslm.training.spelling import FEWEST, Spelling, parts_of

WORDS = [
    "walk",
    "walks",
    "walked",
    "talks",
    "talked",
    "<unk>",
    "N",
    "1990",
    "3,000",
    "co-op",
    "co-author",
    "co-star",
]


def matrix_by_hand() -> torch.Tensor:
    """Words × parts, straight from the definition."""
    parts = {part for word in WORDS for part in parts_of(word)}
    kept = [
        part for part in parts if FEWEST <= sum(part in parts_of(word) for word in WORDS) <= len(WORDS) / 2
    ]
    matrix = torch.tensor([[float(part in parts_of(word)) for part in kept] for word in WORDS])
    return matrix / matrix.sum(1, keepdim=True).clamp(min=1).sqrt()


def test_words_share_parts() -> None:
    spelling, matrix = Spelling(WORDS), matrix_by_hand()
    assert spelling.parts == matrix.shape[1] > 3
    ours = spelling.spread(torch.eye(spelling.parts))
    torch.testing.assert_close(ours @ ours.T, matrix @ matrix.T)  # the order of the parts is free
    assert ours[WORDS.index("<unk>")].abs().sum() == 0
    alike = ours @ ours.T
    assert alike[1, 2] > alike[1, 9] == 0  # walks and walked, not walks and co-op


def test_gathering_is_the_transpose_of_spreading() -> None:
    spelling = Spelling(WORDS)
    matrix = spelling.spread(torch.eye(spelling.parts))
    vectors = torch.randn(len(WORDS), 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(spelling.gather(vectors), matrix.T @ vectors)


def test_words_that_share_nothing() -> None:
    spelling = Spelling(["a", "the", "<eos>"])
    assert spelling.parts == 0
    vectors = torch.ones(3, 2)
    assert spelling.gather(vectors).shape == (0, 2)
    assert torch.equal(spelling.spread(spelling.gather(vectors)), torch.zeros(3, 2))
