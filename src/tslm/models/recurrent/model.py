"""Embedding, cells and head: the recurrent language models of Eqs. 17 and 20, one shell for every cell."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tslm.config import check
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.base import LanguageModel
from tslm.models.recurrent.cells import (
    Cell,
    CellState,
    LstmCell,
    MultiplicativeIntegrationCell,
    RnnCell,
    TslmCell,
    Variant,
)
from tslm.models.recurrent.heads import Head, MixtureHead, SoftmaxHead, log_probabilities, score_targets
from tslm.models.weights import load_weights, save_weights


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """The shape of a recurrent model and its regularisation."""

    cell: Literal["tslm", "rnn", "lstm", "mi"] = "tslm"
    """The recurrence: TSLM (Eq. 19), ``nn.RNN``, ``nn.LSTM`` or Multiplicative Integration."""

    variant: Variant = "normalised"
    """Which TSLM: ``pure``, ``biased``, ``bounded`` or ``normalised``; other cells ignore it."""

    rank: int = 256
    """R: the rank of the decomposition, which is the size of the hidden state."""

    embedding: int = 256
    """M: the size of the word vectors."""

    layers: int = 1
    """How many cells stand one on the other."""

    tied: bool = True
    """Use the embedding as the output matrix V."""

    readout: bool = False
    """Put a matrix between state and output where R = M too: a tied V no longer dictates what each unit means."""

    holding: float = 0.5
    """The share of TSLM units that start as holding units, see ``TslmCell``."""

    norm_limit: float | None = None
    """The largest spectral norm of a TSLM's W; left out, there is none, but 0.98 in the ``bounded`` variant."""

    head: Literal["softmax", "mixture"] = "softmax"
    """One softmax, or a mixture of softmaxes."""

    experts: int = 1
    """K: the number of softmaxes in the mixture."""

    latent: Literal["tanh", "identity"] = "tanh"
    """What the mixture's latent projection passes through."""

    dropout_words: float = 0.0
    """The chance that a word's whole vector is dropped for a window."""

    dropout_input: float = 0.0
    """Locked dropout on the word vectors: one mask for a whole window."""

    dropout_layers: float = 0.0
    """Locked dropout between cells."""

    dropout_output: float = 0.0
    """Locked dropout on the last cell's states."""

    dropout_latent: float = 0.0
    """Dropout on the mixture's latents."""

    weight_drop: float = 0.0
    """The chance that an entry of W is dropped for a window."""

    def __post_init__(self) -> None:
        for key in ("rank", "embedding", "layers", "experts"):
            value = getattr(self, key)
            check(value >= 1, f"model.{key} = {value} must be 1 or more")
        for key in (
            "dropout_words",
            "dropout_input",
            "dropout_layers",
            "dropout_output",
            "dropout_latent",
            "weight_drop",
        ):
            value = getattr(self, key)
            check(0 <= value < 1, f"model.{key} = {value} must lie in [0, 1)")
        check(0 <= self.holding <= 1, f"model.holding = {self.holding} must lie in [0, 1]")
        if self.norm_limit is not None:
            check(self.norm_limit > 0, f"model.norm_limit = {self.norm_limit} must be positive")
            check(
                self.variant != "bounded" or self.norm_limit < 1,
                f"model.norm_limit = {self.norm_limit} does not bound the state: it must be below 1",
            )
        check(
            self.head == "mixture" or self.experts == 1,
            f'model.experts = {self.experts} needs model.head = "mixture"',
        )


@dataclass(frozen=True)
class RecurrentState:
    """What has been read: what each cell carries on, and the last cell's state after the last word."""

    cells: tuple[CellState, ...]
    output_BR: Tensor

    def detached(self) -> RecurrentState:
        """Return the same state, cut off from the graph that made it."""
        cells = tuple(tuple(part.detach() for part in cell) for cell in self.cells)
        return RecurrentState(cells, self.output_BR.detach())


class RecurrentModel(nn.Module, LanguageModel[RecurrentState]):
    """Eqs. 17, 20. p(w_t | w_1 … w_{t−1}) = softmax(V h), h = g(W h, U α): embedding → cells → head."""

    kind: ClassVar[str] = "recurrent"

    def __init__(self, config: RecurrentConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = vocabulary
        V, M, R = len(vocabulary), config.embedding, config.rank
        self.embedding = nn.Parameter(torch.randn(V, M) / math.sqrt(M))
        self.output = None if config.tied else nn.Parameter(torch.randn(V, M) / math.sqrt(M))
        self.bias = nn.Parameter(torch.zeros(V))
        self.cells = nn.ModuleList(_cell(config, M if layer == 0 else R) for layer in range(config.layers))
        self.head: Head = (
            SoftmaxHead(R, M, readout=config.readout)
            if config.head == "softmax"
            else MixtureHead(
                R, M, experts=config.experts, activation=config.latent, dropout=config.dropout_latent
            )
        )

    @property
    def output_VM(self) -> Tensor:
        """V of Eq. 20: a row per word."""
        return self.embedding if self.output is None else self.output

    @torch.no_grad()
    def set_prior(self, counts_V: Int[Tensor, " V"]) -> None:
        """Start the output bias at the words' log frequencies, so that training begins as a unigram model."""
        self.bias.copy_(((counts_V + 1) / (counts_V + 1).sum()).log())

    def begin(self, batch: int) -> tuple[CellState, ...]:
        """Return what each cell carries before it has read anything."""
        return tuple(self.cell(layer).start(batch) for layer in range(len(self.cells)))

    def read(
        self, inputs_TB: Int[Tensor, "T B"], cells: tuple[CellState, ...]
    ) -> tuple[Float[Tensor, "T B R"], tuple[CellState, ...]]:
        """Eq. 20. Read a window of words, time first; return the last cell's state after each word."""
        # Tied, the head's gradient is dense already: a sparse one saves zeroing a second array of V × M.
        sparse = self.output is None and self.training
        vectors_TBM = F.embedding(inputs_TB, self.embedding, sparse=sparse) * math.sqrt(self.config.embedding)
        if self.training and self.config.dropout_words > 0:
            keep_V1 = _mask((len(self.vocabulary), 1), self.config.dropout_words, vectors_TBM)
            vectors_TBM = vectors_TBM * F.embedding(inputs_TB, keep_V1)
        states = self._locked(vectors_TBM, self.config.dropout_input)
        carried: list[CellState] = []
        for layer in range(len(self.cells)):
            if layer > 0:
                states = self._locked(states, self.config.dropout_layers)
            states, carry = self.cell(layer)(states, cells[layer])
            carried.append(carry)
        return states, tuple(carried)

    def latents(
        self, states_TBR: Float[Tensor, "T B R"]
    ) -> tuple[Float[Tensor, "N K M"], Float[Tensor, "N K"] | None]:
        """Return the head's latents and prior for every state of a window, with the output dropout of training."""
        return self.head(self._locked(states_TBR, self.config.dropout_output).flatten(0, 1))

    def start(self, batch: int) -> RecurrentState:
        """A text begins as if an ``<eos>`` had just been read."""
        inputs_TB = torch.full((1, batch), self.vocabulary.eos_id)
        with _evaluating(self), torch.inference_mode():
            states_TBR, cells = self.read(inputs_TB, self.begin(batch))
        return RecurrentState(cells, states_TBR[-1])

    def unread(self, batch: int) -> RecurrentState:
        """Return the state before any word is read, as a window of training has it: it predicts nothing yet."""
        return RecurrentState(self.begin(batch), self.bias.new_zeros(batch, self.config.rank))

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: RecurrentState
    ) -> tuple[Float[np.ndarray, "B T"], RecurrentState]:
        """Read all tokens; predict each from the state before it, with the full softmax."""
        B, T = tokens_BT.shape
        tokens_TB = torch.from_numpy(np.ascontiguousarray(tokens_BT.T, np.int64))
        with _evaluating(self), torch.inference_mode():
            states_TBR, cells = self.read(tokens_TB, state.cells)
            before_TBR = torch.cat([state.output_BR.unsqueeze(0), states_TBR[:-1]])
            latents_NKM, log_prior_NK = self.head(before_TBR.flatten(0, 1))
            scores_N = score_targets(
                latents_NKM, log_prior_NK, self.output_VM, self.bias, tokens_TB.flatten()
            )
        return scores_N.view(T, B).t().numpy(), RecurrentState(cells, states_TBR[-1])

    def predict(self, state: RecurrentState) -> Float[np.ndarray, "B V"]:
        """Return ln p of every next word."""
        with _evaluating(self), torch.inference_mode():
            latents_NKM, log_prior_NK = self.head(state.output_BR)
            return log_probabilities(latents_NKM, log_prior_NK, self.output_VM, self.bias).numpy()

    @property
    def parameter_count(self) -> int:
        """The true count: embedding, W, U, V and all biases."""
        return sum(parameter.numel() for parameter in self.parameters())

    def save(self, folder: Path) -> None:
        """Write ``model.safetensors``."""
        save_weights(folder, self.state_dict())

    @classmethod
    def load(cls, folder: Path, config: RecurrentConfig, vocabulary: Vocabulary) -> RecurrentModel:
        """Read ``model.safetensors``."""
        model = cls(config, vocabulary)
        shapes = {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in model.state_dict().items()}
        weights: Mapping[str, Any] = load_weights(folder, shapes)
        model.load_state_dict(weights)
        for layer in range(config.layers):
            model.cell(layer).settle()
        return model.eval()

    def chain(self) -> TslmCell | None:
        """Return the first cell where it is a TSLM: its states are a chain of tensors."""
        cell = self.cell(0)
        return cell if isinstance(cell, TslmCell) else None

    def cell(self, layer: int) -> Cell:
        """Return one of the cells, the first being nearest to the words."""
        cell = self.cells[layer]
        assert isinstance(cell, Cell)  # noqa: S101
        return cell

    def _locked(self, values_TBM: Tensor, chance: float) -> Tensor:
        """Drop the same entries at every step of the window."""
        if not self.training or chance == 0:
            return values_TBM
        return values_TBM * _mask((1, *values_TBM.shape[1:]), chance, values_TBM)


def _cell(config: RecurrentConfig, inputs: int) -> Cell:
    if config.cell == "tslm":
        return TslmCell(
            inputs,
            config.rank,
            variant=config.variant,
            weight_drop=config.weight_drop,
            holding=config.holding,
            norm_limit=config.norm_limit,
        )
    kinds = {"rnn": RnnCell, "lstm": LstmCell, "mi": MultiplicativeIntegrationCell}
    return kinds[config.cell](inputs, config.rank, weight_drop=config.weight_drop)


def _mask(shape: tuple[int, ...], chance: float, like: Tensor) -> Tensor:
    return like.new_empty(shape).bernoulli_(1 - chance).div_(1 - chance)


@contextmanager
def _evaluating(module: nn.Module) -> Generator[None, None, None]:
    """Turn dropout off inside a block, and back to what it was after it."""
    was = module.training
    if was:
        module.eval()
    try:
        yield
    finally:
        if was:
            module.train()
