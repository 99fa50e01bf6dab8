"""The documentation site: the pages of this folder, the notebooks with what they print, the reference from docstrings.

``make docs`` builds it without the network, warnings being errors.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Any

import tslm

HERE = Path(__file__).parent

project = "tslm"
release = version = tslm.__version__
project_copyright = "the authors of tslm, MIT licence"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"tslm {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "../src/tslm/serve/static/icon.svg"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2461b3", "color-brand-content": "#2461b3"},
    "dark_css_variables": {"color-brand-primary": "#7fb0f0", "color-brand-content": "#7fb0f0"},
}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

nb_execution_mode = "cache"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
# A notebook's kernel finds the package where this build found it, and needs no debugger.
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
# Threads that wait for each other sleep: spinning trebles the time of a build on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(tslm.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
)

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
# A page's contents are its modules. All their members would be 800 lines at the side of one page, copied for the
# navigation of every other: two thirds of the building time.
toc_object_entries = False
# Every object is documented in its own module. Following attributes to their types would list "builtins" as a source.
viewcode_follow_imported_members = False
# Extras that need not be installed to build the site.
autodoc_mock_imports = ["lm_eval", "pyspark", "pyarrow", "pandas"]
# Two classes have an attribute ``bytes``, which Sphinx holds against the type of that name in signatures.
suppress_warnings = ["ref.python"]
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# What the reference names of other libraries, and where they tell of it. A site is built without the network, so their
# inventories are not fetched; these few lines stand for them.
OTHERS = {
    "torch": (
        "https://docs.pytorch.org/docs/stable",
        {
            "torch.Tensor": "tensors.html#torch.Tensor",
            "torch.device": "tensor_attributes.html#torch.device",
            "torch.dtype": "tensor_attributes.html#torch.dtype",
            "torch.nn.Module": "generated/torch.nn.Module.html#torch.nn.Module",
            "torch.nn.Linear": "generated/torch.nn.Linear.html#torch.nn.Linear",
            "torch.nn.modules.module.Module": "generated/torch.nn.Module.html#torch.nn.Module",
            "torch.nn.parameter.Parameter": "generated/torch.nn.parameter.Parameter.html#torch.nn.parameter.Parameter",
        },
    ),
    "numpy": (
        "https://numpy.org/doc/stable",
        {
            "numpy.ndarray": "reference/generated/numpy.ndarray.html#numpy.ndarray",
            "numpy.typing.NDArray": "reference/typing.html#numpy.typing.NDArray",
            "numpy.integer": "reference/arrays.scalars.html#numpy.integer",
            "numpy.float64": "reference/arrays.scalars.html#numpy.float64",
            "numpy.float32": "reference/arrays.scalars.html#numpy.float32",
            "numpy.int64": "reference/arrays.scalars.html#numpy.int64",
            "numpy.int32": "reference/arrays.scalars.html#numpy.int32",
        },
    ),
    "quimb": (
        "https://quimb.readthedocs.io/en/latest",
        {
            "quimb.tensor.tensor_1d.MatrixProductState": "autoapi/quimb/tensor/tensor_1d/index.html"
            "#quimb.tensor.tensor_1d.MatrixProductState",
            "quimb.tensor.tensor_core.TensorNetwork": "autoapi/quimb/tensor/tensor_core/index.html"
            "#quimb.tensor.tensor_core.TensorNetwork",
        },
    ),
    "python": (
        "https://docs.python.org/3",
        {
            "pathlib.Path": "library/pathlib.html#pathlib.Path",
            "collections.abc.Iterable": "library/collections.abc.html#collections.abc.Iterable",
            "collections.abc.Sequence": "library/collections.abc.html#collections.abc.Sequence",
            "collections.abc.Mapping": "library/collections.abc.html#collections.abc.Mapping",
            "collections.abc.Callable": "library/collections.abc.html#collections.abc.Callable",
            "collections.abc.Iterator": "library/collections.abc.html#collections.abc.Iterator",
            "typing.Any": "library/typing.html#typing.Any",
            "typing.Literal": "library/typing.html#typing.Literal",
        },
    ),
}


def write_inventory(name: str, names: dict[str, str]) -> str:
    """Write an inventory as intersphinx reads it; return its path."""
    path = HERE / "_build" / "inventories" / f"{name}.inv"
    path.parent.mkdir(parents=True, exist_ok=True)
    header = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n"
    lines = "".join(f"{key} py:class 1 {place} -\n" for key, place in names.items())
    head = header + "# The remainder of this file is compressed using zlib.\n"
    path.write_bytes(head.encode() + zlib.compress(lines.encode()))
    return str(path)


intersphinx_mapping = {name: (url, write_inventory(name, names)) for name, (url, names) in OTHERS.items()}

# Links from a page to a file of the checkout: to its source on this site where it is a module, else its name alone.
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)\s]+)\)")


def _link_sources(_: Any, page: str, text: list[str]) -> None:
    """Let links out of the documentation lead somewhere."""
    up = "../" * page.count("/")

    def link(found: re.Match[str]) -> str:
        name, path = found[1], found[2]
        here = (HERE / page).parent / (found[0].split("](", 1)[1][:-1].split("#")[0])
        if here.resolve().is_relative_to(HERE):  # a notebook's link to a page beside its folder
            return found[0]
        module = re.fullmatch(r"src/(tslm/[\w/]+)\.py", path)
        if module is None:
            return name
        shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", name)
        return f'<a href="{up}_modules/{module[1]}.html">{shown}</a>'

    text[0] = OUTSIDE.sub(link, text[0])


def _plain(*given: Any) -> None:
    """Keep what is mathematics in a docstring (|V|, h_{t−1}, W*) from being read as markup."""
    lines: list[str] = given[-1]
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...", ".. ", ":")):
            parts = re.split(r"(``.*?``)", line)
            parts[::2] = [
                re.sub(r"(?<=\w)_(?=[\W]|$)", r"\\_", part.replace("|", r"\|")) for part in parts[::2]
            ]
            # A bold letter with another sign at its side, as in **1**ᵀ.
            lines[number] = re.sub(r"(\*\*[^*\s]+\*\*)(?=\w)", r"\1\\ ", "".join(parts))


ATTRIBUTES = ("attribute", "data", "property")
_held: list[str] = []


def _hide(*given: Any) -> None:
    """Keep napoleon from taking what stands before a colon in an attribute's docstring for its type."""
    if given[1] in ATTRIBUTES:
        _held[:] = given[-1]
        given[-1].clear()


def _show(*given: Any) -> None:
    """Put back what was hidden from napoleon."""
    if given[1] in ATTRIBUTES:
        given[-1][:] = _held


def setup(app: Any) -> None:
    """Connect the above."""
    app.connect("source-read", _link_sources)
    app.connect("autodoc-process-docstring", _hide, priority=100)
    app.connect("autodoc-process-docstring", _show, priority=800)
    app.connect("autodoc-process-docstring", _plain, priority=900)
