"""Language models in tensor space.

>>> import tslm
>>> tslm.load("asv/gated").parameter_count  # comes trained
1450512
>>> tslm.train("asv/kn5", "runs/asv-kn5").test.perplexity
39.359
>>> tslm.score("runs/asv-kn5", "In the beginning God created the heavens and the earth.").perplexity
5.332
>>> tslm.fill("runs/asv-kn5", "The ? of the Lord").fillings[0].text
'the grace of the lord'

Every verb takes a model or its run folder, and texts as people write them: strings, lists, columns, paths.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tslm.corpus.rule import TextRule
    from tslm.corpus.sources import Corpus, CorpusConfig, open_corpus
    from tslm.corpus.vocabulary import Vocabulary
    from tslm.errors import TslmError
    from tslm.evaluation.perplexity import Perplexity
    from tslm.inference.adapt import Adaptation, adapt
    from tslm.inference.add import Addition, add
    from tslm.inference.caching import evaluate_cache, with_cache
    from tslm.inference.compare import compare
    from tslm.inference.comparison import Comparison
    from tslm.inference.compress import Compression, compress
    from tslm.inference.evaluate import Evaluation, evaluate
    from tslm.inference.explain import explain
    from tslm.inference.explanation import Explanation
    from tslm.inference.fill import Fillings, fill
    from tslm.inference.frequencies import Frequencies, evaluate_frequencies
    from tslm.inference.gating import Gating, gate
    from tslm.inference.halving import Halving, halve
    from tslm.inference.interpolate import mix
    from tslm.inference.match import Matched, match
    from tslm.inference.patterns import Constraint
    from tslm.inference.reading import ReadingReport
    from tslm.inference.samples import Samples, generate
    from tslm.inference.score import score
    from tslm.inference.scores import Scores
    from tslm.inference.unroll import Unrolled, unroll
    from tslm.inference.ways import evaluate_dynamic, evaluate_reading
    from tslm.models.base import LanguageModel
    from tslm.paper.reproduce import reproduce
    from tslm.runs.catalogue import list_recipes
    from tslm.runs.recipe import Recipe, read_recipe
    from tslm.runs.run import Run, load, open_run
    from tslm.runs.summary import Summary
    from tslm.runs.train import train

__version__ = "0.1.0"

_HOMES = {
    "Adaptation": "tslm.inference.adapt",
    "Addition": "tslm.inference.add",
    "Comparison": "tslm.inference.comparison",
    "Compression": "tslm.inference.compress",
    "Constraint": "tslm.inference.patterns",
    "Corpus": "tslm.corpus.sources",
    "CorpusConfig": "tslm.corpus.sources",
    "Evaluation": "tslm.inference.evaluate",
    "Explanation": "tslm.inference.explanation",
    "Fillings": "tslm.inference.fill",
    "Frequencies": "tslm.inference.frequencies",
    "Gating": "tslm.inference.gating",
    "Halving": "tslm.inference.halving",
    "LanguageModel": "tslm.models.base",
    "Matched": "tslm.inference.match",
    "Perplexity": "tslm.evaluation.perplexity",
    "ReadingReport": "tslm.inference.reading",
    "Recipe": "tslm.runs.recipe",
    "Run": "tslm.runs.run",
    "Samples": "tslm.inference.samples",
    "Scores": "tslm.inference.scores",
    "Summary": "tslm.runs.summary",
    "TextRule": "tslm.corpus.rule",
    "TslmError": "tslm.errors",
    "Unrolled": "tslm.inference.unroll",
    "Vocabulary": "tslm.corpus.vocabulary",
    "adapt": "tslm.inference.adapt",
    "add": "tslm.inference.add",
    "compare": "tslm.inference.compare",
    "compress": "tslm.inference.compress",
    "evaluate": "tslm.inference.evaluate",
    "evaluate_cache": "tslm.inference.caching",
    "evaluate_dynamic": "tslm.inference.ways",
    "evaluate_frequencies": "tslm.inference.frequencies",
    "evaluate_reading": "tslm.inference.ways",
    "explain": "tslm.inference.explain",
    "fill": "tslm.inference.fill",
    "gate": "tslm.inference.gating",
    "generate": "tslm.inference.samples",
    "halve": "tslm.inference.halving",
    "list_recipes": "tslm.runs.catalogue",
    "load": "tslm.runs.run",
    "match": "tslm.inference.match",
    "mix": "tslm.inference.interpolate",
    "open_corpus": "tslm.corpus.sources",
    "open_run": "tslm.runs.run",
    "read_recipe": "tslm.runs.recipe",
    "reproduce": "tslm.paper.reproduce",
    "score": "tslm.inference.score",
    "train": "tslm.runs.train",
    "unroll": "tslm.inference.unroll",
    "with_cache": "tslm.inference.caching",
}

__all__ = [
    "Adaptation",
    "Addition",
    "Comparison",
    "Compression",
    "Constraint",
    "Corpus",
    "CorpusConfig",
    "Evaluation",
    "Explanation",
    "Fillings",
    "Frequencies",
    "Gating",
    "Halving",
    "LanguageModel",
    "Matched",
    "Perplexity",
    "ReadingReport",
    "Recipe",
    "Run",
    "Samples",
    "Scores",
    "Summary",
    "TextRule",
    "TslmError",
    "Unrolled",
    "Vocabulary",
    "adapt",
    "add",
    "compare",
    "compress",
    "evaluate",
    "evaluate_cache",
    "evaluate_dynamic",
    "evaluate_frequencies",
    "evaluate_reading",
    "explain",
    "fill",
    "gate",
    "generate",
    "halve",
    "list_recipes",
    "load",
    "match",
    "mix",
    "open_corpus",
    "open_run",
    "read_recipe",
    "reproduce",
    "score",
    "train",
    "unroll",
    "with_cache",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``tslm --help`` need not wait for what it does not use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tslm' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, whether they are imported yet or not."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations", "import_module"})
