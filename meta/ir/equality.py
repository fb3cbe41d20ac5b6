"""IR compared by content: equal programs up to the names of variables, spans and hints."""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import blake2b
from typing import Any

from meta.ir.expr import (
    ATOMS,
    Atom,
    Call,
    Constant,
    Expr,
    FunctionExpr,
    GlobalVar,
    If,
    Tuple,
    TupleGetItem,
    Var,
    is_atom_list,
)
from meta.ir.literal import attr_text, encode_inline, to_array
from meta.ir.printer import Node, Printer


class _Canonical(Printer):
    """Text in which variables are numbered, free ones named by identity, constants by content."""

    def __init__(self) -> None:
        super().__init__(spans=False, hints=False)

    def fresh(self, preferred: str) -> str:
        return super().fresh("")

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Constant):
            digest = blake2b(to_array(atom.value).tobytes(), digest_size=16).hexdigest()
            return f"const({digest}, {atom.type!r})"
        if isinstance(atom, Var) and atom not in self.names:
            return f"free {id(atom)}"
        return super().atom(atom)


def _canonical_text(node: Node) -> str:
    printer = _Canonical()
    printer.node(node)
    return "\n".join(printer.lines)


def structural_equal(a: Node, b: Node) -> bool:
    """Whether two pieces of IR are the same up to names of variables, function name hints and spans. Variables bound
    outside of both must be the same ones. Constants are compared bit by bit."""
    return a is b or _canonical_text(a) == _canonical_text(b)


def value_key(value: Expr) -> Hashable | None:
    """A key that two values share when they compute the same from the same variables; None for a value with nested
    blocks. Large constants are equal only when they are one object."""
    match value:
        case Call():
            op = _arg_key(value.callee) if value.callee is not None else (value.op, value.dialect)
            return op, tuple(map(_arg_key, value.args)), attr_text(value.attrs)
        case Tuple():
            return "tuple", tuple(map(_arg_key, value.fields))
        case TupleGetItem():
            return "item", _arg_key(value.value), value.index
        case If() | FunctionExpr():
            return None


def _arg_key(arg: Any) -> Hashable:
    if isinstance(arg, Constant):
        return encode_inline(arg.value, arg.type) or arg
    if isinstance(arg, GlobalVar):
        return "@", arg.name
    if isinstance(arg, ATOMS):
        return arg
    return tuple(map(_arg_key, arg)) if is_atom_list(arg) else attr_text(arg)
