"""Where tensors are in memory, as the fake tensors of a graph say, evaluated for the arguments of each call.

A result of a graph is an argument, or a result of its program, or a view of the memory of one of them: a layout says
which. Sizes, strides and offsets may be expressions of symbols, whose values are read off the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch.fx import Node
from torch.utils._sympy.printers import PythonPrinter

import meta
from meta.frontend.torch.dynamo.shapes import NeedsTorch, contiguous_strides, inverse, plain_symbol
from meta.ir.layout import StridedLayout

T = TypeVar("T")

Args = Sequence[Any]
"""The arguments of a call of a graph; after the call of its program, followed by the results of it."""


# --- formulas --------------------------------------------------------------------------------------------------------


def symbol_sources(values: Iterable[Any]) -> dict[str, str]:
    """For each symbol that an argument has by itself, the Python text that reads its value off `args`. Ints come first,
    as they are the quickest to read."""
    sources: dict[str, str] = {}
    texts = list(_readable(values))
    for is_number in (True, False):
        for value, text in texts:
            name = plain_symbol(value)
            if name is not None and (text[-1] == "]" and "." not in text) is is_number:
                sources.setdefault(name, text)
    return sources


def _readable(values: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    for i, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            yield value, f"args[{i}]"
        elif value.layout is torch.strided:
            yield from ((size, f"args[{i}].shape[{axis}]") for axis, size in enumerate(value.shape))
            yield from ((stride, f"args[{i}].stride({axis})") for axis, stride in enumerate(value.stride()))
            yield value.storage_offset(), f"args[{i}].storage_offset()"


def symbol_reader(names: Sequence[str], sources: Mapping[str, str]) -> Callable[[Args], tuple[int, ...]]:
    """(arguments of a call) -> the values of symbols."""
    return eval(f"lambda args: ({''.join(f'{sources[name]}, ' for name in names)})")


class _Printer(PythonPrinter):
    """Expressions as Python text that reads symbols off the arguments."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        super().__init__()
        self.sources = sources

    def _print_Symbol(self, expr: Any) -> str:  # SymPy's name
        return self.sources[str(expr)]

    def _print_ToFloat(self, expr: Any) -> str:
        return f"float({self._print(expr.args[0])})"


def formula(value: T, sources: Mapping[str, str]) -> Callable[[Args], T]:
    """(arguments of a call) -> a number, or a nest of tuples of numbers, with the values of symbols.

    Raises NeedsTorch for a symbol that no argument has."""
    text = _text(value, _Printer(sources), sources)
    if "args" not in text:
        constant: T = eval(text, dict(_NAMES))  # of numbers alone
        return lambda _: constant
    return eval(f"lambda args: {text}", dict(_NAMES))  # of numbers, names of symbols and operators of SymPy alone


_NAMES: Mapping[str, Any] = {"math": math, "torch": torch, "inf": math.inf, "nan": math.nan}


def _text(value: Any, printer: _Printer, sources: Mapping[str, str]) -> str:
    if isinstance(value, (tuple, list)):
        items: Sequence[Any] = value
        return "(" + "".join(f"{_text(item, printer, sources)}, " for item in items) + ")"
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return repr(value)
    missing = {str(symbol) for symbol in value.node.expr.free_symbols} - sources.keys()
    if missing:
        raise NeedsTorch(f"no input has the size {min(missing)}")
    return str(printer.doprint(value.node.expr))


Order = tuple[int, ...] | None
"""The order of axes in which a tensor is contiguous; None as it is."""

# --- layouts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of the elements of a tensor in its storage.

    shape, strides, offset: in elements; ints and SymInts.  is_conj, is_neg: whether torch conjugates or negates what it
    reads there."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    dtype: torch.dtype
    is_conj: bool = False
    is_neg: bool = False

    @staticmethod
    def of(fake: torch.Tensor) -> Layout:
        return Layout(
            tuple(fake.shape), fake.stride(), fake.storage_offset(), fake.dtype, fake.is_conj(), fake.is_neg()
        )

    @staticmethod
    def row_major(shape: tuple[int, ...], dtype: torch.dtype) -> Layout:
        return Layout(shape, contiguous_strides(shape), 0, dtype)

    @staticmethod
    def compact(fake: torch.Tensor, order: Sequence[int] | None) -> Layout:
        """The layout of a tensor whose axes are contiguous in an order, None in their own."""
        axes = range(fake.ndim) if order is None else order
        strides = dict(zip(axes, contiguous_strides([fake.shape[axis] for axis in axes]), strict=True))
        return Layout(tuple(fake.shape), tuple(strides[i] for i in range(fake.ndim)), 0, fake.dtype)


def moved(layout: Layout, start: Any) -> Layout:
    """The layout in a storage that begins `start` elements earlier."""
    return replace(layout, offset=layout.offset + start)


@dataclass(frozen=True, slots=True)
class SavedPart:
    """A saved value as a part of a larger tensor, which the program of the forward graph returns and the program of the
    backward graph takes.

    group: of the parts of one tensor.  layout: where the part is in it, with the axes in `order`.
    steps: from that tensor to the part: operators with the arguments behind the first, and positions in lists."""

    group: int
    layout: StridedLayout
    order: Order
    steps: tuple[tuple[str, tuple[Any, ...]] | int, ...]

    def of(self, whole: Any) -> Any:
        """The part of a tensor in a trace."""
        x = whole
        for step in self.steps:
            x = x[step] if isinstance(step, int) else getattr(meta, step[0])(x, *step[1])
        return x if self.order is None else meta.transpose(x, inverse(self.order))

    def place(self, dtype: torch.dtype) -> Layout:
        """Where torch's tensor is in the memory of the larger one."""
        own = self.layout if self.order is None else self.layout.transposed(inverse(self.order))
        return Layout(own.shape, own.strides, own.offset, dtype)


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor that arguments of a graph are parts of. shape: of it.  parts: the positions of these arguments, and
    where they are in it; the first one is at its start."""

    shape: tuple[int, ...]
    parts: tuple[tuple[int, Layout], ...]

    def tensor(self, values: Sequence[Any]) -> torch.Tensor:
        """The tensor, in the memory of the arguments of a call; in new memory where hooks of saved tensors, for one,
        have made others of them."""
        first: torch.Tensor = values[self.parts[0][0]]
        storage, start = first.untyped_storage(), first.storage_offset()
        for position, place in self.parts:
            x: torch.Tensor = values[position]
            is_here = x.untyped_storage().data_ptr() == storage.data_ptr() and x.stride() == place.strides
            if not is_here or x.storage_offset() != start + place.offset:
                return self._gathered(values)
        if (start + math.prod(self.shape)) * first.element_size() > storage.nbytes():
            return self._gathered(values)
        return first.as_strided(self.shape, contiguous_strides(self.shape), start)

    def _gathered(self, values: Sequence[Any]) -> torch.Tensor:
        memory = values[self.parts[0][0]].new_zeros(self.shape)
        for position, place in self.parts:
            memory.as_strided(place.shape, place.strides, place.offset).copy_(values[position])
        return memory


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a program: the argument at a position of the graph, or the memory of a result, which comes after all
    arguments.

    order: of its axes, in which it is contiguous; None as it is.
    whole: the tensor that the program takes in place of its parts; the argument is the first of them."""

    position: int
    order: Order = None
    whole: Whole | None = None

    def tensor(self, values: Sequence[Any]) -> Any:
        """The tensor that the program takes, as torch has it. values: the arguments of a call."""
        return values[self.position] if self.whole is None else self.whole.tensor(values)


def whole_inputs(
    placeholders: Sequence[Node], parts: Mapping[Node, SavedPart], live: Collection[Node]
) -> dict[int, Input]:
    """By group, the input that replaces the parts of one tensor, if one of them is read. It has the position of the
    part at the start of the tensor."""
    groups: dict[int, list[tuple[int, SavedPart, Layout]]] = {}
    for i, node in enumerate(placeholders):
        if node in parts:
            part = parts[node]
            groups.setdefault(part.group, []).append((i, part, part.place(node.meta["val"].dtype)))
    read = {parts[node].group for node in placeholders if node in parts and node in live}
    inputs: dict[int, Input] = {}
    for group, members in groups.items():
        if group in read:
            members.sort(key=lambda member: member[2].offset)
            whole = Whole(members[0][1].layout.source, tuple((i, place) for i, _, place in members))
            inputs[group] = Input(members[0][0], None, whole)
    return inputs


def viewer(position: int, base: Layout, view: Layout, sources: Mapping[str, str]) -> Callable[[Args], torch.Tensor]:
    """(arguments) -> the view of the argument at `position`, whose own layout is `base`, with the layout `view`."""
    width, base_width = view.dtype.itemsize, base.dtype.itemsize
    place = formula((view.shape, view.strides, view.offset * width - base.offset * base_width), sources)
    turns = [view.is_conj is not base.is_conj, view.is_neg is not base.is_neg]

    def same_dtype(args: Args) -> torch.Tensor:
        x, (shape, strides, distance) = args[position], place(args)
        return x.as_strided(shape, strides, x.storage_offset() + distance // width)

    def other_dtype(args: Args) -> torch.Tensor:
        x, (shape, strides, distance) = args[position], place(args)
        offset = (x.storage_offset() * base_width + distance) // width
        empty = torch.empty(0, dtype=view.dtype, device=x.device)
        return empty.set_(x.untyped_storage(), offset, shape, strides)

    plain = same_dtype if view.dtype == base.dtype else other_dtype
    if not any(turns):
        return plain

    def turned(args: Args) -> torch.Tensor:
        x = plain(args)
        x = x.conj() if turns[0] else x
        return torch.ops.aten._neg_view.default(x) if turns[1] else x

    return turned


def allocator(layout: Layout, elements: Any, device: str, sources: Mapping[str, str]) -> Callable[[Args], torch.Tensor]:
    """(arguments) -> new memory with a layout. elements: of the storage, None where the layout covers it."""
    numbers = formula((layout.shape, layout.strides, layout.offset, 0 if elements is None else elements), sources)
    options: dict[str, Any] = {"dtype": layout.dtype, "device": device}

    def allocate(args: Args) -> torch.Tensor:
        shape, strides, offset, count = numbers(args)
        if elements is None:
            return torch.empty_strided(shape, strides, **options)
        return torch.empty(count, **options).as_strided(shape, strides, offset)

    if elements is None and is_constant([*layout.shape, *layout.strides]):
        shape, strides = layout.shape, layout.strides
        return lambda _: torch.empty_strided(shape, strides, **options)
    return allocate


def is_constant(values: Iterable[Any]) -> bool:
    """Whether no number is symbolic."""
    return all(isinstance(value, (int, float)) for value in values)


def fill(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`target` with the values of `source`; elements that share memory in it have equal values."""
    written = target
    for axis, (size, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if stride == 0 and size > 1:
            written, source = written.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
    written.copy_(source)
    return target


def with_strides(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy of a tensor with the given strides."""
    return fill(torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device), x)
