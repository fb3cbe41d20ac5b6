"""Autocast of eager (and traced) code."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from meta._generated.functions import cast
from meta.eager.ndarray import NDArray
from meta.modes import modes, scoped
from meta.op.precision import check_policy, data_positions, needs_cast, target_dtype
from meta.op.registry import Amp, Op, as_type


@contextmanager
def autocast(
    dtype: str = "bfloat16", overrides: Mapping[str, Amp] | None = None, enabled: bool = True
) -> Generator[None, None, None]:
    """Inside the block (or decorated function), in this thread, cast floating operands by each operator's rule
    (meta.op.precision), as the AutoCast pass does in programs.

    overrides: operator name -> "always", "never", "infer" or "keep", on top of those of the scope around this one.
    enabled: False switches an outer autocast off.
    A parameter is cast once in a block, not once a use, as long as nobody writes to it. The casts are differentiable:
    gradients of float32 arrays are float32.
    Raises ArgumentError for a dtype other than float16 and bfloat16 or an unknown rule, RegistryError for an unknown
    operator."""
    chosen = check_policy("autocast", dtype, overrides)
    outer = modes.autocast
    rules: dict[str, Amp] = {**outer.overrides, **chosen} if isinstance(outer, _Policy) else chosen
    with scoped("autocast", _Policy(dtype, rules) if enabled else None):
        yield


class _Policy:
    """Casts the operands of a call; leaves already cast in this scope are remembered."""

    def __init__(self, low: str, overrides: Mapping[str, Amp]) -> None:
        self.low = low
        self.overrides = overrides
        self.cast_leaves: dict[tuple[int, str], tuple[weakref.ref[NDArray], Any, NDArray]] = {}

    def __call__(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call in schema order, those cast that its rule wants cast."""
        types = tuple(map(as_type, args))
        wanted = target_dtype(op, types, self.low, self.overrides)
        if wanted is None:
            return args
        out = list(args)
        modes.autocast = None  # the casts themselves are not subject to the policy
        try:
            for i in data_positions(op):
                out[i] = self.cast(out[i], types[i], wanted)
        finally:
            modes.autocast = self
        return tuple(out)

    def cast(self, arg: Any, kind: Any, dtype: str) -> Any:
        if isinstance(kind, tuple):
            return tuple(self.cast(a, k, dtype) for a, k in zip(arg, kind, strict=True))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if not needs_cast(kind, dtype):
            return arg
        if not isinstance(arg, NDArray) or not arg.is_leaf or modes.trace is not None:
            return cast(arg, dtype)
        key = (id(arg), dtype)
        known = self.cast_leaves.get(key)
        state = arg.version, modes.grad_enabled, arg.requires_grad
        if known is not None and known[0]() is arg and known[1] == state and not _freed(known[2]):
            return known[2]
        made = cast(arg, dtype)
        self.cast_leaves[key] = (weakref.ref(arg), state, made)
        return made


def _freed(x: NDArray) -> bool:
    """Whether a backward pass went through the cast: its graph is gone, and the next use needs one of its own."""
    node = x._node
    return node is not None and node.args is None
