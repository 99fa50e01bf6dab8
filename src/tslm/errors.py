"""The errors a user can meet. Each says what was given, what was expected and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class TslmError(Exception):
    """Something the user can put right. The command line prints it in one line and exits with 2."""


class CorpusError(TslmError):
    """A corpus that is missing, damaged or not readable as text."""


class DownloadError(CorpusError):
    """A file that could not be fetched, or that is not the one expected."""


class RecipeError(TslmError):
    """A recipe with an unknown key or a value out of range."""


class RunError(TslmError):
    """A run folder that is missing, damaged, in use, or of another kind than expected."""


class InputError(TslmError, TypeError):
    """Something of another type than expected: a number where a text belongs, a table where one column does."""


class Stopped(TslmError):  # noqa: N818
    """The user asked to stop; what was done is saved. The command line exits with 130."""


class ShapeError(TslmError, ValueError):
    """Tensors whose shapes do not fit together."""


class SizeLimitError(TslmError, ValueError):
    """A tensor that would take more memory than the limit allows."""


class NumberError(TslmError, ValueError):
    """A number out of its range: a NaN or infinite entry, a rank below 1 or above the maximum."""


class UnsupportedError(TslmError):
    """An operation that this kind of model cannot do."""


def nearest(given: str, known: Iterable[str]) -> str:
    """Return a hint naming the known word nearest to ``given``, or all of them when none is near.

    Example:
        >>> nearest("ptd", ["ptb", "wikitext-2"])
        "did you mean 'ptb'?"
    """
    names = sorted(known)
    close = get_close_matches(given, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
