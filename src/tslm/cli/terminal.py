"""What is shown on a terminal is text, whatever a model's vocabulary holds."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, Any

# The control characters of ASCII and of Latin 1, but for tab and the end of a line. With them a terminal can be made to
# change its title, to overwrite what it has shown, or worse.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    r"""Return a text with its control characters written out.

    Example:
        >>> print(visible("a \x1b[2J word"))
        a \x1b[2J word
    """
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


@contextmanager
def visible_output() -> Generator[None, None, None]:
    """Write out the control characters of all that is printed within the block, where that is a terminal.

    Files and pipes get words as they are. The colours and bars of rich are its own and go past this; the texts that it
    is given do not.
    """
    before = sys.stdout, sys.stderr
    if not any(stream.isatty() for stream in before):
        yield
        return
    import rich.text

    rich_text: Any = rich.text
    stripped = rich_text.strip_control_codes
    sys.stdout, sys.stderr = (_Visible(stream) if stream.isatty() else stream for stream in before)
    rich_text.strip_control_codes = visible  # its own leaves the escape character in
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        rich_text.strip_control_codes = stripped


class _Visible:
    """A stream to a terminal."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        """Where rich writes, past this."""

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)
