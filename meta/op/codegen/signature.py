"""Python signatures and docstrings from schemas."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from meta.op.registry import Op
from meta.schema._dsl import Arg

WIDTH = 118


def annotation(arg: Arg, tensor: str) -> str:
    """The annotation of an argument, with `tensor` for the tensor type."""
    return arg.type.annotation.replace("Tensor", tensor)


def default_value(arg: Arg) -> Any:
    """The default in a signature: a number has the class of the normal form, by which the fast path looks it up."""
    value = arg.type.normalize(arg.default) if arg.type.role == "attr" else arg.default
    return value if isinstance(value, (bool, int, float)) else arg.default


def default(arg: Arg) -> str:
    """` = value`, or nothing for a required argument."""
    if arg.required:
        return ""
    value = default_value(arg)
    return f" = {value!r}" if not hasattr(value, "kind") else f' = "{value}"'


def parameter(arg: Arg, tensor: str) -> str:
    return f"{arg.name}: {annotation(arg, tensor)}{default(arg)}"


def tensor_args(op: Op) -> list[Arg]:
    return [arg for arg in op.schema.args if arg.is_tensor]


VARIADIC = {"broadcast_to", "reshape", "transpose"}
"""Operators whose ints a method also takes one by one: `x.reshape(3, 2)`. Their functions refuse them in words."""

MORE, UNKNOWN = "*more: Any", "**unknown: NoReturn"
"""The parameters that take surplus arguments and unknown keywords, which the function explains: type checkers report
each use of one. They cost a call 35 ns."""


def definition(name: str, parameters: Iterable[str], result: str, indent: str = "") -> str:
    """A `def` line, with the parameters in lines between if it would be too long."""
    listed = list(parameters)
    line = f"{indent}def {name}({', '.join(listed)}) -> {result}:"
    if len(line) <= WIDTH:
        return line
    rows = [f"{indent}   "]
    for text in (f" {each}," for each in listed):
        if len(rows[-1] + text) > WIDTH:
            rows.append(f"{indent}   ")
        rows[-1] += text
    return "\n".join([f"{indent}def {name}(", *rows, f"{indent}) -> {result}:"])


def doc_lines(op: Op, indent: str = "", skip: int = 0) -> list[str]:
    """The operator's description and one line per argument but the first `skip`, wrapped for an indentation."""
    text = textwrap.fill(" ".join(op.doc.split()), WIDTH - len(indent) - 3)
    lines = text.splitlines() or [op.name]
    if op.aliases:
        lines.append(f"Aliases: {', '.join(op.aliases)}.")
    for arg in op.schema.args[skip:]:
        if arg.doc:
            lines.append(f"{arg.name}: {arg.doc}")
    wrapped = [lines[0]]
    for line in lines[1:]:
        wrapped += textwrap.wrap(line, WIDTH - len(indent), subsequent_indent="    ") or [""]
    return wrapped


def docstring(op: Op, indent: str, skip: int = 0) -> str:
    """`doc_lines` as a docstring in source text."""
    wrapped = [line.replace("\\", "\\\\").replace('"""', '\\"\\"\\"') for line in doc_lines(op, indent, skip)]
    if len(wrapped) == 1:
        text = f'{wrapped[0][:-1]}\\"' if wrapped[0].endswith('"') else wrapped[0]
        return f'{indent}"""{text}"""\n'
    body = wrapped[0] + "\n" + "".join(f"{indent}{line}\n" for line in wrapped[1:])
    return f'{indent}"""{body}{indent}"""\n'
