"""Whether a result is torch's: type, shape, dtype and values within the tolerances of torch.testing.assert_close."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

TOLERANCES = {
    torch.float64: (1e-7, 1e-7), torch.complex128: (1e-7, 1e-7), torch.float32: (1.3e-6, 1e-5),
    torch.complex64: (1.3e-6, 1e-5), torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5),
}  # fmt: skip
"""Relative and absolute tolerance by dtype. Integers and bools are exact."""

GRADIENT = 4
"""Gradients may be off by this multiple of the tolerances."""

_ORACLE = 2
"""A value may also be off a float64 run by this multiple of torch's own largest error."""

Truth = Callable[[], Sequence[torch.Tensor]]


def differences(
    actual: Sequence[Any], expected: Sequence[Any], dtype: torch.dtype, factor: int = 1, truth: Truth = tuple
) -> str:
    """The first difference of two lists of results, "" if there is none.

    truth: computes the same results in float64; called at most once, and only if a value is off."""
    if len(actual) != len(expected):
        return f"{len(actual)} results, expected {len(expected)}"
    exact: list[Any] = []

    def exactly(index: int) -> torch.Tensor | None:
        with contextlib.suppress(Exception):  # torch has no float64 run of this sample
            if not exact:
                exact.extend(truth())
            return exact[index].detach()
        return None

    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        problem = difference(a, e, dtype, factor, lambda: exactly(i))  # noqa: B023
        if problem:
            return f"result {i}: {problem}" if len(expected) > 1 else problem
    return ""


def difference(
    actual: Any, expected: Any, dtype: torch.dtype, factor: int = 1, truth: Callable[[], Any] = lambda: None
) -> str:
    """How a result differs from the expected one; "" if it does not. Numbers compare as 0-d tensors."""
    if not isinstance(expected, torch.Tensor):
        if type(actual) is not type(expected):
            return f"a {type(actual).__name__}, expected a {type(expected).__name__}"
        if not isinstance(expected, (int, float, complex)):
            return "" if actual == expected else f"{actual!r}, expected {expected!r}"
        actual, expected = torch.tensor(actual), torch.tensor(expected)
    if not isinstance(actual, torch.Tensor):
        return f"a {type(actual).__name__}, expected a tensor"
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{_kind(actual)}, expected {_kind(expected)}"
    if not (expected.is_floating_point() or expected.is_complex()):
        return _count(actual == expected, actual, expected)
    narrow, wide = expected.dtype, torch.complex128 if expected.is_complex() else torch.float64
    rtol, atol = (factor * t for t in TOLERANCES.get(dtype, TOLERANCES[torch.float32]))
    actual, expected = actual.to(wide), expected.to(wide)
    close = torch.isclose(actual, expected, rtol, atol, equal_nan=True)
    if close.all():
        return ""
    exact = truth()
    if exact is not None and exact.shape == expected.shape:
        close |= actual == exact.to(narrow).to(wide)  # infinite where the dtype does not hold the value
        exact = exact.to(wide)
        error = (expected - exact).abs().nan_to_num(0, 0, 0).max().item()
        close |= torch.isclose(actual, exact, rtol, atol + _ORACLE * error, equal_nan=True)
    return _count(close, actual, expected)


def _kind(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


def _count(close: torch.Tensor, actual: torch.Tensor, expected: torch.Tensor) -> str:
    if close.all():
        return ""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    off = (actual.to(wide) - expected.to(wide)).abs()[~close]
    return f"{int((~close).sum())} of {close.numel()} values are off, by up to {off.max().item():.3g}"
