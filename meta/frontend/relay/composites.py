"""Patterns of Relay operators that are one operator of meta."""

from __future__ import annotations

from meta.ir.module import Module


def composites(module: Module) -> Module:
    return module
