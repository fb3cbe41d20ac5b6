"""Relay programs as meta programs: `from_relay` for a Module, `load` for a Model, `examine` to look first."""

from __future__ import annotations

from meta.frontend.examination import Examination, OperatorUse
from meta.frontend.relay.api import FromRelay, examine, from_relay, load
from meta.frontend.relay.errors import RelayError, RelaySyntaxError, UnsupportedError
from meta.frontend.relay.model import RelayModel

__all__ = [
    "Examination", "FromRelay", "OperatorUse", "RelayError", "RelayModel", "RelaySyntaxError", "UnsupportedError",
    "examine", "from_relay", "load",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
