"""What a model thinks of each word of a sentence, and which earlier words made it think so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError, SizeLimitError
from tslm.evaluation.scoring import score_text
from tslm.files import finite
from tslm.inference.inputs import ModelLike, open_model, read_string
from tslm.models.base import HasNetwork, LanguageModel
from tslm.shapes import Float
from tslm.stopping import check_wanted
from tslm.tables import html_table, text_table

EFFECT = "effect of the word on the left on the word above, in nats"
CONTRIBUTION = "what the word on the left adds to the logit of the word above"
LONGEST = 200
"""Words of a sentence: the effects of every word on every other take the square of it."""

Reference = Literal["mean", "ones"]
"""What stands in for a word: the mean of all words, which averages the logits (Eq. 14), or one that changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A word that could have stood here."""

    word: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class WordReport:
    """A word and what the model expected in its place."""

    word: str
    known: bool
    """Whether it is in the vocabulary; it was read as ``<unk>`` where not."""
    log_probability: float
    rank: int
    """1 for the word the model thought likeliest."""
    surprise: float
    """−log2 p, in bits."""
    entropy: float
    """How many bits of surprise the model expected here; a word far above it is an odd one."""
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, kw_only=True)
class Effects:
    """How much each earlier word changes each word's log-probability."""

    method: str
    """What was done, in words."""
    exact: bool
    """Whether it is an exact contraction of the model's own network with the word's mode summed over."""
    matrix: Float[np.ndarray, "T T"]
    """Row s, column t: ln p(word t | all) − ln p(word t | word s replaced); zero unless s < t."""


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """What each earlier word adds to each word's logit: terms of a sum, which no other word changes."""

    method: str
    exact: bool
    """Whether the terms and the output's bias add up to the logit itself."""
    matrix: Float[np.ndarray, "T T"]
    """Row s, column t: what place s (the beginning of the text, then the words) adds to word t; zero unless s ≤ t."""

    def heat(self, words: Sequence[str]) -> tuple[list[str], Float[np.ndarray, "S S"]]:
        """Return names and values as a heat map takes them: the beginning of the text is one more word before them."""
        return ["(start)", *words], np.pad(self.matrix, ((0, 1), (1, 0)))


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """The effective rank across each cut of a sentence's network."""

    method: str
    exact: bool
    ranks: tuple[float, ...]
    """After each word but ``<eos>``: how many independent features of the words so far matter to what follows."""
    information: tuple[float, ...] | None = None
    """What the two sides of each cut say of each other, in bits, where the model is a probability throughout."""


@dataclass(frozen=True, kw_only=True)
class HiddenState:
    """A hidden state, and what it is like."""

    number: int
    probability: float
    """Given the whole sentence."""
    words: tuple[tuple[str, float], ...]
    """The words that it emits most, each with its probability there."""


@dataclass(frozen=True, kw_only=True)
class StateReport:
    """The hidden states behind a word."""

    cluster: int
    cluster_words: tuple[str, ...]
    """The most common words that share these states."""
    states: tuple[HiddenState, ...]
    """The likeliest first."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """A sentence explained.

    Example:
        >>> explanation = tslm.explain("runs/asv-kn5", "In the beginning")
        >>> explanation.words[1].word, explanation.words[1].rank
        ('the', 1)
    """

    words: tuple[WordReport, ...]
    """The last is ``<eos>``."""
    effects: Effects | None
    contributions: Contributions | None
    """For one layer of an exact cell."""
    state_norms: tuple[float, ...] | None
    """‖h‖ after each word but ``<eos>``, where the first layer is a chain of tensors."""
    cuts: Cuts | None
    states: tuple[StateReport, ...] | None = None
    """Of each word, for a probabilistic model."""

    @property
    def log_probability(self) -> float:
        """Ln p of the sentence."""
        return sum(word.log_probability for word in self.words)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The words that the model does not know; they were read as ``<unk>``."""
        return tuple(word.word for word in self.words if not word.known)

    def table(self, shown: int) -> tuple[list[str], list[list[str]]]:
        """Return the names and the cells of a table with a row per word.

        Args:
            shown: how many alternatives to show.
        """
        header = ["word", "p", "rank", "bits", "expected"]
        header += ["‖h‖"] if self.state_norms is not None else []
        header += ["cut rank"] if self.cuts is not None else []
        information = None if self.cuts is None else self.cuts.information
        header += ["cut bits"] if information is not None else []
        rows: list[list[str]] = []
        for place, word in enumerate(self.words):
            cells = [
                word.word if word.known else f"⟨{word.word}⟩",
                f"{math.exp(word.log_probability):.4f}",
                f"{word.rank:,}",
                f"{word.surprise:.2f}",
                f"{word.entropy:.2f}",
            ]
            ranks = None if self.cuts is None else self.cuts.ranks
            for numbers in (self.state_norms, ranks, information):
                if numbers is not None:
                    cells.append(f"{numbers[place]:.2f}" if place < len(numbers) else "")
            best = [f"{entry.word} {entry.probability:.3f}" for entry in word.alternatives[:shown]]
            rows.append([*cells, "  ".join(best)])
        return [*header, "alternatives"], rows

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as plain values; what is infinite becomes None."""
        return describe_explanation(self)

    def __repr__(self) -> str:
        return f"{text_table(*self.table(3), left=(0,))}\nln p = {self.log_probability:.4f}"

    def _repr_html_(self) -> str:
        """Return the table and the heat maps of effects and contributions, for a notebook."""
        from tslm.drawing.heatmap import heat_svg

        parts = [html_table(*self.table(5)), f"<p>ln p = {self.log_probability:.4f}</p>"]
        if self.effects is not None and len(self.words) > 1:
            title = f"{EFFECT}: {self.effects.method}"
            parts.append(heat_svg([word.word for word in self.words], self.effects.matrix, title))
        if self.contributions is not None:
            names, matrix = self.contributions.heat([word.word for word in self.words])
            parts.append(heat_svg(names, matrix, f"{CONTRIBUTION}: {self.contributions.method}"))
        return "\n".join(parts)


def explain(
    model: ModelLike,
    sentence: str,
    *,
    top: int = 5,
    reference: Reference = "mean",
    effects: bool = True,
    cuts: bool = True,
) -> Explanation:
    """Explain every word of a sentence, its ``<eos>`` included.

    Args:
        model: a model, or its run folder; the effects of words are exact for one layer of an exact cell.
        sentence: what is to be explained, as people write it.
        top: how many alternatives.
        reference: what replaces a word of a TSLM or gated model to see its effect.
        effects: whether to find the effects.
        cuts: whether to find the effective ranks.

    Raises:
        CorpusError: no word, or one for which there is neither id nor ``<unk>``.
        SizeLimitError: more than 200 words.
    """
    model = open_model(model)
    words = model.rule.split(read_string(sentence, "sentence"))
    if not words:
        raise CorpusError("the sentence has no word; give at least one")
    if len(words) > LONGEST:
        raise SizeLimitError(f"the sentence has {len(words)} words; at most {LONGEST} can be explained")
    ids_T = model.vocabulary.encode([*words, EOS])
    reports = tuple(explain_words(model, [*words, EOS], top=top))
    if model.kind == "probabilistic":
        from tslm.inference.hidden import explain_hidden

        return explain_hidden(cast(Any, model), ids_T, reports, effects=effects, cuts=cuts)
    if not isinstance(model, HasNetwork) or model.chain() is None:
        found = _replace_by_unk(model, ids_T) if effects else None
        return Explanation(words=reports, effects=found, contributions=None, state_norms=None, cuts=None)
    from tslm.inference.chain import explain_chain  # a model without a network needs no PyTorch

    return explain_chain(model, ids_T, reports, reference=reference, effects=effects, cuts=cuts)


def explain_words(
    model: LanguageModel[Any], words: list[str], *, top: int = 5, state: Any = None
) -> list[WordReport]:
    """Return what the model expected in the place of each word, going from left to right.

    Args:
        model: any language model.
        words: the words.
        top: how many alternatives.
        state: the state to go on from; that of the beginning of a text when left out.
    """
    state, ids = model.start(1) if state is None else state, model.vocabulary.encode(words)
    scores, _ = score_text(model, ids, state)
    reports: list[WordReport] = []
    for word, number, score in zip(words, ids.tolist(), scores.tolist(), strict=True):
        check_wanted()
        log_V = model.predict(state)[0].astype(np.float64)
        best = np.argsort(-log_V, kind="stable")[:top].tolist()
        possible = log_V[log_V > -np.inf]
        entropy = -(np.exp(possible) * possible).sum() / math.log(2)
        reports.append(
            WordReport(
                word=word,
                known=word in model.vocabulary,
                log_probability=score,
                rank=int((log_V > log_V[number]).sum()) + 1,
                surprise=0.0 - score / math.log(2),
                entropy=float(entropy),
                alternatives=tuple(
                    Alternative(word=model.vocabulary.words[place], probability=math.exp(log_V[place]))
                    for place in best
                ),
            )
        )
        _, state = model.score(np.array([[number]]), state)
    return reports


def describe_explanation(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as plain values for JSON; what is infinite there becomes None."""
    effects, cuts = explanation.effects, explanation.cuts
    return {
        "log_probability": finite(explanation.log_probability),
        "words": [describe_word(word) for word in explanation.words],
        "effects": None
        if effects is None
        else {
            "method": effects.method,
            "exact": effects.exact,
            "matrix": [[finite(value) for value in row] for row in effects.matrix.tolist()],
        },
        "contributions": None
        if explanation.contributions is None
        else {
            "method": explanation.contributions.method,
            "exact": explanation.contributions.exact,
            "matrix": explanation.contributions.matrix.tolist(),
        },
        "state_norms": None if explanation.state_norms is None else list(explanation.state_norms),
        "cuts": None
        if cuts is None
        else {
            "method": cuts.method,
            "exact": cuts.exact,
            "ranks": list(cuts.ranks),
            "information": None if cuts.information is None else list(cuts.information),
        },
        "states": None
        if explanation.states is None
        else [describe_states(report) for report in explanation.states],
    }


def describe_states(report: StateReport) -> dict[str, Any]:
    """Return the hidden states of a word as plain values for JSON."""
    return {
        "cluster": report.cluster,
        "cluster_words": list(report.cluster_words),
        "states": [
            {
                "number": state.number,
                "probability": state.probability,
                "words": [{"word": word, "probability": chance} for word, chance in state.words],
            }
            for state in report.states
        ],
    }


def describe_word(word: WordReport) -> dict[str, Any]:
    """Return the report of a word as plain values for JSON."""
    return {
        "word": word.word,
        "unknown": not word.known,
        "log_probability": finite(word.log_probability),
        "probability": math.exp(word.log_probability),
        "rank": word.rank,
        "surprise": finite(word.surprise),
        "entropy": word.entropy,
        "alternatives": [
            {"word": entry.word, "probability": entry.probability} for entry in word.alternatives
        ],
    }


def _replace_by_unk(model: LanguageModel[Any], ids_T: NDArray[np.int32]) -> Effects | None:
    """Leave-one-out for models without factors: the sentence once for each word, that word replaced by ``<unk>``."""
    unknown = model.vocabulary.unk_id
    if unknown is None:
        return None
    T = len(ids_T)
    tokens_BT = np.tile(ids_T, (T, 1))
    tokens_BT[np.arange(1, T), np.arange(T - 1)] = unknown
    scores_BT, _ = model.score(tokens_BT, model.start(T))
    with np.errstate(invalid="ignore"):
        matrix = (scores_BT[:1] - scores_BT).astype(np.float64)
    matrix = np.triu(np.concatenate([matrix[1:], np.zeros((1, T))]), 1)
    return Effects(
        method="leave-one-out: the word replaced by <unk> and the sentence read again; no contraction",
        exact=False,
        matrix=np.nan_to_num(matrix, posinf=np.inf, neginf=-np.inf),
    )
