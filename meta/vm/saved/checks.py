"""The checks of open sizes in a program file: calls as the text of a module, conditions as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meta import errors
from meta.errors import FileError, MetaError
from meta.ir.expr import Call
from meta.ir.lexer import Cursor
from meta.ir.literal_parser import parse_value
from meta.ir.module import Module
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.op.user.namespaces import SEPARATOR
from meta.vm.saved.kernels import call_function, signature_function
from meta.vm.size_checks import SizeChecks


def encode_checks(checks: SizeChecks | None) -> dict[str, Any]:
    """The JSON of checks: the text of a module that has a function of the operands of each call, and the sizes that are
    0 or more, each with the class and the parts of the error of others. Operators of other packages are left out."""
    if checks is None:
        return {"calls": "", "conditions": []}
    calls = [call for call in checks.calls if SEPARATOR not in call.op.name]
    conditions = [
        [str(size), type(error).__name__, error.subject, error.problem, error.expected, error.remedy]
        for size, error in checks.conditions
    ]
    functions = {f"check{i}": call_function(call, None, f"check{i}") for i, call in enumerate(calls)}
    module = Module({"main": signature_function((), "main"), **functions})
    return {"calls": to_text(module, spans=False), "conditions": conditions}


def decode_checks(facts: Mapping[str, Any]) -> SizeChecks | None:
    """The checks of their JSON. Raises FileError or IRError for other JSON."""
    if not facts["calls"]:
        return None
    calls = [b.value for f in parse(facts["calls"]).functions.values() for b in f.body.bindings]
    conditions = tuple(_condition(*each) for each in facts["conditions"])
    return SizeChecks(tuple(call for call in calls if isinstance(call, Call)), conditions)


def _condition(size: str, kind: str, *parts: str) -> tuple[Any, MetaError]:
    error = getattr(errors, kind, None)
    if not (isinstance(error, type) and issubclass(error, MetaError)):
        raise FileError("load", f"a condition has an error of class {kind[:80]!r}", "a class of meta.errors")
    return parse_value(Cursor(size, "")), error(*parts)
