"""Numbers of bytes as users write them."""

from __future__ import annotations

import re
from typing import Final

from meta.errors import ArgumentError

_UNITS: Final = {"B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT", 1)
}
_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def parse_bytes(value: int | str, name: str) -> int:
    """The number of bytes: an int, or a text such as "2GiB" or "500 MB" (B; KB, MB, GB, TB; KiB, MiB, GiB, TiB).

    name: of the argument. Raises ArgumentError for anything else, and below 1."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        return value
    matched = _TEXT.fullmatch(value) if isinstance(value, str) else None
    count = int(float(matched[1]) * _UNITS.get(matched[2], 0)) if matched is not None else 0
    if count <= 0:
        expected = f"a positive number of bytes, or a text with a unit ({', '.join(_UNITS)})"
        raise ArgumentError("vm", f"{name} is {value!r}", expected, f'for instance {name}="2GiB"')
    return count
