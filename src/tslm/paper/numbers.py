"""Table 1, Table 2, Figure 4, Figure 5. The paper's numbers, to stand beside ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRow:
    """One line of Table 2 for one corpus."""

    name: str
    """What the paper calls the model."""
    size: str
    """Hidden units × layers."""
    valid: float | None
    test: float | None


TABLE_2: dict[str, dict[str, PaperRow]] = {
    "ptb": {
        "kn5": PaperRow("KN-5", "–", None, 141.2),
        "rnn-300": PaperRow("RNN (Mikolov)", "300 × 1", None, 124.7),
        "lstm-200x2": PaperRow("LSTM (Zaremba)", "200 × 2", 120.7, 114.5),
        "lstm-1024": PaperRow("LSTM (Grave)", "1024 × 1", None, 82.3),
        "lstm-650x2": PaperRow("LSTM (Merity)", "650 × 2", 84.4, 80.6),
        "rnn": PaperRow("RNN", "256 × 1", 130.3, 124.1),
        "lstm": PaperRow("LSTM", "256 × 1", 118.6, 110.3),
        "tslm": PaperRow("TSLM", "256 × 1", 117.2, 108.1),
        "gated": PaperRow("TSLM, gated (ours)", "384 × 1", None, None),
        "lstm-decay": PaperRow("LSTM, with decay (ours)", "256 × 1", None, None),
        "gated-decay": PaperRow("TSLM, gated, with decay (ours)", "384 × 1", None, None),
        "gated-768": PaperRow("TSLM, gated, large (ours)", "768 × 1", None, None),
        "gated-mos-768": PaperRow("TSLM, gated, large + MoS (ours)", "768 × 1", None, None),
        "lstm-spelling": PaperRow("LSTM, spelling (ours)", "256 × 1", None, None),
        "gated-spelling": PaperRow("TSLM, gated, spelling (ours)", "384 × 1", None, None),
        "gated-768-spelling": PaperRow("TSLM, gated, large, spelling (ours)", "768 × 1", None, None),
        "lstm-product": PaperRow("LSTM, products, spelling (ours)", "256 × 1", None, None),
        "gated-product": PaperRow("TSLM, gated, products, spelling (ours)", "384 × 1", None, None),
        "gated-768-product": PaperRow("TSLM, gated, large, products, spelling (ours)", "768 × 1", None, None),
        "gated-cascade": PaperRow("TSLM, gated, cascade, spelling (ours)", "384 × 2", None, None),
        "gated-768-cascade": PaperRow("TSLM, gated, large, cascade, spelling (ours)", "768 × 2", None, None),
        "gated-mos-spelling": PaperRow("TSLM, gated, large, spelling + MoS (ours)", "768 × 1", None, None),
        "rnn-mos": PaperRow("RNN + MoS", "256 × 1", 88.7, 84.3),
        "tslm-mos": PaperRow("TSLM + MoS", "256 × 1", 86.4, 83.6),
    },
    "wikitext-2": {
        "kn5": PaperRow("KN-5", "–", None, None),
        "rnn-300": PaperRow("RNN (Mikolov)", "300 × 1", None, None),
        "lstm-200x2": PaperRow("LSTM (Zaremba)", "200 × 2", None, None),
        "lstm-1024": PaperRow("LSTM (Grave)", "1024 × 1", None, 99.3),
        "lstm-650x2": PaperRow("LSTM (Merity)", "650 × 2", 108.7, 100.9),
        "rnn": PaperRow("RNN", "512 × 1", 126.0, 120.4),
        "lstm": PaperRow("LSTM", "512 × 1", 105.6, 101.4),
        "tslm": PaperRow("TSLM", "512 × 1", 104.9, 100.4),
        "gated": PaperRow("TSLM, gated (ours)", "512 × 1", None, None),
        "gated-decay": PaperRow("TSLM, gated, with decay (ours)", "512 × 1", None, None),
        "gated-even": PaperRow("TSLM, gated, rare words slower (ours)", "512 × 1", None, None),
        "lstm-spelling": PaperRow("LSTM, spelling (ours)", "512 × 1", None, None),
        "gated-spelling": PaperRow("TSLM, gated, spelling (ours)", "512 × 1", None, None),
        "gated-product": PaperRow("TSLM, gated, products, spelling (ours)", "512 × 1", None, None),
        "gated-stack": PaperRow("TSLM, gated, two layers, spelling (ours)", "500 × 2", None, None),
        "gated-mos": PaperRow("TSLM, gated, spelling + MoS (ours)", "512 × 1", None, None),
        "rnn-mos": PaperRow("RNN + MoS", "512 × 1", 85.6, 81.8),
        "tslm-mos": PaperRow("TSLM + MoS", "512 × 1", 83.9, 81.0),
    },
}
"""corpus → recipe → row. The three large LSTMs and RNN 300 are cited by the paper, the others are its own runs; the
gated TSLM is not in the paper, and has on PTB the rank that makes it as large as the LSTM."""


def show_cell(cell: str) -> str:
    """Return what a cell's curve is called: as its row of Table 2."""
    return TABLE_2["ptb"][cell].name


TABLE_1: dict[str, dict[str, float]] = {
    "ptb": {
        "tokens, train": 929_590,
        "tokens, valid": 73_761,
        "tokens, test": 82_431,
        "vocabulary": 10_000,
        "<unk> in train": 0.048,
    },
    "wikitext-2": {
        "tokens, train": 2_088_628,
        "tokens, valid": 217_646,
        "tokens, test": 245_569,
        "vocabulary": 33_278,
        "<unk> in train": 0.026,
    },
}
"""Table 1. Tokens of each split, size of the vocabulary, share of ``<unk>``."""

FIGURE_4: dict[str, int] = {"ptb": 30, "wikitext-2": 40}
"""Figure 4. The length n that the paper finds best."""

FIGURE_5: dict[str, int] = {"ptb": 256, "wikitext-2": 512}
"""Figure 5. The rank r that the paper finds best."""
