"""Attributes that are numbers are parameters of kernels: one kernel serves all their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx, topi

import meta
from meta.backend.tvm import kernel, shape_generic
from meta.backend.tvm.compute import TEImplementation
from meta.device import CPU
from meta.eager.call import invoke, state
from meta.errors import KernelError, MetaError
from meta.ir.expr import CallInfo
from meta.ir.type import Value
from meta.op import registry
from meta.op.dispatch import implementations
from meta.op.registry import as_type
from meta.schema import Arg, Float, Schema, Tensor
from meta.testing.generic import make_call
from meta.testing.samples import Sample
from tests.python.kernels_in_memory import forget_kernels
from tests.python.op.samples import first_rows, samples

KINDS = ("Float", "Number", "NumberOrSize")
COMPILED_IN: dict[tuple[str, str], str] = {}
"""(operator, attribute) -> why each value has a kernel of its own."""
VALUES = (0.23, 0.37, 0.61)


pytestmark = pytest.mark.usefixtures("remove_operators")


@pytest.fixture(autouse=True)
def _one_dialect() -> Iterator[None]:
    with meta.with_dialect("tvm"):
        yield


def _positions(row: Sample) -> list[int]:
    return [
        i
        for i, a in enumerate(row.operator.schema.args)
        if a.type.role == "attr" and a.type.name.removesuffix("?") in KINDS
    ]


def _run(row: Sample, position: int, value: float) -> Any:
    args = list(make_call(row, row.run_dtypes(())[0]).to_meta().bound_arguments())
    args[position] = value
    return invoke(state(row.operator), *args)


@pytest.mark.parametrize("row", [row for row in samples() if row in first_rows() and _positions(row)], ids=repr)
def test_other_values_need_no_kernel(row: Sample) -> None:
    for position in _positions(row):
        if (row.op, row.operator.schema.names[position]) in COMPILED_IN:
            continue
        _run(row, position, VALUES[0])
        before = set(kernel._kernels)
        for value in VALUES[1:]:
            _run(row, position, value)
        assert set(kernel._kernels) == before, row.operator.schema.names[position]


X = np.array([-2.0, -0.0, 0.0, 0.5, 3.0, math.inf, -math.inf, math.nan], "float32")
CALLS: dict[str, Callable[[meta.NDArray, float], Any]] = {
    "clip": lambda x, v: meta.clip(x, None, v),
    "leaky_relu": meta.leaky_relu,
    "celu": meta.celu,
    "elu": meta.elu,
    "softplus": meta.softplus,
    "threshold": lambda x, v: meta.threshold(x, v, v),
    "dropout": lambda x, v: meta.dropout(x, meta.array([0, 1]), v)[0] if 0 <= v <= 1 else x,
    "layer_norm": lambda x, v: meta.layer_norm(x, eps=v),
    "smooth_l1_loss": lambda x, v: meta.smooth_l1_loss(x, x.flip(), "none", v),
    "sgd": lambda x, v: meta.sgd(x.copy(), x, x.flip(), 0.1, v, v)[0],
    "adam": lambda x, v: meta.adam(x.copy(), x, x.copy(), x.copy(), 3, 0.1, v, v, v, v)[0],
    "full_like": meta.full_like,
}


@pytest.mark.parametrize("name", CALLS)
def test_bits_equal_the_bits_of_literals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op_state, x = state(registry.get(name)), meta.array(X)
    half = x.cast("bfloat16")
    values = {"adam": (0.1,), "celu": (0.1, math.inf)}.get(name, (0.1, math.inf, -0.0))
    calls = [*((x, v) for v in values), (half, 0.7)]

    def results() -> list[bytes]:
        op_state.forget()
        return [_bits(CALLS[name](x, v)) for x, v in calls]

    as_parameters = results()
    monkeypatch.setattr(shape_generic, "_numbers", lambda payload, call: {})
    assert results() == as_parameters


def _bits(x: meta.NDArray) -> bytes:
    """The bytes of the elements, with one NaN for all."""
    host = x.cast("float64").numpy(copy=True)
    host[np.isnan(host)] = np.nan
    return host.tobytes()


# --- computes of users -----------------------------------------------------------------------------------------------


def _define(name: str, compute: Callable[..., Any]) -> Any:
    schema = Schema(name, Arg("x", Tensor), Arg("b", Float, 1.0))
    return meta.define(name, schema, tvm=compute, pattern="elemwise", gradient="non_differentiable", override=True)(
        lambda x, b: x
    )


def _each(x: Any, value: Callable[[Any], Any]) -> Any:
    return te.compute(x.shape, lambda *i: value(x(*i)))


ONE_KERNEL: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "topi": (lambda x, b: topi.multiply(x, b), lambda x, b: x * b),
    "product": (lambda x, b: _each(x, lambda v: v * b + (1 - b)), lambda x, b: x * b + (1 - b)),
    "reflected": (lambda x, b: _each(x, lambda v: (2.0 - b) * v - b / 4), lambda x, b: (2 - b) * x - b / 4),
    "quotient": (lambda x, b: _each(x, lambda v: (-b) / (abs(b) + v)), lambda x, b: -b / (abs(b) + x)),
    "comparison": (lambda x, b: _each(x, lambda v: tirx.Select(b < v, v, tirx.max(v, b))), np.maximum),
    "truth": (lambda x, b: topi.add(x, b) if b else topi.multiply(x, 2.0), lambda x, b: x + b if b else x * 2),
    "equality": (
        lambda x, b: x if b == 1 or b != 0.5 else topi.multiply(x, b),
        lambda x, b: x * 0.5 if b == 0.5 else x,
    ),
}


@pytest.mark.parametrize("form", ONE_KERNEL)
def test_computes_of_users_profit(form: str) -> None:
    compute, reference = ONE_KERNEL[form]
    op, x = _define(f"number_{form}", compute), np.array([1.0, 2.0, 3.0], "float32")
    op(meta.array(x), 0.3)
    before = set(kernel._kernels)
    for b in (0.7, 4.0, -1.5):
        np.testing.assert_allclose(op(meta.array(x), b).numpy(), reference(x, np.float32(b)), rtol=1e-6)
    assert set(kernel._kernels) == before
    for b in (0.0, -0.0, 0.5, 1.0):
        np.testing.assert_allclose(op(meta.array(x), b).numpy(), reference(x, np.float32(b)), rtol=1e-6)


NEEDS_VALUE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "function": (lambda x, b: topi.multiply(x, math.exp(b)), lambda x, b: x * np.exp(b)),
    "order": (lambda x, b: topi.multiply(x, b) if b < 1 else x, lambda x, b: x * b if b < 1 else x),
    "class": (lambda x, b: topi.multiply(x, b) if isinstance(b, float) else x.missing, lambda x, b: x * b),
    "constant": (lambda x, b: topi.multiply(x, tirx.const(b, x.dtype)), lambda x, b: x * b),
    "table": (lambda x, b: topi.multiply(x, {0.5: 3.0}.get(b, 1.0)), lambda x, b: x * (3 if b == 0.5 else 1)),
    "text": (lambda x, b: topi.multiply(x, float(f"{b}")), lambda x, b: x * b),
    "derived": (lambda x, b: x if 1 - b == 0 else topi.multiply(x, 2.0), lambda x, b: x if b == 1 else x * 2),
}


@pytest.mark.parametrize("form", NEEDS_VALUE)
def test_values_that_a_compute_needs_are_compiled_in(form: str) -> None:
    compute, reference = NEEDS_VALUE[form]
    op, x = _define(f"value_{form}", compute), np.array([1.0, 2.0, 3.0], "float32")
    for b in (0.5, 1.0, 2.0):
        np.testing.assert_allclose(op(meta.array(x), b).numpy(), reference(x, np.float32(b)), rtol=1e-6)


def test_errors_of_a_value_come_from_the_compute() -> None:
    op, x = _define("reciprocal_number", lambda x, b: topi.multiply(x, 1.0 / b)), meta.ones((2,))
    assert op(x, 0.5).tolist() == [2.0, 2.0]
    with pytest.raises(KernelError, match=r"its TVM compute raised ZeroDivisionError"):
        op(x, 0.0)
    before = set(kernel._kernels)
    assert op(x, 0.25).tolist() == [4.0, 4.0]
    assert set(kernel._kernels) == before


def test_derived_numbers_belong_to_the_kernel() -> None:
    """Computes that differ only in how a parameter follows from the attribute have different kernels on disk."""
    x = meta.ones((2,))
    for factor in (1.0, 3.0):
        op = _define("scaled_number", lambda x, b, factor=factor: topi.multiply(x, b * factor))
        assert op(x, 0.5).tolist() == [factor / 2] * 2
        forget_kernels()
        state(registry.get("scaled_number")).forget()
        assert op(x, 0.25).tolist() == [factor / 4] * 2


# --- sizes -----------------------------------------------------------------------------------------------------------

SIZES: dict[str, Callable[[int], Any]] = {
    "arange": meta.arange,
    "arange of floats": lambda n: meta.arange(0.5, n, 0.25),
    "linspace": lambda n: meta.linspace(-1.0, 1.0, n),
    "eye": lambda n: meta.eye(n, n + 1),
    "one_hot": lambda n: meta.one_hot(meta.array([0, 1]), n),
    "topk": lambda n: meta.topk(meta.ones((30,)), n)[0],
    "embedding_dx": lambda n: meta.embedding_dx(meta.ones((2, 3)), meta.array([0, 1]), n),
    "argwhere": lambda n: meta.argwhere(meta.array([1, 0, 1]), size=n),
    "repeat": lambda n: meta.repeat(meta.array([1.0, 2.0]), n + 5),
    "tril": lambda n: meta.tril(meta.ones((9, 9)), n),
    "var": lambda n: meta.var(meta.array([1.0, 2.0, 4.0] * 7), correction=n),
    "tile": lambda n: meta.tile(meta.array([1.0, 2.0]), (n, n)),
    "pad": lambda n: meta.pad(meta.array([1.0, 2.0]), ((n, 2),)),
    "broadcast_to": lambda n: meta.broadcast_to(meta.array([1.0, 2.0]), (n, 2)),
    "full": lambda n: meta.full((n, 2), n),
}


@pytest.mark.parametrize("name", SIZES)
def test_other_sizes_need_no_kernel(name: str) -> None:
    SIZES[name](3)
    before = set(kernel._kernels)
    for n in (4, 7, 20):
        SIZES[name](n)
    assert set(kernel._kernels) == before


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("start", "stop", "num"), [(0.0, 1.0, 11), (-3.0, 0.1, 2), (5.0, -7.0, 50), (2.0, 9.0, 1)])
def test_linspace(start: float, stop: float, num: int, dtype: str) -> None:
    result = meta.linspace(start, stop, num, dtype).numpy()
    np.testing.assert_allclose(result, np.linspace(start, stop, num), rtol=1e-6 if dtype == "float32" else 1e-14)
    assert result[0] == np.asarray(start, dtype)
    assert num == 1 or result[-1] == np.asarray(stop, dtype)


def test_ranges_of_unsigned_numbers_leave_other_ranges_their_kernel() -> None:
    assert meta.arange(2**63, 2**63 + 2, dtype="uint64").tolist() == [2**63, 2**63 + 1]
    for dtype in ("uint64", "float32"):
        meta.arange(3, 9, dtype=dtype)
        before = set(kernel._kernels)
        for n in (5, 7):
            assert meta.arange(n, 3 * n, n, dtype=dtype).tolist() == [n, 2 * n]
        assert set(kernel._kernels) == before


@pytest.mark.parametrize("row", [row for row in samples() if row in first_rows()], ids=repr)
def test_kernels_serve_every_shape(row: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """No declaration or compute needs sizes as numbers, which would give each size a kernel, unless it says so."""
    specification = shape_generic.spec
    symbolic: list[bool] = []

    def recorded(*args: Any, **options: Any) -> Any:
        symbolic.append(options["symbolic"])
        return specification(*args, **options)

    monkeypatch.setattr(shape_generic, "spec", recorded)
    monkeypatch.setattr(kernel, "_load_or_build", lambda s: kernel.Compiled(len, kernel.unscheduled(s).parameters))
    monkeypatch.setattr(kernel, "_kernels", {})
    monkeypatch.setattr(kernel, "_older", {})
    monkeypatch.setattr(shape_generic, "_built_before", {})
    call = make_call(row, row.run_dtypes(())[0]).to_meta()
    try:
        args = tuple(map(as_type, row.operator.schema.bind(row.op, call.bound_arguments(), {})))
        info = CallInfo(row.operator, args, row.operator.infer(args), CPU)
        payload = next(i.payload for i in implementations(row.operator) if i.dialect.name == "tvm")
    except (MetaError, StopIteration):
        return
    if isinstance(payload, TEImplementation) and payload.generic and not isinstance(info.out, Value):
        shape_generic.kernel(payload, info)
        assert False not in symbolic


def test_a_new_value_takes_the_kernel_of_another_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without another look at the declaration, whether the number stands for a tensor or is an attribute."""
    x = meta.array([-1.0, 2.0])
    calls: list[Callable[[Any], Any]] = [lambda n: x * n, lambda n: meta.leaky_relu(x, n), lambda n: meta.maximum(n, x)]
    expected = [[-3.25, 6.5], [-3.25, 2.0], [3.25, 3.25]]
    for run in calls:
        run(2.75)
    monkeypatch.setattr(shape_generic, "_build", lambda *_: pytest.fail("a kernel is built"))
    assert [run(3.25).tolist() for run in calls] == expected
