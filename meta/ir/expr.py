"""Expressions in A-normal form: every intermediate value is bound to a variable, every operand is an atom.

    FunctionExpr(params, Block(bindings, result))   a block binds variables to expressions, then names its result
    Binding(var, value)                             value: Call, Tuple, TupleGetItem, If or FunctionExpr
    Var, Constant, GlobalVar                        the atoms: all that may stand as an operand
    int, float, bool, str, tuples, Device, None     attribute values, directly among the arguments of a Call

Nodes are immutable and compare by identity (`compare.structural_equal` compares by content); passes build new ones
and share what they leave alone. Every node has a `type` and the `span` of the user's line it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Protocol, TypeGuard

from meta.device import Device
from meta.dtype import is_complex
from meta.errors import IRError, user_location
from meta.ir.layout import StridedLayout
from meta.ir.type import FunctionType, Pattern, TensorType, TupleType, Type, flat_types
from meta.records import record
from meta.schema._dsl import Schema, TensorLike

MUTATES = "mutates"
"""Key of `FunctionExpr.attrs`: {result index: index of the parameter whose storage that result replaces}."""


@record
class Span:
    """Where in the user's code a node came from: a file and a line in it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_span() -> Span | None:
    """The innermost line of the call stack outside of this package, None if there is none."""
    location = user_location()
    return Span(*location) if location else None


class OpLike(Protocol):
    """The part of an operator that the IR reads: its name, its arguments, and the type rule on argument types."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def view(self) -> bool:
        """Whether the result may share the storage of the first argument."""
        ...

    @property
    def family(self) -> str: ...

    @property
    def pattern(self) -> Pattern:
        """How it fuses."""
        ...

    @property
    def inplace(self) -> Mapping[int, str]:
        """Result index -> name of the argument whose storage that result reuses."""
        ...

    @property
    def positions(self) -> Any:
        """The rule of the values that tensors of positions may have, None without such tensors."""
        ...

    def infer(self, args: tuple[Any, ...], /) -> Type:
        """The result type for arguments in schema order, each tensor given as its `Type`, each list of tensors as a
        tuple of types, anything else as it is. Raises a MetaError when they do not fit."""
        ...


def _no_attrs() -> dict[str, Any]:
    return {}


@record(eq=False)
class Var(TensorLike):
    """A variable, bound once. Two variables may have one name: the printer tells them apart."""

    name: str
    type: Type
    span: Span | None = None


@record(eq=False)
class Constant(TensorLike):
    """A tensor of a fixed value: an object that `numpy.asarray` takes, or with a method `numpy()`."""

    value: Any
    type: TensorType
    span: Span | None = None


@record(eq=False)
class GlobalVar:
    """A function of the module, by name."""

    name: str
    type: FunctionType
    span: Span | None = None

    def __repr__(self) -> str:
        return f"@{self.name}"


Atom = Var | Constant | GlobalVar


@record(eq=False)
class Call:
    """An operator applied to arguments in schema order, or a function (Var, GlobalVar) applied to atoms.

    args: an atom for a tensor, a tuple of atoms for a list of tensors, an attribute value otherwise.
    dialect: the dialect chosen for an operator, None before dispatch.  attrs: facts that passes leave for later ones.
    """

    op: OpLike | Var | GlobalVar
    args: tuple[Any, ...]
    type: Type
    span: Span | None = None
    attrs: Mapping[str, Any] = field(default_factory=_no_attrs)
    dialect: str | None = None

    @property
    def callee(self) -> Var | GlobalVar | None:
        """The function called, None when it is an operator."""
        return self.op if isinstance(self.op, (Var, GlobalVar)) else None

    @property
    def op_name(self) -> str:
        """`softmax`, `tvm.softmax` once dispatched; "" for the call of a function."""
        if isinstance(self.op, (Var, GlobalVar)):
            return ""
        return f"{self.dialect}.{self.op.name}" if self.dialect else self.op.name


@record(eq=False)
class Tuple:
    """A tuple of atoms."""

    fields: tuple[Atom, ...]
    span: Span | None = None

    @property
    def type(self) -> TupleType:
        return TupleType(tuple(f.type for f in self.fields))


@record(eq=False)
class TupleGetItem:
    """Field `index` (not negative) of the tuple `value`."""

    value: Atom
    index: int
    span: Span | None = None

    @property
    def type(self) -> Type:
        """Raises IRError for a value that is not a tuple, or a field that it does not have."""
        kind = self.value.type
        if isinstance(kind, TupleType) and 0 <= self.index < len(kind.fields):
            return kind.fields[self.index]
        raise IRError("get_item", f"there is no field {self.index} in a value of type {kind!r}")


@record(eq=False)
class If:
    """One of two blocks, by a 0-d bool tensor. The blocks see the variables around them."""

    cond: Atom
    then: Block
    orelse: Block
    span: Span | None = None

    @property
    def type(self) -> Type:
        return self.then.type


@record(eq=False)
class FunctionExpr:
    """A function of the module, or a closure when bound to a variable, which its own body may then call.

    attrs: facts of plain values, such as MUTATES.  name: a hint for readers and kernels.
    """

    params: tuple[Var, ...]
    body: Block
    attrs: Mapping[str, Any] = field(default_factory=_no_attrs)
    name: str = ""
    span: Span | None = None

    @property
    def type(self) -> FunctionType:
        return FunctionType(tuple(p.type for p in self.params), self.body.type)


@record(eq=False)
class Binding:
    """`var = value`."""

    var: Var
    value: Expr

    @property
    def span(self) -> Span | None:
        return self.value.span


@record(eq=False)
class Block:
    """Bindings in order, then the result: an atom, or a tuple of atoms."""

    bindings: tuple[Binding, ...]
    result: Atom | Tuple

    @property
    def type(self) -> Type:
        return self.result.type

    @property
    def results(self) -> tuple[Atom, ...]:
        """The atoms of the result."""
        return self.result.fields if isinstance(self.result, Tuple) else (self.result,)


Expr = Call | Tuple | TupleGetItem | If | FunctionExpr

ATOMS = (Var, Constant, GlobalVar)


def is_atom(value: Any) -> TypeGuard[Atom]:
    """Whether an argument of a call is a tensor (or function)."""
    return isinstance(value, ATOMS)


def is_atom_list(value: Any) -> TypeGuard[tuple[Atom, ...]]:
    """Whether an argument of a call is a (non-empty) list of tensors."""
    return isinstance(value, tuple) and len(value) > 0 and isinstance(value[0], ATOMS)  # pyright: ignore[reportUnknownArgumentType]


def operands(value: Expr | Atom) -> Iterator[Atom]:
    """The atoms that `value` itself reads, in order; those inside nested blocks are not its own."""
    match value:
        case Call():
            if value.callee is not None:
                yield value.callee
            for arg in value.args:
                if isinstance(arg, ATOMS):
                    yield arg
                elif is_atom_list(arg):
                    yield from arg
        case Tuple():
            yield from value.fields
        case TupleGetItem():
            yield value.value
        case If():
            yield value.cond
        case FunctionExpr():
            pass
        case _:
            yield value


def arg_types(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call as `OpLike.infer` takes them: atoms replaced by their types."""
    return tuple(a.type if isinstance(a, ATOMS) else tuple(x.type for x in a) if is_atom_list(a) else a for a in args)


@record(eq=False)
class CallInfo:
    """A call as a dialect sees it: `args` in schema order, tensors as types, everything else as values.

    layouts: of the operands in the tensors that the kernel gets in their place, None for those that it gets themselves;
        () if it gets all of them. Only implementations that take strides are asked for such kernels.
    orders: of the axes of the results in the tensors that the kernel writes, None for a result as it is; () if all are.
        Only implementations that write such orders are asked for them."""

    op: OpLike
    args: tuple[Any, ...]
    out: Type
    device: Device
    layouts: tuple[StridedLayout | None, ...] = ()
    orders: tuple[tuple[int, ...] | None, ...] = ()
    _facts: dict[str, Any] = field(default_factory=dict[str, Any], init=False, repr=False)
    """What its methods have found out: every candidate and every limit asks for it."""

    def tensors(self) -> tuple[TensorType, ...]:
        """The types of the operands."""
        if "tensors" not in self._facts:
            self._facts["tensors"] = tuple(flat_types(self.args))
        return self._facts["tensors"]

    def sources(self) -> tuple[TensorType, ...]:
        """The types of the tensors that a kernel gets for its operands: others where operands have layouts."""
        pairs = zip(self.tensors(), self.layouts or (None,) * len(self.tensors()), strict=True)
        return tuple(kind if layout is None else kind.with_shape(layout.source) for kind, layout in pairs)

    def destinations(self) -> tuple[TensorType, ...]:
        """The types of the tensors that a kernel writes for its results: others where results have orders."""
        pairs = zip(self.outputs(), self.orders or (None,) * len(self.outputs()), strict=True)
        return tuple(t if order is None else t.with_shape(tuple(t.shape[a] for a in order)) for t, order in pairs)

    def result_axes(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each result in another order, its position among the tensors of a kernel, and the axes that turn the
        tensor which the kernel gets into the result."""
        first = len(self.tensors())
        orders = [(first + i, order) for i, order in enumerate(self.orders) if order is not None]
        return [(i, tuple(order.index(axis) for axis in range(len(order)))) for i, order in orders]

    def outputs(self) -> tuple[TensorType, ...]:
        """The types of the results."""
        if "outputs" not in self._facts:
            self._facts["outputs"] = tuple(flat_types((self.out,)))
        return self._facts["outputs"]

    def complex_dtype(self) -> str:
        """The first complex dtype among operands and results, complex64 if there are only complex numbers, "" if there
        is none."""
        if "complex" not in self._facts:
            self._facts["complex"] = self._find_complex_dtype()
        return self._facts["complex"]

    def _find_complex_dtype(self) -> str:
        of_tensors = next((t.dtype for t in (*self.tensors(), *self.outputs()) if is_complex(t.dtype)), "")
        return of_tensors or ("complex64" if any(isinstance(arg, complex) for arg in self.args) else "")

    def bind(self) -> dict[str, Any]:
        """Arguments by name."""
        return dict(zip(self.op.schema.names, self.args, strict=True))


OpLookup = Callable[[str], "OpLike"]
"""The operator of a name; raises RegistryError when there is none."""

_installed: list[OpLookup] = []


def set_op_lookup(lookup: OpLookup) -> None:
    """Install the lookup that `parse` uses when it is given none."""
    _installed[:] = [lookup]


def find_op(name: str) -> OpLike:
    """The operator called `name` by the installed lookup, by default the registry's; raises RegistryError
    without such a name."""
    if _installed:
        return _installed[0](name)
    import meta

    return meta.op.registry.get(name)
