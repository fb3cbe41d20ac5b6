"""A call of an operator with concrete arguments, whose arrays may be NumPy's, torch's or meta's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from meta.eager.call import invoke, state
from meta.eager.ndarray import NDArray, asarray
from meta.op.registry import Op


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator with positional and keyword arguments. Arrays, also in lists, may be NumPy's, torch's or meta's."""

    op: Op
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def arrays(self) -> list[Any]:
        """Every array among the arguments, in order, lists flattened."""
        return [a for value in (*self.args, *self.kwargs.values()) for a in _items(value) if is_array(a)]

    def positions(self) -> list[int]:
        """For each of `arrays()`, the schema position of its argument."""
        index = self.op.schema.index
        arguments = [*enumerate(self.args), *((index[k], v) for k, v in self.kwargs.items())]
        return [position for position, value in arguments for a in _items(value) if is_array(a)]

    def map(self, function: Callable[[Any], Any]) -> OperatorCall:
        """The same call with `function(array)` in place of each array."""

        def convert(value: object) -> Any:
            if is_sequence(value):
                return [convert(v) for v in value] if any(map(is_array, value)) else value
            return function(value) if is_array(value) else value

        return OperatorCall(self.op, tuple(map(convert, self.args)), {k: convert(v) for k, v in self.kwargs.items()})

    def with_arrays(self, arrays: Iterable[Any]) -> OperatorCall:
        """The same call with other arrays, in the order of `arrays()`."""
        replacements = iter(arrays)
        return self.map(lambda _: next(replacements))

    def bound_arguments(self) -> tuple[Any, ...]:
        """The arguments in schema order, normalised."""
        return self.op.schema.bind(self.op.name, self.args, self.kwargs)

    def to_meta(self, device: str = "cpu") -> OperatorCall:
        """The same call with copies of its arrays as meta arrays on `device`; its results are on `device` as well."""
        call = self.map(lambda a: asarray(a, copy=True, device=device))
        if device == "cpu" or "device" not in self.op.schema.names:
            return call
        position = self.op.schema.index["device"]
        args = (*call.args[:position], device, *call.args[position + 1 :]) if len(call.args) > position else call.args
        return OperatorCall(call.op, args, call.kwargs if len(args) > position else {**call.kwargs, "device": device})

    def run(self) -> Any:
        """The result of the operator on meta arrays."""
        return invoke(state(self.op), *self.op.schema.bind(self.op.name, self.args, self.kwargs))

    def apply(self, function: Callable[..., Any]) -> Any:
        """The result of another function on the same arguments."""
        return function(*self.args, **self.kwargs)


def is_array(value: object) -> bool:
    """Whether `value` is an array of any library (NumPy's scalars are numbers, not arrays)."""
    import numpy as np

    return isinstance(value, (NDArray, np.ndarray)) or (
        type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "dtype")
    )


def is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Whether `value` is a list or tuple."""
    return isinstance(value, (list, tuple))


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether `value` is a dict or another mapping."""
    return isinstance(value, Mapping)


def _items(value: object) -> Iterable[Any]:
    return value if is_sequence(value) else (value,)


def flat_results(value: object) -> list[Any]:
    """The results of a call as a list."""
    return list(value) if is_sequence(value) else [value]
