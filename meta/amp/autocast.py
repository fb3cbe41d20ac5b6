"""Automatic mixed precision for eager and traced code."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import meta
from meta.eager.ndarray import NDArray
from meta.ir.type import flat_types
from meta.modes import modes, scoped
from meta.op.precision import check_policy, common_dtype, data_positions, needs_cast, target_dtype
from meta.op.registry import Amp, Op, as_type
from meta.schema._dsl import TensorLike
from meta.schema.annotations import explained
from meta.tree import is_sequence, is_tuple, leaves_of, with_leaves


@explained
@contextmanager
def autocast(
    dtype: str = "bfloat16", overrides: Mapping[str, Amp] | None = None, enabled: bool = True
) -> Generator[None, None, None]:
    """Cast floating operands by each operator's rule (meta.op.precision), as the AutoCast pass does in programs.

    The rules apply inside the block or decorated function, in the current thread.

    overrides: operator name -> "always", "never", "infer" or "keep"; adds to the overrides of an enclosing scope.
    enabled: False switches an outer autocast off.
    A parameter is cast once per block, and again only after it is written. The casts are differentiable: gradients of
    float32 arrays are float32.
    Raises ArgumentError for a dtype other than float16 and bfloat16 or an unknown rule, RegistryError for an unknown
    operator."""
    inner = check_policy("autocast", dtype, overrides)
    outer = modes.autocast
    rules: dict[str, Amp] = {**outer.overrides, **inner} if isinstance(outer, _Policy) else inner
    with scoped(autocast=_Policy(dtype, rules) if enabled else None):
        yield


class _Policy:
    """Casts the operands of calls and caches the casts of leaf arrays while the scope is active."""

    def __init__(self, low: str, overrides: Mapping[str, Amp]) -> None:
        self.low = low
        self.overrides = overrides
        self.cast_leaves: dict[tuple[int, str], tuple[weakref.ref[NDArray], Any, NDArray]] = {}

    def __call__(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call in schema order, cast by the operator's rule."""
        types = tuple(map(as_type, args))
        dtype = target_dtype(op, types, self.low, self.overrides)
        if dtype is None:
            return args
        out = list(args)
        modes.autocast = None  # the policy does not apply to its own casts
        try:
            for i in data_positions(op):
                out[i] = self.cast(out[i], types[i], dtype)
        finally:
            modes.autocast = self
        return tuple(out)

    def composed(self, rule: Amp, args: object) -> Any:
        """The arguments of a composed function, nests of tuples and lists, cast by its rule."""
        types = [as_type(leaf) for leaf in leaves_of(args) if isinstance(leaf, TensorLike)]
        dtype = common_dtype(flat_types(types), rule, self.low)
        if dtype is None:
            return args

        def convert(arg: Any) -> Any:
            if isinstance(arg, TensorLike):
                return self.cast(arg, as_type(arg), dtype)
            items = [convert(item) for item in arg] if is_sequence(arg) else arg
            return tuple(items) if isinstance(arg, tuple) else items

        modes.autocast = None
        try:
            return convert(args)
        finally:
            modes.autocast = self

    def cast_types(self, op: Op, types: tuple[Any, ...]) -> tuple[Any, ...]:
        """The types of the arguments of a call after the casts."""
        dtype = target_dtype(op, types, self.low, self.overrides) or ""
        if not dtype:
            return types
        out = list(types)
        for i in data_positions(op):
            leaves = [t.with_dtype(dtype) if needs_cast(t, dtype) else t for t in leaves_of(types[i])]
            out[i] = with_leaves(types[i], leaves)
        return tuple(out)

    def cast(self, arg: Any, type_: Any, dtype: str) -> Any:
        if is_tuple(type_):
            return tuple(self.cast(a, t, dtype) for a, t in zip(arg, type_, strict=True))
        if not needs_cast(type_, dtype):
            return arg
        if not isinstance(arg, NDArray) or not arg.is_leaf or modes.trace is not None:
            return meta.cast(arg, dtype)
        key = (id(arg), dtype)
        cached = self.cast_leaves.get(key)
        state = arg.version, modes.grad_enabled, arg.requires_grad
        if cached is not None and cached[0]() is arg and cached[1] == state and not _is_freed(cached[2]):
            return cached[2]
        result = meta.cast(arg, dtype)
        self.cast_leaves[key] = (weakref.ref(arg), state, result)
        return result


def _is_freed(x: NDArray) -> bool:
    """Whether a backward pass has freed the graph of the cast; the next use then casts again."""
    node = x._node
    return node is not None and node.args is None
