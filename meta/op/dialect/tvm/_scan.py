"""What takes steps that depend on each other, as loops: running sums along an axis, and powers of integers."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.tvm import _adapter as tvm
from meta.op.dialect.tvm._adapter import script_tirx, te, tirx


def scan(x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    """Sums of the elements of x up to each (or before it), from the front or from the end, in the dtype of x."""
    dtype = str(x.dtype)
    zero = tirx.const(0, dtype)
    if not x.shape:
        return te.compute((), lambda: zero if exclusive else x(), "scan")
    length = x.shape[axis]
    before, after = _volume(x.shape[:axis]), _volume(x.shape[axis + 1 :])

    def loops(source: Any, target: Any) -> Any:
        with tvm.IRBuilder() as builder:
            # Extern buffers are indexed flat.
            read, write = script_tirx.buffer_proxy(source), script_tirx.buffer_proxy(target)
            with script_tirx.parallel(0, before * after) as row, script_tirx.serial(0, length) as step:
                last = tirx.Max(step - _int(1), _int(0))

                def at(k: Any) -> Any:
                    place = length - _int(1) - k if reverse else k
                    return (row // after * length + place) * after + row % after

                total = tirx.if_then_else(step > _int(0), write[at(last)], zero)
                if exclusive:
                    write[at(step)] = tirx.if_then_else(step > _int(0), total + read[at(last)], zero)
                else:
                    write[at(step)] = total + read[at(step)]
            return builder.get()

    return te.extern([x.shape], [x], lambda ins, outs: loops(ins[0], outs[0]), dtype=dtype, name="scan")


def squarings(base: Any, exponent: Any, bits: int) -> Any:
    """base ** exponent of integer tensors of one shape, from the lowest `bits` bits of the exponent."""
    dtype = str(base.dtype)
    one = tirx.const(1, dtype)

    def loops(ins: Any, outs: Any) -> Any:
        with tvm.IRBuilder() as builder:
            start, power, result, square = (script_tirx.buffer_proxy(buffer) for buffer in (*ins, *outs))
            with script_tirx.parallel(0, _volume(base.shape)) as i:
                result[i] = one
                square[i] = start[i]
                with script_tirx.serial(0, bits) as bit:
                    used = tirx.EQ((power[i] >> bit.astype(dtype)) & one, one)
                    result[i] = result[i] * tirx.Select(used, square[i], one)
                    square[i] = square[i] * square[i]
            return builder.get()

    return te.extern([base.shape] * 2, [base, exponent], loops, dtype=[dtype] * 2, name="squarings")[0]


def _int(value: int) -> Any:
    return tirx.const(value, "int64")


def _volume(shape: Any) -> Any:
    volume = _int(1)
    for size in shape:
        volume = volume * size
    return volume
