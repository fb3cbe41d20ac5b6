"""Sizes that a record leaves open: `dynamic` of `meta.vm.compile` and of exporters."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from meta.dim import SymDim, evaluate, names, sym
from meta.dim_ties import recording_unequal
from meta.errors import ArgumentError, MetaError, did_you_mean
from meta.ir.type import TensorType
from meta.records import record
from meta.tracing.program import input_types

Dynamic = Mapping[str, Mapping[int, str | SymDim]]
"""Input -> axis -> the name of its size."""


@record
class OpenSizes:
    """The sizes that a program leaves open. axes: input -> axis -> its size.  bounds: the name of a size -> its least
    and its greatest value, None for none; other sizes may have any value."""

    axes: Mapping[str, Mapping[int, SymDim]]
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict[str, tuple[int, "int | None"]])

    def type_of(self, name: str, kind: TensorType) -> TensorType:
        """The type that an input is recorded with. Raises ArgumentError for an axis that it does not have."""
        axes = self.axes.get(name)
        if not axes:
            return kind
        shape = list(kind.shape)
        for axis, size in axes.items():
            if not -kind.ndim <= axis < kind.ndim:
                problem = f"dynamic names axis {axis} of '{name}', which is {kind!r}"
                raise ArgumentError("vm", problem, f"axes from {-kind.ndim} to {kind.ndim - 1}" if shape else "no axis")
            shape[axis] = size
        return kind.with_shape(tuple(shape))

    def are_empty(self, types: Sequence[TensorType], opened: Sequence[TensorType]) -> bool:
        """Whether an open axis has no elements. Functions and operators treat it apart, and so do programs: none of
        the sizes of such a call is open. opened: the types with open axes."""
        pairs = (pair for t, o in zip(types, opened, strict=True) for pair in zip(t.shape, o.shape, strict=True))
        return any(size == 0 and opened_size != 0 for size, opened_size in pairs)

    def check_bounds(self, where: str, sizes: Mapping[str, int]) -> None:
        """Raise ArgumentError for a size outside of its bounds. sizes: by name."""
        for name, (least, greatest) in self.bounds.items():
            size = sizes.get(name)
            if size is None or (least <= size and (greatest is None or size <= greatest)):
                continue
            inputs = [
                f"axis {axis} of '{x}'{'' if d.name == name else f' is {d}'}"
                for x, axes in self.axes.items() for axis, d in axes.items() if name in names(d)
            ]  # fmt: skip
            expected = f"at least {least}" if greatest is None else f"{least} to {greatest}"
            raise ArgumentError(where, f"the size {name} ({', '.join(inputs)}) is {size}", expected)

    def check_names(self, inputs: Sequence[str]) -> None:
        """Raise ArgumentError for a name that no input has."""
        for name in self.axes:
            if name not in inputs:
                problem = f"dynamic names '{name}', which is no input that is an array"
                hint = did_you_mean(name, inputs) or f'write dynamic={{"{inputs[0]}": ...}}' if inputs else ""
                raise ArgumentError("vm", problem, ", ".join(inputs), hint)


def open_sizes(dynamic: Dynamic | None, is_module: bool) -> OpenSizes | None:
    """The argument of `compile`, checked; None without one. Raises ArgumentError."""
    if dynamic is None:
        return None
    if is_module:
        raise ArgumentError("vm", "dynamic is given for a Module", "functions and models",
                            "give its parameters types with symbolic sizes")  # fmt: skip
    example = 'a dict such as {"x": {0: "n"}}'
    axes: dict[str, dict[int, SymDim]] = {}
    mapping: Any = dynamic
    if not isinstance(mapping, Mapping):
        raise ArgumentError("vm", f"dynamic is {type(mapping).__name__}", example)
    for name, named_axes in dynamic.items():
        each: Any = named_axes
        if not isinstance(name, str) or not isinstance(each, Mapping):
            raise ArgumentError("vm", f"dynamic has {name!r}: {each!r}", example, "name each axis")
        axes[name] = {}
        for axis, size in named_axes.items():
            key: Any = axis
            if isinstance(key, bool) or not isinstance(key, int) or not isinstance(size, (str, SymDim)):
                raise ArgumentError("vm", f"dynamic has {axis!r}: {size!r} for '{name}'", example)
            axes[name][axis] = sym(size) if isinstance(size, str) else size
    return OpenSizes(axes)


def example(kind: TensorType) -> TensorType:
    """A type without open sizes that fits."""
    sizes = {name: 2 for dim in kind.shape for name in names(dim)}
    return kind.with_shape(tuple(evaluate(dim, sizes) if isinstance(dim, SymDim) else dim for dim in kind.shape))


@contextmanager
def recording(sizes: OpenSizes | None, conditions: list[tuple[SymDim, MetaError]]) -> Generator[None, None, None]:
    """Inside the block, functions are recorded with these open sizes. conditions: receives, at its end, sizes that are
    0 or more where all comparisons of sizes with `==` are as in the trace, and the errors of others."""
    with input_types(sizes.type_of if sizes else None), recording_unequal() as pairs:
        yield
    for a, b in pairs:
        distance: Any = a - b
        if isinstance(distance, SymDim):
            problem = f"the size {a} equals {b}, and the program was recorded for sizes that differ"
            conditions.append((distance * distance - 1, ArgumentError("vm", problem, "other sizes")))
