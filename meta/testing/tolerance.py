"""Tolerances by dtype, and comparison with a reference and a float64 oracle.

A value passes within `atol + rtol * |expected|` of the reference. It also passes within that distance of the float64
oracle plus twice the largest error of the reference, because an inexact reference does not prove a value wrong.
(torch's decomposition tests use the same idea.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meta import dtype as dtypes

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FORWARD: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
"""(rtol, atol) by dtype, the same as in torch.testing.assert_close; other dtypes compare exactly."""
GRADIENT = {dtype: (4 * rtol, 4 * atol) for dtype, (rtol, atol) in FORWARD.items()}


def compare(
    what: str, actual: Array, expected: Array, *, oracle: Array | None = None,
    tolerance: tuple[float, float] | None = None,
) -> None:  # fmt: skip
    """Raise AssertionError, naming `what` and the worst element, unless `actual` is close to `expected`.

    oracle: the same result in float64, for the oracle rule. tolerance: (rtol, atol), by default the dtype's. Shapes and
    dtypes must agree; NaN equals NaN, infinities of one sign are equal."""
    if actual.shape != expected.shape:
        raise AssertionError(f"{what}: shape {actual.shape}, expected {expected.shape}")
    if actual.dtype != expected.dtype:
        raise AssertionError(f"{what}: dtype {actual.dtype}, expected {expected.dtype}")
    rtol, atol = tolerance or FORWARD.get(str(actual.dtype), (0.0, 0.0))
    mismatches = differs(actual, expected, rtol, atol)
    if mismatches.any() and oracle is not None:
        mismatches &= differs(actual, oracle, rtol, atol + 2 * _largest_error(expected, oracle))
    if mismatches.any():
        raise AssertionError(f"{what}: {_report(actual, expected, oracle, mismatches)} (rtol {rtol:g}, atol {atol:g})")


def differs(actual: Array, expected: Array, rtol: float, atol: float) -> Array:
    """The mask of the elements that differ by more than atol + rtol * |expected|; NaN equals NaN. Of complex numbers
    that are not finite, each part is compared."""
    import numpy as np

    if not dtypes.is_inexact(str(actual.dtype)) and not dtypes.is_inexact(str(expected.dtype)):
        return np.asarray(actual != expected)
    a, b = _widened(actual), _widened(expected)
    with np.errstate(invalid="ignore", over="ignore"):
        equal = np.equal(a, b)
        near = equal | (np.abs(a - b) <= atol + rtol * np.abs(b))  # rtol * |b| of the largest complex numbers is NaN
    # |inf - inf| is NaN, and any finite number is within rtol * inf of infinity.
    if a.dtype.kind == "c":
        near_parts = ~(differs(a.real, b.real, rtol, atol) | differs(a.imag, b.imag, rtol, atol))
        near = np.where(np.isfinite(b), near, near_parts)
    else:
        near = np.where(np.isfinite(b), near, equal)
    return ~(near | (np.isnan(a) & np.isnan(b)))


def _widened(x: Array) -> Array:
    import numpy as np

    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _largest_error(reference: Array, oracle: Array) -> float:
    """The largest error of the reference over the elements where reference and oracle are finite."""
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(_widened(reference) - _widened(oracle))
    errors = errors[np.isfinite(errors)]
    return float(errors.max()) if errors.size else 0.0


def _report(actual: Array, expected: Array, oracle: Array | None, mismatches: Array) -> str:
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(_widened(actual) - _widened(expected))
    ranked = np.where(mismatches, np.nan_to_num(distance, nan=np.inf), -1)
    worst = np.unravel_index(int(np.argmax(ranked)), mismatches.shape)
    text = (
        f"{int(mismatches.sum())} of {mismatches.size} elements differ; at {tuple(map(int, worst))} {actual[worst]!s}"
    )
    text += f", expected {expected[worst]!s}"
    return text if oracle is None else f"{text}, in float64 {oracle[worst]!s}"
