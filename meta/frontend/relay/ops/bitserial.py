"""Products of integers of few bits, which Relay computes bit by bit on packed words.

A word of n bits holds one bit of n neighbours along an axis, the first in its highest bit. Packed kernels are unpacked,
and the products are products of integers: of the lowest bits of x, and of the kernel as a number w or, with `unipolar`,
as 2 w - (2 ** bits - 1), whose bits are -1 and 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_int, itemsize
from meta.frontend.relay.convert.call import OpCall, constant, converter
from meta.frontend.relay.convert.tensor_layout import permuted
from meta.frontend.relay.convert.type_mapping import dtype_of

_MAX_BITS = 8


def _bits(call: OpCall, name: str, default: int = 1) -> int:
    bits = call.int(name, default)
    if not 0 < bits <= _MAX_BITS:
        call.refuse(f"{name} is {bits}", f"1 to {_MAX_BITS}")
    return bits


def _lowest(call: OpCall, x: Tensor, bits: int) -> Any:
    """The lowest bits of integers, int32."""
    if not is_int(x.dtype):
        call.refuse(f"the dtype {x.dtype}", "integers")
    return meta.bitwise_and(meta.cast(x, "int32"), (1 << bits) - 1)


@converter("nn.bitpack")
def bitpack(call: OpCall) -> Any:
    """The lowest bits of x, a word for each group along pack_axis; bit_axis is a new axis, of the bits."""
    (x,) = call.tensors(1)
    bits, axis, bit_axis = _bits(call, "bits"), call.int("pack_axis", 1), call.int("bit_axis", -1)
    dtype = dtype_of(call.text("pack_type", "uint32"), call.place)
    call.text("name")
    axis %= x.ndim
    bit_axis %= x.ndim + 1
    width, size = 8 * itemsize(dtype), x.shape[axis]
    if not isinstance(size, int) or size % width:
        call.refuse(f"words of {width} bits along an axis of size {size}", f"a multiple of {width}")
    groups = meta.reshape(_lowest(call, x, bits), (*x.shape[:axis], size // width, width, *x.shape[axis + 1 :]))
    place = np.left_shift(np.uint64(1), np.arange(width - 1, -1, -1, dtype="uint64"))
    weights = constant(np.reshape(place, (width, *(1,) * (x.ndim - axis - 1))))
    planes: list[Any] = []
    for bit in range(bits):
        plane = meta.bitwise_and(meta.right_shift(groups, bit), 1)
        planes.append(meta.cast(meta.sum(meta.multiply(meta.cast(plane, "uint64"), weights), (axis + 1,)), dtype))
    return meta.stack(planes, bit_axis)


def _unpacked(packed: Any, axis: int, bit_axis: int) -> Any:
    """The numbers that `bitpack` packed, int32."""
    width = 8 * itemsize(packed.dtype)
    shift = constant(np.arange(width - 1, -1, -1).astype(packed.dtype))
    spread = meta.bitwise_and(meta.right_shift(meta.expand_dims(packed, packed.ndim), shift), 1)
    bits = meta.cast(spread, "int32")  # (..., words, ..., bits, ..., width)
    place = constant((1 << np.arange(int(packed.shape[bit_axis]))).astype("int32"))
    column = (packed.shape[bit_axis], *(1,) * (bits.ndim - bit_axis - 1))
    numbers = meta.cast(meta.sum(meta.multiply(bits, meta.reshape(place, column)), (bit_axis,)), "int32")
    axis -= axis > bit_axis
    rank = numbers.ndim - 1
    moved = meta.transpose(numbers, (*range(axis + 1), rank, *range(axis + 1, rank)))
    shape = moved.shape
    return meta.reshape(moved, (*shape[:axis], shape[axis] * width, *shape[axis + 2 :]))


def _kernel(call: OpCall, w: Tensor, bits: int) -> Any:
    """The numbers that a kernel of `bits` bits represents."""
    return meta.subtract(meta.multiply(w, 2), (1 << bits) - 1) if call.flag("unipolar", True) else w


def _out_dtype(call: OpCall) -> str:
    call.text("pack_dtype", "uint32")  # of the words inside of the operator
    return dtype_of(call.text("out_dtype", "int16") or "int16", call.place)


@converter("nn.bitserial_conv2d")
def bitserial_conv2d(call: OpCall) -> Any:
    x, w = call.tensors(2)
    activation_bits, weight_bits = _bits(call, "activation_bits"), _bits(call, "weight_bits")
    layout = call.only("data_layout", "NCHW", "NHWC")
    call.text("kernel_layout", "OIHW")  # follows from data_layout
    plain = "OIHW" if layout == "NCHW" else "HWIO"
    if w.ndim == 5:
        weight_bits = int(w.shape[4])
        w = _unpacked(w, plain.index("I"), 4)
    else:
        w = _lowest(call, w, weight_bits)
    w = permuted(_kernel(call, w, weight_bits), plain, "OIHW")
    x = permuted(_lowest(call, x, activation_bits), layout, "NCHW")
    for name, actual in (("channels", (w.shape[0],)), ("kernel_size", w.shape[2:])):
        attribute = call.axes(name)
        if attribute is not None and attribute != actual:
            call.refuse(f"{name} is {attribute} for a kernel of shape {w.shape}", f"{actual}")
    y = meta.conv2d(x, w, call.sizes("strides", (1, 1)), call.sizes("padding", (0, 0)), (1, 1), 1)
    return permuted(meta.cast(y, _out_dtype(call)), "NCHW", layout)


@converter("nn.bitserial_dense")
def bitserial_dense(call: OpCall) -> Any:
    x, w = call.tensors(2)
    data_bits, weight_bits = _bits(call, "data_bits"), _bits(call, "weight_bits")
    if w.ndim == 3:
        weight_bits = int(w.shape[1])
        w = _unpacked(w, 2, 1)
    else:
        w = _lowest(call, w, weight_bits)
    units = call.get("units")
    if units is not None and int(units) != w.shape[0]:
        call.refuse(f"units is {units} for weights of shape {w.shape}", f"{w.shape[0]}")
    y = meta.matmul(_lowest(call, x, data_bits), _kernel(call, w, weight_bits), False, True)
    return meta.cast(y, _out_dtype(call))
