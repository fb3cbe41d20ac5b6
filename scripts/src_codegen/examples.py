"""The recorded examples of the operator reference; `python -m scripts.reference_examples` records them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from meta.op.registry import Op

RECORD = Path(__file__).resolve().parents[2] / "docs" / "reference" / "examples.json"
_INTERNAL = re.compile(r"_d(?:[xwbqkv]|l?grid|alpha|scale|y)\w*$|_packed\w*$|_plan$")


def is_internal(op: Op) -> bool:
    """Whether an operator is for gradients and passes: users reach it through another one."""
    return bool(_INTERNAL.search(op.name)) or " ".join(op.doc.split()).startswith(("Gradient of", "The gradient of"))


@cache
def recorded() -> Mapping[str, str]:
    """The examples by the names of operators, each with its output."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def block(op: Op) -> str:
    """The example of an operator as a block of a page, "" if it has none."""
    example = recorded().get(op.name)
    return f"\n```pycon\n{example}```\n" if example else ""
