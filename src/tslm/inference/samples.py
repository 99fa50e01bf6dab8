"""Whole samples of text, written as people write it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, overload

from tslm.corpus.vocabulary import EOS, UNK
from tslm.inference.generate import Generation, Sampling
from tslm.inference.guiding import guided
from tslm.inference.inputs import ModelLike, open_model, read_count, read_string, read_words
from tslm.inference.patterns import Constraint
from tslm.models.base import LanguageModel
from tslm.tables import html_table


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A text that a model wrote."""

    text: str
    """The prompt and what follows it; a new line where a sentence ended and another began."""

    words: tuple[str, ...]
    """The words that follow the prompt, ``<eos>`` among them where the text went on."""

    log_probability: float
    """Ln p of these words under the model itself, whatever the temperature."""

    reason: str
    """Why it ended: ``stop`` or ``length``."""

    def __str__(self) -> str:
        return self.text


class Samples(Sequence[Sample]):
    """Texts that a model wrote.

    Example:
        >>> print(tslm.generate("runs/asv-kn5", "In the beginning", number=2, length=6, seed=7))
        In the beginning of sin? if brethren devouring
        In the beginning god created the heavens, and
    """

    def __init__(self, prompt: str, samples: Sequence[Sample], unknown: Sequence[str]) -> None:
        self.prompt = prompt
        self.samples = tuple(samples)
        self.unknown = tuple(unknown)
        """Words of the prompt that the model does not know."""

    @overload
    def __getitem__(self, place: int) -> Sample: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Sample]: ...
    def __getitem__(self, place: int | slice) -> Sample | Sequence[Sample]:
        return self.samples[place]

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        return "\n".join(sample.text for sample in self.samples)

    def _repr_html_(self) -> str:
        """Return the texts as a table, for a notebook."""
        rows = [
            [f"{sample.log_probability:.2f}", sample.reason, sample.text.replace("\n", " ⏎ ")]
            for sample in self.samples
        ]
        return html_table(["ln p", "ended by", "text"], rows)

    def as_json(self) -> dict[str, Any]:
        """Return the samples as plain values."""
        return {"prompt": self.prompt, "samples": [asdict(sample) for sample in self.samples]}


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How texts are written: what comes before, how many, how long, and how words are drawn."""

    prompt: str = ""
    number: int = 1
    length: int = 50
    """At most so many words each."""
    stop: Sequence[str] = ()
    """A text ends before any of these, as people write them; the end of a sentence ends it too."""
    go_on: bool = False
    """Go on behind the end of a sentence."""
    sampling: Sampling = field(default_factory=Sampling)

    def begin(self, model: LanguageModel[Any]) -> Generation:
        """Set the samples up."""
        ends = () if self.go_on else (EOS,)
        return Generation(
            model,
            self.prompt,
            number=self.number,
            length=self.length,
            stop=[*self.stop, *ends],
            sampling=self.sampling,
        )


def generate(
    model: ModelLike,
    prompt: str = "",
    *,
    number: int = 1,
    length: int = 50,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    stop: str | Sequence[str] = (),
    go_on: bool = False,
    unk: bool = True,
    constraint: Constraint | None = None,
    guide: ModelLike | None = None,
) -> Samples:
    """Let a model write.

    Args:
        model: a model, or its run folder.
        prompt: what comes before, as people write it.
        number: how many texts, all drawn in one batch.
        length: the largest number of words of each.
        temperature: below 1 likelier words, above 1 more surprising ones, 0 the best word every time.
        top_k: draw from this many best words only; 0 draws from all.
        top_p: draw from the fewest best words that have this much probability together.
        seed: the same seed gives the same texts.
        stop: a text ends before any of these; one string is one of them.
        go_on: go on behind the end of a sentence, on a new line.
        unk: whether ``<unk>`` may be drawn.
        constraint: what the sentence must be like; it holds always.
        guide: a probabilistic model of the same words that knows how likely it is to be met; the model itself, where it
            is probabilistic.

    Raises:
        TslmError: the model cannot be read, a number is out of range, or no word is possible.
    """
    opened = open_model(model)
    if constraint is not None:
        opened = guided(opened, constraint, opened if guide is None else open_model(guide))
    exclude = () if unk else (UNK,)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, exclude=exclude)
    return write(
        opened,
        Writing(
            prompt=read_string(prompt, "prompt"),
            number=read_count(number, "number"),
            length=read_count(length, "length"),
            stop=read_words(stop),
            go_on=go_on,
            sampling=sampling,
        ),
    )


def write(model: LanguageModel[Any], writing: Writing) -> Samples:
    """Return whole samples."""
    generation = writing.begin(model)
    words: list[list[str]] = [[] for _ in range(writing.number)]
    scores = [0.0] * writing.number
    for draws in generation:
        for draw in draws:
            words[draw.sample].append(draw.word)
            scores[draw.sample] += draw.log_probability
    before = write_prompt(writing.prompt)
    samples = [
        Sample(text=before + generation.write(own), words=tuple(own), log_probability=score, reason=reason)
        for own, score, reason in zip(words, scores, generation.reasons, strict=True)
    ]
    return Samples(writing.prompt, samples, unknown_words(model, writing.prompt))


def write_growing(model: LanguageModel[Any], writing: Writing) -> Iterator[str]:
    """Yield a single sample piece by piece, as it grows; the pieces joined are the text of ``write``."""
    yield write_prompt(writing.prompt)
    generation = writing.begin(model)
    writer = generation.writer()
    for draws in generation:
        yield "".join(writer.add(draw.word) for draw in draws)
    yield writer.end()


def write_prompt(prompt: str) -> str:
    """Return a prompt as it was given, but for a space behind it: the first word brings its own."""
    return prompt.rstrip(" \t")


def unknown_words(model: LanguageModel[Any], text: str) -> list[str]:
    """Return the words of a text that are not in a model's vocabulary."""
    return [word for word in model.rule.split(text) if word not in model.vocabulary]
