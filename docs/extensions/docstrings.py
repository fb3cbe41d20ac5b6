"""Docstrings are plain text: paragraphs, indented code, and lines such as `name: what it is`. This turns them into
reStructuredText, which autodoc expects."""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"([*|_\\])")
_FIELD = re.compile(r"(?P<names>[a-z_]\w*(?:, [a-z_]\w*)*): (?P<text>\S.*)")
_SECOND_FIELD = re.compile(r"\.  (?=[a-z_]\w*(?:, [a-z_]\w*)*: \S)")


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(_app: Any, _kind: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = convert(lines)


def convert(lines: list[str]) -> list[str]:
    """The lines of a docstring, without common indentation, as reStructuredText."""
    out: list[str] = []
    state = "text"  # text, field or code
    for line in (part for line in lines for part in _one_field_a_line(line)):
        indented = line.startswith((" ", "\t"))
        field = None if indented else _FIELD.fullmatch(line)
        if not line.strip():
            out.append("")
            state = "code" if state == "code" else "text"
        elif indented and state == "field":
            out.append("    " + _escape(line.strip()))
        elif indented:
            if state != "code":
                out += ["", "::", ""]
                state = "code"
            out.append("    " + line)
        elif field is not None:
            if state != "field":
                out.append("")
            out.append(f":{field['names']}: {_escape(field['text'])}")
            state = "field"
        else:
            if state != "text":
                out.append("")
            out.append(_escape(line))
            state = "text"
    return [*out, ""]


def _one_field_a_line(line: str) -> list[str]:
    """A line that describes several fields, `a: one.  b: two.`, as a line for each."""
    parts = _SECOND_FIELD.split(line)
    return [part if part.endswith(".") or i == len(parts) - 1 else part + "." for i, part in enumerate(parts)]


def _escape(text: str) -> str:
    """`text` with code in double backticks and no character of markup elsewhere."""
    pieces = _CODE.split(text)
    return "".join(f"`{piece}`" if i % 2 else _SPECIAL.sub(r"\\\1", piece) for i, piece in enumerate(pieces))
