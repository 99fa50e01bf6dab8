"""One step of truncated back-propagation through time, and all that changes with it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tslm.corpus.sources import Corpus
from tslm.corpus.statistics import count_words
from tslm.corpus.streams import Columns
from tslm.devices import random_state, set_random_state
from tslm.errors import RunError
from tslm.models.recurrent.heads.base import CrossEntropy
from tslm.models.trainable import Trainable
from tslm.training.beside import Beside
from tslm.training.candidates import measure_escape
from tslm.training.checkpoint import module_tensors, optimiser_tensors, part, restore_optimiser
from tslm.training.config import ObjectiveConfig, TrainConfig
from tslm.training.distributed import Group
from tslm.training.objective import Objective
from tslm.training.optimiser import make_optimiser
from tslm.training.penalties import penalise
from tslm.training.spelling import Spelling


class Learner:
    """A model, what moves its weights, their average, and the states that it carries from window to window.

    Args:
        model: the model with the weights it begins with; the same in every process.
        config: how it is trained.
        objective: which words the loss sums over.
        corpus: what it learns.
        group: the processes that train it together.
        batch: how many columns of the text this process reads.
    """

    def __init__(
        self,
        model: Trainable[Any],
        config: TrainConfig,
        objective: ObjectiveConfig,
        corpus: Corpus,
        group: Group,
        batch: int,
    ) -> None:
        if config.precision != "single" and not model.lowers:
            raise RunError(
                f"a model of kind {model.kind!r} is trained in single precision; leave train.precision out"
            )
        if objective.counts and not model.asks:
            raise RunError(
                f"a model of kind {model.kind!r} does not learn beside counts; leave objective.counts out"
            )
        if config.moments == "words" and not model.word_vectors():
            raise RunError(f"a model of kind {model.kind!r} has no vectors of words; leave train.moments out")
        self.model, self.config, self.group, self.batch = model, config, group, batch
        self.device = next(model.parameters()).device
        self.beside = Beside(corpus, config, group).to(self.device) if objective.counts else None
        learning = nn.ModuleList([self.model, *([] if self.beside is None else [self.beside])])
        spelling = Spelling(corpus.vocabulary.words, self.device) if config.spelling else None
        self.optimiser = make_optimiser(config, learning, model.word_vectors(), spelling)
        self.parameters = list(learning.parameters())
        # Kept from step to step, and dense: what comes as rows of a few words is added to it in place.
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        # All processes must sum over the same sampled words, or the gradients would belong to different losses.
        generator = torch.Generator().manual_seed(config.seed)
        counts_V = torch.from_numpy(count_words(corpus, "train"))
        self.objective = Objective(objective, len(corpus.vocabulary), generator, counts_V)
        self.average = [parameter.detach().clone() for parameter in self.parameters] if config.average else []
        self.begin()

    def begin(self) -> None:
        """Carry nothing: the next window begins its text."""
        self.cells = self.model.begin(self.batch)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["share"]

    def read(
        self, inputs_BT: Int[Tensor, "B T"], targets_BT: Int[Tensor, "B T"], window: int
    ) -> tuple[dict[str, float], Float[Tensor, "T B R"]]:
        """Read a window: forward, backward, clip.

        Args:
            inputs_BT: what is read.
            targets_BT: what is predicted; below 0 where there is nothing.
            window: its place in the text.

        Returns:
            What ``metrics.jsonl`` wants to know of every step, and the model's states.
        """
        model, config = self.model, self.config
        if config.state == "reset":
            self.begin()
        cross_entropy: CrossEntropy = self.objective.loss
        if self.beside is not None:
            cross_entropy = partial(self.objective.loss, counted_N2=self.beside(window))
        with self._precision():
            loss, cells, states_TBR, latents = model.read_window(
                inputs_BT.t().contiguous().to(self.device),
                targets_BT.t().to(self.device),
                self.cells,
                cross_entropy,
            )
        self.cells = tuple(tuple(state.detach() for state in cell) for cell in cells)
        count = int((targets_BT >= 0).sum())
        penalised = penalise(loss, config, states_TBR, latents)
        nats, tokens = self.group.sum(
            torch.tensor([loss.item() * count, count], dtype=torch.float64)
        ).tolist()
        self.optimiser.zero_grad(set_to_none=False)
        # Scaled before the backward pass: the processes' gradients then add up to that of the mean over all tokens.
        (penalised * (count / tokens)).backward()
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        self._share(gradients)
        norm = float(nn.utils.get_total_norm(gradients))
        if norm > config.clip:
            nn.utils.clip_grads_with_norm_(self.parameters, config.clip, torch.tensor(norm))
        return {"loss": nats / tokens, "tokens": tokens, "gradient_norm": norm}, states_TBR.detach()

    def update(self, step: int) -> None:
        """Move the weights along the gradients of the window that was read last, and their average after them."""
        self.optimiser.step()
        if self.average:
            decay = min(self.config.average, (1 + step) / (10 + step))
            for average, parameter in zip(self.average, self.parameters, strict=True):
                average.lerp_(parameter.detach(), 1 - decay)

    def diagnose(self, states_TBR: Float[Tensor, "T B R"]) -> dict[str, float]:
        """Return what ``metrics.jsonl`` wants to know now and then."""
        mean_square = self.group.sum(states_TBR.pow(2).mean()) / self.group.world
        return {"state_norm": float(mean_square.sqrt()), **self.model.diagnostics()}

    def escape(self, columns: Columns) -> float | None:
        """Return how many nats a word candidates miss on a text, or None where no step makes do with candidates."""
        if not (self.objective.estimates and self.model.asks):
            return None
        # By a generator of its own, the same draws after every epoch: training draws what it would have drawn without.
        objective = self.objective.begun_anew(self.config.seed)
        return measure_escape(self.model, objective, columns, carry=self.config.state == "carried")

    @contextmanager
    def averaged(self) -> Generator[None, None, None]:
        """Put the averaged weights into the model for a block, where the recipe asks for an average."""

        def swap() -> None:
            for parameter, average in zip(self.parameters, self.average, strict=False):
                parameter.data, average.data = average.data, parameter.data

        swap()
        try:
            yield
        finally:
            swap()

    def collect(self) -> dict[str, Tensor]:
        """Return all tensors that the next step depends on, by name. Every process sends its part."""
        tensors = {**module_tensors(self.model), **optimiser_tensors(self.optimiser)}
        tensors |= {f"average/{number}": value for number, value in enumerate(self.average)}
        if self.beside is not None:
            tensors |= {f"beside/{key}": value for key, value in self.beside.state_dict().items()}
        for rank, random in enumerate(self.group.gather(torch.get_rng_state())):
            tensors[f"random/torch/{rank}"] = random
        if (random := random_state(self.device)) is not None:
            tensors["random/device"] = random
        tensors["random/objective"] = self.objective.generator.get_state()
        for layer, cell in enumerate(self.cells):
            for number, state in enumerate(cell):
                for rank, value in enumerate(self.group.gather(state)):
                    tensors[f"cells/{layer}/{number}/{rank}"] = value
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`collect` returned, so that the next step is the one that would have followed.

        Raises:
            KeyError: a tensor is missing.
            RuntimeError: one has another shape.
            ValueError: the optimiser's do not fit.
        """
        self.model.load_state_dict(part(tensors, "model"))
        restore_optimiser(self.optimiser, tensors)
        if self.beside is not None:
            self.beside.load_state_dict(part(tensors, "beside"))
        for number, value in enumerate(self.average):
            value.copy_(tensors[f"average/{number}"])
        rank = self.group.rank
        torch.set_rng_state(tensors[f"random/torch/{rank}"])
        if "random/device" in tensors:
            set_random_state(self.device, tensors["random/device"])
        self.objective.generator.set_state(tensors["random/objective"])
        self.cells = tuple(
            tuple(tensors[f"cells/{layer}/{number}/{rank}"].to(self.device) for number in range(len(cell)))
            for layer, cell in enumerate(self.cells)
        )

    def _precision(self) -> AbstractContextManager[object]:
        """Lower the products of a step to bfloat16 where the recipe asks for it."""
        lowered = self.config.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16) if lowered else nullcontext()

    def _share(self, gradients: list[Tensor]) -> None:
        """Sum the gradients of all processes, in place."""
        if self.group.world == 1:
            return
        flat = self.group.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, shared in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(shared.view_as(gradient))
