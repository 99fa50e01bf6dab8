"""The models of a server, and what can be asked of them; nothing here knows of HTTP."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tslm.corpus.lines import find_example
from tslm.corpus.reading import measure_text
from tslm.corpus.vocabulary import EOS, UNK
from tslm.errors import RunError, TslmError
from tslm.evaluation.perplexity import bits_per_byte, perplexity, perplexity_per_word
from tslm.files import finite
from tslm.inference.drawing import LONGEST, draw_model
from tslm.inference.explain import explain, explain_words
from tslm.inference.explanation import WordReport, describe_word
from tslm.inference.fill import PatternText, fill_pattern, read_pattern
from tslm.inference.generate import Draw, Generation, Sampling
from tslm.inference.network import require_chain
from tslm.models.base import LanguageModel
from tslm.models.ngram.blanks import FillsBlanks, require_blanks
from tslm.runs.run import Run, open_run
from tslm.serve.costs import Rates, check_filling, check_seconds, measure_rates
from tslm.serve.limits import Limits, Refused
from tslm.stopping import check_wanted


@dataclass(frozen=True)
class ServedModel:
    """A model with the name it is served under."""

    name: str
    model: LanguageModel[Any]
    rates: Rates | None = None
    """How fast it is on this machine; without them nothing is estimated."""
    example: str = ""
    """A sentence to begin with, of the text that it was made for."""

    @cached_property
    def _without_cache(self) -> LanguageModel[Any] | None:
        return self.model.without_cache()

    def describe(self) -> dict[str, Any]:
        """Return the model's card."""
        try:
            require_chain(self.model)
            network = True
        except TslmError:
            network = False
        return {
            "id": self.name,
            "created": 0,
            "kind": self.model.kind,
            "parameters": self.model.parameter_count,
            "vocabulary": len(self.model.vocabulary),
            "fills": isinstance(self.model, FillsBlanks),
            "network": network,
            "cache": self._without_cache is not None,
            "example": self.example,
        }

    def score(self, text: str, alternatives: int, *, carry: bool = False) -> dict[str, Any]:
        """Score each line; empty ones are left out. Lines start anew, or are one text (``carry``)."""
        model, state = self.model, self.model.start(1)
        sentences: list[dict[str, Any]] = []
        nats, tokens, unknown = 0.0, 0, 0
        lines = [line for line in text.split("\n") if self.model.rule.split(line)]
        for line in lines:
            line_words = [*model.rule.split(line), EOS]
            words = explain_words(model, line_words, top=alternatives, state=state)
            ids_1T = model.vocabulary.encode(line_words)[None]
            written = self._write_words(words)
            if self._without_cache is not None:
                alone_1T, _ = self._without_cache.score(ids_1T, state)
                for report, score in zip(written, alone_1T[0].tolist(), strict=True):
                    report["uncached"] = finite(0.0 - score / math.log(2))
            if carry:
                _, state = model.score(ids_1T, state)
            log_probability = sum(word.log_probability for word in words)
            nats, tokens = nats - log_probability, tokens + len(words)
            unknown += sum(not word.known for word in words)
            sentences.append(
                {
                    "log_probability": finite(log_probability),
                    "words": written,
                }
            )
        size = measure_text("".join(f"{line}\n" for line in lines), self.model.rule)
        return {
            "model": self.name,
            "perplexity": finite(perplexity(nats, tokens)),
            "perplexity_per_word": finite(perplexity_per_word(nats, size)),
            "bits_per_byte": finite(bits_per_byte(nats, size)),
            "tokens": tokens,
            "unknown": unknown,
            "sentences": sentences,
        }

    def explain(self, text: str, **options: Any) -> dict[str, Any]:
        """Explain a sentence, and draw its network where that is asked for and can be done."""
        draw = options.pop("network")
        report = {"model": self.name, **explain(self.model, text, **options).as_json()}
        if draw and self.describe()["network"] and len(self.model.rule.split(text)) <= LONGEST:
            report["network"] = draw_model(self.model, text)
        return report

    def parse(self, pattern: str, limits: Limits) -> PatternText:
        """Read a pattern with blanks that can be filled within limits.

        Raises:
            Refused: it has too many blanks, or would take too long or too much memory (413).
        """
        model = require_blanks(self.model)
        parsed = read_pattern(self.model, pattern)
        blanks = parsed.ids.count(None)
        if blanks > limits.blanks:
            raise Refused(413, f"the pattern has {blanks} blanks; at most {limits.blanks} are taken here")
        check_filling(model.fill_cost(parsed.ids), limits, self.rates)
        return parsed

    def fill(self, parsed: PatternText, *, span: Any, top: int, samples: int, seed: int) -> dict[str, Any]:
        """Fill the blanks of a pattern."""
        report = fill_pattern(self.model, parsed, span=span, top=top, samples=samples, seed=seed).as_json()
        names = ("log_probability", "blanks", "fillings", "samples")
        return {"model": self.name, **{name: report[name] for name in names if name in report}}

    def _write_words(self, words: Sequence[WordReport]) -> list[dict[str, Any]]:
        """Return the words of a line, each with what is written for it and would be for its alternatives."""
        writer = self.model.rule.writer()
        described: list[dict[str, Any]] = []
        for word in words:
            report = describe_word(word)
            for entry in report["alternatives"]:
                entry["text"] = writer.show(entry["word"])
            described.append({**report, "text": writer.add(word.word)})
        return described

    def generation(
        self, prompt: str, *, unk: bool = True, stop: Sequence[str], number: int, length: int, **sampling: Any
    ) -> Generation:
        """Set up samples."""
        return Generation(
            self.model,
            prompt,
            number=number,
            length=length,
            stop=stop,
            sampling=Sampling(exclude=() if unk else (UNK,), **sampling),
        )

    def check_generation(self, generation: Generation, limits: Limits, times: int = 1) -> None:
        """Raise for samples that will take too long.

        Raises:
            Refused: they will (413).
        """
        if self.rates is None:
            return
        number, length = len(generation.reasons), generation.length
        seconds = times * self.rates.generation_seconds(number, length, generation.sampling)
        check_seconds(seconds, limits, f"{times * number} × {length:,} words from {self.name}")


def gather_samples(generation: Generation) -> list[list[Draw]]:
    """Return whole samples, for as long as somebody waits for them."""
    samples: list[list[Draw]] = [[] for _ in generation.reasons]
    for draws in generation:
        check_wanted()
        for draw in draws:
            samples[draw.sample].append(draw)
    return samples


def open_models(folders: Sequence[str | Path], *, measure: bool = False) -> dict[str, ServedModel]:
    """Open run folders under their own names; two of the same name get their parents' in front.

    Args:
        folders: the run folders.
        measure: find out how fast each is, so that requests that would take too long are refused at once.

    Raises:
        RunError: a folder is no run folder, or is given twice.
    """
    paths = [Path(folder) for folder in folders]
    models: dict[str, ServedModel] = {}
    for name, path in _names(paths):
        if name in models:
            raise RunError(f"{path} is given twice; give each run once")
        run = open_run(path)
        rates = measure_rates(run.model) if measure else None
        models[name] = ServedModel(name, run.model, rates, _find_sentence(run))
    return models


def _find_sentence(run: Run) -> str:
    """Return a line of the run's corpus; where its text is not here, one that the model writes itself."""
    found = find_example(run.recipe.corpus)
    if found is not None:
        return found
    exclude = (UNK,) if run.model.vocabulary.unk_id is not None else ()
    generation = Generation(run.model, length=12, sampling=Sampling(temperature=0.8, exclude=exclude))
    return generation.write(draw.word for draws in generation for draw in draws).strip()


def _names(paths: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    short = [path.resolve().name for path in paths]
    for path, name in zip(paths, short, strict=True):
        yield (f"{path.resolve().parent.name}/{name}" if short.count(name) > 1 else name), path
