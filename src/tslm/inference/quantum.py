"""The mixed state of a corpus, and of any language model, over short windows of words.

    >>> state = read_corpus(corpus.splits["valid"], 2, size=len(vocabulary), frequent=20)
    >>> state.length, state.size  # two words each of the 20 most frequent, or ``others``
    (2, 21)
    >>> 0 < state.mutual_information([0], [1]) < state.entropy([0])
    True

``tslm.tensors.density`` has the mathematics; here are only the words.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tslm.errors import CorpusError, NumberError, SizeLimitError
from tslm.models.base import LanguageModel
from tslm.tensors.density import MixedState
from tslm.tensors.train import TensorTrain

MOST_WINDOWS = 2_000_000
"""Windows that a model is asked about, all of them: more take minutes."""

BLOCK = 4096


def read_corpus(
    ids: NDArray[np.integer[Any]],
    length: int,
    *,
    size: int,
    frequent: int | None = None,
    begin_id: int | None = None,
    words_VM: Float[Tensor, "V M"] | None = None,
) -> MixedState:
    """Return the mixed state of all windows of a text.

    Args:
        ids: the text; ids of most frequent words are smallest, as in every vocabulary here.
        length: words of a window.
        size: the vocabulary.
        frequent: keep that many words and let one more stand for all others.
        begin_id: take only windows right behind this word: with that of ``<eos>``, the beginnings of lines.
        words_VM: the words' vectors; one-hot when left out.

    Raises:
        CorpusError: the text is shorter than a window.
    """
    words = np.asarray(ids, np.int64)
    if length < 1 or len(words) < length + (begin_id is not None):
        raise CorpusError(f"a text of {len(words)} words has no window of {length}; give a longer text")
    if frequent is not None:
        begin_id = begin_id if begin_id is None or begin_id < frequent else frequent
        words, size = np.minimum(words, frequent), frequent + 1
    windows_SN = np.lib.stride_tricks.sliding_window_view(words, length)
    if begin_id is not None:
        windows_SN = windows_SN[1:][words[: len(windows_SN) - 1] == begin_id]
    chosen = torch.from_numpy(np.array(windows_SN))
    return (
        MixedState.from_windows(chosen, size=size)
        if words_VM is None
        else MixedState.from_windows(chosen, words_VM=words_VM)
    )


def read_model(
    model: LanguageModel[Any], length: int, *, words_VM: Float[Tensor, "V M"] | None = None
) -> MixedState:
    """Return the mixed state of all windows with which a text of the model begins, every one of |V|ᴺ asked for.

    Raises:
        SizeLimitError: there are more than two million; ``sample_model`` draws some.
    """
    size = len(model.vocabulary)
    if size**length > MOST_WINDOWS:
        raise SizeLimitError(
            f"{size:,} words have {size**length:,} windows of {length}, above {MOST_WINDOWS:,}; use sample_model"
        )
    every = itertools.product(range(size), repeat=length)
    windows: list[NDArray[np.int64]] = []
    logs: list[NDArray[np.float64]] = []
    while block := list(itertools.islice(every, BLOCK)):
        windows.append(np.array(block, np.int64))
        scores_BT, _ = model.score(windows[-1], model.start(len(block)))
        logs.append(scores_BT.astype(np.float64).sum(1))
    probabilities_S = torch.from_numpy(np.exp(np.concatenate(logs)))
    return _mix(np.concatenate(windows), size, words_VM, probabilities_S)


def sample_model(
    model: LanguageModel[Any],
    length: int,
    *,
    count: int,
    seed: int = 0,
    words_VM: Float[Tensor, "V M"] | None = None,
) -> MixedState:
    """Return the mixed state of windows drawn from a model: an estimate of ``read_model`` for real vocabularies.

    The entropy of what occurs rarely is estimated too low, as always: compare only states of as many windows.
    """
    if count < 1:
        raise NumberError(f"count {count}; expected at least 1")
    random = np.random.default_rng(seed)
    drawn: list[NDArray[np.int64]] = []
    for begin in range(0, count, BLOCK):
        batch = min(BLOCK, count - begin)
        state, words = model.start(batch), np.zeros((batch, 0), np.int64)
        for _ in range(length):
            log_BV = model.predict(state).astype(np.float64)
            # The largest of ln p + Gumbel noise is a word with probability p.
            word_B1 = (log_BV + random.gumbel(size=log_BV.shape)).argmax(1)[:, None]
            words = np.concatenate([words, word_B1], 1)
            _, state = model.score(word_B1, state)
        drawn.append(words)
    return _mix(np.concatenate(drawn), len(model.vocabulary), words_VM)


def markov_train(
    ids: NDArray[np.integer[Any]], length: int, *, size: int, rank: int, amplitudes: bool = False
) -> TensorTrain:
    """Return the bigram model of a text as a tensor train over windows of any length, its bonds cut to a rank.

    T[w₁…w_N] = p(w₁) P(w₂ | w₁) ⋯ is a chain: with P ≈ A·B of the given rank, core k is B[:, w] A[w, :]. With
    ``amplitudes`` square roots stand in the place of all probabilities, so that |T|² are the windows' probabilities.

    Args:
        ids: the text; words from ``size`` on are read as one more.
        length: N, at least 2.
        size: the most frequent words that have a place of their own.
        rank: of the bonds; ``size + 1`` is exact.
        amplitudes: whether the Born rule shall give the probabilities.
    """
    if length < 2 or not 1 <= rank <= size + 1:
        raise NumberError(f"length {length} and rank {rank}; expected 2 or more, and 1 to {size + 1}")
    words = np.minimum(np.asarray(ids, np.int64), size)
    counts = np.zeros((size + 1, size + 1))
    np.add.at(counts, (words[:-1], words[1:]), 1)
    start = counts.sum(1) / counts.sum()
    step = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    if amplitudes:
        start, step = np.sqrt(start), np.sqrt(step)
    # Rows are weighted by how often they are used, so that what is cut is what the text needs least.
    weight = np.sqrt(np.maximum(counts.sum(1) / counts.sum(), 1e-12))[:, None]
    left, values, right = np.linalg.svd(weight * step, full_matrices=False)
    A_VR, B_RV = (
        (left[:, :rank] * np.sqrt(values[:rank])) / weight,
        np.sqrt(values[:rank])[:, None] * right[:rank],
    )
    first, middle = start[:, None] * A_VR, B_RV[:, :, None] * A_VR[None]
    cores = [first[None], *[middle] * (length - 2), B_RV[:, :, None]]
    return TensorTrain(tuple(torch.from_numpy(np.ascontiguousarray(core)) for core in cores))


def _mix(
    windows_SN: Int[np.ndarray, "S N"],
    size: int,
    words_VM: Tensor | None,
    probabilities_S: Tensor | None = None,
) -> MixedState:
    chosen = torch.from_numpy(windows_SN)
    if words_VM is None:
        return MixedState.from_windows(chosen, probabilities_S=probabilities_S, size=size)
    return MixedState.from_windows(chosen, probabilities_S=probabilities_S, words_VM=words_VM)
