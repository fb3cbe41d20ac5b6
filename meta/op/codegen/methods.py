"""Operators as methods and Python operators of arrays and symbols, as text."""

from __future__ import annotations

from meta.op.codegen.functions import result_type
from meta.op.codegen.signature import MORE, UNKNOWN, VARIADIC, annotation, default, definition, docstring
from meta.op.registry import Op


def special_method(op: Op, name: str, *, reflected: bool) -> str:
    """The Python special method `name`, with the operands swapped if `reflected`."""
    rest = op.schema.args[1:]
    if not rest or not rest[0].is_tensor:
        return f"\n    def {name}(self) -> Self:\n        return meta.{op.name}(self)\n"
    ignore = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    operands = "other, self" if reflected else "self, other"
    kind = annotation(rest[0], "Self")
    head = f"\n    def {name}(self, other: {kind}) -> Self:{ignore}\n"
    return f"{head}        return meta.{op.name}({operands})\n"


def in_place_method(op: Op) -> str:
    """The Python special method that writes the result into `self`."""
    name = op.operator.replace("__", "__i", 1)
    kind = annotation(op.schema.args[1], "Self")
    return f"\n    def {name}(self, other: {kind}) -> Self:\n        return self._in_place(meta.{op.name}, other)\n"


def method(op: Op) -> str:
    """The method, whose first argument is `self`."""
    rest = op.schema.args[1:]
    parameters = ["self", *(f"{a.name}: {annotation(a, 'Self')}{default(a)}" for a in rest)]
    names = ", ".join(["self", *(a.name for a in rest)])
    surplus, condition = ", *more", "more or unknown"
    if op.name in VARIADIC:
        (ints,) = rest
        names = f"self, _ints({ints.name}, more)"
        surplus, condition = "", "unknown"
    decorator = "    @bound_by_schema\n" if any(arg.required for arg in rest) else ""
    parameters += ["*more: int" if op.name in VARIADIC else MORE, UNKNOWN]
    refusal = f"        if {condition}:\n            meta.{op.name}({names}{surplus}, **unknown)\n"
    head = definition(op.name, parameters, result_type(op, "Self"), "    ")
    call = f"meta.{op.name}({names})"
    if op.part:
        call = f"tuple([mark_part(part, self) for part in {call}])" if op.outputs else f"mark_part({call}, self)"
    text = f"\n{decorator}{head}\n{docstring(op, '        ', skip=1)}{refusal}        return {call}\n"
    return text + "".join(f"\n    {alias} = {op.name}\n" for alias in op.aliases)


def bare_method(op: Op) -> str:
    """The method, which calls `_function`, with nothing of the operator but its names."""
    names = ", ".join(["self", *op.schema.names[1:]])
    refusal = f"    if _more or _unknown:\n        _function({names}, *_more, **_unknown)\n"
    return f"def {op.basename}({names}, *_more, **_unknown):\n{refusal}    return _function({names})\n"
