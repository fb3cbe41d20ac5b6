"""TE computes of convolutions, for any number of spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from meta.backend.tvm.adapter import te, tirx, topi
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te import convolve as tiled
from meta.backend.tvm.te.elementwise import accumulation_dtype, narrow, widen
from meta.backend.tvm.te.tiles import refuse_bytes
from meta.ir.expr import CallInfo
from meta.op import windows
from meta.op.dialect.tvm import Registrar
from meta.op.work import convolution_fits_tiles

compute = Registrar(__file__).compute

_Ints = tuple[int, ...]


def _sizes(x: Any) -> list[Any]:
    """Ints, and expressions of sizes that are not known."""
    return [int(d) if isinstance(d, (int, tirx.IntImm)) else d for d in x.shape]


def padded(x: Tensor, pads: tuple[tuple[int, int], ...], value: Any = None) -> Any:
    """x with its trailing axes padded by zeros, or by `value`."""
    if not any(map(any, pads)):
        return x
    sizes = _sizes(x)
    lead = len(sizes) - len(pads)
    shape = [*sizes[:lead], *(d + before + after for d, (before, after) in zip(sizes[lead:], pads, strict=True))]
    fill = tirx.const(0, x.dtype) if value is None else value

    def element(*i: Expr) -> Any:
        position = [v - before for v, (before, _) in zip(i[lead:], pads, strict=True)]
        checks = (((a >= 0, p[0]), (a < d, p[1])) for a, d, p in zip(position, sizes[lead:], pads, strict=True))
        inside = [condition for pair in checks for condition, is_needed in pair if is_needed]
        return tirx.if_then_else(tirx.all(*inside), x(*i[:lead], *position), fill)

    return te.compute(shape, element, "padded")


def _window_axes(kernel: list[int]) -> list[Any]:
    return [te.reduce_axis((0, k), f"r{i}") for i, k in enumerate(kernel)]


def convolve(x: Tensor, w: Tensor, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int) -> Any:
    """Cross-correlation of x, (batch, channels, *spatial), with w, (out channels, channels / groups, *window)."""
    kernel = _sizes(w)[2:]
    steps, pads, spreads = windows.attributes(len(kernel), stride, padding, dilation)
    data = padded(x, pads)
    outs, ins, *_ = _sizes(w)
    batch, _, *sizes = _sizes(data)
    counts = [(d - windows.reach(k, s)) // t + 1 for d, k, s, t in zip(sizes, kernel, spreads, steps, strict=True)]
    c, r = te.reduce_axis((0, ins), "c"), _window_axes(kernel)
    each = outs // groups

    def element(n: Expr, o: Expr, *y: Expr) -> Any:
        channel = c if groups == 1 else o // each * ins + c
        position = [a * t + b * s for a, t, b, s in zip(y, steps, r, spreads, strict=True)]
        return te.sum(widen(data(n, channel, *position)) * widen(w(o, c, *r)), [c, *r])

    return narrow(te.compute((batch, outs, *counts), element, "conv"), data.dtype)


def convolve_dx(
    w: Tensor, dy: Tensor, shape: tuple[int, ...], stride: _Ints, padding: _Ints, dilation: _Ints, groups: int
) -> Any:
    """Each element of dy added to its window, as a correlation of dy, with zeros between and around its elements, with
    the reversed kernel."""
    outs, ins, *kernel = _sizes(w)
    steps, pads, spreads = windows.attributes(len(kernel), stride, padding, dilation)
    before = [p[0] for p in pads]
    spread = _spread(dy, shape[2:], steps, [p - (k - 1) * s for p, k, s in zip(before, kernel, spreads, strict=True)],
                     [windows.reach(k, s) for k, s in zip(kernel, spreads, strict=True)])  # fmt: skip
    each = outs // groups
    o, r = te.reduce_axis((0, each), "o"), _window_axes(kernel)

    def element(n: Expr, c: Expr, *h: Expr) -> Any:
        channel, within = (o, c) if groups == 1 else (c // ins * each + o, c % ins)
        position = [a + b * s for a, b, s in zip(h, r, spreads, strict=True)]
        tap = [k - 1 - b for k, b in zip(kernel, r, strict=True)]
        return te.sum(widen(spread(n, channel, *position)) * widen(w(channel, within, *tap)), [o, *r])

    return narrow(te.compute(shape, element, "conv_dx"), dy.dtype)


def _spread(dy: Tensor, size: tuple[int, ...], steps: _Ints, shift: list[int], reach: list[Any]) -> Any:
    """dy with steps - 1 zeros between its elements, read from position `shift` on."""
    batch, channels, *counts = _sizes(dy)
    shape = (batch, channels, *(d + k - 1 for d, k in zip(size, reach, strict=True)))

    def element(n: Expr, o: Expr, *u: Expr) -> Any:
        position = [a + b for a, b in zip(u, shift, strict=True)]
        on_grid = [a % t == 0 for a, t in zip(position, steps, strict=True) if t > 1]
        inside = [c for a, t, d in zip(position, steps, counts, strict=True) for c in (a >= 0, a < (d - 1) * t + 1)]
        source = [a // t if t > 1 else a for a, t in zip(position, steps, strict=True)]
        return tirx.if_then_else(tirx.all(*inside, *on_grid), dy(n, o, *source), tirx.const(0, dy.dtype))

    return te.compute(shape, element, "spread")


def convolve_dw(
    x: Tensor, dy: Tensor, shape: tuple[int, ...], stride: _Ints, padding: _Ints, dilation: _Ints, groups: int
) -> Any:
    """For each element of the kernel, the sum of the products x * dy that it connects."""
    outs, ins, *kernel = shape
    steps, pads, spreads = windows.attributes(len(kernel), stride, padding, dilation)
    data = padded(x, pads)
    batch, _, *counts = _sizes(dy)
    n, y = te.reduce_axis((0, batch), "n"), [te.reduce_axis((0, d), f"y{i}") for i, d in enumerate(counts)]
    each = outs // groups

    def element(o: Expr, c: Expr, *r: Expr) -> Any:
        channel = c if groups == 1 else o // each * ins + c
        position = [a * t + b * s for a, t, b, s in zip(y, steps, r, spreads, strict=True)]
        return te.sum(widen(data(n, channel, *position)) * widen(dy(n, o, *y)), [n, *y])

    return narrow(te.compute(shape, element, "conv_dw"), x.dtype)


def convolve_transpose(
    x: Tensor, w: Tensor, stride: _Ints, padding: _Ints, output_padding: _Ints, dilation: _Ints, groups: int, *,
    out: Outs,
) -> Any:  # fmt: skip
    return convolve_dx(w, x, tuple(_sizes(out[0])), stride, padding, dilation, groups)


def _moved(x: Any, source: int, target: int) -> Any:
    """x with an axis in another place."""
    axes = list(range(len(x.shape)))
    axes.insert(target % len(axes), axes.pop(source))
    return topi.transpose(x, axes)


def _in_either_layout(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compute of two tensors for channels on the second or the last axis."""

    def run(*args: Expr) -> Any:
        *operands, channels_last = args
        if not channels_last:
            return function(*operands)
        operands[:2] = (_moved(x, -1, 1) for x in operands[:2])
        return _moved(function(*operands), 1, -1)

    return run


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compute of a gradient; it takes the shape from the result, because the attribute may have unknown sizes."""

    def run(a: Any, b: Any, shape: Any, *attributes: Any, out: Outs) -> Any:
        *options, channels_last = attributes
        sizes = windows.channels_first(tuple(_sizes(out[0])), channels_last)
        return _in_either_layout(lambda a, b: function(a, b, sizes, *options))(a, b, channels_last)

    return run


# --- register tiles: two spatial axes, channels last, on CPUs ---------------------------------------------------------


def _runs_in_tiles(call: CallInfo) -> bool:
    """Whether a call with channels last runs in register tiles, in a part of the time of another layout."""
    args = call.bind()
    tensors = call.tensors()
    if call.device.kind != "cpu" or not all(t.is_static for t in tensors) or tensors[0].dtype not in _WIDE:
        return False
    kernel = args["w"].shape if "w" in args else args["shape"]
    return args["channels_last"] and convolution_fits_tiles(call.op.name, kernel, args["groups"])


_WIDE: Final = ("float32", "float64")


def _in_tiles(op: str, kind: str, tensors: Sequence[Any], kernel: Any, groups: int, channels_last: bool) -> bool:
    shapes = [d for x in (*tensors, kernel) for d in getattr(x, "shape", x)]
    if kind != "cpu" or not channels_last or not all(isinstance(d, (int, tirx.IntImm)) for d in shapes):
        return False
    sizes = tuple(int(d) for d in getattr(kernel, "shape", kernel))
    return all(x.dtype in _WIDE for x in tensors) and convolution_fits_tiles(op, sizes, groups)


@compute("conv2d", generic=False, prefers_channels_last=_runs_in_tiles)
def conv2d(
    x: Any, w: Any, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool, *, kind: str
) -> Any:
    if not _in_tiles("conv2d", kind, (x, w), w, groups, channels_last):
        return _in_either_layout(convolve)(x, w, stride, padding, dilation, groups, channels_last)
    window = windows.attributes(2, stride, padding, dilation)
    return tiled.convolve(x, w, *window) if groups == 1 else tiled.convolve_channels(x, w, *window)


@compute("conv2d_dx", generic=False, prefers_channels_last=_runs_in_tiles)
def conv2d_dx(
    w: Any, dy: Any, shape: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool, *,
    kind: str, out: Any,
) -> Any:  # fmt: skip
    if _in_tiles("conv2d_dx", kind, (w, dy), w, groups, channels_last):
        return tiled.convolve_dx(w, dy, shape, *windows.attributes(2, stride, padding, dilation))
    return _gradient(convolve_dx)(w, dy, shape, stride, padding, dilation, groups, channels_last, out=out)


@compute("conv2d_dw", generic=False, prefers_channels_last=_runs_in_tiles)
def conv2d_dw(
    x: Any, dy: Any, shape: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool, *,
    kind: str, out: Outs,
) -> Any:  # fmt: skip
    if not _in_tiles("conv2d_dw", kind, (x, dy), out[0], groups, channels_last):
        return _gradient(convolve_dw)(x, dy, shape, stride, padding, dilation, groups, channels_last, out=out)
    return tiled.convolve_dw(x, dy, shape, *windows.attributes(2, stride, padding, dilation))


def _with_epilogue(y: Tensor, bias: Tensor | None, other: Tensor | None, relu: bool, channel: int, dtype: str) -> Any:
    def element(*i: Expr) -> Any:
        value = widen(y(*i))
        value = value if bias is None else value + widen(bias(i[channel]))
        value = value if other is None else value + widen(other(*i))
        zero = tirx.const(0, accumulation_dtype(dtype))
        return (tirx.Select(value < zero, zero, value) if relu else value).astype(dtype)

    return te.compute(y.shape, element, "epilogue")


@compute("conv2d_epilogue", generic=False, prefers_channels_last=_runs_in_tiles)
def conv2d_epilogue(
    x: Tensor, w: Tensor, bias: Tensor | None, other: Tensor | None, relu: bool, stride: _Ints, padding: _Ints,
    dilation: _Ints, groups: int, channels_last: bool, *, kind: str,
) -> Any:  # fmt: skip
    y = conv2d(x, w, stride, padding, dilation, groups, channels_last, kind=kind)
    return _with_epilogue(y, bias, other, relu, 3 if channels_last else 1, x.dtype)


def _refuse_open_sizes(call: CallInfo) -> str | None:
    return None if all(t.is_static for t in call.tensors()) else "its tiles depend on the sizes, which are not known"


@compute("conv2d_packed", generic=False, accepts=_refuse_open_sizes)
def conv2d_packed(
    x: Tensor, w: Tensor, channels: int, bias: Tensor | None, other: Tensor | None, relu: bool, stride: _Ints,
    padding: _Ints, dilation: _Ints, *, kind: str,
) -> Any:  # fmt: skip
    if kind == "cpu":
        y = tiled.correlate(x, w, channels, *windows.attributes(2, stride, padding, dilation))
    else:
        _, *rest, width = _sizes(w)
        kernel = te.compute((channels, *rest), lambda o, *i: w(o // width, *i, o % width), "kernel")
        y = conv2d(x, kernel, stride, padding, dilation, 1, True, kind=kind)
    return _with_epilogue(y, bias, other, relu, 3, x.dtype)


@compute("conv2d_int8", generic=False, accepts=refuse_bytes)
def conv2d_int8(
    x: Tensor, w: Tensor, channels: int, fill: int, stride: _Ints, padding: _Ints, dilation: _Ints, channels_last: bool
) -> Any:
    x = x if channels_last else _moved(x, 1, -1)
    y = tiled.correlate_bytes(x, w, channels, fill, *windows.attributes(2, stride, padding, dilation))
    return y if channels_last else _moved(y, -1, 1)


for _rank in (1, 2, 3):
    if _rank != 2:
        compute(f"conv{_rank}d", generic=False)(_in_either_layout(convolve))
        compute(f"conv{_rank}d_dx", generic=False)(_gradient(convolve_dx))
        compute(f"conv{_rank}d_dw", generic=False)(_gradient(convolve_dw))
    compute(f"conv{_rank}d_transpose", generic=False)(convolve_transpose)
