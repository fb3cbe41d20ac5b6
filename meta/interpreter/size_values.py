"""The symbolic sizes of a program as numbers, read off its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meta.dim import Dim, SymDim, compute, evaluate, names, sym
from meta.errors import ArgumentError
from meta.ir.type import TensorType, TupleType, Type

Sizes = dict[str, int]
"""Name of a size -> its value."""


def check_inputs(name: str, names: Sequence[str], types: Sequence[Type], arrays: Sequence[Any]) -> Sizes:
    """Raise ArgumentError unless each array has the type of its parameter; returns the symbolic sizes."""
    if len(arrays) != len(names):
        raise ArgumentError(name, f"{len(arrays)} inputs", f"{len(names)}: {', '.join(names)}")
    sizes: Sizes = {}
    array_types = list(map(_type_of, arrays))
    for parameter, kind, actual in zip(names, types, array_types, strict=True):
        bind_sizes(name, parameter, kind, actual, sizes)
    solve_sizes(name, names, types, array_types, sizes)
    for parameter, kind, actual in zip(names, types, array_types, strict=True):
        check_sizes(name, parameter, kind, actual, sizes)
    return sizes


def _type_of(value: Any) -> Type:
    return TupleType(tuple(map(_type_of, value))) if isinstance(value, tuple) else value.type  # pyright: ignore[reportUnknownArgumentType]


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
    """Raise ArgumentError unless the sizes that `kind` computes from names are those of `actual`."""
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
    """(coefficient, rest) of a size that is `coefficient * name + rest`, neither of which depends on `name`; None for
    other sizes."""

    def at(number: int) -> Dim:
        def size(atom: str) -> Dim:
            return number if atom == name else sym(atom)

        def literal(value: int) -> Dim:
            return value

        return compute(value, size, literal, lambda a, b: a // b)

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
