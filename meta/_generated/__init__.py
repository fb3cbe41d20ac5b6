"""Generated code: written by `python -m scripts.src_codegen`, committed, never edited by hand (except this file)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta._generated import functions as functions


def __getattr__(name: str) -> Any:
    # The methods of arrays are defined before the functions they call can be imported.
    if name == "functions":
        return import_module("meta._generated.functions")
    raise AttributeError(name)
