"""Samples of operators: example arguments and a reference. Every generic test runs on every sample.

    Sample("softmax", T(3, 4), axis=1, ref=lambda x, axis: torch.softmax(x, axis))
    ErrorCase("softmax", T(3), axis=5, error=TypeInferenceError, match="axis 5 is out of range")

A `T` describes a random tensor. Its values depend only on the sample, so a failing test also fails when it runs
by itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meta import dtype as dtypes
from meta.errors import MetaError
from meta.ir.type import TensorType, Type, tensor_type
from meta.op.registry import Op, get
from meta.schema._dsl import TensorLike
from meta.testing.call import is_sequence
from meta.tree import flatten, leaves_of

if TYPE_CHECKING:
    import numpy as np

FLOAT_DTYPES = ("float32", "float64", "float16", "bfloat16")
OTHER_DTYPES = ("int32", "int64", "bool")


class T:
    """A random tensor of a sample.

    shape: sizes.  dtype: a test replaces float32 by the dtype it runs in and keeps other dtypes.
    low, high: values (both parts of complex ones) are uniform in [low, high), by default [-1, 1) for floats and
        [-5, 5) for integers (from 0 for unsigned ones).
    avoid: points (kinks, poles); values differ from them by at least 5 % of the range.
    distinct: evenly spaced values in random order, for operators that compare values.
    definite: symmetric matrices (..., n, n) with eigenvalues of at least 1, for factorizations.
    """

    __slots__ = ("avoid", "definite", "distinct", "dtype", "high", "low", "shape")

    def __init__(
        self, *shape: int, dtype: str = "float32", low: float | None = None, high: float | None = None,
        avoid: Sequence[float] = (), distinct: bool = False, definite: bool = False,
    ) -> None:  # fmt: skip
        self.shape = shape
        self.dtype = dtypes.canonical(dtype)
        is_float = dtypes.is_inexact(self.dtype)
        self.low = low if low is not None else -1.0 if is_float else 0 if dtypes.is_unsigned(self.dtype) else -5
        self.high = high if high is not None else 1.0 if is_float else 5
        self.avoid = tuple(avoid)
        self.distinct = distinct
        self.definite = definite

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return shape if self.dtype == "float32" else f"{shape}:{self.dtype}"

    def dtype_in(self, dtype: str) -> str:
        """This tensor's dtype in a test that runs in `dtype`."""
        return dtype if dtype and self.dtype == "float32" else self.dtype

    def values(self, dtype: str, seed: str) -> np.ndarray[Any, Any]:
        """The tensor as a NumPy array in a test that runs in `dtype`; `seed` is any text."""
        import numpy as np

        rng = np.random.default_rng(zlib.crc32(seed.encode()))
        actual = self.dtype_in(dtype)
        if actual == "bool":
            return np.asarray(rng.random(self.shape) < 0.5)
        if dtypes.is_complex(actual):
            return (self._floats(rng) + 1j * self._floats(rng)).astype(actual)
        if dtypes.is_float(actual):
            return self._floats(rng).astype(dtypes.to_numpy(actual))
        if dtypes.is_float(self.dtype):
            return self._scaled_integers(rng, actual).astype(actual)
        if self.distinct:
            values = rng.permutation(np.arange(int(self.low), int(self.low) + _count(self.shape)))
            return np.reshape(values, self.shape).astype(actual)
        return rng.integers(int(self.low), int(self.high), self.shape).astype(actual)

    def _floats(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        import numpy as np

        span = self.high - self.low
        if self.distinct:
            count = max(_count(self.shape), 1)
            out = rng.permutation(self.low + span * (np.arange(count) + 0.5) / count)[: _count(self.shape)]
            return np.reshape(out, self.shape)
        out = rng.uniform(self.low, self.high, self.shape)
        if self.definite:
            return out @ np.swapaxes(out, -1, -2) + np.eye(self.shape[-1])
        for point in self.avoid:
            side = np.where(out < point, -1.0, 1.0)
            near = np.abs(out - point) < 0.05 * span
            out = np.where(near, point + side * span * (0.05 + 0.05 * rng.random(self.shape)), out)
        return out

    def _scaled_integers(self, rng: np.random.Generator, dtype: str) -> np.ndarray[Any, Any]:
        """Integers in place of a floating tensor: eight times its range, with the same signs and without `avoid`."""
        import numpy as np

        if self.distinct:
            return np.reshape(rng.permutation(np.arange(_count(self.shape)) + max(int(self.low), 0)), self.shape)
        out = np.rint(self._floats(rng) * 8)
        if self.low > 0:
            out = np.maximum(out, 1)
        if 0 in self.avoid:
            out = np.where(out == 0, 1, out)
        return np.abs(out) if dtypes.is_unsigned(dtype) else out


def _count(shape: Sequence[int]) -> int:
    out = 1
    for size in shape:
        out *= size
    return out


class Sample:
    """A call of an operator with its expected result.

    op, args, kwargs: the call, with random tensors as `T`, also in lists.
    ref: the reference: a function that is called with torch tensors in place of `T` and otherwise the same arguments,
        and returns tensors, NumPy arrays or numbers. It also computes the float64 oracle.
    check: replaces `ref` for results without a formula, such as random numbers. Called as `check(result, *args,
        **kwargs)` with NumPy arrays (a tuple of them for several results); raises AssertionError.
    grad: whether gradients are tested; None decides by the registry.
    dtypes: the dtypes to run in; None for the floating ones that the operator accepts.
    tol: {dtype: (rtol, atol)}, replaces the tolerances of `meta.testing.tolerance`; needs a `reason`.
    id: the sample's name in test ids, by default its arguments.
    """

    __slots__ = ("_accepted", "args", "check", "dtypes", "grad", "id", "kwargs", "op", "reason", "ref", "tol")

    def __init__(
        self, op: str, *args: object, ref: Callable[..., Any] | None = None, check: Callable[..., None] | None = None,
        grad: bool | None = None, dtypes: Sequence[str] | None = None, id: str = "",
        tol: Mapping[str, tuple[float, float]] | None = None, reason: str = "", **kwargs: object,
    ) -> None:  # fmt: skip
        if (ref is None) == (check is None):
            raise ValueError(f"sample of {op}: give either ref or check")
        if tol and not reason:
            raise ValueError(f"sample of {op}: `tol` needs a reason")
        self.op, self.args, self.kwargs = op, args, kwargs
        self.ref, self.check, self.grad = ref, check, grad
        self.dtypes = None if dtypes is None else tuple(dtypes)
        self.tol, self.reason = dict(tol or {}), reason
        self.id = id or describe(args, kwargs)
        self._accepted: dict[str, bool] = {}  # by dtype: every generic test asks for them

    def __repr__(self) -> str:
        return f"{self.op}-{self.id}"

    @property
    def operator(self) -> Op:
        return get(self.op)

    @property
    def is_floating(self) -> bool:
        """Whether the sample has tensors whose dtype a test replaces."""
        return any(t.dtype == "float32" for t in leaves(self.args, self.kwargs))

    def run_dtypes(self, others: Sequence[str] = ()) -> tuple[str, ...]:
        """The dtypes to run in: the floating dtypes and the members of `others` that the type function accepts.

        ("",) for a sample without floating tensors, which runs in its declared dtypes."""
        if not self.is_floating:
            return ("",)
        if self.dtypes is not None:
            return self.dtypes
        accepted = tuple(d for d in (*FLOAT_DTYPES, *others) if self.accepts(d))
        # A sample that no dtype fits still runs, so that the test shows the operator's error.
        return accepted or ("float32",)

    def accepts(self, dtype: str) -> bool:
        """Whether the type function accepts this call with floating tensors in `dtype`."""
        if dtype not in self._accepted:
            self._accepted[dtype] = self.result_type(dtype) is not None
        return self._accepted[dtype]

    def result_type(self, dtype: str) -> Type | None:
        """The type of the result with floating tensors in `dtype`; None if the type function refuses the call."""
        op = self.operator
        arguments = self.map(lambda t, _: _Typed(tensor_type(t.shape, t.dtype_in(dtype))))
        try:
            return op.infer(op.schema.bind(op.name, *arguments))
        except MetaError:
            return None

    def numpy(self, dtype: str = "") -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with NumPy arrays for tensors."""
        return self.map(lambda t, path: t.values(dtype, f"{self.op}/{self.id}/{path}"))

    def map(self, function: Callable[[T, str], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with `function(t, path)` in place of each `T`."""
        args = tuple(_map(a, function, str(i)) for i, a in enumerate(self.args))
        return args, {k: _map(v, function, k) for k, v in self.kwargs.items()}


@dataclass(frozen=True, slots=True)
class _Typed(TensorLike):
    """A tensor without values, as an argument of type functions."""

    type: TensorType


def _map(value: object, function: Callable[[T, str], Any], path: str) -> Any:
    tensors, tree = flatten(value, T, path)
    return tree.build(iter([function(tensor, name) for name, tensor in tensors]))


def leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[T]:
    """Every `T` among the arguments."""
    return [leaf for leaf in leaves_of((*args, *kwargs.values())) if isinstance(leaf, T)]


def describe(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Arguments as a test id: `3x4-axis=1`."""
    parts = [_text(a) for a in args] + [f"{k}={_text(v)}" for k, v in kwargs.items()]
    return "-".join(parts).replace(" ", "").replace("'", "") or "call"


def _text(value: object) -> str:
    if is_sequence(value):
        return "(" + ",".join(_text(v) for v in value) + ")"
    return repr(value)


class ErrorCase:
    """A call that must raise an error of class `error` whose text contains `match`."""

    __slots__ = ("args", "error", "id", "kwargs", "match", "op")

    def __init__(
        self, op: str, *args: object, error: type[MetaError], match: str, id: str = "", **kwargs: object
    ) -> None:
        self.op, self.args, self.kwargs = op, args, kwargs
        self.error, self.match = error, match
        self.id = id or match.replace(" ", "_")[:48]

    def __repr__(self) -> str:
        return f"{self.op}-{self.id}"

    def numpy(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with NumPy arrays for tensors."""
        args = tuple(_map(a, lambda t, path: t.values("", path), "") for a in self.args)
        return args, {k: _map(v, lambda t, path: t.values("", path), k) for k, v in self.kwargs.items()}
