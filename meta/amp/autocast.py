"""Autocast of eager (and traced) code."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from meta.errors import ArgumentError, message
from meta.ndarray import NDArray
from meta.op.precision import CASTABLE, target_dtype
from meta.op.registry import Amp, Op, as_type, get
from meta.schema._types import TensorLike
from meta.scope import modes, scoped


@contextmanager
def autocast(
    dtype: str = "bfloat16", overrides: Mapping[str, Amp] | None = None, enabled: bool = True
) -> Generator[None, None, None]:
    """Inside the block (or decorated function), cast floating operands by each operator's rule (meta.op.precision).

    overrides: operator name -> "always", "never" or "infer". enabled: False switches an outer autocast off.
    A parameter is cast once in a block, not once a use. The casts are differentiable: gradients of float32 arrays are
    float32. Raises ArgumentError for a dtype other than float16 and bfloat16, RegistryError for an unknown operator."""
    if dtype not in ("float16", "bfloat16"):
        raise ArgumentError(message("autocast", f"dtype is {dtype!r}", 'allowed: "float16", "bfloat16"'))
    for name in overrides or {}:
        get(name)
    with scoped("autocast", _Policy(dtype, dict(overrides or {})) if enabled else None):
        yield


class _Policy:
    """Casts the operands of a call; leaves already cast in this scope are remembered."""

    def __init__(self, low: str, overrides: Mapping[str, Amp]) -> None:
        self.low = low
        self.overrides = overrides
        self.cast_leaves: dict[tuple[int, str], tuple[weakref.ref[NDArray], Any, Any]] = {}

    def __call__(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        wanted = target_dtype(op, tuple(map(as_type, args)), self.low, self.overrides)
        if wanted is None:
            return args
        modes.autocast = None  # the casts themselves are not subject to the policy
        try:
            return tuple(self.cast(arg, wanted) for arg in args)
        finally:
            modes.autocast = self

    def cast(self, arg: Any, dtype: str) -> Any:
        if isinstance(arg, (tuple, list)):
            return tuple(self.cast(item, dtype) for item in arg)  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(arg, TensorLike) or as_type(arg).dtype not in CASTABLE or as_type(arg).dtype == dtype:
            return arg
        from meta._generated.functions import cast

        if not isinstance(arg, NDArray) or not arg.is_leaf or modes.trace is not None:
            return cast(arg, dtype)  # pyright: ignore[reportUnknownVariableType, reportArgumentType]
        key = (id(arg), dtype)
        known = self.cast_leaves.get(key)
        if known is not None and known[0]() is arg and known[1] == (arg.version, modes.grad_enabled):
            return known[2]
        made = cast(arg, dtype)
        self.cast_leaves[key] = (weakref.ref(arg), (arg.version, modes.grad_enabled), made)
        return made
