"""The algebra against numpy.einsum, and its laws on random tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tslm.errors import NumberError, ShapeError, SizeLimitError
from tslm.tensors import (
    contract,
    contract_mode,
    delta,
    inner_product,
    matricise,
    rank_one,
    tensor_product,
    tensorise,
)
from tslm.tensors.algebra import check_finite, check_size, show_bytes, show_shape

shapes = st.lists(st.integers(1, 4), min_size=0, max_size=4).map(tuple)
seeds = st.integers(0, 2**31)


def draw(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def close(left: torch.Tensor, right: torch.Tensor | np.ndarray) -> bool:
    return np.allclose(left.numpy(), np.asarray(right), rtol=1e-12, atol=1e-12)


@settings(max_examples=30)
@given(shapes, shapes, seeds)
def test_tensor_product_is_multiply_outer(left: tuple[int, ...], right: tuple[int, ...], seed: int) -> None:
    a, b = draw(seed, left, right)
    assert close(tensor_product(a, b), np.multiply.outer(a.numpy(), b.numpy()))


@settings(max_examples=30)
@given(shapes, shapes, seeds)
def test_inner_product_of_products_is_product_of_inner_products(
    left: tuple[int, ...], right: tuple[int, ...], seed: int
) -> None:
    a, c, b, d = draw(seed, left, left, right, right)
    whole = inner_product(tensor_product(a, b), tensor_product(c, d))
    assert close(whole, inner_product(a, c) * inner_product(b, d))
    assert close(inner_product(a, c), np.einsum("i,i", a.numpy().ravel(), c.numpy().ravel()))


@settings(max_examples=30)
@given(shapes, shapes, seeds, st.floats(-3, 3), st.floats(-3, 3))
def test_multilinearity(left: tuple[int, ...], right: tuple[int, ...], seed: int, s: float, t: float) -> None:
    a, b, c = draw(seed, left, left, right)
    assert close(tensor_product(s * a + t * b, c), s * tensor_product(a, c) + t * tensor_product(b, c))
    assert close(inner_product(s * a + t * b, a), s * inner_product(a, a) + t * inner_product(b, a))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), seeds)
def test_rank_one_entries_are_products(sizes: list[int], seed: int) -> None:
    vectors = draw(seed, *[(size,) for size in sizes])
    tensor = rank_one(vectors)
    for index in np.ndindex(*sizes):
        product = math.prod(float(vector[d]) for vector, d in zip(vectors, index, strict=True))
        assert float(tensor[index]) == pytest.approx(product, rel=1e-14, abs=0)


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 4))
def test_delta_has_ones_on_the_super_diagonal_only(order: int, size: int) -> None:
    tensor = delta(order, size)
    for index in np.ndindex(*tensor.shape):
        assert float(tensor[index]) == float(len(set(index)) == 1)


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(2, 4), seeds)
def test_delta_forces_element_wise_products(size: int, count: int, seed: int) -> None:
    vectors = draw(seed, *[(size,)] * count)
    result = delta(count + 1, size, dtype=torch.float64)
    expected = torch.ones(size, dtype=torch.float64)
    for vector in vectors:
        result = contract_mode(result, vector, 0)
        expected = expected * vector
    assert close(result, expected)


@pytest.mark.parametrize(
    ("left", "right", "pairs", "equation"),
    [
        ((2, 3, 4), (4, 5), [(2, 0)], "abc,cd->abd"),
        ((2, 3, 4), (3, 5, 2), [(0, 2), (1, 0)], "abc,bda->cd"),
        ((2, 3), (4,), [], "ab,c->abc"),
        ((2, 3), (2, 3), [(0, 0), (1, 1)], "ab,ab->"),
        ((2, 3, 4), (4, 5), [(-1, -2)], "abc,cd->abd"),
    ],
)
def test_contraction_against_einsum(
    left: tuple[int, ...], right: tuple[int, ...], pairs: list[tuple[int, int]], equation: str
) -> None:
    a, b = draw(0, left, right)
    assert close(contract(a, b, pairs), np.einsum(equation, a.numpy(), b.numpy()))


def test_batched_operations_equal_a_loop() -> None:
    a, b, m, v = draw(1, (6, 2, 3), (6, 3, 4), (6, 5, 3), (6, 3))
    for i in range(6):
        assert close(tensor_product(a, b, batch=1)[i], tensor_product(a[i], b[i]))
        assert close(inner_product(a, a, batch=1)[i], inner_product(a[i], a[i]))
        assert close(contract(a, b, [(1, 0)], batch=1)[i], a[i] @ b[i])
        assert close(contract_mode(a, m, 1, batch=1)[i], contract_mode(a[i], m[i], 1))
        assert close(contract_mode(a, v, 1, batch=1)[i], a[i] @ v[i])
        assert close(rank_one([v, v], batch=1)[i], rank_one([v[i], v[i]]))
        assert close(matricise(a, 1, batch=1)[i], a[i].T)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data(), seeds)
def test_matricise_and_back(sizes: list[int], data: st.DataObject, seed: int) -> None:
    rows = data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True))
    (tensor,) = draw(seed, tuple(sizes))
    matrix = matricise(tensor, rows)
    columns = [mode for mode in range(len(sizes)) if mode not in rows]
    assert close(matrix, tensor.numpy().transpose(rows + columns).reshape(matrix.shape))
    assert torch.equal(tensorise(matrix, rows, sizes), tensor)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.float16, torch.float32, torch.float64, torch.complex128]
)
def test_any_dtype(dtype: torch.dtype) -> None:
    a = torch.arange(6).reshape(2, 3).to(dtype)
    assert tensor_product(a, a).dtype == dtype
    assert inner_product(a, a) == 55
    assert torch.equal(
        contract(a, a, [(1, 1)]).real.double(), torch.tensor([[5.0, 14.0], [14.0, 50.0]]).double()
    )
    assert delta(3, 2, dtype=dtype).dtype == dtype


def test_gradients() -> None:
    a, b, m = (tensor.requires_grad_() for tensor in draw(2, (2, 3), (3, 2), (4, 3)))
    assert torch.autograd.gradcheck(tensor_product, (a, b))
    assert torch.autograd.gradcheck(lambda x, y: inner_product(x, y.T), (a, b))
    assert torch.autograd.gradcheck(lambda x, y: contract_mode(x, y, 1), (a, m))
    assert torch.autograd.gradcheck(lambda x: matricise(x, [1]), (a,))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda a, b: inner_product(a, b), ["(2×3)", "(3×4)"]),
        (lambda a, b: contract(a, b, [(0, 0)]), ["mode 0 of A (2×3) has size 2", "(3×4) has size 3"]),
        (lambda a, b: contract(a, b, [(2, 0)]), ["mode 2 does not exist", "(2×3)"]),
        (lambda a, b: contract(a, a, [(0, 0), (0, 1)]), ["contracted twice"]),
        (lambda a, b: contract_mode(a, b, 0), ["(2×3)", "size 2", "(3×4)", "size 4"]),
        (lambda a, b: rank_one([a]), ["(2×3)", "vector"]),
        (lambda a, b: tensorise(a, [0], [3, 3]), ["(2×3)", "(3×3)"]),
        (lambda a, b: matricise(a, [0, 0]), ["twice"]),
        (lambda a, b: tensor_product(a, b, batch=1), ["(2×3)", "(3×4)"]),
        (lambda a, b: tensor_product(), ["nothing"]),
        (lambda a, b: delta(0, 3), ["order 0"]),
    ],
)
def test_errors_print_both_shapes(act, words: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        act(torch.ones(2, 3), torch.ones(3, 4))
    for word in words:
        assert word in str(caught.value)


def test_non_finite_entries_are_named() -> None:
    tensor = torch.ones(2, 3)
    check_finite(tensor * 1e38 * 3, "large but finite")  # its sum overflows, its entries do not
    tensor[1, 2] = torch.nan
    with pytest.raises(NumberError, match=r"nan at \(1, 2\) of \(2×3\)"):
        check_finite(tensor, "T")


def test_size_limit_names_the_memory() -> None:
    check_size([10, 10], torch.float64, 800, "T", "shrink it")
    with pytest.raises(
        SizeLimitError, match=r"T of shape \(10×10\) would take 800 bytes.*limit of 799 bytes; shrink it"
    ):
        check_size([10, 10], torch.float64, 799, "T", "shrink it")


def test_sizes_are_shown_at_any_scale() -> None:
    assert show_bytes(3 * 2**30 + 2**29) == "3.5 GiB"
    assert show_bytes(10_000**40 * 8).endswith("PiB")
    assert show_bytes(10_000**400).startswith("2^")
    assert show_shape([2] * 40) == "(2×2×2×… 40 modes …×2×2×2)"
