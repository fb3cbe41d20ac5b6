"""Docstrings are plain text: paragraphs, indented code, and lines such as `name: what it is`. This turns them into
reStructuredText, which autodoc expects."""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"([*|_\\])")
_FIELD = re.compile(r"(?P<names>[a-z_]\w*(?:, [a-z_]\w*)*): (?P<text>\S.*)")
_NEXT_FIELD = re.compile(r"\.  (?=[a-z_]\w*(?:, [a-z_]\w*)*: \S)")


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(_app: Any, _kind: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = convert(lines)


def convert(lines: list[str]) -> list[str]:
    """The lines of a docstring, without common indentation, as reStructuredText."""
    out: list[str] = []
    kind = "text"  # of the lines before: text, field or code
    for line in _NEXT_FIELD.sub(".\n", "\n".join(lines)).splitlines():
        indented = line.startswith(" ")
        field = None if indented else _FIELD.fullmatch(line)
        if not line:
            out.append("")
            kind = "code" if kind == "code" else "text"
        elif indented and kind == "field":
            out.append("    " + _escape(line.strip()))
        elif indented:
            if kind != "code":
                out += ["", "::", ""]
                kind = "code"
            out.append("    " + line)
        elif field is not None:
            out += ["", f"``{field['names']}``", "    " + _escape(field["text"])]
            kind = "field"
        else:
            if kind != "text":
                out.append("")
            out.append(_escape(line))
            kind = "text"
    return [*out, ""]


def _escape(text: str) -> str:
    """`text` with code in double backticks, and markup characters escaped elsewhere."""
    pieces = _CODE.split(text)
    return "".join(f"`{piece}`" if i % 2 else _SPECIAL.sub(r"\\\1", piece) for i, piece in enumerate(pieces))
