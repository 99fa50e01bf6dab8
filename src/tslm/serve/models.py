"""The models of a server, and what can be asked of them; nothing here knows of HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tslm.corpus.vocabulary import EOS, UNK
from tslm.errors import RunError, TslmError
from tslm.evaluation.perplexity import perplexity
from tslm.inference.chain import require_tslm
from tslm.inference.drawing import LONGEST, draw_model
from tslm.inference.explain import describe_explanation, describe_word, explain, explain_words
from tslm.inference.generate import Generation, Sampling
from tslm.inference.score import finite
from tslm.models.base import LanguageModel
from tslm.models.ngram.blanks import FillsBlanks, describe_filling, parse_pattern, require_blanks
from tslm.runs.run import load


@dataclass(frozen=True)
class ServedModel:
    """A model with the name it is served under."""

    name: str
    model: LanguageModel[Any]

    def describe(self) -> dict[str, Any]:
        """Return the model's card."""
        try:
            require_tslm(self.model)
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
        }

    def score(self, text: str, alternatives: int) -> dict[str, Any]:
        """Score each line; empty ones are left out."""
        sentences: list[dict[str, Any]] = []
        nats, tokens, unknown = 0.0, 0, 0
        for line in text.splitlines():
            if not line.split():
                continue
            words = explain_words(self.model, [*line.split(), EOS], top=alternatives)
            log_probability = sum(word.log_probability for word in words)
            nats, tokens = nats - log_probability, tokens + len(words)
            unknown += sum(not word.known for word in words)
            sentences.append(
                {
                    "log_probability": finite(log_probability),
                    "words": [describe_word(word) for word in words],
                }
            )
        return {
            "model": self.name,
            "perplexity": finite(perplexity(nats, tokens)),
            "tokens": tokens,
            "unknown": unknown,
            "sentences": sentences,
        }

    def explain(self, text: str, **options: Any) -> dict[str, Any]:
        """Explain a sentence, and draw its network where that is asked for and can be done."""
        draw = options.pop("network")
        report = {"model": self.name, **describe_explanation(explain(self.model, text, **options))}
        if draw and self.describe()["network"] and len(text.split()) <= LONGEST:
            report["network"] = draw_model(self.model, text)
        return report

    def fill(self, pattern: str, *, span: Any, top: int, samples: int, seed: int) -> dict[str, Any]:
        """Fill the blanks of a pattern."""
        model = require_blanks(self.model)
        parsed = parse_pattern(pattern, self.model.vocabulary)
        report = describe_filling(
            model.fill(parsed, span=span), parsed, self.model.vocabulary, top=top, samples=samples, seed=seed
        )
        return {"model": self.name, **report}

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


def join(words: Sequence[str]) -> str:
    """Return words as text; ``<eos>`` begins a new line."""
    return " ".join(words).replace(f" {EOS}", "\n").replace(EOS, "\n").replace("\n ", "\n")


def open_models(folders: Sequence[str | Path]) -> dict[str, ServedModel]:
    """Open run folders under their own names; two of the same name get their parents' in front.

    Raises:
        RunError: a folder is no run folder, or is given twice.
    """
    paths = [Path(folder) for folder in folders]
    models: dict[str, ServedModel] = {}
    for name, path in _names(paths):
        if name in models:
            raise RunError(f"{path} is given twice; give each run once")
        models[name] = ServedModel(name, load(path))
    return models


def _names(paths: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    short = [path.resolve().name for path in paths]
    for path, name in zip(paths, short, strict=True):
        yield (f"{path.resolve().parent.name}/{name}" if short.count(name) > 1 else name), path
