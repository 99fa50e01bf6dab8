"""What is built for others: the wheel works outside the checkout, and the source distribution is all of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tools.index_readme import make_readme

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
READ_BY_TESTS = ("src", "tests", "docs", "recipes", "results", "tools", "benchmarks", "examples")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


def test_the_wheel_works_outside_the_checkout(built, tmp_path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")  # noqa: S202
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "tslm", *arguments]
        return subprocess.run(
            command, cwd=elsewhere, env=environment, check=True, stdout=subprocess.PIPE
        ).stdout

    recipes = json.loads(run("recipes", "--json"))
    assert all(entry["path"].startswith(str(tmp_path)) for entry in recipes), (
        "not the recipes of the checkout"
    )
    assert {entry["name"] for entry in recipes} >= {"asv/kn5", "ptb/tslm", "wikitext-2/gated"}
    (table,) = json.loads(run("reproduce", "table2", "--budget", "0", "--json"))
    kn5 = next(row for row in table["rows"] if row["model"] == "KN-5")
    assert kn5["runs"][0]["test"] == pytest.approx(kn5["paper"]["test"], abs=0.05), (
        "from the packaged results"
    )
    assert not (elsewhere / "results").exists()


def test_the_source_distribution_carries_what_its_tests_read(built) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        carried = {name.partition("/")[2] for name in archive.getnames()}
    for folder in READ_BY_TESTS:
        here = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file()}
        missing = {name for name in here - carried if not re.search(r"__pycache__|^docs/_build/", name)}
        assert not missing, "git ignores what a test may read"
    assert {"README.md", "CONTRIBUTING.md", "Makefile", "constraints.txt", ".ci/run"} <= carried
    assert not any(name.startswith(("runs/", ".venv/", "data/")) for name in carried)


def links(text: str) -> list[str]:
    return [*re.findall(r"\]\(([^)]+)\)", text), *re.findall(r'src="([^"]+)"', text)]


def test_the_readme_of_an_index_has_no_link_that_leads_nowhere() -> None:
    assert any(not link.startswith("http") for link in links(README))
    plain = make_readme(README, None, "1.0")
    assert all(link.startswith("https://") for link in links(plain))
    assert "<em>A sentence as a chain of tensors</em>" in plain
    assert "every equation has its function" in plain


def test_the_readme_of_an_index_leads_into_the_repository_where_it_is_known() -> None:
    linked = make_readme(README, "https://example.org/us/tslm/", "1.0")
    assert all(link.startswith("https://") for link in links(linked))
    assert "(https://example.org/us/tslm/blob/v1.0/docs/equations.md)" in linked
    assert 'src="https://example.org/us/tslm/raw/v1.0/docs/images/sentence.svg"' in linked


def test_the_supported_platforms_are_those_it_is_tested_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    systems = [name for name in project["classifiers"] if name.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert "ubuntu" in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
