"""Sentences that must be like something: any model's next word, weighed by how likely it still leads there.

p(word | prefix) of the model is multiplied with p(the sentence meets the constraint | prefix, word) of a probabilistic
model, which is exact there. With the probabilistic model itself this is its conditional distribution; with another one
it is an approximation, but the constraint holds always, for no word is possible from which it cannot be met.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from tslm.automata import Automaton
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, NumberError, UnsupportedError
from tslm.inference.patterns import Constraint
from tslm.models.base import LanguageModel
from tslm.shapes import Float, Int


@dataclass(frozen=True)
class GuidedState:
    """A model's state, and for each text the guide's, the automaton's, and how many words are left."""

    own: Any
    guide: tuple[Any, ...]
    automaton: tuple[int, ...]
    left: tuple[int, ...]


class GuidedModel(LanguageModel[GuidedState]):
    """A model of the sentences that meet a constraint; ``<eos>`` begins the next one anew."""

    kind: ClassVar[str] = "guided"

    def __init__(self, model: LanguageModel[Any], constraint: Constraint, guide: LanguageModel[Any]) -> None:
        from tslm.models.probabilistic.constrained import Constrained
        from tslm.models.probabilistic.model import ProbabilisticModel

        if not isinstance(guide, ProbabilisticModel):
            raise UnsupportedError(
                f"a model of kind {guide.kind!r} cannot tell how likely a constraint is to be met; give a run of kind "
                "'probabilistic', of the same words, as guide"
            )
        if guide.vocabulary.words != model.vocabulary.words:
            raise CorpusError("the guide knows other words than the model; train both on the same corpus")
        self.model, self.guide = model, guide
        self.vocabulary, self.rule = model.vocabulary, model.rule
        self.automaton: Automaton = constraint.automaton(model)
        self.longest = constraint.longest
        self.constrained = Constrained(guide.network, self.automaton, constraint.longest)
        if self.constrained.probability(guide.network.begin_R) <= 0:
            raise CorpusError(
                "no sentence meets the constraint; ask for less, or allow more words with longest"
            )

    def start(self, batch: int) -> GuidedState:
        """Return the state at the beginning of a sentence."""
        guide = (self.guide.start(1),) * batch
        return GuidedState(self.model.start(batch), guide, (0,) * batch, (self.longest,) * batch)

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: GuidedState
    ) -> tuple[Float[np.ndarray, "B T"], GuidedState]:
        """Predict and read word by word; what cannot lead to a match has probability zero."""
        scores_BT = np.empty(tokens_BT.shape)
        for t in range(tokens_BT.shape[1]):
            words_B = tokens_BT[:, t]
            scores_BT[:, t] = self._predict(state)[np.arange(len(words_B)), words_B]
            state = self._read(words_B, state)
        return scores_BT, state

    def predict(self, state: GuidedState) -> Float[np.ndarray, "B V"]:
        """Return ln p of every next word.

        Raises:
            NumberError: what was read already, a prompt, cannot lead to a match any more.
        """
        log_BV = self._predict(state)
        if bool((log_BV.max(1) == -np.inf).any()):
            raise NumberError(
                "the sentence as it begins cannot meet the constraint any more; change the prompt"
            )
        return log_BV

    def _predict(self, state: GuidedState) -> Float[np.ndarray, "B V"]:
        log_BV = self.model.predict(state.own).astype(np.float64)
        for row, (believed, automaton, left) in enumerate(
            zip(state.guide, state.automaton, state.left, strict=True)
        ):
            if automaton < 0 or left < 0:
                log_BV[row] = -np.inf
                continue
            match_V, word_V = (
                part.double().numpy() for part in self.constrained.weigh(believed, automaton, left)
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                log_BV[row] += np.log(np.where(word_V > 0, match_V / word_V, 0.0))
            best = log_BV[row].max()
            if best > -np.inf:
                log_BV[row] -= best + np.log(np.exp(log_BV[row] - best).sum())
        return log_BV

    def _read(self, words_B: Int[np.ndarray, "B"], state: GuidedState) -> GuidedState:
        _, own = self.model.score(words_B[:, None], state.own)
        guide, automaton, left = list(state.guide), list(state.automaton), list(state.left)
        for row, word in enumerate(words_B.tolist()):
            _, guide[row] = self.guide.score(np.array([[word]]), guide[row])
            if word == self.vocabulary.eos_id:
                automaton[row], left[row] = 0, self.longest
            else:
                automaton[row], left[row] = self.automaton.read([word], automaton[row]), left[row] - 1
        return GuidedState(own, tuple(guide), tuple(automaton), tuple(left))

    @property
    def parameter_count(self) -> int:
        """Of the model."""
        return self.model.parameter_count

    def save(self, folder: Path) -> NoReturn:
        """Refuse: a constraint is made anew where it is needed."""
        raise UnsupportedError(
            f"a guided model is not kept in a folder such as {folder}; keep the model itself"
        )

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> NoReturn:
        """Refuse as well."""
        raise UnsupportedError(
            f"there is no guided model in {folder}; make one from a model and a constraint"
        )


def guided(model: LanguageModel[Any], constraint: Constraint, guide: LanguageModel[Any]) -> GuidedModel:
    """Return a model that writes only sentences that meet a constraint.

    Raises:
        TslmError: the guide is not probabilistic or knows other words, or no sentence meets the constraint.
    """
    return GuidedModel(model, constraint, guide)
