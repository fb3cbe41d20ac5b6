"""Names of symbolic extents, which tell schedules a lower bound of the size."""

from __future__ import annotations

from typing import Final

LEAST_SIZES: Final = {"vast": 1 << 14, "long": 1 << 8}
"""Prefix of a symbolic extent's name -> the lower bound that the prefix promises."""


def size_name(size: int) -> str:
    """The name prefix of the symbolic extent that replaces `size`."""
    return next((prefix for prefix, least in LEAST_SIZES.items() if size >= least), "n")
