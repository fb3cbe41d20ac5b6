"""Type rules that declarations share: broadcasting, promotion, axes, checks.

Rules raise without an operator's name; `Op.infer` adds it. They compare sizes by `same_dim`, so they also work on
symbolic sizes and tell the shape-generic kernel builder which extents are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meta import dtype as dtypes
from meta.dim import WHOLE, Dim, Shape, SymDim, maximum, minimum, product, same_dim
from meta.dim_expressions import Order
from meta.errors import AxisError, DeviceError, TypeInferenceError
from meta.ir.type import ScalarOrType, TensorType, flat_types, promoted_dtype, tensor_type


def require(condition: bool | Order, problem: str, expected: str = "", remedy: str = "") -> None:
    """Raise TypeInferenceError unless `condition`. The order of symbolic sizes is left to the program, which asks
    declarations again for the sizes of its calls."""
    if not isinstance(condition, Order) and not condition:
        raise TypeInferenceError("", problem, expected, remedy)


def same_device(*types: TensorType) -> None:
    """Raise DeviceError unless all are on one device."""
    for t in types[1:]:
        if t.device is not types[0].device:
            raise DeviceError(
                "",
                f"operands are on {types[0].device} and {t.device}",
                "all on one device",
                f'move one: .to(device="{types[0].device}")',
            )


def require_float(name: str, t: TensorType) -> None:
    """A floating dtype."""
    require(dtypes.is_float(t.dtype), f"'{name}' has dtype {t.dtype}", f"{', '.join(dtypes.FLOATS)}",
            f'cast it: {name}.cast("float32")')  # fmt: skip


def require_inexact(name: str, t: TensorType) -> None:
    """A floating or complex dtype."""
    require(dtypes.is_inexact(t.dtype), f"'{name}' has dtype {t.dtype}", f"{', '.join(dtypes.INEXACT)}",
            f'cast it: {name}.cast("float32")')  # fmt: skip


def require_complex(name: str, t: TensorType) -> None:
    """A complex dtype."""
    require(dtypes.is_complex(t.dtype), f"'{name}' has dtype {t.dtype}", f"{', '.join(dtypes.COMPLEX)}",
            f'cast it: {name}.cast("complex64")')  # fmt: skip


def require_int(name: str, t: TensorType) -> None:
    """A dtype of integers."""
    require(dtypes.is_int(t.dtype), f"'{name}' has dtype {t.dtype}", f"{', '.join(dtypes.INTS)}",
            f'cast it: {name}.cast("int64")')  # fmt: skip


def require_number(name: str, t: TensorType) -> None:
    """Any dtype but bool."""
    require(t.dtype != "bool", f"'{name}' has dtype bool", "numbers", f'cast it: {name}.cast("int64")')


def require_discrete(name: str, t: TensorType) -> None:
    """Integers or bool."""
    require(not dtypes.is_inexact(t.dtype), f"'{name}' has dtype {t.dtype}",
            f"bool, {', '.join(dtypes.INTS)}", f'cast it: {name}.cast("int64")')  # fmt: skip


def require_rank(name: str, t: TensorType, *ranks: int) -> None:
    """One of the given ranks."""
    allowed = " or ".join(map(str, ranks))
    require(t.ndim in ranks, f"'{name}' has shape {show(t.shape)}", f"rank {allowed}")


def require_axes(name: str, shape: Shape, axes: Sequence[str]) -> None:
    """One size for each of `axes`. If a tensor lacks the first one alone, the batch, the error says how to add it."""
    missing = axes[: len(axes) - len(shape)] if len(shape) in (len(axes) - 1, len(axes) - 2) and shape else ()
    remedy = f"add the {' and '.join(missing)}: {name}[{', '.join(['None'] * len(missing))}]" if missing else ""
    require(len(shape) == len(axes), f"'{name}' has shape {show(shape)}", f"({', '.join(axes)})", remedy)


def is_known_equal(a: Dim, b: Dim) -> bool:
    """Whether two sizes are equal numbers. For remedies: unlike `same_dim`, it does not tie symbolic sizes."""
    return isinstance(a, int) and isinstance(b, int) and a == b


def require_same_dtype(**types: TensorType) -> None:
    """Raise TypeInferenceError unless all have one dtype. The remedy casts to the higher kind, to lose no fractions; of
    one kind it casts the input of a layer, not its weights."""
    (first, head), *rest = types.items()
    for name, t in rest:
        if t.dtype == head.dtype:
            continue
        is_weight = name in ("w", "weight") and not _holds(head.dtype, t.dtype)
        wrong, dtype = (first, t.dtype) if is_weight or _holds(t.dtype, head.dtype) else (name, head.dtype)
        remedy = f'cast {"it" if _holds(dtype, types[wrong].dtype) else "one"}: {wrong}.cast("{dtype}")'
        require(False, f"'{first}' is {head.dtype}, '{name}' is {t.dtype}", "one dtype for both", remedy)


def require_alike(**types: TensorType) -> None:
    """Raise TypeInferenceError unless all have one shape, one dtype and one device."""
    require_same_shape(**types)
    require_same_dtype(**types)
    same_device(*types.values())


def _holds(dtype: str, other: str) -> bool:
    """Whether `dtype` is of a higher kind than `other`, in the order bool, integers, floats, complex."""
    return dtypes.category(dtype) > dtypes.category(other)


def require_packed_bytes(x: TensorType, w: TensorType, rank: int, layout: str, columns: int, terms: Dim) -> None:
    """Bytes x, and int8 weights for `columns` sums of `terms` products, in panels of columns with four terms each."""
    require(x.dtype in ("int8", "uint8"), f"'x' has dtype {x.dtype}", "int8 or uint8")
    require(w.dtype == "int8", f"'w' has dtype {w.dtype}", "int8")
    same_device(x, w)
    is_packed = w.ndim == rank and all(isinstance(d, int) for d in w.shape) and w.shape[-1] == 4
    require(is_packed, f"'w' has shape {show(w.shape)}", f"{layout}, all of them numbers")
    panels, *_, quads, width, _ = w.shape
    require(
        0 < columns <= panels * width, f"{columns} sums, w has {panels} panels of {width}", f"1 to {panels * width}"
    )
    require(same_dim((terms + 3) // 4, quads), f"sums of {terms} products, w has {quads} times 4", "w.shape[-3] quads")


def require_contracted(
    shapes: Sequence[Shape],
    sizes: tuple[Dim, Dim],
    other_sizes: tuple[Dim, Dim],
    remedies: Sequence[str],
    note: str = "",
) -> None:
    """Equal sizes of the two axes that a product sums over. If they are equal with an operand transposed, the error
    says how to transpose it.

    shapes: of the operands.  other_sizes: the sizes of those axes with the operand transposed.
    remedies: how to transpose the first operand, and the second.  note: more about the call."""
    if same_shape(sizes[:1], sizes[1:]):
        return
    remedy = ""
    for flags in ((False, True), (True, False), (True, True)):
        k1, k2 = (other if flag else own for own, other, flag in zip(sizes, other_sizes, flags, strict=True))
        if not remedy and is_known_equal(k1, k2):
            remedy = "write " + " and ".join(text for text, flag in zip(remedies, flags, strict=True) if flag)
    listed = " and ".join(map(show, shapes))
    problem = f"shapes {listed} contract {sizes[0]} with {sizes[1]}{note}"
    raise TypeInferenceError("", problem, "equal sizes", remedy)


def require_same_shape(**types: TensorType) -> None:
    """Raise TypeInferenceError unless all have one shape."""
    (first, head), *rest = types.items()
    for name, t in rest:
        require(same_shape(head.shape, t.shape),
                f"'{first}' has shape {show(head.shape)}, '{name}' has {show(t.shape)}", "equal shapes")  # fmt: skip


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal. Ties symbolic sizes, as `same_dim` does."""
    return a == b or (len(a) == len(b) and all(map(same_dim, a, b)))


def show(shape: Shape) -> str:
    """A shape as errors print it: (2, 3)."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def axis_index(axis: int, ndim: int, what: str = "axis") -> int:
    """`axis` counted from the front; raises AxisError when outside [-ndim, ndim)."""
    bound = max(ndim, 1)
    if not -bound <= axis < bound:
        raise AxisError("", f"{what} {axis} is out of range for rank {ndim}", f"{-bound} to {bound - 1}")
    return axis % bound


def axis_indices(axes: Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Distinct, sorted axes counted from the front; None means all of them."""
    if axes is None:
        return tuple(range(ndim))
    out = tuple(axis_index(axis, ndim) for axis in axes)
    require(len(set(out)) == len(out), f"axis {tuple(axes)} names an axis twice", "distinct axes")
    return tuple(sorted(out))


def reduced_shape(shape: Shape, axes: Sequence[int] | None, keepdims: bool) -> Shape:
    """The shape after reducing `axes` (None: all). A 0-d tensor has an axis 0, as in torch."""
    reduced = axis_indices(axes, len(shape))
    if keepdims:
        return tuple(1 if i in reduced else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in reduced)


def require_ordered(low: object, high: object, strictly: bool = False) -> None:
    """low <= high (or <), where both are known numbers."""
    if isinstance(low, (int, float)) and isinstance(high, (int, float)):
        require(low < high if strictly else low <= high, f"low is {low}, high is {high}",
                "low < high" if strictly else "low <= high")  # fmt: skip


def require_elements(shape: Shape, axes: Sequence[int] | None) -> None:
    """At least one element along `axes` (None: all)."""
    for axis in axis_indices(axes, len(shape)):
        require(not shape or shape[axis] != 0, f"axis {axis} of shape {show(shape)} has no elements",
                "at least one element to choose from", "test the size first")  # fmt: skip


def broadcast_shapes(*shapes: Shape) -> Shape:
    """NumPy's rule: align at the right, sizes equal or 1. Raises TypeInferenceError naming the axis."""
    rank = max(map(len, shapes), default=0)
    return tuple(_broadcast_axis(shapes, back) for back in range(rank, 0, -1))


def _broadcast_axis(shapes: Sequence[Shape], back: int) -> Dim:
    out: Dim = 1
    for shape in shapes:
        if len(shape) < back or shape[-back] in (1, out):
            continue
        if out == 1:
            out = shape[-back]
            continue
        if not same_dim(out, shape[-back]):
            listed = " and ".join(map(show, shapes))
            raise TypeInferenceError(
                "",
                f"shapes {listed} do not broadcast: {out} against {shape[-back]} at axis {-back}",
                "sizes equal, or one of them 1",
                _aligned(shapes) or "reshape or broadcast_to first",
            )
    return out


def _aligned(shapes: Sequence[Shape]) -> str:
    """How to align the shorter of two shapes at the left, "" where it does not fit there either."""
    if len(shapes) != 2:
        return ""
    short, long = sorted(shapes, key=len)
    if not 0 < len(short) < len(long) or not all(map(is_known_equal, short, long)):
        return ""
    index = ", ".join([":"] * len(short) + ["None"] * (len(long) - len(short)))
    return f"add axes to the operand of shape {show(short)}: [{index}]"


def held_dtype(*args: ScalarOrType) -> str:
    """`promoted_dtype`; raises TypeInferenceError for a Python number outside of its range."""
    out = promoted_dtype(*args)
    for value in args:
        if not isinstance(value, TensorType):
            require_held(value, out)
    return out


def require_held(value: dtypes.Number | Dim, dtype: str) -> None:
    """Raise TypeInferenceError unless a Python number lies in the range of `dtype`: integers do not wrap around.
    Symbolic sizes pass."""
    if isinstance(value, SymDim):
        return
    bits = value.bit_length() if isinstance(value, int) else 0
    if isinstance(value, complex):
        fits, allowed = dtypes.is_complex(dtype), ", ".join(dtypes.COMPLEX)
    elif dtypes.is_inexact(dtype):
        fits, allowed = bits < 1024, "up to 1.8e308"
    else:
        low, high = dtypes.int_range(dtype)
        fits, allowed = dtype == "bool" or low <= value <= high, f"{low} to {high}"
    shown = f"the number {value}" if bits <= 128 else f"an integer of {bits} bits"
    require(fits, f"{shown} does not fit into {dtype}", f"{allowed}", "use a wider dtype")


def broadcast_type(*args: ScalarOrType, dtype: str | None = None) -> TensorType:
    """The type of an elementwise operation on tensors and scalars: broadcast shape, promoted dtype."""
    tensors = [a for a in args if isinstance(a, TensorType)]
    require(bool(tensors), "all operands are numbers", "an array among them", "make one an array: meta.array(x)")
    same_device(*tensors)
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tensor_type(shape, dtype or held_dtype(*args), tensors[0].device)


def first_tensor(args: Iterable[object]) -> TensorType | None:
    """The first tensor type among `args` (lists and tuple types are searched too), None when there is none."""
    return next(iter(flat_types(args)), None)


def resolve_reshape(old: Shape, new: Shape) -> Shape:
    """`new` with the size of -1 computed. Raises TypeInferenceError when the numbers of elements differ."""
    unknown = [i for i, d in enumerate(new) if d == -1]
    require(len(unknown) <= 1, f"shape {show(new)} has {len(unknown)} sizes of -1", "at most one")
    total = product(old)
    if unknown:
        rest = product(d for i, d in enumerate(new) if i != unknown[0])
        fits = rest != 0 and same_dim((total // rest) * rest, total)
        require(fits, f"{show(old)} does not reshape to {show(new)}", "a shape with as many elements")
        new = tuple(total // rest if d == -1 else d for d in new)
    require(same_dim(product(new), total), f"{show(old)} has {total} elements, {show(new)} {product(new)}",
            "equal numbers of elements")  # fmt: skip
    return new


# --- the order of axes, which declarations share with computes and passes --------------------------------------------


def class_axis(ndim: int) -> int:
    """The axis of classes among the predictions."""
    return 0 if ndim == 1 else 1


def swapped(axis1: int, axis2: int, ndim: int) -> tuple[int, ...]:
    """The order of axes after two of them changed places."""
    a, b = axis_index(axis1, ndim), axis_index(axis2, ndim)
    return tuple(b if i == a else a if i == b else i for i in range(ndim))


def moved(source: tuple[int, ...], destination: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """The order of axes after `source` moved to `destination`."""
    require(
        len(source) == len(destination),
        f"source {source} and destination {destination}",
        "as many of one as of the other",
    )
    for axes in (source, destination):
        axis_indices(axes, ndim)  # distinct, and in range
    source_of = {axis_index(d, ndim): axis_index(s, ndim) for s, d in zip(source, destination, strict=True)}
    rest = iter(i for i in range(ndim) if i not in source_of.values())
    return tuple(source_of[i] if i in source_of else next(rest) for i in range(ndim))


def slice_length(begin: int, end: int, step: int, size: Dim) -> Dim:
    """The number of elements of a slice of an axis, by NumPy's rules for negative and excessive bounds. Bounds of
    WHOLE and beyond, on either side, are past every size."""
    if isinstance(size, int) or isinstance(begin, SymDim) or isinstance(end, SymDim):
        return len(range(*slice(begin, end, step).indices(size.__index__())))
    first, last = (clipped(bound, size, step) for bound in ((begin, end) if step > 0 else (end, begin)))
    count = (last - first + abs(step) - 1) // abs(step)
    reaches_end = abs(end) >= WHOLE or (begin == 0 if step > 0 else begin >= WHOLE)
    is_ordered = reaches_end or ((begin >= 0) == (end >= 0) and (end - begin) * step >= 0)
    return count if is_ordered else maximum(count, 0)


def clipped(bound: Dim, size: Dim, step: int = 1) -> Dim:
    """A bound of a slice of an axis as a position: from 0 to `size`, or from -1 to `size - 1` for negative steps."""
    low = 0 if step > 0 else -1
    if isinstance(bound, int) and bound < 0:
        return low if bound <= -WHOLE else maximum(size + bound, low)
    return maximum(minimum(from_front(bound, size), size + low), low)


def from_front(position: Dim, size: Dim) -> Dim:
    """A position of an axis, with a negative one counted from the end."""
    return position + size * minimum(maximum(-position, 0), 1)
