"""The README as a package index shows it: there a link relative to the checkout leads nowhere.

Where ``[project.urls]`` of pyproject.toml names a ``Repository``, such links and pictures become absolute ones into it.
Where it names none, nothing is invented: a link becomes its text, and a picture what it shows, in words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = r"(?!https?://|#)"
LINK = re.compile(rf"\[([^\]]+)\]\({RELATIVE}([^)\s]+)\)")
PICTURE = re.compile(rf'(<img src=")({RELATIVE}[^"]+)("[^>]*>)')
DESCRIPTION = re.compile(r'alt="([^"]*)"')
ELSEWHERE = (
    "The pages named here, the results and the benchmarks come with the source distribution (`docs/`, `results/`, "
    "`benchmarks/`)."
)


def make_readme(text: str, repository: str | None, version: str) -> str:
    """Return a README whose links lead somewhere wherever it is read.

    Args:
        text: the README of the checkout.
        repository: the address of the repository; None where it has none.
        version: of the package, which is the name of its tag behind a ``v``.
    """
    if repository is None:
        text = LINK.sub(r"\1", text)
        text = PICTURE.sub(lambda found: f"<em>{DESCRIPTION.findall(found[0])[0]}</em>", text)
        return f"{text.rstrip()}\n\n{ELSEWHERE}\n"
    base = f"{repository.rstrip('/')}"
    text = LINK.sub(rf"[\1]({base}/blob/v{version}/\2)", text)
    return PICTURE.sub(rf"\1{base}/raw/v{version}/\2\3", text)


class ReadmeHook(MetadataHookInterface):
    """Sets the README of the package's metadata while it is built."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": make_readme(text, repository, str(metadata["version"])),
        }
