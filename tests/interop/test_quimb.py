"""Networks go to quimb and come back with the same value."""

from __future__ import annotations

import sys

import pytest
import torch

from tslm.errors import UnsupportedError
from tslm.interop.quimb import from_quimb, to_quimb
from tslm.tensors import decompose

pytest.importorskip("quimb")


def test_there_and_back() -> None:
    tensor = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    network = decompose(tensor).form.to_network()
    theirs = to_quimb(network)
    value = theirs.contract(output_inds=network.open_legs)
    torch.testing.assert_close(torch.as_tensor(value.data), tensor)
    assert "δ" in next(iter(theirs.select_tensors("δ2"))).tags
    back = from_quimb(theirs)
    assert {node.name for node in back.nodes} == {node.name for node in network.nodes}
    order = [back.open_legs.index(leg) for leg in network.open_legs]
    torch.testing.assert_close(back.contract().permute(order), tensor)


def test_without_quimb_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quimb.tensor", None)
    monkeypatch.setitem(sys.modules, "quimb", None)
    network = decompose(torch.ones(2, 2)).form.to_network()
    with pytest.raises(UnsupportedError, match=r"pip install 'tslm\[quimb\]'"):
        to_quimb(network)
