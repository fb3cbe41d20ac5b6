"""TE computes of operators that repeat, reorder, pad or mask elements along axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.compute import separate_extents
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.numbers import at_least
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.indexing import modulo, unflattened
from meta.backend.tvm.te.scan import Index, like, nest
from meta.backend.tvm.workarounds.exact import constant
from meta.ir.expr import CallInfo
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


@compute("repeat", vectors=separate_extents, lift=("repeats",), constants=(0, 1, 2, 3, 4))
def repeat(x: Tensor, repeats: int, axis: int | None, *, out: Outs) -> Any:
    count = constant(at_least(repeats, 1), "int64")
    if axis is None:
        return te.compute(out[0].shape, lambda i: x(*unflattened(tirx.floordiv(i, count), x.shape)), "repeat")
    axis = axis % len(x.shape)
    return te.compute(out[0].shape, lambda *i: x(*i[:axis], tirx.floordiv(i[axis], count), *i[axis + 1 :]), "repeat")


@compute("tile", sizes=("reps",))
def tile(x: Tensor, reps: tuple[int, ...], *, out: Outs, kind: str) -> Any:
    lead = len(out[0].shape) - len(x.shape)
    if kind == "cpu" and not all(isinstance(d, tirx.IntImm) for d in (*x.shape, *out[0].shape)):
        return _repeated_copies(x, out[0].shape, lead)
    return te.compute(out[0].shape, lambda *i: x(*map(modulo, i[lead:], x.shape)), "tile")


def _repeated_copies(x: Tensor, shape: Sequence[Any], lead: int) -> Any:
    """The tiles of an array of unknown sizes, one after the other. In a loop over the result, which knows no sizes
    either, the position of each element in its tile would be a remainder, for which CPUs take ten times as long."""
    one = tirx.const(1, "int64")
    sizes = [*[one] * lead, *x.shape]
    counts = [tirx.floordiv(n, tirx.max(size, one)) for n, size in zip(shape, sizes, strict=True)]

    def copy(index: Index, buffers: list[Any]) -> None:
        source, target = buffers
        tiles, within = index[::2], index[1::2]
        target[tuple(t * n + i for t, n, i in zip(tiles, sizes, within, strict=True))] = source[within[lead:]]

    loops = [extent for pair in zip(counts, sizes, strict=True) for extent in pair]
    return te.extern([shape], [x], nest(loops, copy), dtype=str(x.dtype), name="tile")


@compute("flip")
def flip(x: Tensor, axis: tuple[int, ...] | None) -> Any:
    rank = len(x.shape)
    flipped = range(rank) if axis is None else [a % rank for a in axis] if rank else []
    return te.compute(
        x.shape,
        lambda *i: x(*(d - 1 - j if n in flipped else j for n, (j, d) in enumerate(zip(i, x.shape, strict=True)))),
        "flip",
    )


def _shifts(call: CallInfo) -> dict[str, tuple[int, ...]]:
    """The shift of each rolled axis, reduced to [0, size)."""
    x, shift, axis = call.args
    return {"shift": tuple(s % max(x.shape[a], 1) for s, a in zip(shift, axis, strict=True))}


@compute("roll", vectors=_shifts)
def roll(x: Tensor, shift: Any, axis: tuple[int, ...], *, kind: str) -> Any:
    rank = len(x.shape)
    shift_position = {a % rank: n for n, a in enumerate(axis)}
    if kind == "cpu" and shift_position and not isinstance(shift, tuple):
        return _rolled_rows(x, shift, shift_position)

    def source_index(n: int, i: Expr) -> Any:
        if n not in shift_position:
            return i
        source = i - shift[shift_position[n]]
        if isinstance(shift, tuple):
            return modulo(source, x.shape[n])
        return tirx.Select(source < 0, source + x.shape[n], source)  # `_shifts` are in [0, size); a division is slow

    return te.compute(x.shape, lambda *i: x(*(source_index(n, j) for n, j in enumerate(i))), "roll")


def _rolled_rows(x: Tensor, shift: Any, shift_position: Mapping[int, int]) -> Any:
    """The two parts of each row, one after the other: in a loop over the result, the position of each element is a
    selection, which is not vectorised. shift_position: axis -> position in `shift`."""
    last, length = len(x.shape) - 1, x.shape[-1]

    def row(index: Index, buffers: list[Any]) -> None:
        read, shifts, write = buffers
        source = [_rolled(i, shifts[shift_position[a]], x.shape[a]) if a in shift_position else i
                  for a, i in enumerate(index)]  # fmt: skip
        end = shifts[shift_position[last]] if last in shift_position else like(0, length)
        with script_tirx.serial(like(0, length), end) as i:
            write[(*index, i)] = read[(*source, i + (length - end))]
        with script_tirx.serial(like(0, length), length - end) as i:
            write[(*index, i + end)] = read[(*source, i)]

    return te.extern([x.shape], [x, shift], nest(x.shape[:-1], row), dtype=str(x.dtype), name="roll")


def _rolled(position: Expr, shift: Any, size: Any) -> Any:
    return tirx.Select(position < shift, position - shift + size, position - shift)


def _pad_vector(call: CallInfo) -> dict[str, tuple[int, ...]]:
    """The widths (before, after) of all axes as one vector."""
    return {"pad_width": call.args[1]}


@compute("pad", vectors=_pad_vector)
def pad(x: Tensor, pad_width: Any, pad_value: Any, mode: str, *, out: Outs, kind: str) -> Any:
    if mode == "wrap":
        return _pad_by_wrapping(x, pad_width, out[0].shape)
    if mode != "constant":
        return _pad_by_copies(x, pad_width, _COPY_POSITIONS[mode], out[0].shape)
    value = constant(pad_value, x.dtype)
    if kind == "cpu" and x.shape and not isinstance(pad_width, tuple):
        return _padded_rows(x, pad_width, value, out[0].shape)

    def element(*i: Expr) -> Any:
        inner = [j - pad_width[2 * n] for n, j in enumerate(i)]
        inside = [c for j, d in zip(inner, x.shape, strict=True) for c in (j >= 0, j < d)]
        return tirx.if_then_else(tirx.all(*inside), x(*inner), value) if inside else x()

    return te.compute(out[0].shape, element, "pad")


def _padded_rows(x: Tensor, pad_width: Any, value: Any, shape: Any) -> Any:
    """The parts of each row, one after the other: in a loop over the result, every element is a branch."""
    length, size = shape[-1], x.shape[-1]
    zero, last = like(0, length), 2 * (len(shape) - 1)

    def row(index: Index, buffers: list[Any]) -> None:
        read, widths, write = buffers
        source = [i - widths[2 * a] for a, i in enumerate(index)]
        inside = [c for i, d in zip(source, x.shape, strict=False) for c in (i >= 0, i < d)]
        before = widths[last]
        first = tirx.min(tirx.max(before, zero), length)
        end = tirx.max(tirx.min(before + size, length), first)
        start = first if not inside else tirx.Select(tirx.all(*inside), first, length)
        stop = end if not inside else tirx.Select(tirx.all(*inside), end, length)
        with script_tirx.serial(zero, start) as i:
            write[(*index, i)] = value
        with script_tirx.serial(zero, stop - start) as i:
            write[(*index, i + start)] = read[(*source, i + start - before)]
        with script_tirx.serial(zero, length - stop) as i:
            write[(*index, i + stop)] = value

    return te.extern([shape], [x, pad_width], nest(shape[:-1], row), dtype=str(x.dtype), name="pad")


def _pad_by_copies(x: Tensor, pad_width: Any, position: Callable[[Any, Any], Any], shape: Any) -> Any:
    """Padding with elements of x: `position(position in x, last)` gives the element to copy."""

    def element(*i: Expr) -> Any:
        source = [position(j - pad_width[2 * n], d - 1) for n, (j, d) in enumerate(zip(i, x.shape, strict=True))]
        return x(*source)

    return te.compute(shape, element, "pad")


def _pad_by_wrapping(x: Tensor, pad_width: Any, shape: Any) -> Any:
    """Padding with elements from the opposite end of what negative widths leave of each axis."""
    zero = tirx.const(0, "int64")

    def source(n: int, i: Expr, size: Expr) -> Any:
        before, after = pad_width[2 * n], pad_width[2 * n + 1]
        left = size + tirx.min(before, zero) + tirx.min(after, zero)
        return modulo(i - tirx.max(before, zero), tirx.max(left, 1)) - tirx.min(before, zero)

    return te.compute(
        shape, lambda *i: x(*(source(n, j, d) for n, (j, d) in enumerate(zip(i, x.shape, strict=True)))), "pad"
    )


def _mirror(position: Expr, last: Any, edge: int) -> Any:
    """The position inside [0, last] that a position mirrors. edge: 1 if mirroring repeats the edge elements, else 0."""
    return tirx.min(tirx.max(position, -edge - position), 2 * last + edge - tirx.max(position, -edge - position))


_COPY_POSITIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "edge": lambda position, last: tirx.max(tirx.min(position, last), tirx.const(0, "int64")),
    "reflect": lambda position, last: _mirror(position, last, 0),
    "symmetric": lambda position, last: _mirror(position, last, 1),
}
"""mode -> (position, possibly outside, last position) -> position of the element to copy."""


def _triangle(name: str, keep: Callable[[Any, Any], Any]) -> None:
    # A selection, and no branch: of a branch, TVM splits the loop at the diagonal, which is outside of it for large k
    # where one of the axes has size 1, and the kernel writes there.
    def triangle(x: Tensor, k: int) -> Any:
        zero, first = tirx.const(0, x.dtype), constant(k, "int64")
        return te.compute(x.shape, lambda *i: tirx.Select(keep(i[-1] - i[-2], first), x(*i), zero), name)

    compute(name, lift=("k",))(triangle)


_triangle("tril", lambda diagonal, k: diagonal <= k)
_triangle("triu", lambda diagonal, k: diagonal >= k)
