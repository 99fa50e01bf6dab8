"""The settings of the gradient engine: the ``[train]`` and ``[objective]`` tables of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tslm.config import check
from tslm.devices import DEVICES, Device


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a recurrent model is trained."""

    epochs: int = 20
    """How often the training split is read."""

    batch: int = 40
    """B: how many columns the text is cut into; all are read side by side."""

    window: int = 35
    """T: how many words gradients flow back through."""

    state: Literal["carried", "reset"] = "carried"
    """Carry the state from window to window, or start anew at each (then T is the order n of the tensor)."""

    optimiser: Literal["adamw", "sgd"] = "adamw"
    """AdamW, or plain SGD (which goes well with ``schedule = "plateau"``)."""

    learning_rate: float = 0.003
    """The highest learning rate."""

    warm_up: float = 0.1
    """The share of all steps in which the rate rises from zero."""

    schedule: Literal["cosine", "constant", "plateau"] = "cosine"
    """After the warm-up: fall to zero along a cosine, stay, or divide by four when validation gets worse."""

    weight_decay: float = 0.0
    """The optimiser's decay of matrices; vectors, those of words too, are never decayed."""

    beta2: float = 0.99
    """AdamW's memory of squared gradients."""

    moments: Literal["numbers", "words"] = "numbers"
    """AdamW's squared gradients: of each number, or their mean over a word, which then moves along its gradient."""

    adaptation: float = 1.0
    """How much of each word's own size of gradients its step is divided by, with ``moments = "words"``: all of it, or,
    as a power, part of it and of the mean over all words for the rest; below 1, a rare word moves less."""

    word_rate: float = 1.0
    """The learning rate of the words' vectors, as a multiple of that of all else."""

    spelling: float = 0.0
    """The learning rate of what words that are spelt alike have in common, as a multiple of the words' own, with
    ``moments = "words"``; 0 for words that share nothing."""

    clip: float = 0.25
    """The largest norm of the gradient."""

    average: float = 0.0
    """The decay of an exponential average of the weights, which is then what is validated and saved; 0 for none."""

    activation_penalty: float = 0.0
    """The weight of the mean square of what the head makes of the (dropped-out) last states, its latents."""

    change_penalty: float = 0.0
    """The weight of the mean square of the change of the last state from word to word."""

    patience: int = 0
    """Stop after this many epochs without a better validation perplexity; 0 never stops early."""

    metric_steps: int = 100
    """How many steps lie between two lines of ``metrics.jsonl``."""

    checkpoint_steps: int = 500
    """How many steps may be lost when the run is killed."""

    test: bool = True
    """Read the test split once, at the end; trials, among which validation chooses, leave it alone."""

    seed: int = 1
    """Decides the initial weights, the dropout and the sampled words."""

    threads: int = 0
    """How many threads to compute with; 0 takes what PyTorch takes. Results repeat bit for bit for a fixed number."""

    precision: Literal["single", "bfloat16"] = "single"
    """The precision of a training step's matrix products; all else, validation and test are in single precision."""

    device: Device = "cpu"
    """Where to compute: the CPU, CUDA, MPS, or ``auto`` for an accelerator where there is one."""

    def __post_init__(self) -> None:
        check(self.device in DEVICES, f"train.device = {self.device!r} must be one of {', '.join(DEVICES)}")
        for key in ("epochs", "batch", "window", "metric_steps", "checkpoint_steps"):
            value = getattr(self, key)
            check(value >= 1, f"train.{key} = {value} must be 1 or more")
        for key in (
            "weight_decay",
            "spelling",
            "activation_penalty",
            "change_penalty",
            "patience",
            "seed",
            "threads",
        ):
            value = getattr(self, key)
            check(value >= 0, f"train.{key} = {value} must not be negative")
        check(self.seed < 2**63, f"train.seed = {self.seed} is too large; take one below 2^63")
        check(
            self.moments == "numbers" or self.optimiser == "adamw",
            f"train.moments = {self.moments!r} is AdamW's; leave it out with train.optimiser = {self.optimiser!r}",
        )
        check(0 <= self.adaptation <= 1, f"train.adaptation = {self.adaptation} must be 0 to 1")
        for key, off in (("adaptation", 1.0), ("spelling", 0.0)):
            value = getattr(self, key)
            check(
                value == off or self.moments == "words",
                f'train.{key} = {value} goes with train.moments = "words"; set both, or neither',
            )
        for key in ("learning_rate", "word_rate", "clip"):
            value = getattr(self, key)
            check(value > 0, f"train.{key} = {value} must be positive")
        for key in ("warm_up", "average", "beta2"):
            value = getattr(self, key)
            check(0 <= value < 1, f"train.{key} = {value} must lie in [0, 1)")


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """Which words the partition function is summed over during training; evaluation always sums over all."""

    frequent: int = 0
    """How many of the most frequent words are always summed; 0 with ``sampled = 0`` means all words."""

    sampled: int = 0
    """How many of the other words are drawn anew for each step; all, where there are no more than these."""

    power: float = 0.0
    """How the other words are drawn: with a chance that grows with this power of their frequency; 0 for all alike."""

    counts: float = 0.0
    """How much of the loss is that of a mixture with counts of the text: the model then learns what they cannot say."""

    def __post_init__(self) -> None:
        check(0 <= self.counts < 1, f"objective.counts = {self.counts} must lie in [0, 1)")
        check(0 <= self.power <= 1, f"objective.power = {self.power} must be 0 to 1")
        check(self.frequent >= 0, f"objective.frequent = {self.frequent} must not be negative")
        check(self.sampled >= 0, f"objective.sampled = {self.sampled} must not be negative")
        check(
            self.sampled > 0 or self.frequent == 0,
            "objective.frequent without objective.sampled leaves the rare words out; "
            "set both, or neither for the full softmax",
        )
