"""Shapes: reading, changing, joining and splitting them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim, is_static, product
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, row
from meta.frontend.onnx.ops._values import (
    axes_of,
    axis_of,
    dtype_of,
    host_dtype,
    ints,
    is_host,
    number,
    sizes,
    tensor,
    transposed_constant,
    value_of,
)
from meta.limits import MAX_FOLDED

# --- reading ---------------------------------------------------------------------------------------------------------


row("Shape", raw=True)(lambda node, data, *, start=0, end=None: sizes(tuple(data.shape)[slice(start, end)]))
row("Size", raw=True)(lambda node, data: sizes([product(data.shape)]).reshape(()))


row("Identity", raw=True)(lambda node, input: input)


# --- changing --------------------------------------------------------------------------------------------------------


def _new_shape(old: tuple[Dim, ...], shape: Any, allowzero: int) -> tuple[Dim, ...]:
    """The shape that Reshape asks for: 0 keeps a size (unless allowzero), one -1 is computed."""
    new: list[Dim] = []
    for i, n in enumerate(ints(shape)):
        if isinstance(n, int) and n == 0 and not allowzero:
            if i >= len(old):
                raise TypeInferenceError("Reshape", f"shape {tuple(shape)} keeps axis {i} of {old}", "an axis of it")
            n = old[i]
        new.append(n)
    return _without_unknown(old, new)


def _without_unknown(old: tuple[Dim, ...], new: list[Dim]) -> tuple[Dim, ...]:
    places = [i for i, n in enumerate(new) if isinstance(n, int) and n == -1]
    if len(places) != 1:
        return tuple(new)
    rest = product([n for i, n in enumerate(new) if i != places[0]])
    total = product(old)
    if isinstance(rest, int) and rest == 0:
        raise TypeInferenceError("Reshape", f"-1 in {tuple(new)} is undetermined beside 0", "a size")
    if isinstance(total, int) and isinstance(rest, int) and total % rest:
        raise TypeInferenceError("Reshape", f"shape {tuple(new)} for {total} elements", f"a divisor of {total}")
    new[places[0]] = total // rest
    return tuple(new)


def _fold_reshape(data: Any, shape: Any, *, allowzero: int = 0) -> Any:
    new = _new_shape(data.shape, shape, allowzero)
    if product(new) != data.size:
        raise TypeInferenceError("Reshape", f"shape {new} for {data.size} elements", "as many elements")
    return data.reshape(tuple(int(n) for n in new))


@row("Reshape", since=5, constants=("shape",), fold=_fold_reshape)
def reshape(node: Node, data: Tensor, shape: Any, *, allowzero: int = 0) -> Any:
    return meta.reshape(data, _new_shape(data.shape, shape, allowzero))


row("Reshape")(lambda node, data, *, shape=(): meta.reshape(data, _new_shape(data.shape, shape, 0)))


@row(
    "Flatten", fold=lambda x, axis=1: x.reshape(math.prod(x.shape[:axis]), -1 if x.size else math.prod(x.shape[axis:]))
)
def flatten(node: Node, input: Tensor, *, axis: int = 1) -> Any:
    if not -input.ndim <= axis <= input.ndim:
        axis_of("Flatten", axis, input.ndim)
    place = axis + input.ndim if axis < 0 else axis
    return meta.reshape(input, (product(input.shape[:place]), product(input.shape[place:])))


def _squeezed(x: Tensor, axes: Any) -> tuple[int, ...]:
    if axes is None:
        return tuple(i for i, n in enumerate(x.shape) if isinstance(n, int) and n == 1)
    return axes_of("Squeeze", axes, x.ndim)


@row("Squeeze", since=13, constants=("axes",), fold=lambda x, axes=None: np.squeeze(x, _squeezed(x, axes)))
def squeeze(node: Node, data: Tensor, axes: Any = None) -> Any:
    squeezed_axes = _squeezed(data, axes)
    return meta.squeeze(data, squeezed_axes) if squeezed_axes else data


@row("Squeeze", fold=lambda x, axes=None: np.squeeze(x, _squeezed(x, axes)))
def squeeze_1(node: Node, data: Tensor, *, axes: Sequence[int] | None = None) -> Any:
    return squeeze(node, data, axes)


def _unsqueezed(x: Tensor, axes: Any) -> tuple[int, ...]:
    positions = ints(axes)
    return tuple(sorted(axes_of("Unsqueeze", positions, x.ndim + len(positions))))


@row("Unsqueeze", since=13, constants=("axes",), fold=lambda x, axes: np.expand_dims(x, _unsqueezed(x, axes)))
def unsqueeze(node: Node, data: Tensor, axes: Any) -> Any:
    new_axes = _unsqueezed(data, axes)
    return meta.expand_dims(data, new_axes) if new_axes else data


@row("Unsqueeze", fold=lambda x, axes: np.expand_dims(x, _unsqueezed(x, axes)))
def unsqueeze_1(node: Node, data: Tensor, *, axes: Sequence[int]) -> Any:
    return unsqueeze(node, data, axes)


@row("Transpose", fold=transposed_constant)
def transpose(node: Node, data: Tensor, *, perm: Sequence[int] | None = None) -> Any:
    order = tuple(perm) if perm is not None else tuple(reversed(range(data.ndim)))
    return data if order == tuple(range(data.ndim)) else meta.transpose(data, order)


def _expanded(old: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The joint shape of both; a 1 yields, and so does what is equal."""
    rank = max(len(old), len(shape))
    pairs = zip((1,) * (rank - len(old)) + tuple(old), (1,) * (rank - len(shape)) + shape, strict=True)
    return tuple(a if isinstance(b, int) and b == 1 else b for a, b in pairs)


def _check_folded(op: str, shape: tuple[Any, ...]) -> None:
    count = product(shape)
    if not isinstance(count, int) or count > MAX_FOLDED:
        raise TypeInferenceError(op, f"a known value of shape {shape}", f"at most {MAX_FOLDED} elements")


@row("Expand", since=8, constants=("shape",), raw=True)
def expand(node: Node, input: Any, shape: Any) -> Any:
    new: Any = _expanded(tuple(input.shape), ints(value_of(node, shape, "shape")))
    count = product(new)
    if is_host(input) and isinstance(count, int) and count <= MAX_FOLDED:
        return np.broadcast_to(input, new)
    x = tensor(input)
    return x if new == tuple(x.shape) else meta.broadcast_to(x, new)


def _fold_tile(x: Any, repeats: Any) -> Any:
    reps = ints(repeats)
    _check_folded("Tile", tuple(n * r for n, r in zip(x.shape, reps, strict=True)))
    return np.tile(x, reps)


@row("Tile", since=6, constants=("repeats",), fold=_fold_tile)
def tile(node: Node, input: Tensor, repeats: Any) -> Any:
    return meta.tile(input, ints(repeats))


# --- joining and splitting -------------------------------------------------------------------------------------------


@row("Concat", fold=lambda *xs, axis=1: np.concatenate(xs, axis))
def concat(node: Node, *inputs: Any, axis: int = 1) -> Any:
    """Before opset 4 the axis is 1 by default."""
    if len(inputs) == 0:
        raise TypeInferenceError("Concat", "there are no inputs", "at least one")
    place = axis_of("Concat", axis, inputs[0].ndim)
    return meta.concatenate(list(inputs), place) if len(inputs) > 1 else inputs[0]


def _even(size: Any, parts: int) -> list[Any]:
    """Sizes of `parts` equal parts; the last one is smaller if they do not fit."""
    if not isinstance(size, int):
        return [size // parts] * parts
    each = -(-size // parts)
    return [max(0, min(each, size - i * each)) for i in range(parts)]


def _split(x: Any, axis: int, lengths_or_none: Any, parts: int) -> tuple[Any, ...]:
    axis = axis_of("Split", axis, x.ndim)
    lengths = list(ints(lengths_or_none)) if lengths_or_none is not None else _even(x.shape[axis], parts)
    if sum(lengths[1:], start=lengths[0]) != x.shape[axis]:
        raise TypeInferenceError("Split", f"parts {tuple(lengths)} of {x.shape[axis]} elements", "their sum")
    ends = np.cumsum(np.array(lengths, object))[:-1]
    if is_host(x):
        return tuple(np.split(x, [int(e) for e in ends], axis))
    if len(lengths) == 1:
        return (x,)
    return tuple(meta.split(x, tuple(ends), axis))


@row("Split", since=13, constants=("split",), raw=True)
def split(node: Node, input: Any, split: Any = None, *, axis: int = 0, num_outputs: int | None = None) -> Any:
    lengths = None if split is None else value_of(node, split, "split")
    return _split(input, axis, lengths, num_outputs or len(node.outputs))


@row("Split", since=2, raw=True)
def split_2(node: Node, input: Any, *, axis: int = 0, split: Sequence[int] | None = None) -> Any:
    return _split(input, axis, split, len(node.outputs))


# --- parts -----------------------------------------------------------------------------------------------------------

_FAR = 2**31 - 1
"""Ends of this size or more reach to the end of an axis of symbolic size."""


def _bounds(size: Any, start: Any, end: Any, step: int) -> tuple[Any, Any]:
    """Begin and end of a slice, counted from the front and limited to the axis; an end of -1 - size is before it."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        begin, stop, _ = slice(start, end, step).indices(size)
        return begin, stop if step > 0 or stop >= 0 else -1 - size
    if step < 0:
        last = isinstance(start, int) and (start == -1 or start >= _FAR)
        begin = size - 1 if last else start
        return begin, (-1 - size if isinstance(end, int) and end <= -_FAR else end)
    stop = size if isinstance(end, int) and end >= _FAR else end
    return _from_front(size, start), _from_front(size, stop)


def _from_front(size: Any, place: Any) -> Any:
    return size + place if isinstance(place, int) and place < 0 else place


def _sliced(x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    begins, stops = list(ints(starts)), list(ints(ends))
    sliced_axes = axes_of("Slice", range(len(begins)) if axes is None else axes, x.ndim)
    strides = [1] * len(begins) if steps is None else list(ints(steps))
    if len({len(begins), len(stops), len(sliced_axes), len(strides)}) > 1 or 0 in strides:
        raise TypeInferenceError("Slice", f"starts {begins}, ends {stops}, axes {sliced_axes}, steps {strides}",
                                 "as many of each, and steps other than 0")  # fmt: skip
    if is_host(x):
        index = [slice(None)] * x.ndim
        for axis, begin, stop, step in zip(sliced_axes, begins, stops, strides, strict=True):
            index[axis] = slice(begin, stop, step)
        return x[tuple(index)]
    begin, end, stride = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for axis, first, stop, step in zip(sliced_axes, begins, stops, strides, strict=True):
        begin[axis], end[axis] = _bounds(x.shape[axis], first, stop, step)
        stride[axis] = step
    return meta.strided_slice(x, tuple(begin), tuple(end), tuple(stride))


@row("Slice", since=10, constants=("starts", "ends", "axes", "steps"), raw=True)
def slice_10(node: Node, data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    options = (None if v is None else value_of(node, v, w) for v, w in ((axes, "axes"), (steps, "steps")))
    return _sliced(data, value_of(node, starts, "starts"), value_of(node, ends, "ends"), *options)


row("Slice", raw=True)(lambda node, data, *, starts, ends, axes=None: _sliced(data, starts, ends, axes, None))


# --- padding ---------------------------------------------------------------------------------------------------------


def _padded(x: Tensor, pads: tuple[int, ...], value: float, mode: str) -> Any:
    """Negative pads cut off, which comes first, as in the definition by indices."""
    before, after = pads[: x.ndim], pads[x.ndim :]
    if mode == "constant" and not is_static(x.shape):
        return meta.pad(x, tuple(zip(before, after, strict=True)), value)
    if any(p < 0 for p in pads):
        begin = tuple(max(0, -p) for p in before)
        end = tuple(n - max(0, -p) for n, p in zip(x.shape, after, strict=True))
        x = meta.strided_slice(x, begin, end)
    width = tuple((max(0, a), max(0, b)) for a, b in zip(before, after, strict=True))
    pad: Any = meta.pad
    return pad(x, width, value, mode) if any(map(any, width)) else x


def _checked_mode(mode: str) -> str:
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise TypeInferenceError("Pad", f"mode is {mode!r}", "constant, reflect, edge or wrap")
    return mode


@row("Pad", since=11, constants=("pads", "constant_value", "axes"))
def pad(
    node: Node, data: Tensor, pads: Any, constant_value: Any = None, axes: Any = None, *, mode: str = "constant"
) -> Any:
    pad_axes = axes_of("Pad", range(data.ndim) if axes is None else axes, data.ndim)
    amounts = ints(pads)
    if len(amounts) != 2 * len(pad_axes):
        raise TypeInferenceError("Pad", f"{len(amounts)} pads for {len(pad_axes)} axes", f"{2 * len(pad_axes)}")
    full = [0] * (2 * data.ndim)
    for i, axis in enumerate(pad_axes):
        full[axis], full[data.ndim + axis] = amounts[i], amounts[len(pad_axes) + i]
    value = number(constant_value, "constant_value") if constant_value is not None and constant_value.size else 0.0
    return _padded(data, tuple(full), value, _checked_mode(mode))


@row("Pad")
def pad_1(
    node: Node, data: Tensor, *, pads: Sequence[int] = (), paddings: Sequence[int] = (), mode: str = "constant",
    value: float = 0.0,
) -> Any:  # fmt: skip
    return _padded(data, tuple(pads or paddings), value, _checked_mode(mode))


# --- blocks ----------------------------------------------------------------------------------------------------------


@row("DepthToSpace")
def depth_to_space(node: Node, input: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    b = blocksize
    n, c, h, w = input.shape
    if mode == "CRD":
        parts = meta.transpose(meta.reshape(input, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    else:
        parts = meta.transpose(meta.reshape(input, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    return meta.reshape(parts, (n, c // (b * b), h * b, w * b))


@row("SpaceToDepth")
def space_to_depth(node: Node, input: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    b = blocksize
    n, c, h, w = input.shape
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = meta.transpose(meta.reshape(input, (n, c, h // b, b, w // b, b)), order)
    return meta.reshape(parts, (n, c * b * b, h // b, w // b))


# --- new tensors -----------------------------------------------------------------------------------------------------


@row("ConstantOfShape", since=9, constants=("input",), raw=True)
def constant_of_shape(node: Node, input: Any, *, value: Any = None) -> Any:
    shape = ints(value_of(node, input, "the shape"))
    fill = np.zeros((1,), np.float32) if value is None else np.asarray(value)
    count = product(shape)
    if isinstance(count, int) and count <= 4096:
        return np.full(shape, fill.reshape(-1)[0], fill.dtype)
    return meta.full(shape, fill.reshape(-1)[0].item(), str(fill.dtype))


@row("Range", since=11, raw=True)
def range_11(node: Node, start: Any, limit: Any, delta: Any, *, stash_type: int = 1) -> Any:
    """A float16 or bfloat16 range is computed in stash_type."""
    first, last, step = (
        number(value_of(node, v, w), w) for v, w in ((start, "start"), (limit, "limit"), (delta, "delta"))
    )
    dtype = start.dtype
    if any(not isinstance(v, (int, float)) for v in (first, last, step)):
        return meta.arange(first, last, step, "int64")
    if step == 0:
        raise TypeInferenceError("Range", "delta is 0", "another number")
    count = max(math.ceil((last - first) / step), 0)
    if count > MAX_FOLDED:
        return meta.arange(first, last, step, str(dtype))
    exact = "int64" if isinstance(first, int) else "float64"
    values = first + np.arange(count, dtype=exact) * step
    return values.astype(host_dtype(str(dtype)))


@row("EyeLike", since=9, raw=True)
def eye_like(node: Node, input: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    rows, columns = input.shape
    kind = str(input.dtype) if dtype is None else dtype_of("EyeLike", dtype)
    band = meta.subtract(meta.arange(0, columns), meta.expand_dims(meta.arange(0, rows), 1))
    return meta.cast(meta.equal(band, k), kind)
