"""IR compared by content: equal programs up to the names of variables, spans and hints."""

from __future__ import annotations

from hashlib import blake2b

from meta.ir.expr import (
    Atom,
    Constant,
    Var,
)
from meta.ir.printer import Node, Printer, to_array


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
