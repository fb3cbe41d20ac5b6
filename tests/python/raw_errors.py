"""Errors that are not those of meta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.errors import MetaError


def raw_error(call: Callable[[], Any]) -> str:
    """The error of a call that is not one of meta, "" if there is none."""
    try:
        call()
    except MetaError:
        return ""
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""
