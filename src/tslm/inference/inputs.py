"""What users give: a model or its run folder, and a text in any form that texts come in."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tslm.corpus.text import name_remedy, read_text
from tslm.errors import CorpusError, InputError, nearest
from tslm.models.base import LanguageModel
from tslm.progress import track_bytes
from tslm.runs.run import Run, open_run

ModelLike = LanguageModel[Any] | Run | str | Path
"""A model, an opened run, or the run folder that holds one."""

TextLike = str | Path | Iterable[str]
"""A text itself, the file that holds it, or its lines: a list, a generator, a column of a table."""

LONGEST_LINE = 1_000_000
"""Words in a line; a longer one is taken as a sign that the text is not one sentence per line."""

STANDARD_INPUT = "-"

SHOWN_UNKNOWN = 8
"""How many unknown words a message names."""


def open_model(model: object) -> LanguageModel[Any]:
    """Return the model that a user means.

    Raises:
        InputError: it is neither a model nor a run folder.
        RunError: the folder is no run folder, or is damaged.
    """
    if isinstance(model, LanguageModel):
        return cast(LanguageModel[Any], model)
    return as_run(model).model


def as_run(run: object) -> Run:
    """Return the run that a user means.

    Raises:
        InputError: it is something else, such as a model alone, which does not know its settings and its corpus.
        RunError: the folder is no run folder, or is damaged.
    """
    if isinstance(run, Run):
        return run
    if isinstance(run, str | os.PathLike):
        return open_run(cast(str | Path, run))
    if isinstance(run, LanguageModel):
        raise InputError(
            "a model alone does not know its settings and its corpus; give its run folder, such as 'runs/asv-kn5'"
        )
    raise InputError(
        f"{_name_type(run)} is neither a model nor a run folder; give what tslm.load returns, or a folder such as "
        "'runs/asv-kn5'"
    )


def check_several(models: object, what: str) -> None:
    """Raise an InputError unless it is a list of two or more."""
    if not isinstance(models, Sequence) or isinstance(models, str) or len(cast(Sequence[Any], models)) < 2:
        raise InputError(f"give two or more {what}, as a list")


def name_model(model: object) -> str:
    """Return what a report calls a model: its folder, or its kind."""
    if isinstance(model, LanguageModel):
        return cast(LanguageModel[Any], model).kind
    return str(model.folder if isinstance(model, Run) else model)


def name_text(text: object) -> str:
    """Return what a report calls a text."""
    return str(text) if isinstance(text, os.PathLike) else "text"


def lines_of(text: object) -> Iterator[str]:
    r"""Yield the lines of a text, however it is given.

    Args:
        text: a string, whose lines end in ``\n``; a ``Path``; or an iterable of strings, each of which is one line.

    Raises:
        InputError: it is none of these, or one of the lines is no string.
        CorpusError: the file is missing or no text.
    """
    if isinstance(text, str):
        _refuse_file_name(text)
        yield from text.removesuffix("\n").split("\n")
    elif isinstance(text, os.PathLike):
        yield from read_lines([Path(cast(Path, text))])
    # The type is asked, not the table: one that is not computed yet would have to be, to name its columns.
    elif isinstance(text, Mapping) or hasattr(type(text), "columns"):
        raise InputError(
            f"{_name_type(text)} is no text; give one of its columns: a list or series of strings"
        )
    elif getattr(text, "shape", None) == ():  # an array of NumPy with one entry and no axis
        yield from lines_of(cast(Any, text).item())
    elif isinstance(text, Iterable) and not isinstance(text, bytes | bytearray):
        for number, line in enumerate(cast(Iterable[Any], text), 1):
            if not isinstance(line, str):
                raise InputError(
                    f"line {number} of the text is {line!r:.80}, not a string; leave it out or fill it"
                )
            yield line
    else:
        raise InputError(
            f"{_name_type(text)} is no text; give a string, a list or column of strings, or a pathlib.Path"
        )


def read_string(text: object, what: str) -> str:
    """Return a text that has to be a string.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(text, str):
        raise InputError(f"{_name_type(text)} is no {what}; give a string")
    return text


def read_choice(given: object, known: Sequence[str], what: str) -> None:
    """Raise an InputError unless it is one of the words that are known."""
    if given not in known:
        raise InputError(f"{what} = {given!r} is not one of {', '.join(known)}; {nearest(str(given), known)}")


def read_words(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return words or phrases as a tuple; one string is one of them, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def read_count(given: object, what: str) -> int:
    """Return a whole number.

    Raises:
        InputError: it is something else, 2.5 or '2' for instance.
    """
    try:
        return operator.index(cast(Any, given))
    except TypeError:
        raise InputError(f"{what} = {given!r} is not a whole number") from None


def read_lines(paths: Sequence[str | Path]) -> Iterator[str]:
    """Yield the lines of text files (``-`` for standard input) as they are read, with progress when it takes long."""
    sizes = [Path(path).stat().st_size for path in paths if path != STANDARD_INPUT and Path(path).is_file()]
    total = sum(sizes) if len(sizes) == len(paths) else None
    with track_bytes("scoring", total) as advance:
        for path in paths:
            if path == STANDARD_INPUT:
                yield from _read_standard_input()
            else:
                yield from _join_pieces(read_text(Path(path), advance), str(path))


def show_unknown(words: Sequence[str]) -> str:
    """Return a sentence that names the words a model does not know."""
    different = list(dict.fromkeys(words))
    named = ", ".join(different[:SHOWN_UNKNOWN]) + (" …" if len(different) > SHOWN_UNKNOWN else "")
    noun = (
        "a word that the model does not know" if len(different) == 1 else "words that the model does not know"
    )
    return f"{noun}, read as <unk>: {named}"


def _refuse_file_name(text: str) -> None:
    """Raise for a string that is, in all likelihood, meant as the name of a file."""
    if len(text) > 1000 or len(text.split()) != 1:
        return
    try:
        if not Path(text).is_file():
            return
    except (OSError, ValueError):  # too long, or with a NUL: the name of nothing
        return
    raise InputError(
        f"{text!r} would be read as the text itself, but there is a file of that name; "
        f"give pathlib.Path({text!r}) for the file, or [{text!r}] for the text"
    )


def _name_type(value: object) -> str:
    return f"something of type {type(value).__name__}"


def _read_standard_input() -> Iterator[str]:
    """Yield lines as they come, so that whoever types has the answer to a line before the next."""
    for number, line in enumerate(iter(lambda: sys.stdin.buffer.readline(100 * LONGEST_LINE), b""), 1):
        if len(line) == 100 * LONGEST_LINE:
            raise CorpusError(
                f"line {number} of standard input is longer than {len(line):,} bytes; give one sentence per line"
            )
        try:
            yield line.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"line {number} of standard input is not UTF-8 (byte {error.start}); "
                f"convert it, for example: {name_remedy(line if number == 1 else b'')}"
            ) from error


def _join_pieces(pieces: Iterable[str], path: str) -> Iterator[str]:
    """Yield whole lines of text that comes in pieces cut anywhere between words."""
    held: list[str] = []
    size = 0
    for piece in pieces:
        first, *rest = piece.split("\n")
        held.append(first)
        size += len(first)
        if size > 100 * LONGEST_LINE:
            raise CorpusError(
                f"{path} has a line of more than {size - 1:,} characters; give one sentence per line"
            )
        if rest:
            yield "".join(held)
            yield from rest[:-1]
            held, size = [rest[-1]], len(rest[-1])
