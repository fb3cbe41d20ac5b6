"""The metadata section of a Relay text."""

from __future__ import annotations

from typing import Any

from meta.frontend.relay.errors import RelayError


class Metadata:
    """Values by class and index, decoded when the text names them."""

    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.line = line

    def entry(self, key: str, index: int) -> Any:
        raise RelayError(f"meta[{key}][{index}] cannot be read")
