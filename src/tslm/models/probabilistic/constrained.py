"""A probabilistic model multiplied with an automaton: exact probabilities of whole classes of sentences.

The product of the two is again a network of the same shape, with a state for each pair of an automaton's state q and a
hidden state z. Read from the end, it has for each pair the probability that the sentence ends, matching, within n more
words:

    B_n[q, z] = Σ_z' W[z, z'] ( [q accepts] e(<eos> | z') + Σ_w e(w | z') B_{n−1}[δ(q, w), z'] ),

and all words that the automaton does not tell apart are one term of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tslm.automata import DEAD, Automaton
from tslm.models.probabilistic.model import ProbabilisticState
from tslm.models.probabilistic.network import Network, draw_from
from tslm.stopping import check_wanted


@dataclass(frozen=True)
class Constrained:
    """The sentences of a model that match an automaton, of at most ``longest`` words more than were read."""

    network: Network
    automaton: Automaton
    longest: int

    @cached_property
    def _mass_SR(self) -> Float[Tensor, "S R"]:
        """The probability of each symbol from each state; ``<eos>`` is none of them."""
        vocabulary = self.network.model.vocabulary
        symbol_V = self.automaton.symbols(len(vocabulary))
        symbol_V[vocabulary.eos_id] = -1
        rest = np.flatnonzero(symbol_V == 0).tolist()
        symbols = [rest, *([word] if word != vocabulary.eos_id else [] for word in self.automaton.words)]
        return torch.stack([self.network.mass_R(words) for words in symbols])

    @cached_property
    def ends_NQR(self) -> tuple[Float[Tensor, "Q R"], ...]:
        """B_0 … B_longest."""
        with torch.no_grad():
            next_QS = torch.from_numpy(self.automaton.next_QS)
            end_R = self.network.mass_R([self.network.model.vocabulary.eos_id])
            accepting_Q1 = torch.from_numpy(self.automaton.accepting_Q).to(end_R).unsqueeze(1)
            within: list[Tensor] = []
            value_QR = accepting_Q1 * end_R
            for _ in range(self.longest + 1):
                check_wanted()
                within.append(self.network.pull(value_QR))
                value_QR = accepting_Q1 * end_R
                for symbol, mass_R in enumerate(self._mass_SR):
                    after_Q = next_QS[:, symbol]
                    value_QR = value_QR + (after_Q != DEAD).unsqueeze(1) * mass_R * within[-1][after_Q]
        return tuple(within)

    def probability(self, belief_R: Float[Tensor, " R"], state: int = 0) -> float:
        """Return p(the sentence ends, matching, within ``longest`` more words)."""
        return float(belief_R @ self.ends_NQR[self.longest][state]) if state != DEAD else 0.0

    def lengths(self, belief_R: Float[Tensor, " R"]) -> Float[np.ndarray, "N"]:
        """Return p(the sentence matches and has n words), for n from 0 to ``longest``."""
        until_N = torch.stack([belief_R @ ends_QR[0] for ends_QR in self.ends_NQR]).double().numpy()
        return np.diff(until_N, prepend=0.0).clip(min=0)

    @torch.no_grad()
    def weigh(
        self, believed: ProbabilisticState, state: int, left: int
    ) -> tuple[Float[Tensor, " V"], Float[Tensor, " V"]]:
        """Look at every next word.

        Args:
            believed: the model's state.
            state: the automaton's.
            left: how many words may yet come.

        Returns:
            p(word and a matching end), and p(word), for each word of the vocabulary.
        """
        network, eos_id = self.network, self.network.model.vocabulary.eos_id
        moved_R = network.move(believed.belief_Bk[0], network.of_cluster(int(believed.cluster_B[0])))
        word_V = network.words_V(moved_R)
        match_V = torch.zeros_like(word_V)
        if left > 0:
            ends_QR = self.ends_NQR[left - 1]
            after = self.automaton.next_QS[state].tolist()
            if after[0] != DEAD:
                match_V = network.words_V(moved_R * ends_QR[after[0]])
            for word, following in zip(self.automaton.words, after[1:], strict=True):
                states = network.of_word(word)
                value = moved_R[states] * network.emission_k(word)
                match_V[word] = value @ ends_QR[following, states] if following != DEAD else 0.0
        match_V[eos_id] = word_V[eos_id] if self.automaton.accepting_Q[state] else 0.0
        return match_V, word_V

    @torch.no_grad()
    def sample(self, count: int, seed: int) -> list[list[int]]:
        """Return sentences drawn from the model, given that they match; without their ``<eos>``."""
        generator = torch.Generator().manual_seed(seed)
        eos_id = self.network.model.vocabulary.eos_id
        lines: list[list[int]] = []
        for _ in range(count):
            line: list[int] = []
            believed, state = self.network.model.start(1), 0
            while True:
                check_wanted()
                match_V, _ = self.weigh(believed, state, self.longest - len(line))
                word = int(draw_from(match_V, generator))
                if word == eos_id:
                    break
                line.append(word)
                state = self.automaton.read([word], state)
                _, believed = self.network.model.score(np.array([[word]]), believed)
            lines.append(line)
        return lines
