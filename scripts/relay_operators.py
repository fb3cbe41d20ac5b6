"""Write the table of supported Relay operators into docs/from-relay.md: `python -m scripts.relay_operators`."""

from __future__ import annotations

import re
from pathlib import Path

from meta.frontend.relay.convert.call import converters

PAGE = Path(__file__).resolve().parents[1] / "docs" / "from-relay.md"
_MARKED = re.compile(r"(<!-- supported -->\n).*?(<!-- /supported -->)", re.S)


def operator_table() -> str:
    """The operators by the part of their names before the dot, as Markdown."""
    families: dict[str, list[str]] = {}
    for name in converters.names():
        family, _, _ = name.rpartition(".")
        families.setdefault(family, []).append(f"`{name}`")
    rows = [f"| {family or 'tensors'} | {', '.join(names)} |" for family, names in sorted(families.items())]
    return "\n".join(["| family | operators |", "| --- | --- |", *rows])


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_MARKED.sub(lambda m: f"{m[1]}{operator_table()}\n{m[2]}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
