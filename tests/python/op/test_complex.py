"""Complex dtypes: arrays, promotion, refusals, gradients against torch to second order, programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import dtype as dtypes
from meta.eager.call import state
from meta.errors import ArgumentError, GradientError, KernelError, TypeInferenceError
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.op import registry

Function = Callable[..., Any]
Array = np.ndarray[Any, Any]


def _complex(*shape: int) -> Array:
    rng = np.random.default_rng(len(shape))
    return rng.uniform(0.2, 1.5, shape) * np.exp(1j * rng.uniform(-3, 3, shape))


def _real(*shape: int) -> Array:
    return np.random.default_rng(len(shape) + 10).uniform(0.2, 1.5, shape)


# --- arrays ----------------------------------------------------------------------------------------------------------


def test_python_numbers_give_complex64() -> None:
    x = meta.array([1 + 2j, 3])
    assert (x.dtype, x.shape, x.nbytes, x.tolist()) == ("complex64", (2,), 16, [1 + 2j, 3 + 0j])
    assert str(x) == "[1.+2.j 3.+0.j]\n<NDArray [2] @ cpu, dtype=complex64>"
    assert complex(x[0]) == 1 + 2j
    assert meta.array(2.0, dtype=complex).dtype == "complex64"


def test_lazy_conjugates_of_torch_are_resolved() -> None:
    t = torch.tensor([1 + 2j, 3 - 1j])
    assert meta.from_dlpack(t.conj()).tolist() == [1 - 2j, 3 + 1j]
    assert meta.from_dlpack(t.conj().imag).tolist() == [-2.0, 1.0]


def test_memory_is_shared_as_parts() -> None:
    x = meta.array([1 + 2j, 3])
    parts = meta.view_as_real(x)
    parts[0, 1] = 7.0
    assert x.tolist() == [1 + 7j, 3 + 0j]


@pytest.mark.parametrize(("convert", "text"), [
    (float, r"\[float\] the array has dtype complex64; expected a real dtype; take meta.real\(x\) or abs\(x\)"),
    (int, r"\[int\] the array has dtype complex64"),
])  # fmt: skip
def test_complex_numbers_are_no_real_ones(convert: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        convert(meta.array(1j))


def test_complex_values_do_not_become_real_silently() -> None:
    with pytest.raises(ArgumentError, match="complex numbers do not fit into float32; expected complex64, complex128"):
        meta.array([1j], dtype="float32")
    x = meta.array([1.0, 2.0])
    with pytest.raises(TypeInferenceError, match="a value of complex64 for a tensor of float32"):
        x[0] = 1j


# --- promotion -------------------------------------------------------------------------------------------------------


# torch refuses to promote the unsigned dtypes after uint8 and complex ones.
@pytest.mark.parametrize("other", [d for d in dtypes.ALL if d not in dtypes.UNSIGNED[1:]])
@pytest.mark.parametrize("dtype", dtypes.COMPLEX)
def test_promotion_as_in_torch(dtype: str, other: str) -> None:
    expected = str(torch.promote_types(getattr(torch, dtype), getattr(torch, other))).removeprefix("torch.")
    assert dtypes.promote(dtype, other) == dtypes.promote(other, dtype) == expected


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d not in dtypes.HALVES])
def test_complex_numbers_promote_as_in_torch(dtype: str) -> None:
    expected = (torch.ones(1, dtype=getattr(torch, dtype)) * 1j).dtype
    y = meta.ones((1,), dtype=dtype) * 1j
    assert y.dtype == str(expected).removeprefix("torch.")
    assert y.tolist() == [1j]


def test_signs_of_zero_are_different_numbers() -> None:
    x = meta.array([1 + 1j])
    imaginary = [meta.imag(x * z).numpy() for z in (complex(0.0, 0.0), complex(-0.0, -0.0))]
    assert [bool(np.signbit(v[0])) for v in imaginary] == [False, True]


# --- gradients -------------------------------------------------------------------------------------------------------

_UNARY = ("abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "exp2",
          "expm1", "imag", "log", "log10", "log1p", "log2", "real", "reciprocal", "rsqrt", "sgn", "sin", "sinh", "sqrt",
          "square", "tan", "tanh", "view_as_real")  # fmt: skip
_C, _R = _complex(2, 3), _real(2, 3)
_CASES: dict[str, tuple[Function, tuple[Array, ...]]] = {
    **{name: (lambda m, x, name=name: getattr(m, name)(x), (_C,)) for name in _UNARY},
    "conj": (lambda m, x: m.conj(x) * x * x, (_C,)),
    "add real": (lambda m, x, y: (x + y) * x, (_C, _R[0])),
    "multiply": (lambda m, x, y: x * y, (_C, _C[1])),
    "multiply real": (lambda m, x, y: x * y, (_R, _C)),
    "number": (lambda m, x: (x * (1 + 2j) - 1j) / 3.0, (_R,)),
    "divide": (lambda m, x, y: x / y, (_C, _C[:, ::-1].copy())),
    "addcmul": (lambda m, x, y: m.addcmul(x, x, y, value=0.5), (_C, _C[1])),
    "addcdiv": (lambda m, x, y: m.addcdiv(x, y, x, value=0.5), (_C, _R[1])),
    "float_power": (lambda m, x: m.float_power(x, 1.5), (_C,)),
    "ldexp": (lambda m, x, y: m.ldexp(x, y), (_C, _C[::-1].copy())),
    "gradient": (lambda m, x: m.gradient(x * x, spacing=2.0)[1], (_C,)),
    "trapezoid": (lambda m, x: m.trapezoid(x * x, dx=0.5), (_C,)),
    "divide real": (lambda m, x, y: x / y, (_C, _R)),
    "divide number": (lambda m, x: 2j / x, (_R,)),
    "power": (lambda m, x, y: x**y, (_C, _C[:, ::-1].copy())),
    "power real": (lambda m, x, y: x**y, (_R, _C)),
    "power number": (lambda m, x: x**2.5, (_C,)),
    "number power": (lambda m, x: (1 + 2j) ** x, (_C,)),
    "negative number power": (lambda m, x: (-2.0) ** x, (_C,)),
    "where": (lambda m, x, y: m.where(m.real(x) > 0, x * y, y), (_C, _C[::-1].copy())),
    "matmul": (lambda m, x, y: m.matmul(x, y), (_C, _complex(3, 2))),
    "matmul vector": (lambda m, x, y: m.matmul(x, y), (_C, _complex(3))),
    "sum": (lambda m, x: m.sum(x * x, 0), (_C,)),
    "mean": (lambda m, x: m.mean(x * x), (_C,)),
    "slice": (lambda m, x: (x * x)[:, 1:], (_C,)),
    "reshape": (lambda m, x: m.transpose(m.reshape(x * x, (3, 2)), *((0, 1) if m is torch else ())), (_C,)),
    "stack": (lambda m, x: m.stack([x, x * x]), (_C,)),
    "complex": (lambda m, x, y: m.complex(x, y) ** 2, (_R, _R[::-1].copy())),
    "polar": (lambda m, x, y: m.polar(x, y), (_R, _R[::-1].copy())),
    "view_as_complex": (lambda m, x: m.view_as_complex(x) ** 2, (_real(3, 2),)),
}


def _loss(m: Any, y: Any) -> Any:
    """A real number that depends on both parts of a result."""
    is_complex = y.is_complex() if m is torch else dtypes.is_complex(y.dtype)
    return m.real(y * (0.3 - 0.7j)).sum() if is_complex else (y * 1.3).sum()


def _gradients(m: Any, function: Function, xs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Those of a loss, and those of a sum of their absolute values."""
    grad = torch.autograd.grad if m is torch else meta.autograd.grad
    first = grad(_loss(m, function(m, *xs)), xs, create_graph=True)
    second = sum((m.abs(g) * (i + 1)).sum() for i, g in enumerate(first))
    if not second.requires_grad:
        return list(first), []
    return list(first), list(grad(second, xs, allow_unused=True))


@pytest.mark.parametrize("case", _CASES)
def test_gradients_as_in_torch(case: str) -> None:
    function, values = _CASES[case]
    ours = _gradients(meta, function, [meta.array(v, requires_grad=True) for v in values])
    theirs = _gradients(torch, function, [torch.tensor(v, requires_grad=True) for v in values])
    for mine, reference in zip(ours, theirs, strict=True):
        for a, b in zip(mine, reference, strict=False):
            zeros = np.zeros_like(values[0]) if a is None or b is None else None
            host = zeros if a is None else a.detach().numpy()
            expected = zeros if b is None else b.detach().resolve_conj().numpy()
            np.testing.assert_allclose(host, expected, rtol=1e-8, atol=1e-9)


def test_steps_against_the_gradient_descend() -> None:
    target, z = meta.array([1 - 2j, 0.5j]), meta.array([0j, 1 + 1j], requires_grad=True)
    for _ in range(60):
        loss = (abs(z * 2 - target) ** 2).sum()
        (gradient,) = meta.autograd.grad(loss, z)
        z = z.detach() - gradient * 0.1
        z.requires_grad = True
    np.testing.assert_allclose(z.detach().numpy() * 2, target.numpy(), atol=1e-5)


def test_a_complex_output_needs_its_gradient() -> None:
    z = meta.array(1j, requires_grad=True)
    with pytest.raises(GradientError, match=r"complex64 and no gradient was given; expected a real tensor; pass dy"):
        (z * z).backward()


# --- dialects and programs -------------------------------------------------------------------------------------------


def test_dialects_agree() -> None:
    x, y = meta.array(_C), meta.array(_C[::-1].copy())
    for name in ("reference", "torch"):
        with meta.with_dialect(name):
            results = [
                *(getattr(meta, n)(x) for n in _UNARY if n != "view_as_real"), x + y, x - y, x * y, x / y, x**y, x == y,
                x != y, meta.logical_and(x, y * 0), meta.logical_or(x, y), meta.logical_xor(x, y),
                meta.logical_not(x * 0), meta.addcmul(x, x, y, 2.0), meta.addcdiv(x, x, y, 2.0),
                meta.roll(x, 1, 0), meta.flip(x), meta.tile(x, (2, 1)), meta.repeat(x, 2), meta.tril(x),
                x.cast("float32"), meta.strided_slice(x, (1, 2), (-3, 0), (-1, -1)), meta.eye(2, dtype="complex64"),
                meta.full_like(x, 2j), meta.transpose(x), meta.broadcast_to(x, (2, 2, 3)), x.sum(1),
                meta.sum_to(x, (3,)), *meta.split(x, 3, 1), meta.sgn(x * 1e-310),
            ]  # fmt: skip
        if name == "reference":
            expected = results
            continue
        for a, b in zip(results, expected, strict=True):
            assert a.type is b.type
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_tvm_refuses_complex_operands() -> None:
    assert "tvm (plevel 10): no kernel for complex64" in str(meta.explain("add", meta.array([1j]), 1.0))


def test_programs_run_complex_calls() -> None:
    @meta.trace
    def step(x: Any, scale: Any) -> Any:
        y = meta.exp(x) * meta.array([2j, 1.0, 1.0]) * 2j
        loss = abs(y.reshape((3, 1))[1:] * scale).sum()
        loss.backward()
        return loss, x.grad, meta.view_as_real(y)

    def arguments() -> tuple[Any, Any]:
        return meta.array([1 + 2j, 3 - 1j, 0.5], requires_grad=True), meta.array(1.5)

    expected = step(*arguments())
    program = meta.vm.compile(step)
    for a, b in zip(program(*arguments()), expected, strict=True):
        assert a.type is b.type
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)


def test_programs_of_complex_numbers_print_and_parse() -> None:
    module = meta.trace(lambda x: x * 2j + meta.array([1j, -0.0])).record(meta.array([1j, 2.0])).module
    text = to_text(module)
    assert "multiply(%x, complex(0.0, 2.0))" in text
    assert to_text(parse(text)) == text


def test_loops_of_programs_carry_complex_numbers() -> None:
    def run(z: Any) -> Any:
        return meta.scan(lambda c, x: (c * x, c + x), z[0], z)

    z = meta.array([1 + 2j, 3 - 1j, 0.5j])
    expected, steps = run(z)
    total, stacked = meta.vm.compile(meta.trace(run))(z)
    np.testing.assert_allclose(total.numpy(), expected.numpy(), rtol=1e-6)
    np.testing.assert_allclose(stacked.numpy(), steps.numpy(), rtol=1e-6)


# --- comparisons and NumPy -------------------------------------------------------------------------------------------


def test_comparisons() -> None:
    z = meta.array([1 + 2j, 3 - 1j, complex(np.nan, 1), complex(np.inf, 0)])
    near = z + 1e-7j
    for equal_nan in (False, True):
        expected = np.isclose(z.numpy(), near.numpy(), equal_nan=equal_nan)
        assert meta.isclose(z, near, equal_nan=equal_nan).tolist() == expected.tolist()
    assert not meta.allclose(z[:2], z[:2] * 1j)
    assert meta.isreal(meta.array([1 + 0j, 1j])).tolist() == [True, False]
    assert meta.isreal(meta.array([1.0, float("nan")])).tolist() == [True, True]
    assert meta.any(meta.array([0j, 1j])).item()
    assert not meta.all(meta.array([0j, 1j])).item()


def test_numpy_functions() -> None:
    z = meta.array([1 + 2j, 3 - 1j])
    for function in (np.conj, np.real, np.imag, np.angle, np.abs, np.exp, np.isreal):
        result = function(z)
        assert isinstance(result, meta.NDArray)
        np.testing.assert_allclose(result.numpy(), function(z.numpy()), rtol=1e-6)
    assert (z.real.tolist(), z.imag.tolist(), z.reshape(1, 2).mH.shape) == ([1.0, 3.0], [2.0, -1.0], (2, 1))


_X = np.arange(24).reshape(2, 3, 4) * (1 - 2j)
_AT = np.array([[[2, 0, 1, 1]], [[0, 2, 2, 1]]])
_PAIRS = np.array([[0, 1, 1], [2, 0, 2]])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("take", (_X, np.array([[2, 0], [1, 1]]), -2)),
        ("take", (_X, np.array([23, 0]))),
        ("take", (_X, np.array([-1, 7]), 2, "wrap")),
        ("take_dx", (_X[:, :2], np.array([2, 0]), (2, 3, 4), 1)),
        ("embedding", (_X[0], np.array([[2, 0]]))),
        ("embedding_dx", (_X[0], np.array([2, 0, 2]), 3)),
        ("index_select", (_X, 1, np.array([2, 2]))),
        ("gather", (_X, -2, _AT)),
        ("gather_dx", (_X[:, :1], -2, _AT, (2, 3, 4))),
        ("gather_nd", (_X, _PAIRS)),
        ("gather_nd", (_X, _AT[:, 0, 0][None], 1)),
        ("gather_nd_dx", (_X[0], _PAIRS, (2, 3, 4), 0)),
        ("scatter_add", (_X, 1, _AT, _X[:, 1:2])),
        ("scatter_elements", (_X, 2, np.array([[[3, 0], [1, 2]]]), _X[:1, :2, :2])),
        ("scatter_elements", (_X, 1, _AT, _X[:, 1:2], "add")),
        ("scatter_nd", (_X, _PAIRS, _X[0])),
        ("scatter_nd", (_X, _PAIRS, _X[0], "add")),
    ],
)
def test_positions_in_both_dialects_of_complex_numbers(name: str, arguments: tuple[Any, ...]) -> None:
    results = []
    for dialect in ("torch", "reference"):
        with meta.with_dialect([dialect]):
            operands = [meta.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
            results.append(getattr(meta.ops, name)(*operands).numpy())
    np.testing.assert_allclose(*results, rtol=1e-12)
    assert results[0].dtype == np.complex128


def test_complex_numbers_are_not_multiplied_or_compared_at_positions() -> None:
    x = meta.array(_X)
    with pytest.raises(TypeInferenceError, match="reduction is 'mul' of complex128; expected 'update' or 'add' of"):
        meta.scatter_elements(x, 1, meta.array(_AT), x[:, :1], "mul")


def test_complex_numbers_fill_complex_tensors_only() -> None:
    assert meta.index_fill(meta.array(_X), 1, meta.array([1]), 2 - 1j)[0, 1].tolist() == [2 - 1j] * 4
    with pytest.raises(TypeInferenceError, match="value is 1j for x of float32; expected a real number; cast x"):
        meta.index_fill(meta.ones((2,)), 0, meta.array([1]), 1j)


def test_gradients_of_empty_slices() -> None:
    x = meta.array(np.arange(5) * 1j, dtype="complex64")
    gradient = meta.strided_slice_dx(x[4:2], x.shape, (4,), (2,), (1,))
    assert gradient.numpy().tolist() == [0] * 5
    assert meta.strided_set(x, x[4:2], (4,), (2,), (1,)).numpy().tolist() == x.numpy().tolist()


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("logical_and", (0.25,)),
        ("logical_or", (0,)),
        ("logical_xor", (True,)),
        ("addcdiv", (0, 2)),
        ("addcdiv", (1.5, 4)),
    ],
)
def test_numbers_among_complex_operands(name: str, numbers: tuple[float, ...]) -> None:
    results = []
    for dialect in ("torch", "reference"):
        with meta.with_dialect([dialect]):
            results.append(getattr(meta.ops, name)(meta.array(_X), *numbers).numpy())
    np.testing.assert_allclose(*results, rtol=1e-12)


def test_a_quotient_of_numbers_by_zero() -> None:
    assert not np.isfinite(meta.addcdiv(meta.array(_X), 1, 0).numpy()).any()


def test_one_part_and_one_element_of_complex_arrays() -> None:
    (whole,) = meta.split(meta.array(_X), [])
    np.testing.assert_array_equal(whole.numpy(), _X)
    with meta.with_dialect(["torch"]):
        assert meta.gather_nd(meta.array(_X), meta.array(np.array([1, 2, 3]))).numpy() == _X[1, 2, 3]


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_complex_numbers_beside_real_arrays(dtype: str) -> None:
    x = meta.array([1, 0], dtype=dtype)
    host = x.numpy()
    for number in (1j, 1 + 0j, 0j):
        for meta_function, function in (
            (meta.equal, np.equal), (meta.not_equal, np.not_equal), (meta.logical_and, np.logical_and),
            (meta.logical_or, np.logical_or), (meta.logical_xor, np.logical_xor), (meta.add, np.add),
            (meta.subtract, lambda a, b: a * (1 + 0j) - b), (meta.multiply, np.multiply),
        ):  # fmt: skip
            assert meta_function(x, number).tolist() == function(host, number).tolist()
            assert meta_function(number, x).tolist() == [
                function(np.full(2, number), value * (1 + 0j))[0].item() for value in host
            ]


def test_errors_of_torch_name_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(f"no angles of {len(x)} numbers")

    monkeypatch.setattr(torch, "angle", failing)
    op_state = state(registry.get("angle"))
    op_state.forget()
    with pytest.raises(KernelError, match=r"\[angle\] its torch implementation raised RuntimeError: no angles of 2"):
        meta.angle(meta.array([1j, 2.0]))
    op_state.forget()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int64", "bool"])
def test_choices_with_integers_of_every_dtype(dtype: str) -> None:
    x, y = meta.array([1 + 2j, 3]), meta.cast(meta.array([0, 1]), dtype)
    assert meta.where(meta.array([True, False]), x, y).tolist() == [1 + 2j, 1 + 0j]
    assert meta.where(meta.array([True, False]), y, x).tolist() == [0j, 3 + 0j]


def test_choices_between_complex_dtypes_keep_their_digits() -> None:
    narrow, wide = meta.array([1j, 1j]), meta.array([1 / 3 + 1e-9j] * 2, dtype="complex128")
    assert meta.where(meta.array([True, False]), narrow, wide).tolist() == [1j, 1 / 3 + 1e-9j]
    assert meta.where(meta.array([True, False]), wide, narrow).tolist() == [1 / 3 + 1e-9j, 1j]
