"""Programs of the IR, run one operator at a time with eager calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import submodules

if TYPE_CHECKING:
    from meta.interpreter import run as run
else:
    __getattr__, __dir__ = submodules(__name__)
