"""Passes: `Module -> Module` transformations, one a file, and the manager that runs them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.passes.auto_cast import auto_cast as auto_cast
    from meta.passes.auto_diff import auto_diff as auto_diff
    from meta.passes.cse import cse as cse
    from meta.passes.dce import dce as dce
    from meta.passes.dispatch_dialect import dispatch_dialect as dispatch_dialect
    from meta.passes.fold_const import fold_const as fold_const
    from meta.passes.inline_calls import inline_calls as inline_calls
    from meta.passes.manager import Pass as Pass
    from meta.passes.manager import PassContext as PassContext
    from meta.passes.manager import Pipeline as Pipeline
    from meta.passes.manager import bisect as bisect
    from meta.passes.simplify import drop_stop_gradient as drop_stop_gradient
    from meta.passes.simplify import simplify as simplify
    from meta.passes.standard import standard as standard

_HOMES = {
    "Pass": "manager",
    "PassContext": "manager",
    "Pipeline": "manager",
    "auto_cast": "auto_cast",
    "auto_diff": "auto_diff",
    "bisect": "manager",
    "cse": "cse",
    "dce": "dce",
    "dispatch_dialect": "dispatch_dialect",
    "drop_stop_gradient": "simplify",
    "fold_const": "fold_const",
    "inline_calls": "inline_calls",
    "simplify": "simplify",
    "standard": "standard",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'meta.passes' has no attribute {name!r}")
    value = getattr(import_module(f"meta.passes.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
