"""Types of values: tensors, tuples, functions, and values known while typing. Tensor types are interned.

The symbolic sizes of parameters are read off the types of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, Literal, NoReturn, get_args
from weakref import WeakValueDictionary

from meta import dtype as dtypes
from meta.device import CPU, Device, device
from meta.dim import Dim, Shape, SymDim, compute, evaluate, minimum, names, product, sym
from meta.dtype import array_bytes, is_complex, itemsize, real_dtype
from meta.errors import ArgumentError, IRError, TypeInferenceError
from meta.limits import MAX_DEPTH, MAX_DIMENSIONS, MAX_VALUE_SIZE
from meta.locks import new_lock
from meta.records import record

Pattern = Literal["elemwise", "broadcast", "injective", "reduce", "softmax", "out_ewise_fusable", "opaque"]
PATTERNS: tuple[str, ...] = get_args(Pattern)


class TensorType:
    """Shape, dtype and device of a tensor. One object per distinct type (`tensor_type`), so `is` compares and
    the identity hash makes it the fastest possible cache key."""

    __slots__ = ("__weakref__", "device", "dtype", "ndim", "shape")

    shape: Shape
    dtype: str
    device: Device
    ndim: int

    def __init__(self, shape: Shape, dtype: str, device: Device) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.ndim = len(shape)

    def __call__(self, *dtype: Any, **_: object) -> NoReturn:
        """Not available: torch's tensors have a method `type`."""
        from meta.spellings.arguments import DTYPES

        name = str(getattr(dtype[0], "__name__", dtype[0])).rpartition(".")[2] if dtype else ""
        name = DTYPES.get(name, name)
        remedy = f'write x.cast("{name}")' if name else "write x.dtype for x.type(), x.cast(dtype) for x.type(dtype)"
        raise ArgumentError("type", "x.type is called; it is the shape, dtype and device of x", "x.type", remedy)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return product(self.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes of the data."""
        return product(self.shape) * itemsize(self.dtype)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    def with_shape(self, shape: Shape) -> TensorType:
        return tensor_type(shape, self.dtype, self.device)

    def with_size(self, axis: int, size: Dim) -> TensorType:
        """The type with another size of `axis`, which is not negative."""
        return self.with_shape((*self.shape[:axis], size, *self.shape[axis + 1 :]))

    def with_dtype(self, dtype: str) -> TensorType:
        return tensor_type(self.shape, dtype, self.device)

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape)) + ("," if self.ndim == 1 else "")
        device = "" if self.device is CPU else f', "{self.device}"'
        return f'Tensor[({dims}), "{self.dtype}"{device}]'

    def __reduce__(self) -> tuple[object, tuple[Shape, str, Device]]:
        return tensor_type, (self.shape, self.dtype, self.device)


_interned: WeakValueDictionary[tuple[Shape, str, Device], TensorType] = WeakValueDictionary()
_lock = new_lock("types")


def tensor_type(shape: Shape, dtype: str = "float32", on: Device | str = CPU) -> TensorType:
    """The one TensorType of `shape` (a tuple of ints or symbolic sizes), `dtype` and device `on`.

    Raises TypeInferenceError for more than 64 dimensions, for negative sizes, and for 2**63 bytes and more."""
    where = on if isinstance(on, Device) else device(on)
    key = (shape, dtype, where)
    interned = _interned.get(key)
    if interned is not None:
        return interned
    if len(shape) > MAX_DIMENSIONS:
        raise TypeInferenceError("", f"a tensor of {len(shape)} dimensions", f"at most {MAX_DIMENSIONS}")
    _check_sizes(shape, dtype)
    with _lock:
        interned = _interned.get(key)
        if interned is None:
            interned = _interned[key] = TensorType(shape, dtype, where)
        return interned


def stored_shape(shape: Shape, dtype: str) -> tuple[Shape, str]:
    """The shape and dtype of a tensor's memory: complex numbers, which TVM has no dtype for, are stored as pairs of
    floats, real and imaginary part, along an additional last axis."""
    return ((*shape, 2), real_dtype(dtype)) if is_complex(dtype) else (shape, dtype)


def stored(kind: TensorType) -> TensorType:
    """The type of the memory of a tensor, as `stored_shape`."""
    return tensor_type(*stored_shape(kind.shape, kind.dtype), kind.device) if is_complex(kind.dtype) else kind


def _check_sizes(shape: Shape, dtype: str) -> None:
    """Raise TypeInferenceError for a negative size, and for a tensor whose sizes, ignoring zeros, no machine counts.
    Symbolic sizes pass."""
    numbers = [d for d in shape if isinstance(d, int)]
    if any(d < 0 for d in numbers):
        raise TypeInferenceError("", f"shape {_show(shape)} has a negative size", "sizes of 0 and up")
    if array_bytes([d for d in numbers if d], itemsize(dtype)) is None:
        raise TypeInferenceError("", f"shape {_show(shape)} of {dtype} is too large", "less than 2**63 bytes")


def _show(shape: Shape) -> str:
    shown = [str(d) if not isinstance(d, int) or d.bit_length() <= 128 else f"{d.bit_length()} bits" for d in shape]
    return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"


@record
class TupleType:
    """A fixed number of values. nodes: the types in it, once for each path to them.  depth: of its nesting.

    Raises IRError beyond the limits MAX_VALUE_SIZE and MAX_DEPTH: tuples share fields, and walks visit a field once
    for each path to it."""

    fields: tuple[Type, ...]
    nodes: int = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _measure(self, self.fields)

    def __repr__(self) -> str:
        return "(" + ", ".join(map(repr, self.fields)) + ("," if len(self.fields) == 1 else "") + ")"


@record
class FunctionType:
    """A function value. nodes, depth: as of a tuple of its parameters and its result."""

    params: tuple[Type, ...]
    result: Type
    nodes: int = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _measure(self, (*self.params, self.result))

    def __repr__(self) -> str:
        return f"fn({', '.join(map(repr, self.params))}) -> {self.result!r}"


@record
class Value:
    """The result of an operator whose value follows from the types of the arguments (`shape`): no kernel runs."""

    value: int | float | bool | tuple[Dim, ...]

    def __repr__(self) -> str:
        return f"Value({self.value!r})"


Type = TensorType | TupleType | FunctionType | Value


def _measure(kind: TupleType | FunctionType, parts: tuple[Type, ...]) -> None:
    """Set nodes and depth of a type. Raises IRError beyond the limits."""
    nodes = depth = 1
    for part in parts:
        if isinstance(part, (TupleType, FunctionType)):
            nodes += part.nodes
            depth = max(depth, part.depth + 1)
        else:
            nodes += 1
    if nodes > MAX_VALUE_SIZE or depth > MAX_DEPTH:
        what = "tuple" if isinstance(kind, TupleType) else "function"
        problem = f"a {what} type of {nodes} types, nested {depth} deep"
        raise IRError("types", problem, f"at most {MAX_VALUE_SIZE} and {MAX_DEPTH}", "use fewer or smaller tuples")
    object.__setattr__(kind, "nodes", nodes)
    object.__setattr__(kind, "depth", depth)


def leaf_types(kind: Type) -> tuple[Type, ...]:
    """The types of the tensors (and functions) that a value is made of, nested tuples flattened."""
    if isinstance(kind, TupleType):
        return tuple(leaf for field in kind.fields for leaf in leaf_types(field))
    return (kind,)


def flat_types(args: Iterable[Any]) -> list[TensorType]:
    """The tensor types in a nest of arguments or result types, in order."""
    types: list[TensorType] = []
    _add_types(args, types)
    return types


def _add_types(values: Iterable[Any], types: list[TensorType]) -> None:
    for value in values:
        if isinstance(value, TensorType):
            types.append(value)
        elif isinstance(value, (tuple, list)):
            _add_types(value, types)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, TupleType):
            _add_types(value.fields, types)


# --- the common dtype of tensor types and Python scalars -------------------------------------------------------------

ScalarOrType = TensorType | dtypes.Number


def promoted_dtype(*args: ScalarOrType) -> str:
    """The common dtype of tensors and Python scalars (meta.dtype's promotion; scalars only raise the category)."""
    tensors = [a.dtype for a in args if isinstance(a, TensorType)]
    scalars = [a for a in args if not isinstance(a, TensorType)]
    if not tensors:
        return dtypes.scalar_dtype(*scalars)
    out = tensors[0]
    for dtype in tensors[1:]:
        out = dtypes.promote(out, dtype)
    for value in scalars:
        out = dtypes.promote_scalar(out, value)
    return out


def operand_dtype(*args: ScalarOrType) -> str:
    """The dtype in which operands are compared: their common one, or int64 if that is an integer dtype that does not
    hold one of the Python numbers. uint64 and a negative number are compared in float64, which rounds no value below
    0."""
    out = promoted_dtype(*args)
    if not dtypes.is_int(out):
        return out
    low, high = dtypes.int_range(out)
    if all(low <= a <= high for a in args if isinstance(a, int)):
        return out
    return "float64" if out == "uint64" else "int64"


# The symbolic sizes of a program as numbers, read off its inputs.

Sizes = dict[str, int]
"""Name of a size -> its value."""


def read_sizes(where: str, inputs: Sequence[str], kinds: Sequence[Type], types: Sequence[Type]) -> Sizes:
    """The symbolic sizes of parameters of types `kinds`, of inputs of the given types. Raises ArgumentError unless each
    input has the type of its parameter."""
    if len(types) != len(inputs):
        raise ArgumentError(where, f"{len(types)} inputs", f"{len(inputs)}: {', '.join(inputs)}")
    sizes: Sizes = {}
    for name, kind, actual in zip(inputs, kinds, types, strict=True):
        bind_sizes(where, name, kind, actual, sizes)
    solve_sizes(where, inputs, kinds, types, sizes)
    for name, kind, actual in zip(inputs, kinds, types, strict=True):
        check_sizes(where, name, kind, actual, sizes)
    return sizes


def bind_sizes(where: str, name: str, kind: Type, actual: Type, sizes: Sizes) -> None:
    """Add to `sizes` those that the parameter type `kind` names and an input of type `actual` has. Raises
    ArgumentError when the input does not fit."""
    if isinstance(kind, TupleType) and isinstance(actual, TupleType) and len(kind.fields) == len(actual.fields):
        for i, (k, a) in enumerate(zip(kind.fields, actual.fields, strict=True)):
            bind_sizes(where, f"{name}.{i}", k, a, sizes)
        return
    if kind is actual or (not isinstance(kind, TensorType) and kind == actual):
        return
    if not isinstance(kind, TensorType) or not isinstance(actual, TensorType) or not _agree_but_for_sizes(kind, actual):
        raise ArgumentError(where, f"input '{name}' is {actual!r}", f"{kind!r}")
    for dim, size in zip(kind.shape, actual.shape, strict=True):
        if isinstance(dim, SymDim) and dim.name is not None:
            dim = sizes.setdefault(dim.name, size)  # type: ignore[arg-type]
        if isinstance(dim, int) and dim != size:
            raise _mismatch(where, name, kind, actual, sizes)


def solve_sizes(where: str, inputs: Sequence[str], kinds: Sequence[Type], types: Sequence[Type], sizes: Sizes) -> None:
    """Add to `sizes` the names that no axis has by themselves, from axes that are linear in one of them, such as `2*h`.

    inputs, kinds, types: the names of the inputs, the types of their parameters and their own types, which agree but
    for sizes. Raises ArgumentError, naming the input and the axis, where no size solves the equation."""
    equations = list(_equations(inputs, kinds, types))
    while equations:
        remaining = [each for each in equations if not _solved(where, *each, sizes)]
        if len(remaining) == len(equations):
            return
        equations = remaining


_Equation = tuple[str, int, SymDim, int]
"""An input, an axis, the size that its parameter has there, and its own."""


def _equations(inputs: Sequence[str], kinds: Sequence[Type], types: Sequence[Type]) -> Iterator[_Equation]:
    for name, kind, actual in zip(inputs, kinds, types, strict=True):
        if isinstance(kind, TupleType) and isinstance(actual, TupleType):
            yield from _equations([f"{name}.{i}" for i in range(len(kind.fields))], kind.fields, actual.fields)
        elif isinstance(kind, TensorType) and isinstance(actual, TensorType):
            for axis, (dim, size) in enumerate(zip(kind.shape, actual.shape, strict=True)):
                if isinstance(dim, SymDim) and dim.name is None and isinstance(size, int):
                    yield name, axis, dim, size


def _solved(where: str, name: str, axis: int, dim: SymDim, size: int, sizes: Sizes) -> bool:
    """Whether the names of an equation are known now."""
    try:
        solution = solve(dim, size, sizes)
    except ArithmeticError:
        unknown = ", ".join(sorted(names(dim) - sizes.keys()))
        problem = f"axis {axis} of '{name}' is {size}"
        raise ArgumentError(where, problem, f"{dim} for a whole number {unknown} from 0") from None
    if solution is not None:
        sizes[solution[0]] = solution[1]
    return names(dim) <= sizes.keys()


def check_sizes(where: str, name: str, kind: Type, actual: Type, sizes: Sizes) -> None:
    """Raise ArgumentError unless the sizes that `kind` computes from names equal the sizes of `actual`."""
    if not isinstance(kind, TensorType) or not isinstance(actual, TensorType):
        return
    for dim, size in zip(kind.shape, actual.shape, strict=True):
        if isinstance(dim, SymDim) and dim.name is None and evaluate(dim, sizes) != size:
            raise _mismatch(where, name, kind, actual, sizes)


def _agree_but_for_sizes(kind: TensorType, actual: TensorType) -> bool:
    return kind.dtype == actual.dtype and kind.ndim == actual.ndim and kind.device is actual.device


def _mismatch(where: str, name: str, kind: TensorType, actual: TensorType, sizes: Sizes) -> ArgumentError:
    used = frozenset[str]().union(*map(names, kind.shape))
    values = ", ".join(f"{n} = {size}" for n, size in sizes.items() if n in used)
    expected = f"{kind!r} with {values}" if values else f"{kind!r}"
    return ArgumentError(where, f"input '{name}' is {actual!r}", expected)


def linear(value: Dim, name: str) -> tuple[Dim, Dim] | None:
    """(coefficient, rest) of a size `coefficient * name + rest`, where neither depends on `name`; None for other
    sizes."""

    def at(number: int) -> Dim:
        def size(atom: str) -> Dim:
            return number if atom == name else sym(atom)

        def literal(value: int) -> Dim:
            return value

        return compute(value, size, literal, lambda a, b: a // b, minimum)

    try:
        rest = at(0)
        coefficient = at(1) - rest
    except ZeroDivisionError:  # of a quotient by `name`
        return None
    is_linear = coefficient != 0 and coefficient * sym(name) + rest == value
    return (coefficient, rest) if is_linear else None


def solve(value: Dim, total: int, sizes: Sizes) -> tuple[str, int] | None:
    """The only name in `value` that `sizes` lacks, and the number for which `value` is `total`.

    None where there is not one such name, or where `value` is not linear in it. Raises ArithmeticError where no number
    from 0 gives `total`."""
    unknown = names(value) - sizes.keys()
    if len(unknown) != 1:
        return None
    (name,) = unknown
    equation = linear(value, name)
    if equation is None or not (coefficient := evaluate(equation[0], sizes)):
        return None
    quotient, remainder = divmod(total - evaluate(equation[1], sizes), coefficient)
    if remainder or quotient < 0:
        raise ArithmeticError(f"{value} is never {total}")
    return name, quotient
