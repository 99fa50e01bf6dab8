"""Embedding, cells and head: the recurrent language models of Eqs. 17 and 20, one shell for every cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tslm.corpus.sources import Corpus
from tslm.corpus.statistics import count_words
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.recurrent.cells import Cell, CellState, ChainCell
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.dropout import evaluating, make_mask
from tslm.models.recurrent.feed import Feed
from tslm.models.recurrent.heads import CrossEntropy, Head, WindowLoss
from tslm.models.recurrent.readout import make_gate, make_product, open_gate, read_out
from tslm.models.trainable import Trainable, Window
from tslm.models.weights import check_size, load_weights, save_weights


@dataclass(frozen=True)
class RecurrentState:
    """What has been read: what each cell carries on, and what is read out of the cells after the last word."""

    cells: tuple[CellState, ...]
    output_BR: Tensor

    def detached(self) -> RecurrentState:
        """Return the same state, cut off from the graph that made it."""
        cells = tuple(tuple(part.detach() for part in cell) for cell in self.cells)
        return RecurrentState(cells, self.output_BR.detach())


class RecurrentModel(Trainable[RecurrentState]):
    """Eqs. 17, 20. p(w_t | w_1 … w_{t−1}) = softmax(V h), h = g(W h, U α): embedding → cells → head."""

    kind: ClassVar[str] = "recurrent"
    moves: ClassVar[bool] = True
    lowers: ClassVar[bool] = True
    asks: ClassVar[bool] = True

    def __init__(self, config: RecurrentConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.config = config
        self.vocabulary = vocabulary
        V, M, R = len(vocabulary), config.embedding, config.rank
        self.embedding = nn.Parameter(torch.randn(V, M) / math.sqrt(M))
        self.output = None if config.tied else nn.Parameter(torch.randn(V, M) / math.sqrt(M))
        self.bias = nn.Parameter(torch.zeros(V))
        inputs = 2 * M if config.pairs else M
        self.cells = nn.ModuleList(
            config.cell.build(inputs if layer == 0 or config.cascade else R, R)
            for layer in range(config.layers)
        )
        self.gate = make_gate(config.output_gate, inputs, R)
        self.product = make_product(config.output_gate, R)
        self.head: Head = config.head.build(R, M)
        self.feeds = nn.ModuleList(
            Feed(config.output_gate, inputs, R) for _ in range(config.layers - 1 if config.cascade else 0)
        )

    @property
    def output_VM(self) -> Tensor:
        """V of Eq. 20: a row per word."""
        return self.embedding if self.output is None else self.output

    def word_vectors(self) -> list[Tensor]:
        """Return the embedding, and the output matrix where it is another."""
        return [self.embedding] if self.output is None else [self.embedding, self.output]

    @property
    def device(self) -> torch.device:
        """Where the weights are, and all that is computed with them."""
        return self.bias.device

    @torch.no_grad()
    def prepare(self, corpus: Corpus) -> None:
        """Start the output bias at the words' log frequencies, so that training begins as a unigram model."""
        counts_V = torch.from_numpy(count_words(corpus, "train"))
        self.bias.copy_(((counts_V + 1) / (counts_V + 1).sum()).log())

    def begin(self, batch: int) -> tuple[CellState, ...]:
        """Return what each cell carries before it has read anything, and with pairs the word before, which is none."""
        cells = tuple(self.cell(layer).start(batch) for layer in range(len(self.cells)))
        return (*cells, (self.bias.new_zeros(batch, self.config.embedding),)) if self.config.pairs else cells

    def embed(self, tokens: Int[Tensor, "*N"]) -> Float[Tensor, "*N M"]:
        """Eq. 4. Return the vectors of words."""
        # Tied, the head's gradient is there already: a sparse one saves zeroing an array of V × M. Not every
        # accelerator has them.
        sparse = self.output is None and torch.is_grad_enabled() and self.device.type == "cpu"
        return F.embedding(tokens, self.embedding, sparse=sparse) * math.sqrt(self.config.embedding)

    def read(
        self, inputs_TB: Int[Tensor, "T B"], carried: tuple[CellState, ...]
    ) -> tuple[Float[Tensor, "T B R"], tuple[CellState, ...]]:
        """Eq. 20. Read a window of words, time first; return what is read out of the cells after each word."""
        words_TBM = self.embed(inputs_TB)
        if self.training and self.config.dropout_words > 0:
            keep_V1 = make_mask((len(self.vocabulary), 1), self.config.dropout_words, words_TBM)
            words_TBM = words_TBM * F.embedding(inputs_TB, keep_V1)
        words_TBM = self._locked(words_TBM, self.config.dropout_input)
        last_BM = words_TBM[-1]
        if self.config.pairs:
            before_TBM = torch.cat([carried[-1][0].unsqueeze(0), words_TBM[:-1]])
            words_TBM = torch.cat([words_TBM, before_TBM], -1)
        first_TBR, carry = self.cell(0)(words_TBM, carried[0])
        read = self._read_cascade if self.config.cascade else self._read_stack
        outputs_TBR, above = read(first_TBR, words_TBM, carried)
        pairs = ((last_BM,),) if self.config.pairs else ()
        return outputs_TBR, (carry, *above, *pairs)

    def _read_stack(
        self,
        first_TBR: Float[Tensor, "T B R"],
        words_TBM: Float[Tensor, "T B M"],
        carried: tuple[CellState, ...],
    ) -> tuple[Float[Tensor, "T B R"], tuple[CellState, ...]]:
        """Return what is read out of the last of cells that read each other's states."""
        states_TBR, above = self.read_above(first_TBR, carried)
        return self.read_out(states_TBR, words_TBM), above

    def _read_cascade(
        self,
        first_TBR: Float[Tensor, "T B R"],
        words_TBM: Float[Tensor, "T B M"],
        carried: tuple[CellState, ...],
    ) -> tuple[Float[Tensor, "T B R"], tuple[CellState, ...]]:
        """Return the sum of what is read out of all cells of a cascade; each adds to the next one's state.

        Every cell reads the words, and has its factors of them alone. What is read out of one is linear in its state,
        or in two copies of it, so together with the state that it is added to it is a contraction of one network.
        """
        states_TBR, total_TBR = first_TBR, first_TBR.new_zeros(())
        after: list[CellState] = []
        for layer in range(1, len(self.cells)):
            feed = self.feed(layer - 1)
            read_TBR = feed(states_TBR, words_TBM)
            total_TBR = total_TBR + read_TBR
            fed_TBR = feed.pass_on(self._locked(read_TBR, self.config.dropout_layers))
            states_TBR, carry = self.cell(layer)(words_TBM, carried[layer], fed_TBR)
            after.append(carry)
        return total_TBR + self.read_out(states_TBR, words_TBM), tuple(after)

    def read_above(
        self, states_TBR: Float[Tensor, "T B R"], carried: tuple[CellState, ...]
    ) -> tuple[Float[Tensor, "T B R"], tuple[CellState, ...]]:
        """Read the first cell's states by the cells above it; return the last states, and what those cells carry on.

        Each cell is a tensor network of what it reads. Their stack is none of the words, for the gates of the second
        are made of the first one's states; with ``skip`` the first one's share of what is read out linearly still is.
        """
        after: list[CellState] = []
        for layer in range(1, len(self.cells)):
            below_TBR = states_TBR
            read_TBR = self._locked(below_TBR, self.config.dropout_layers)
            states_TBR, carry = self.cell(layer)(read_TBR, carried[layer])
            if self.config.skip:
                states_TBR = states_TBR + below_TBR
            after.append(carry)
        return states_TBR, tuple(after)

    def read_out(
        self, states_NR: Float[Tensor, "*N R"], words_NM: Float[Tensor, "*N M"]
    ) -> Float[Tensor, "*N R"]:
        """Return the last cell's states as the head sees them: through the gate of the word just read, if any."""
        return read_out(states_NR, words_NM, self.config.output_gate, self.gate, self.product)

    def open_gate(self, words_NM: Float[Tensor, "*N M"]) -> Float[Tensor, "*N R"]:
        """Return o(x) of the words just read: ones where there is no gate."""
        if self.gate is None:
            return words_NM.new_ones(*words_NM.shape[:-1], self.config.rank)
        return open_gate(words_NM, self.gate)

    def read_window(
        self,
        inputs_TB: Int[Tensor, "T B"],
        targets_TB: Int[Tensor, "T B"],
        carried: tuple[CellState, ...],
        cross_entropy: CrossEntropy,
    ) -> Window:
        """Read a window and predict each target from what is read out behind its input."""
        outputs_TBR, after = self.read(inputs_TB, carried)
        nats, latents_NKM = self.loss(outputs_TBR, targets_TB.reshape(-1), cross_entropy)
        return Window(nats, after, outputs_TBR, latents_NKM)

    def loss(
        self, outputs_TBR: Float[Tensor, "T B R"], targets_N: Int[Tensor, " N"], cross_entropy: CrossEntropy
    ) -> WindowLoss:
        """Return what training minimises for a window that was read, with the output dropout of training."""
        outputs_NR = self._locked(outputs_TBR, self.config.dropout_output).flatten(0, 1)
        return self.head.loss(outputs_NR, self.output_VM, self.bias, targets_N, cross_entropy)

    def expect(self, outputs_TBR: Float[Tensor, "T B R"]) -> Float[Tensor, "T B V"]:
        """Return ln p of every word after each of a window's, with the output dropout of training; gradients flow."""
        outputs_NR = self._locked(outputs_TBR, self.config.dropout_output).flatten(0, 1)
        return self.head.predict(outputs_NR, self.output_VM, self.bias).unflatten(0, outputs_TBR.shape[:2])

    def start(self, batch: int) -> RecurrentState:
        """A text begins as if an ``<eos>`` had just been read."""
        inputs_TB = torch.full((1, batch), self.vocabulary.eos_id, device=self.device)
        with evaluating(self), torch.inference_mode():
            outputs_TBR, cells = self.read(inputs_TB, self.begin(batch))
        return RecurrentState(cells, outputs_TBR[-1])

    def unread(self, batch: int) -> RecurrentState:
        """Return the state before any word is read, as a window of training has it: it predicts nothing yet."""
        return RecurrentState(self.begin(batch), self.bias.new_zeros(batch, self.config.rank))

    def branch(
        self, state: RecurrentState, places_N: Int[np.ndarray, " N"], words_N: Int[np.ndarray, " N"]
    ) -> RecurrentState:
        """Read a word more after some texts of a batch."""
        at_N = torch.from_numpy(places_N).to(self.device)
        words_1N = torch.from_numpy(words_N).to(self.device).unsqueeze(0)
        with evaluating(self), torch.inference_mode():
            cells = tuple(tuple(part.index_select(-2, at_N) for part in cell) for cell in state.cells)
            outputs_1NR, cells = self.read(words_1N, cells)
        return RecurrentState(cells, outputs_1NR[0])

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: RecurrentState
    ) -> tuple[Float[np.ndarray, "B T"], RecurrentState]:
        """Read all tokens; predict each from the state before it, with the full softmax."""
        with evaluating(self), torch.inference_mode():
            scores_BT, _, state = self._score(tokens_BT, state)
        return scores_BT.cpu().numpy(), state

    def score_vectors(
        self, tokens_BT: Int[np.ndarray, "B T"], state: RecurrentState
    ) -> tuple[Float[np.ndarray, "B T"], Float[np.ndarray, "B T M"], RecurrentState]:
        """Return what ``score`` does, with the directions of the latents from which each token is predicted."""
        with evaluating(self), torch.inference_mode():
            scores_BT, before_TBR, state = self._score(tokens_BT, state)
            vectors_TBM = self.head.direction(before_TBR.flatten(0, 1)).unflatten(0, before_TBR.shape[:2])
        return scores_BT.cpu().numpy(), vectors_TBM.transpose(0, 1).cpu().numpy(), state

    def vectors(self, state: RecurrentState) -> Float[np.ndarray, "B M"]:
        """Return the direction of the latent from which the next word is predicted."""
        with evaluating(self), torch.inference_mode():
            return self.head.direction(state.output_BR).cpu().numpy()

    def _score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: RecurrentState
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "T B R"], RecurrentState]:
        """Return ln p of each token, what it is read out of, and the state after the last."""
        B, T = tokens_BT.shape
        # Always a copy: PyTorch takes no array that is read-only, as a mapped one is.
        tokens_TB = torch.from_numpy(np.array(tokens_BT.T, np.int64, order="C")).to(self.device)
        outputs_TBR, cells = self.read(tokens_TB, state.cells)
        before_TBR = torch.cat([state.output_BR.unsqueeze(0), outputs_TBR[:-1]])
        scores_N = self.head.score(before_TBR.flatten(0, 1), self.output_VM, self.bias, tokens_TB.flatten())
        return scores_N.view(T, B).t(), before_TBR, RecurrentState(cells, outputs_TBR[-1])

    def predict(self, state: RecurrentState) -> Float[np.ndarray, "B V"]:
        """Return ln p of every next word."""
        with evaluating(self), torch.inference_mode():
            return self.head.predict(state.output_BR, self.output_VM, self.bias).cpu().numpy()

    def diagnostics(self) -> dict[str, float]:
        """Return the spectral radius of the first cell's W: above 1, a multiplicative state can grow without end."""
        W_RR = self.cell(0).recurrent_weight().detach().cpu()
        if W_RR.shape[0] != W_RR.shape[1]:
            return {}
        return {"spectral_radius": float(torch.linalg.eigvals(W_RR).abs().max())}

    def chain(self) -> ChainCell | None:
        """Return the first cell where single words bring factors of their own: a chain of tensors."""
        cell = self.cell(0)
        return cell if isinstance(cell, ChainCell) and not self.config.pairs else None

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
        check_size(folder, config.least_numbers(len(vocabulary)))
        model = cls(config, vocabulary)
        shapes = {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in model.state_dict().items()}
        weights: Mapping[str, Any] = load_weights(folder, shapes)
        model.load_state_dict(weights)
        for layer in range(config.layers):
            model.cell(layer).settle()
        return model.eval()

    def cell(self, layer: int) -> Cell:
        """Return one of the cells, the first being nearest to the words."""
        cell = self.cells[layer]
        assert isinstance(cell, Cell)  # noqa: S101
        return cell

    def feed(self, layer: int) -> Feed:
        """Return what a cell of a cascade passes on to the next."""
        feed = self.feeds[layer]
        assert isinstance(feed, Feed)  # noqa: S101
        return feed

    def _locked(self, values_TBM: Tensor, chance: float) -> Tensor:
        """Drop the same entries at every step of the window."""
        if not self.training or chance == 0:
            return values_TBM
        return values_TBM * make_mask((1, *values_TBM.shape[1:]), chance, values_TBM)
