"""Gradients of programs of symbolic sizes: in every differentiable sample, one size at a time becomes a name."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import meta
from meta.dim import sym
from meta.dtype import is_float
from meta.errors import GradientError, TypeInferenceError
from meta.interpreter.run import run
from meta.ir.builder import Module
from meta.ir.type import tensor_type
from meta.passes.auto_diff import auto_diff
from meta.testing.arrays import to_numpy
from meta.testing.call import flat_results
from meta.testing.derivatives import cotangent, gradient_inputs, is_differentiable
from meta.testing.generic import make_call, tolerance_of
from meta.testing.programs import trace_call
from meta.testing.samples import Sample
from meta.testing.tolerance import compare
from tests.python.op.samples import samples

DIFFERENTIABLE = [row for row in samples() if is_differentiable(row) and row.is_floating]

COMPILED = ("mean", "var", "std", "mse_loss_dx", "batch_norm_train_dxwb", "pad", "attention_with_lse_dx")
"""Operators of which the first sample with a symbolic size is compiled and interpreted."""


def variants(sample: Sample) -> Iterator[tuple[int, Module]]:
    """(size, the gradient program of the sample with that size symbolic), for the sizes that the operator leaves
    open."""
    call = make_call(sample, sample.run_dtypes()[0]).to_meta()
    inputs = gradient_inputs(call)
    for size in sorted({d for a in call.arrays() for d in a.shape if d > 1}):
        types = [tensor_type(tuple(sym("n") if d == size else d for d in a.shape), a.dtype) for a in call.arrays()]
        try:
            record = trace_call(call).record(types)
        except TypeInferenceError:
            continue
        try:
            yield size, auto_diff([record.inputs[i] for i in inputs])(record.module)
        except GradientError:
            if sample.op != "qr":  # whether a complete factorization has a gradient depends on the sizes
                raise


def test_every_gradient_is_recorded() -> None:
    assert sum(1 for sample in DIFFERENTIABLE for _ in variants(sample)) > 1000


@cache
def first_rows() -> dict[str, Sample]:
    rows: dict[str, Sample] = {}
    for row in DIFFERENTIABLE:
        rows.setdefault(row.op, row)
    return rows


@pytest.mark.parametrize("op", COMPILED)
def test_values_equal_the_values_of_eager_calls(op: str) -> None:
    sample = first_rows()[op]
    _, module = next(variants(sample))
    call = make_call(sample, "float32").to_meta()
    arrays, inputs = call.arrays(), gradient_inputs(call)
    for i in inputs:
        arrays[i].requires_grad = True
    results = flat_results(call.run())
    dys = {i: meta.array(cotangent(sample, i, r)) for i, r in enumerate(results) if is_float(r.dtype)}
    used = [i for i in dys if results[i].requires_grad]
    reference = meta.autograd.grad(
        [results[i] for i in used], [arrays[i] for i in inputs], [dys[i] for i in used], allow_unused=True
    )
    values: list[Any] = [x.detach() for x in arrays]
    values += [dy if i in used else dy * 0 for i, dy in dys.items()]
    for outcome in (run(module, *values), meta.vm.compile(module)(*values)):
        for ours, theirs in zip(flat_results(outcome)[-len(inputs) :], reference, strict=True):
            expected = to_numpy(ours) * 0 if theirs is None else to_numpy(theirs)
            compare(f"gradient of {op}", to_numpy(ours), expected, tolerance=tolerance_of(sample, "float32"))


def test_sizes_are_operands_of_tensors() -> None:
    @meta.trace
    def scaled(x: Any) -> Any:
        n = x.shape[0]
        return x.sum() / n, n * x, meta.where(x > n, x, 2 * n + 1), meta.arange(n), meta.full((2,), n // 2, "int32")

    record = scaled.record(tensor_type((sym("n"),), "float32"))
    executor = meta.vm.compile(record.module)
    for size in (3, 5):
        x = meta.arange(size).cast("float32") * 2
        for outcome in (executor(x), run(record.module, x)):
            expected = scaled.function(x)
            assert [y.tolist() for y in outcome] == [y.tolist() for y in expected]
            assert [y.dtype for y in outcome] == [y.dtype for y in expected]


def test_a_size_outside_of_a_trace_is_refused() -> None:
    with pytest.raises(TypeInferenceError, match=r"\[multiply\] the size n is symbolic where a number is needed"):
        meta.ones((2,)) * sym("n")
    with pytest.raises(TypeInferenceError, match=r"start=0.5, stop=n, step=1; expected ints"):
        meta.trace(lambda x: meta.arange(0.5, x.shape[0])).record(tensor_type((sym("n"),), "float32"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_means_of_halves_over_more_elements_than_float16_counts(dtype: str, symbolic: bool) -> None:
    """1 / n is computed in float32: n is infinite in float16, and 1 / n coarse in both."""
    n = 70000
    x, dy = meta.full((n,), 0.5, dtype=dtype), meta.full((), 1024.0, dtype=dtype)
    x[: n // 2] = -0.5
    functions = {
        "mean": meta.mean,
        "var": meta.var,
        "mse": lambda x: meta.mse_loss(x, meta.zeros_like(x)),
    }
    expected = {"mean": 1024.0 / n, "var": 1024.0 / (n - 1), "mse": 1024.0 / n}
    for name, f in functions.items():
        kind = tensor_type((sym("n") if symbolic else n,), dtype)
        module = auto_diff()(meta.trace(lambda x, f=f: f(x)).record(kind).module)
        _, dx = run(module, x, dy)
        assert dx.dtype == dtype
        tolerance = 2e-3 if dtype == "float16" else 1.6e-2
        assert abs(dx[n - 1].item() / expected[name] - 1) < tolerance, name
