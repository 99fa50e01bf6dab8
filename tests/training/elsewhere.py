"""An accelerator that is none: tensors that say they are on the device ``meta``, but have numbers.

Every operation is carried out on the CPU, and refuses to join such a tensor with one that was left on the CPU, as a
real accelerator does. Numbers on the CPU (tensors without dimensions) go with both, and only an explicit move or a
copy crosses over.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

ELSEWHERE = torch.device("meta")
CROSSING = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class Elsewhere(torch.Tensor):
    """A tensor whose numbers are in ``held``."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, real: torch.Tensor) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            real.size(),
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=ELSEWHERE,
            requires_grad=real.requires_grad,
        )
        made.held = real
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})

    def __repr__(self) -> str:
        return f"Elsewhere({self.held})"

    def item(self) -> Any:
        return self.held.item()

    def tolist(self) -> Any:
        return self.held.tolist()

    def __float__(self) -> float:
        return float(self.held)

    def __int__(self) -> int:
        return int(self.held)

    def __bool__(self) -> bool:
        return bool(self.held)


class OneDevice(TorchDispatchMode):
    """Within it, what is made on ``meta`` is an ``Elsewhere``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
    here = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.dim() > 0]
    if there and here and func not in CROSSING:
        raise RuntimeError(
            f"{func} was given tensors on two devices: {[tuple(t.shape) for t in here]} on the CPU"
        )
    device = kwargs.get("device")
    away = bool(there) if device is None else torch.device(device) == ELSEWHERE
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    owners = {id(tensor.held): tensor for tensor in there}
    real_args, real_kwargs = tree_map(
        lambda leaf: leaf.held if isinstance(leaf, Elsewhere) else leaf, (args, kwargs)
    )
    result = func(*real_args, **real_kwargs)

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not away:
            return leaf
        # An operation in place, or with out=, returns the very tensor that it was given.
        return owners.get(id(leaf)) if id(leaf) in owners else Elsewhere(leaf)

    if func is torch.ops.aten.copy_.default:
        return args[0]
    return tree_map(wrap, result)
