"""The vectorisable functions agree with exact values for normal, denormal, infinite and NaN floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import build
from meta.backend.tvm.schedule import patterns
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.backend.tvm.te import math as te_math

scipy_special = pytest.importorskip("scipy.special", reason="the exact values of erf and sigmoid come from SciPy")

_EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": scipy_special.expit,
    "erf": scipy_special.erf,
}
_EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, -3e-39, 88.72, 88.73, -87.3, -87.4, -88.0,
     -103.97, -103.98, -104.5, 1e30, -1e30, 3.4e38, -3.4e38, 1.0, -1.0, -0.99999994, -1.0000001, 0.625, 0.93, -0.93,
     4.0, -4.0, 1e-10, -1e-10, 16.99, -17.4, -20.1, 0.9999999, 1.0000001], np.float32)  # fmt: skip


def _inputs(count: int = 1 << 16) -> np.ndarray[Any, Any]:
    """Edge cases, random bit patterns (every magnitude, NaN, denormals), and the ranges of typical values."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    near = rng.uniform(-5, 5, count).astype(np.float32)
    wide = rng.uniform(-110, 95, count).astype(np.float32)
    return np.concatenate([_EDGES, bits, near, wide])


def _apply(name: str, x: np.ndarray[Any, Any], dtype: str = "float32") -> np.ndarray[Any, Any]:
    function = getattr(te_math, name)
    spec = TensorSpec(("n",), dtype)

    def compute(t: Any) -> Any:
        return tvm.te.compute(t.shape, lambda i: function(t[i]), name="y")

    kernel = build(KernelSpec(f"test_math_{name}", compute, (spec,), (spec,), "elemwise")).function
    source, result = tvm.tensor(x), tvm.tensor(np.zeros_like(x))
    kernel(source, result)
    return result.numpy()


@pytest.mark.parametrize("name", _EXACT)
def test_float32_is_within_2e7_everywhere(name: str) -> None:
    x = _inputs()
    with np.errstate(all="ignore"):
        exact = _EXACT[name](x.astype(np.float64))
        expected = exact.astype(np.float32)
    actual = _apply(name, x)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(actual), np.isinf(expected))
    np.testing.assert_array_equal(np.signbit(actual)[~np.isnan(expected)], np.signbit(expected)[~np.isnan(expected)])
    finite = np.isfinite(expected)
    # Below the smallest normal number a float has fewer digits; there the error is absolute.
    scale = np.maximum(np.abs(exact[finite]), 2.0**-126)
    assert np.max(np.abs(actual[finite] - exact[finite]) / scale) < 2e-7


def test_exp_reaches_denormals_and_the_last_binade() -> None:
    x = np.array([-87.5, -95.0, -103.9, 88.72], np.float32)
    np.testing.assert_allclose(_apply("exp", x), np.exp(x.astype(np.float64)), rtol=2e-7, atol=8e-46)
    assert (_apply("exp", x) > 0).all()


def test_exp_nonpositive() -> None:
    x = _inputs()
    x = x[~(x > 0)]
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.float64))
    actual = _apply("exp_nonpositive", x)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(x))
    ordinary = x >= -87
    assert np.max(np.abs(actual[ordinary] / exact[ordinary] - 1)) < 2e-7
    assert (actual[x < -87.1] == 0).all()
    assert _apply("exp_nonpositive", np.array([-np.inf, 0.0], np.float32)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", _EXACT)
def test_float64_is_exact_to_float64_precision(name: str) -> None:
    x = np.concatenate([np.random.default_rng(3).uniform(-20, 20, 3000), [0.0, 1e-12, -1e-12, np.inf, -np.inf, np.nan]])
    with np.errstate(all="ignore"):
        expected = _EXACT[name](x)
    np.testing.assert_allclose(_apply(name, x, "float64"), expected, rtol=4e-15, atol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", _EXACT)
def test_halves_are_computed_in_float32(name: str, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16")
    half = np.dtype(np.float16) if dtype == "float16" else np.dtype(ml_dtypes.bfloat16)
    x = np.random.default_rng(5).uniform(-4, 4, 500).astype(half)
    with np.errstate(all="ignore"):
        expected = _EXACT[name](x.astype(np.float64)).astype(np.float32)
    actual = _apply(name, x, dtype).astype(np.float32)
    # A value correct to float32 is rounded once, to the half type.
    np.testing.assert_allclose(actual, expected, rtol=0.51 * float(ml_dtypes.finfo(half).eps), atol=1e-7)


@pytest.mark.parametrize(("name", "scale"), [("gelu", 0.7071067811865476), ("gelu_tanh", 0.0)])
def test_gelu(name: str, scale: float) -> None:
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    v = x.astype(np.float64)
    inner = scipy_special.erf(v * scale) if scale else np.tanh(0.7978845608028654 * (v + 0.044715 * v**3))
    np.testing.assert_allclose(_apply(name, x), 0.5 * v * (1 + inner), rtol=3e-7, atol=4e-7)


def test_integers_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"\[exp\] got an expression of dtype int32"):
        te_math.exp(tvm.tirx.const(1, "int32"))


def test_tvm_intrinsics_become_operators_of_meta() -> None:
    x = tvm.te.placeholder((64,), "float32", name="x")
    y = tvm.te.compute((64,), lambda i: tvm.tirx.exp(x[i]) + tvm.tirx.tanh(x[i]), name="y")
    text = te_math.vectorisable(tvm.create_prim_func([x, y])).script()
    assert "meta.exp" in text
    assert "meta.tanh" in text
    assert "T.exp" not in text


def test_expansions_are_vectorised_and_call_no_library() -> None:
    x = tvm.te.placeholder((1 << 12,), "float32", name="x")
    y = tvm.te.compute((1 << 12,), lambda i: te_math.tanh(x[i]), name="y")
    func = patterns.schedule(tvm.create_prim_func([x, y]), "elemwise", targets.target("cpu"))
    module = tvm.build_tir(tvm.IRModule({"main": func}), targets.target("cpu"))
    text = module.inspect_source("ll")
    assert f"<{targets.lanes(32)} x float>" in text or f"<{4 * targets.lanes(32)} x float>" in text
    assert "call float @tanhf" not in text
    assert "call float @expf" not in text


def test_functions_of_functions_compile_in_linear_time() -> None:
    """Ten nested functions took TVM's generator of code hours."""
    functions = [te_math.sigmoid, te_math.tanh, te_math.exp, te_math.log1p, te_math.erf] * 2

    def nested(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    def compute(t: Any) -> Any:
        return tvm.te.compute(t.shape, lambda i: nested(t[i]), name="y")

    spec = TensorSpec(("n",), "float32")
    kernel = build(KernelSpec("test_math_nested", compute, (spec,), (spec,), "elemwise")).function
    x = np.linspace(-3, 3, 100).astype(np.float32)
    y = x.astype(np.float64)
    for name in ("sigmoid", "tanh", "exp", "log1p", "erf") * 2:
        y = _EXACT[name](y)
    result = tvm.tensor(np.zeros_like(x))
    kernel(tvm.tensor(x), result)
    assert np.allclose(result.numpy(), y, rtol=1e-6)


def test_other_targets_use_the_intrinsics_of_tvm() -> None:
    x = tvm.te.placeholder((8,), "float32", name="x")
    y = tvm.te.compute((8,), lambda i: te_math.erf(te_math.exp(x[i])), name="y")
    module = tvm.build_tir(tvm.IRModule({"main": tvm.create_prim_func([x, y])}), tvm.Target("c"))
    text = module.inspect_source()
    assert "expf(" in text
    assert "erff(" in text
