"""Small Relay programs for the tests of the readers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meta.frontend.relay import ast
from meta.frontend.relay.source import read

DATA = Path(__file__).parent / "data"
VECTOR = ast.TensorType((2,), "float32")
FLOAT = ast.TensorType((), "float32")


def main(text: str) -> ast.RelayFunction:
    return read(text).functions["main"]


def body(text: str, params: str = "%x: float32") -> Any:
    """The syntax tree of `text`, the body of a function over %x."""
    return main(f"def @main({params}) {{ {text} }}").body


def lets(expr: ast.Expr) -> Iterator[ast.Let]:
    while isinstance(expr, ast.Let):
        yield expr
        expr = expr.body


def graph(*nodes: tuple[str, Any], root: int = 1, arrays: tuple[str, ...] = ()) -> str:
    """JSON of (type_key, attrs | data); node 0 is null."""
    entries: list[dict[str, Any]] = [{"type_key": ""}]
    for kind, parts in nodes:
        entries.append({"type_key": kind, "data" if isinstance(parts, list) else "attrs": parts})
    return json.dumps({"root": root, "nodes": entries, "b64ndarrays": list(arrays), "attrs": {}})
