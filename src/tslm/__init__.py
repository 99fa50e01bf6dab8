"""Language models in tensor space.

>>> import tslm
>>> corpus = tslm.open_corpus("asv")
>>> summary = tslm.train("asv/kn5", "runs/asv-kn5")
>>> model = tslm.load("runs/asv-kn5")
>>> tslm.evaluate(model, corpus.splits["test"]).perplexity
39.359
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tslm.corpus.sources import Corpus, CorpusConfig, open_corpus
    from tslm.corpus.vocabulary import Vocabulary
    from tslm.errors import TslmError
    from tslm.evaluation.perplexity import Perplexity, evaluate
    from tslm.models.base import LanguageModel
    from tslm.runs.recipe import Recipe, read_recipe
    from tslm.runs.run import Run, load, open_run
    from tslm.runs.summary import Summary
    from tslm.runs.train import train

__version__ = "0.1.0"

_HOMES = {
    "Corpus": "tslm.corpus.sources",
    "CorpusConfig": "tslm.corpus.sources",
    "LanguageModel": "tslm.models.base",
    "Perplexity": "tslm.evaluation.perplexity",
    "Recipe": "tslm.runs.recipe",
    "Run": "tslm.runs.run",
    "Summary": "tslm.runs.summary",
    "TslmError": "tslm.errors",
    "Vocabulary": "tslm.corpus.vocabulary",
    "evaluate": "tslm.evaluation.perplexity",
    "load": "tslm.runs.run",
    "open_corpus": "tslm.corpus.sources",
    "open_run": "tslm.runs.run",
    "read_recipe": "tslm.runs.recipe",
    "train": "tslm.runs.train",
}

__all__ = [
    "Corpus",
    "CorpusConfig",
    "LanguageModel",
    "Perplexity",
    "Recipe",
    "Run",
    "Summary",
    "TslmError",
    "Vocabulary",
    "evaluate",
    "load",
    "open_corpus",
    "open_run",
    "read_recipe",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``tslm --help`` need not wait for PyTorch."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tslm' has no attribute {name!r}")
