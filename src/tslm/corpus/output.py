"""Where results are to go, checked before the work that makes them."""

from __future__ import annotations

from pathlib import Path

from tslm.errors import TslmError


def check_folder(folder: Path) -> None:
    """Raise a TslmError where ``folder`` is not a folder and cannot become one.

    Raises:
        TslmError: it, or a part of its path, is a file; or its name is no name for a folder.
    """
    for path in (folder, *folder.parents):
        try:
            if path.is_dir():
                return
            taken = path.exists()
        except OSError as error:
            raise TslmError(
                f"{folder} cannot be a folder: {error.strerror}; choose another folder"
            ) from error
        if taken:
            raise TslmError(f"{path} is a file, not a folder; choose another folder")
