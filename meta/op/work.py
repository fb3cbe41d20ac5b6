"""How much work a call is, and which dialects other ones outrun at that amount.

The limits are rows of `limits.toml`. Dispatch applies them after a dialect's own checks, and skips them inside
`with_dialect`. `python -m benchmarks.limits --write` measures limits and rewrites their rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, cast

from meta import dtype as dtypes
from meta._generated import limits
from meta.dim import around
from meta.records import record

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo


@record
class Limit:
    """Below `least` or above `most` units of work, another dialect costs less than `dialect`.

    device: the kind of device.
    operators: patterns of names between spaces: `*` matches any text, `?` one character.
    unit: what is counted, a key of `MEASURES`.
    most: None for no upper limit, 0 where the dialect is never faster.
    measured: the instruction set or compute capability of the device, and the date.
    feature: an instruction set of the processors that the limit is for; "" for all.
    in_programs: whether it is for programs only, whose kernels are compiled for their sizes.
    """

    dialect: str
    device: str
    operators: str
    unit: str
    least: int
    most: int | None
    measured: str
    feature: str = ""
    in_programs: bool = False

    def refusal(self, call: CallInfo) -> str | None:
        """Why another dialect costs less for `call`, None where this limit does not refuse it."""
        work = MEASURES[self.unit](call)
        if work is None:
            return None
        if work < self.least:
            return f"{work} {self.unit}, too few: below {self.least} others cost less"
        if self.most is not None and work > self.most:
            too_many = f", too many: above {self.most} others" if self.most else ": others"
            return f"{work} {self.unit}{too_many} cost less"
        return None


LIMITS: tuple[Limit, ...] = tuple(Limit(*row) for row in limits.DISPATCH)


def refusal(dialect: str, call: CallInfo, *, in_program: bool = False) -> str | None:
    """Why another dialect costs less than `dialect` for `call`; None for calls of unknown sizes."""
    found = limits_of(dialect, call.op.name, call.device.kind)
    if not found or not all(t.is_static for t in (*call.tensors(), *call.outputs())):
        return None
    applied = (limit for limit in found if in_program or not limit.in_programs)
    return next((reason for limit in applied if (reason := limit.refusal(call))), None)


@cache
def limits_of(dialect: str, op: str, device: str) -> tuple[Limit, ...]:
    """The limits of an operator, in the order of the table."""
    return tuple(
        limit
        for limit in LIMITS
        if (limit.dialect, limit.device) == (dialect, device)
        and any(_matches(op, pattern) for pattern in limit.operators.split())
        and (not limit.feature or limit.feature in _processor())
    )


def _matches(name: str, pattern: str) -> bool:
    """As `fnmatch.fnmatchcase`, which compiles a regular expression for each pattern: 4 ms in a first step."""
    if pattern[:1] == "*":
        return any(_matches(name[i:], pattern[1:]) for i in range(len(name) + 1))
    if not pattern or not name:
        return not pattern and not name
    return pattern[0] in ("?", name[0]) and _matches(name[1:], pattern[1:])


def _processor() -> str:
    """Text that names the instruction sets of this machine's CPU."""
    from meta.backend.tvm.target import describe_processor

    return describe_processor()


def _elements(call: CallInfo) -> Any:
    return call.tensors()[0].size


def _joined(call: CallInfo) -> Any:
    return call.outputs()[0].size


def _real(call: CallInfo) -> Any:
    return None if call.complex_dtype() else call.outputs()[0].size


def _per_window(call: CallInfo) -> Any:
    return -(-call.tensors()[0].shape[-1] // max(call.outputs()[0].shape[-1], 1))


def _in_half_precision(call: CallInfo) -> Any:
    x = call.tensors()[0]
    return x.size if x.dtype in dtypes.HALVES else None


def _multiplications(call: CallInfo) -> Any:
    operation = call.op.name.partition("_")[0]
    if operation.startswith("conv"):
        return _convolution(call)
    x, y = call.tensors()[:2]
    if operation == "attention":
        return x.size * y.shape[-2]
    transposed = call.op.name == "matmul" and call.args[2]
    return call.outputs()[0].size * x.shape[-2 if transposed else -1]


_Sizes = tuple[int, ...]


def product_fits_tiles(dtype: str, x: _Sizes, w: _Sizes, shape: _Sizes) -> bool:
    """Whether TVM computes a product of known sizes in register tiles: x of `x` with a matrix of `w`, to `shape`."""
    if dtype not in ("float32", "float64") or len(w) != 2 or len(x) < 2:
        return False
    *rows, columns = shape
    count = prod(rows)
    terms = prod(w) // max(columns, 1)
    if columns < limits.TILED_LANES or count < limits.TILED_ROWS:
        return False
    return count * columns * terms >= limits.LEAST_PACKED_PRODUCTS


def _matrix_in_tiles(call: CallInfo) -> Any:
    x, w = call.tensors()[:2]
    if call.op.name == "dense" and x.dtype == "float32" and prod(x.shape[:-1]) == 1:
        # One token of a decoder: reading the matrix is all the work, and takes BLAS 1.7 to 2.8 times as long.
        return _multiplications(call)
    shapes = [cast(_Sizes, t.shape) for t in (x, w, call.outputs()[0])]
    return _multiplications(call) if product_fits_tiles(x.dtype, *shapes) else None


def attention_fits_tiles(dtype: str, q: _Sizes, k: _Sizes, v: _Sizes) -> bool:
    """Whether TVM computes attention with operands of these shapes in register tiles of any CPU, without a rest."""
    return dtype == "float32" and q[-1] % 32 == v[-1] % 32 == k[-2] % 32 == q[-2] % 4 == 0


def _attention_in_tiles(call: CallInfo) -> Any:
    """None also where there are fewer heads than cores, as TVM's threads share the heads, and where the keys or values
    of a head do not stay in the second-level cache."""
    q, k, v = call.tensors()[:3]
    is_spread = prod(q.shape[:-2]) >= (os.cpu_count() or 1)
    is_near = max(prod(x.shape[-2:]) for x in (k, v)) <= limits.ATTENTION_NEAR_ELEMENTS
    shapes = [cast(_Sizes, x.shape) for x in (q, k, v)]  # limits are for calls of known sizes
    fits = is_spread and is_near and attention_fits_tiles(q.dtype, *shapes)
    return _multiplications(call) if fits else None


_KERNEL_AND_RESULT = {"": (1, 2), "epilogue": (1, -1), "dx": (0, 1), "dw": (2, 1), "transpose": (1, 0)}
"""Which of the operands and the result are kernel and result of the convolution, by the end of the operator's name."""


def _convolution(call: CallInfo) -> Any:
    kernel, result = _KERNEL_AND_RESULT[call.op.name.partition("_")[2]]
    tensors = (*call.tensors(), *call.outputs())
    return tensors[result].size * prod(tensors[kernel].shape[1:])


def convolution_fits_tiles(op: str, kernel: tuple[Any, ...], groups: int) -> bool:
    """Whether TVM computes a convolution of two spatial axes with channels last in register tiles.

    kernel: the shape of the kernel, (out channels, *window, channels / groups)."""
    outs, *_, ins = kernel
    if op.endswith(("_dx", "_dw")):
        return groups == 1 and ins >= limits.TILED_LANES
    return outs >= limits.TILED_LANES and (groups == 1 or (ins == 1 and groups == outs))


def _per_pixel(call: CallInfo) -> Any:
    pixels = _pixels_in_tiles(call)
    return _kernel(call).size // pixels if pixels else None


def _pixels_in_tiles(call: CallInfo) -> Any:
    """None for convolutions that TVM does not compute in register tiles, and of separate channels. Libraries compute
    gradients of steps above 1 in half the time of TVM's tiles."""
    args = call.bind()
    if call.op.name == "conv2d_transpose" or (call.op.name == "conv2d_dx" and set(args["stride"]) != {1}):
        return None
    is_dense = call.tensors()[0].dtype == "float32" and args["channels_last"] and args["groups"] == 1
    if not is_dense or not convolution_fits_tiles(call.op.name, _kernel(call).shape, 1):
        return None
    result = args["dy"] if "dy" in args else call.outputs()[0]
    return result.size // max(result.shape[-1], 1)


def _kernel(call: CallInfo) -> Any:
    """The type of the kernel of a convolution."""
    return call.outputs()[0] if call.op.name.endswith("_dw") else call.bind()["w"]


def _separate_channels(call: CallInfo) -> Any:
    args = call.bind()
    x = call.tensors()[0]
    is_tiled = call.op.name in ("conv2d", "conv2d_epilogue") and x.dtype == "float32" and args["channels_last"]
    return x.size if is_tiled and args["groups"] == x.shape[-1] == args["w"].shape[0] else None


def _around(call: CallInfo) -> tuple[Any, Any, Any]:
    """The sizes around the axis that a softmax sums along or a normalisation keeps."""
    args = call.bind()
    return around(args["x" if "x" in args else "y"].shape, args["axis"])


def _columns(call: CallInfo) -> Any:
    before, _, after = _around(call)
    return before * after if after > 1 else None


def _in_columns(call: CallInfo) -> Any:
    return _elements(call) if _around(call)[2] > 1 else None


def _in_rows(call: CallInfo) -> Any:
    return _elements(call) if _around(call)[2] == 1 else None


def _per_row(call: CallInfo) -> Any:
    _, size, after = _around(call)
    return size if after == 1 else None


def _along_axis(call: CallInfo) -> Any:
    _, size, _ = _around(call)
    return size


def _per_channel_of_large(call: CallInfo) -> Any:
    from meta.backend.tvm.shape_generic import is_large

    before, _, after = _around(call)
    return before * after if is_large(call) else None


MEASURES: Mapping[str, Callable[[CallInfo], int | None]] = {
    "elements": _elements,
    "joined elements": _joined,
    "real elements": _real,
    "elements of 16 bits": _in_half_precision,
    "elements per window": _per_window,
    "multiplications": _multiplications,
    "multiplications in tiles": _attention_in_tiles,
    "multiplications of a matrix": _matrix_in_tiles,
    "kernel elements per pixel": _per_pixel,
    "pixels in tiles": _pixels_in_tiles,
    "elements of separate channels": _separate_channels,
    "columns": _columns,
    "elements in columns": _in_columns,
    "elements in rows": _in_rows,
    "elements per row": _per_row,
    "elements along the axis": _along_axis,
    "elements per channel of a large call": _per_channel_of_large,
}
"""Unit -> the work of a call of known sizes in it, None for calls that a limit in this unit does not concern.

elements: of the first operand.  in tiles: of attention and convolutions that TVM computes in register tiles.
of a matrix: of products with a matrix that TVM computes in register tiles where their sizes are known, and of dense
layers for one row.
real: of results that are not complex.  pixel: of the result, of all channels.
columns: sums along an axis other than the last.  large: with a TVM kernel built for its sizes."""
