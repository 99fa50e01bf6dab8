"""The types that carry the shapes of arrays, for modules that an n-gram model needs.

Only a type checker and the tests ever look at them, and jaxtyping takes longer to import than a sentence to score. So
it is imported where somebody has it at work already, as the tests do; elsewhere a stand-in has its names.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Float64, Int, Shaped
else:

    class _Shape:
        def __class_getitem__(cls, item: Any) -> type[_Shape]:
            return cls

    Bool = Float = Float64 = Int = Shaped = _Shape

__all__ = ["Bool", "Float", "Float64", "Int", "Shaped"]
