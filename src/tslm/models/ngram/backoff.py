"""A back-off table as a language model: reading, predicting, and its run folder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tslm.config import check
from tslm.corpus.vocabulary import UNK, Vocabulary
from tslm.errors import RunError, ShapeError
from tslm.models.arrays import WEIGHTS, map_arrays, save_arrays
from tslm.models.base import LanguageModel
from tslm.models.ngram.blanks import FillCost, Pattern, Span
from tslm.models.ngram.drawing import LARGEST, WordDrawer, invert_rows
from tslm.models.ngram.filling import ContractedPattern, estimate_cost, fill_blanks
from tslm.models.ngram.packing import pack_table, unpack_table
from tslm.models.ngram.smoothing import BackoffTable
from tslm.models.ngram.trie import MISSING, ROOT, NgramTrie
from tslm.shapes import Float, Int

LEAST_WEIGHT = -20.0
"""The least ln of a back-off weight that a gate is told of."""


@dataclass(frozen=True, kw_only=True)
class BackoffConfig:
    """A back-off model that was estimated elsewhere (``tslm arpa import``)."""

    order: int
    """The length of the longest n-grams."""

    def __post_init__(self) -> None:
        check(self.order >= 1, f"model.order = {self.order} must be 1 or more")


class BackoffModel(LanguageModel[NDArray[np.int64]]):
    """An n-gram model. Its state is the longest known history of the line, as a node of the tree.

    A line begins at ``start`` and ends with ``<eos>``, after which the state is ``start`` again; so
    perplexities with the state carried from line to line and forgotten at each line are the same number.

    Example:
        >>> model = tslm.load("runs/asv-kn5")
        >>> ids = model.vocabulary.encode_line("the king said")
        >>> _, state = model.score(ids[None], model.start(1))
        >>> bool(state == model.start(1))
        True
    """

    kind: ClassVar[str] = "backoff"

    # All tokens of a window are looked up together, in the order of the tree: the more, the nearer they lie.
    window = 1 << 16
    forgets_lines = True

    def __init__(self, table: BackoffTable, vocabulary: Vocabulary) -> None:
        """Make a model of a table whose words are those of ``vocabulary``."""
        if table.trie.vocabulary_size != len(vocabulary):
            raise ShapeError(
                f"a table over {table.trie.vocabulary_size} words does not fit {len(vocabulary)} words"
            )
        self.table = table
        self.vocabulary = vocabulary

    @property
    def order(self) -> int:
        """N, the length of the longest n-grams."""
        return self.table.trie.order

    @property
    def parameter_count(self) -> int:
        """Probabilities and back-off weights, without those of the empty n-gram and the begin marker."""
        return len(self.table.log_probability) + len(self.table.log_weight) - 3

    @property
    def byte_count(self) -> int:
        """How much memory (or mapped file) the arrays take."""
        return self.table.trie.byte_count + self.table.log_probability.nbytes + self.table.log_weight.nbytes

    def start(self, batch: int) -> Int[np.ndarray, "B"]:
        """Return the state at the beginning of ``batch`` lines."""
        return np.full(batch, self.table.trie.begin if self.order > 1 else ROOT, np.int64)

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: Int[np.ndarray, "B"]
    ) -> tuple[Float[np.ndarray, "B T"], Int[np.ndarray, "B"]]:
        """Return ln p of each token given the words of its line before it, and the state after the last."""
        scores_BT, _, state_B = self._read(tokens_BT, state)
        return scores_BT, state_B

    def score_knowing(
        self, tokens_BT: Int[np.ndarray, "B T"], state: Int[np.ndarray, "B"]
    ) -> tuple[Float[np.ndarray, "B T"], Float[np.ndarray, "B T F"], Int[np.ndarray, "B"]]:
        """Return what ``score`` does, and what the tree holds of the history of each token."""
        scores_BT, histories, state_B = self._read(tokens_BT, state)
        return scores_BT, self._describe(histories, tokens_BT.shape), state_B

    def know(self, state: Int[np.ndarray, "B"]) -> Float[np.ndarray, "B F"]:
        """Return, for each length of a history from one word on: whether it is known, ln weight, ln(1 + followers)."""
        return self._describe(list(self.table.trie.chain(state)[1:]), state.shape)

    def _describe(
        self, histories: Sequence[NDArray[np.int64]], shape: tuple[int, ...]
    ) -> Float[np.ndarray, "*X F"]:
        """Return what the tree holds of histories, given by their nodes: an array for each length from one on."""
        children, features = self.table.trie.first_children, list[NDArray[np.float64]]()
        for nodes in histories:
            known, places = nodes >= 0, np.maximum(nodes, ROOT)
            # A history that gives nothing away has weight zero, and no finite logarithm.
            weight = np.maximum(self.table.log_weight[places], LEAST_WEIGHT)
            followers = np.log1p(children[places + 1] - children[places])
            features += [
                known.astype(np.float64),
                np.where(known, weight, 0.0),
                np.where(known, followers, 0.0),
            ]
        return np.stack(features, axis=-1) if features else np.empty((*shape, 0))

    def _read(
        self, tokens_BT: Int[np.ndarray, "B T"], state: Int[np.ndarray, "B"]
    ) -> tuple[Float[np.ndarray, "B T"], list[NDArray[np.int64]], Int[np.ndarray, "B"]]:
        """Return ln p of each token, the nodes of its histories of length 1, 2 …, and the state after the last.

        All tokens are looked up together, order by order: the n-gram that ends at a token is the (n−1)-gram
        that ends one token earlier, extended by one word.
        """
        trie, table = self.table.trie, self.table
        B, T = tokens_BT.shape
        chain_NB = trie.chain(state)
        # Column 0 stands for the word before the first token.
        tokens = np.zeros((B, T + 1), np.int64)
        tokens[:, 1:] = tokens_BT
        tokens = tokens.reshape(-1)
        self._check_ids(tokens)
        eos = tokens == self.vocabulary.eos_id
        eos[:: T + 1] = False
        after_eos = trie.begin
        ended = tokens + 1
        log_probability = table.log_probability[ended]
        inside = np.ones(len(tokens), np.bool_)
        inside[:: T + 1] = False
        places = np.flatnonzero(inside)
        state_B = np.zeros(B, np.int64)
        known_before: list[NDArray[np.int64]] = []
        for level in range(2, trie.order + 1):
            ended[:: T + 1] = chain_NB[level - 1]
            histories = np.where(eos, after_eos, ended)
            known_before.append(histories.reshape(B, T + 1)[:, :-1])
            state_B = np.where(histories[T :: T + 1] >= 0, histories[T :: T + 1], state_B)
            places = places[histories[places - 1] >= 0]
            found = trie.find(histories[places - 1], tokens[places], level)
            ended = np.full(len(tokens), MISSING)
            ended[places] = found
            known = found >= 0
            log_probability[places[~known]] += table.log_weight[histories[places[~known] - 1]]
            log_probability[places[known]] = table.log_probability[found[known]]
            after_eos = MISSING
        return log_probability.reshape(B, T + 1)[:, 1:], known_before, state_B

    def predict(self, state: Int[np.ndarray, "B"]) -> Float[np.ndarray, "B V"]:
        """Return ln p(next word) for every word after each history."""
        trie, table = self.table.trie, self.table
        chain_NB = trie.chain(state)
        size = trie.vocabulary_size
        log_BV = np.repeat(table.log_probability[None, 1 : size + 1], len(state), axis=0)
        for histories in chain_NB[1:]:
            rows = np.flatnonzero(histories >= 0)
            log_BV[rows] += table.log_weight[histories[rows], None]
            edges, owners = trie.edges(histories[rows])
            log_BV[rows[owners], trie.last_words(edges)] = table.log_probability[edges]
        return log_BV

    @cached_property
    def _drawer(self) -> WordDrawer:
        return WordDrawer(self.table, self.vocabulary.eos_id)

    def draw(
        self, state: Int[np.ndarray, "B"], uniform_B: Float[np.ndarray, "B"], exclude: Collection[int] = ()
    ) -> tuple[Int[np.ndarray, "B"], Float[np.ndarray, "B"], Int[np.ndarray, "B"]]:
        """Draw a word after each history; running sums are kept from the first draw on."""
        if self.table.trie.node_count <= LARGEST:
            drawn = self._drawer.draw(state, uniform_B, exclude)
            if drawn is not None:
                return drawn
        log_BV = self.predict(state)
        log_BV[:, list(exclude)] = -np.inf
        words_B = invert_rows(log_BV, uniform_B)
        log_B1, after = self.score(words_B[:, None], state)
        return words_B, log_B1[:, 0], after

    def fill(
        self, pattern: Pattern, *, span: Span = "sentence", exclude: Sequence[int] = ()
    ) -> ContractedPattern:
        """Eq. 14, Claim 2. Sum exactly over the blanks (None) of a pattern; see ``tslm.models.ngram.blanks``."""
        return fill_blanks(self.table, self.vocabulary.eos_id, pattern, span=span, exclude=exclude)

    def fill_cost(self, pattern: Pattern) -> FillCost:
        """Estimate what ``fill`` will take."""
        return estimate_cost(self.table, pattern)

    def save(self, folder: Path) -> None:
        """Write the arrays to ``model.safetensors``, packed; what needs no unpacking is mapped when it is opened."""
        save_arrays(folder, self._arrays())

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> BackoffModel:
        """Map the arrays that ``save`` wrote and unpack the tree: 8 bytes of memory for each n-gram."""
        arrays = map_arrays(folder)
        try:
            table = unpack_table(arrays)
        except (KeyError, IndexError) as error:
            raise RunError(f"{folder / WEIGHTS} is not an n-gram model: it lacks {error}") from error
        except ValueError as error:
            raise RunError(f"{folder / WEIGHTS} is damaged: {error}; train the run again") from error
        _check_arrays(table, config.order, folder / WEIGHTS)
        if table.trie.vocabulary_size == len(vocabulary) + 1:
            vocabulary = with_unknown(vocabulary)
        return cls._restore(table, vocabulary, arrays)

    @classmethod
    def _restore(cls, table: BackoffTable, vocabulary: Vocabulary, arrays: dict[str, Any]) -> BackoffModel:
        """Make the model from its file's arrays; subclasses with more of them override this."""
        return cls(table, vocabulary)

    def _arrays(self) -> dict[str, Any]:
        """Return what ``save`` writes."""
        return pack_table(self.table)

    def _check_ids(self, tokens: Int[np.ndarray, "Q"]) -> None:
        """Raise a ShapeError for ids that are not words."""
        size = len(self.vocabulary)
        if tokens.size and (tokens.min() < 0 or tokens.max() >= size):
            wrong = tokens.min() if tokens.min() < 0 else tokens.max()
            raise ShapeError(
                f"token id {wrong} is outside the vocabulary of {size} words; give 0 to {size - 1}"
            )


def with_unknown(vocabulary: Vocabulary) -> Vocabulary:
    """Return the vocabulary with ``<unk>`` as its last word where it has none; other ids stay as they are."""
    return vocabulary if vocabulary.unk_id is not None else Vocabulary((*vocabulary.words, UNK))


def _check_arrays(table: BackoffTable, order: int, path: Path) -> None:
    """Raise a RunError where the arrays of a file do not fit together: a stranger's may hold anything."""
    trie = table.trie
    fits = (
        len(trie.levels) >= 3
        and trie.levels[:3].tolist() == [0, 1, trie.vocabulary_size + 2]
        and bool((np.diff(trie.levels) >= 0).all())
        and int(trie.levels[-1]) == len(trie.keys) == len(trie.suffixes) == len(table.log_probability)
        and trie.context_count + 1 == len(trie.first_children) == len(table.log_weight) + 1
        and _is_tree(trie)
    )
    if not fits:
        raise RunError(f"{path} is damaged: its arrays do not fit together; train the run again")
    if trie.order != order:
        raise RunError(f"{path} holds a model of order {trie.order}, but its recipe says {order}")


def _is_tree(trie: NgramTrie) -> bool:
    """Say whether keys ascend, suffixes are one word shorter, and children stand where their parents say."""
    ascending = bool((trie.keys[1:] > trie.keys[:-1]).all())
    children = trie.first_children
    in_place = int(children[0]) == 1 and int(children[-1]) == len(trie.keys)
    in_place = in_place and bool((children[1:] >= children[:-1]).all())
    if not (ascending and in_place and int(trie.suffixes[ROOT]) == ROOT):
        return False
    if not np.array_equal(children[trie.levels[:-2]], trie.levels[1:-1]):
        return False
    base = trie.vocabulary_size + 1
    parents = np.flatnonzero(children[1:] > children[:-1])
    # Keys ascend: where the first and the last child of a node are its own, all between them are.
    for ends in (children[parents], children[parents + 1] - 1):
        if not np.array_equal(trie.keys[ends] // base, parents):
            return False
    for level in range(1, trie.order + 1):
        suffixes = trie.suffixes[trie.nodes(level)]
        low, high = int(trie.levels[level - 1]), int(trie.levels[level])
        if len(suffixes) and not (low <= int(suffixes.min()) and int(suffixes.max()) < high):
            return False
    return True
