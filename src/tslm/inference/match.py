"""How likely a sentence is of a certain kind: exact, by a probabilistic model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tslm.errors import UnsupportedError
from tslm.files import finite
from tslm.inference.inputs import ModelLike, open_model, read_words
from tslm.inference.patterns import Constraint
from tslm.tables import html_table


@dataclass(frozen=True, kw_only=True, repr=False)
class Matched:
    """How likely a model finds sentences that meet a constraint.

    Example:
        >>> from tslm.models.probabilistic.model import ProbabilisticConfig, ProbabilisticModel
        >>> config = ProbabilisticConfig(rank=16, clusters=4, alone=1, embedding=8)
        >>> untrained = ProbabilisticModel(config, vocabulary).eval()
        >>> found = tslm.match(untrained, "... the (king|kings) of ...", longest=20)
        >>> 0 < found.probability < 1
        True
    """

    constraint: Constraint
    log_probability: float
    """Ln p that a sentence meets it; -inf where none does."""
    length: float
    """The mean number of words of those that do."""
    lengths: tuple[float, ...]
    """p that a sentence meets it and has 0, 1, 2 … words."""
    beyond: float
    """p of sentences longer than was looked at, whether they would meet it or not: what the sum may lack at most."""
    samples: tuple[str, ...]
    """Sentences drawn from the model, given that they meet it."""

    @property
    def probability(self) -> float:
        """The probability that a sentence meets it."""
        return math.exp(self.log_probability)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return asdict(self) | {
            "log_probability": finite(self.log_probability),
            "probability": self.probability,
        }

    def __repr__(self) -> str:
        lines = [
            f"p = {self.probability:.6g}   ln p = {self.log_probability:.4f}"
            + (
                f"   (mean length {self.length:.1f} words)"
                if self.probability
                else "   no sentence is like that"
            ),
            f"sentences of more than {self.constraint.longest} words, not looked at: p = {self.beyond:.3g}",
        ]
        return "\n".join([*lines, *self.samples])

    def _repr_html_(self) -> str:
        """Return the numbers and the sentences as tables, for a notebook."""
        numbers = [["p", f"{self.probability:.6g}"], ["beyond", f"{self.beyond:.3g}"]]
        tables = [html_table(["", "probability"], numbers)]
        return "\n".join(
            [*tables, *([html_table(["drawn"], [[line] for line in self.samples])] if self.samples else [])]
        )


def match(
    model: ModelLike,
    pattern: str = "",
    *,
    contain: str | Sequence[str] = (),
    avoid: str | Sequence[str] = (),
    shortest: int = 0,
    longest: int = 60,
    samples: int = 0,
    seed: int = 1,
) -> Matched:
    """Return how likely a sentence is of a certain kind, exactly.

    Args:
        model: a probabilistic model, or its run folder.
        pattern: the whole sentence: words, ``?`` for any one, ``...`` for any number, ``(a|b)``, ``(a)*``, ``(a)+``.
        contain: words or phrases that must stand somewhere in it.
        avoid: words that may not.
        shortest: the least number of words.
        longest: the largest number of words.
        samples: how many sentences to draw, given all that.
        seed: for the samples.

    Raises:
        TslmError: the model is of another kind, or the pattern cannot be read.
    """
    from tslm.models.probabilistic.constrained import Constrained
    from tslm.models.probabilistic.model import ProbabilisticModel

    opened = open_model(model)
    if not isinstance(opened, ProbabilisticModel):
        raise UnsupportedError(
            f"a model of kind {opened.kind!r} cannot sum over all sentences that match; train one of kind "
            "'probabilistic', for example tslm train asv/probabilistic"
        )
    constraint = Constraint(
        pattern=pattern,
        contain=read_words(contain),
        avoid=read_words(avoid),
        shortest=shortest,
        longest=longest,
    )
    network = opened.network
    found = Constrained(network, constraint.automaton(opened), longest)
    lengths = found.lengths(network.begin_R)
    total = float(lengths.sum())
    every = Constrained(network, Constraint(longest=longest).automaton(opened), longest)
    drawn = found.sample(samples, seed) if samples and total > 0 else []
    return Matched(
        constraint=constraint,
        log_probability=math.log(total) if total > 0 else -math.inf,
        length=float((lengths * range(len(lengths))).sum() / total) if total > 0 else 0.0,
        lengths=tuple(lengths.tolist()),
        beyond=max(0.0, 1 - every.probability(network.begin_R)),
        samples=tuple(opened.rule.join(opened.vocabulary.decode(line)) for line in drawn),
    )
