"""Decompositions of elementwise operators as functions of TE expressions, so that a formula is written once.

    formula("silu")(x)        x * sigmoid(x), of the expression x

The calls of a decomposition are recorded as a graph, which the elementwise functions of the TVM dialect compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from math import trunc
from os import pathsep
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meta._generated.methods import Tensor
from meta.backend.tvm.adapter import te
from meta.backend.tvm.intrinsic import Expr, dtype_of
from meta.backend.tvm.numbers import Number
from meta.backend.tvm.spec import Outs, TensorSpec
from meta.backend.tvm.te.elementwise import (
    Element,
    cast,
    common_dtype,
    compute_dtype,
    element,
    is_float,
    let_binding,
    rounded_numbers,
)
from meta.ir.type import TensorType, tensor_type
from meta.modes import isolated, modes
from meta.op.decomposition import Decomposition, decompositions
from meta.op.dispatch import implementation
from meta.op.registry import Op, as_type, get
from meta.records import record

SOURCES: Final = pathsep.join(f"{Path(__file__).parent}/{name}" for name in ("dialect/tvm", "decompose"))
"""The folders of the files that formulas are made of."""


@record
class PerElement:
    """The compute of an elementwise operator. It broadcasts the operands, promotes them and Python numbers to one
    dtype.

    function: of expressions of one dtype, the operands, and of the attributes.
    tensors: for each argument, whether it is an operand; bounds: whether the other ones are numbers that count as
        operands, rounded to their dtype.
    wide: whether halves are computed in float32.
    """

    name: str
    function: Callable[..., Expr]
    tensors: tuple[bool, ...]
    bounds: bool = False
    wide: bool = True

    def __call__(self, *args: Any, out: Outs) -> Any:
        operands = rounded_numbers([a for a, is_tensor in zip(args, self.tensors, strict=True) if is_tensor])
        attributes = [a for a, is_tensor in zip(args, self.tensors, strict=True) if not is_tensor]
        dtype = compute_dtype(operands, out[0].dtype) if self.wide else common_dtype(operands)
        if self.bounds:
            attributes = rounded_numbers([operands[0], *attributes])[1:]

        def value(*index: Any) -> Expr:
            return cast(self.function(*(element(x, index, dtype) for x in operands), *attributes), out[0].dtype)

        return te.compute(out[0].shape, value, self.name)


class Term(Tensor):
    """A number for each element: an operand, without an operator, or the result of a call."""

    __slots__ = ("args", "op", "type")

    def __init__(self, kind: TensorType, op: Op | None = None, args: tuple[Any, ...] = ()) -> None:
        self.type, self.op, self.args = kind, op, args  # type: ignore[misc]  # a property of tensors

    __hash__ = object.__hash__  # `==` is an operator

    if not TYPE_CHECKING:  # type checkers know the members of tensors

        def __getattr__(self, name: str) -> Any:
            return getattr(self.type, name)


class HeldNumber(float):
    """A number that a kernel takes at run time, as a decomposition gets it: an operand or attribute like any float."""

    number: Number

    def __new__(cls, number: Number) -> HeldNumber:
        held = super().__new__(cls, "nan")
        held.number = number
        return held

    def log(self) -> HeldNumber:
        return HeldNumber(self.number.log())

    def __trunc__(self) -> HeldInteger:
        return HeldInteger(trunc(self.number))

    def __repr__(self) -> str:
        return "a number of the call"

    __hash__ = object.__hash__


class HeldInteger(int):
    """The integer part of a HeldNumber."""

    number: Number

    def __new__(cls, number: Number) -> HeldInteger:
        held = super().__new__(cls)
        held.number = number
        return held

    __hash__ = object.__hash__


_HELD: Final = (HeldNumber, HeldInteger)


def _plain(x: Any) -> Any:
    return x.number if isinstance(x, _HELD) else x


def _delegated(name: str) -> Any:
    """The method of a held number that is one of Number; operators on terms are methods of terms."""

    def method(self: HeldNumber | HeldInteger, *others: Any) -> Any:
        if any(isinstance(other, Term) for other in others):
            return NotImplemented
        result = getattr(self.number, name)(*map(_plain, others))
        return HeldNumber(result) if isinstance(result, Number) else result

    return method


for _kind in _HELD:
    for _name in ("add", "sub", "mul", "truediv"):
        setattr(_kind, f"__{_name}__", _delegated(f"__{_name}__"))
        setattr(_kind, f"__r{_name}__", _delegated(f"__r{_name}__"))
    for _name in ("neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "bool", "float", "int", "pow", "rpow"):
        setattr(_kind, f"__{_name}__", _delegated(f"__{_name}__"))


def recorded(decomposition: Callable[..., Any], *args: Any) -> Any:
    """The results of a decomposition, as terms, of terms in place of tensors."""

    def emit(op: Op, args: tuple[Any, ...]) -> Term:
        kind: Any = op.infer(tuple(map(_typed, args)))
        return Term(kind, op, args)

    with isolated("tvm"):
        modes.emit = emit
        return decomposition(*(HeldNumber(a) if isinstance(a, Number) else a for a in args))


def _typed(arg: Any) -> Any:
    """An argument as type rules take it. They ask whether integers are in range, as the call's own rule has done."""
    return 0 if isinstance(arg, HeldInteger) else as_type(arg)


def operand(dtype: str) -> Term:
    """A new operand."""
    return Term(tensor_type((), dtype))


def computed(root: Term, values: Mapping[Term, Expr]) -> Expr:
    """The expression of a term, from the expressions of operands. A value with several uses becomes a variable."""
    order = list(dict.fromkeys(operands_first(root, values)))
    uses = Counter(arg for term in order for arg in term.args if isinstance(arg, Term))
    known, bindings = dict(values), list[Callable[[Expr], Expr]]()
    for term in order:
        value = _call(term, known)
        if uses[term] > 1 and is_float(value):
            value, within = let_binding(value)
            bindings.append(within)
        known[term] = value
    result = known[root]
    for within in reversed(bindings):
        result = within(result)
    return result


def operands_first(term: Term, values: Mapping[Term, Expr]) -> Iterable[Term]:
    """A term and those that it is computed from, down to the ones with values, perhaps several times."""
    if term not in values:
        for arg in term.args:
            if isinstance(arg, Term):
                yield from operands_first(arg, values)
        yield term


def _call(term: Term, values: Mapping[Term, Expr]) -> Expr:
    """The element that the compute of a term's operator gives from elements of its operands."""
    assert term.op is not None
    chosen = implementation(term.op, "tvm")
    assert chosen is not None
    arguments = [Element(values[arg]) if isinstance(arg, Term) else _plain(arg) for arg in term.args]
    compute = chosen.payload.compute
    out = {"out": (TensorSpec((), term.dtype),)} if "out" in signature(compute).parameters else {}
    return compute(*arguments, **out).op.body[0]


def decomposition_of(name: str) -> Decomposition:
    """The decomposition of an operator that has one."""
    return decompositions(get(name).family)[name]


def formula(name: str) -> Callable[..., Expr]:
    """The decomposition of an elementwise operator: of expressions, in place of tensors, and of attributes in the order
    of its schema."""
    decomposition = decomposition_of(name).function

    def run(*args: Any) -> Expr:
        terms = [operand(dtype_of(a)) if _is_expression(a) else a for a in args]
        values = {term: a for term, a in zip(terms, args, strict=True) if isinstance(term, Term)}
        return computed(recorded(decomposition, *terms), values)

    return run


def compute(name: str) -> PerElement:
    """The compute of an elementwise operator by its decomposition."""
    tensors = tuple(arg.is_tensor for arg in get(name).schema.args)
    decomposition = decomposition_of(name)
    return PerElement(name, formula(name), tensors, decomposition.bounds, decomposition.wide)


def _is_expression(arg: Any) -> bool:
    return not (arg is None or isinstance(arg, (bool, int, float, str, Number)))
