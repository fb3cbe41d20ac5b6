"""Programs that come from another system."""

from __future__ import annotations

from dataclasses import dataclass

from meta.ir.module import Module


@dataclass(frozen=True, slots=True, eq=False)
class ConvertedProgram:
    """module: its "main" takes the tensors of `inputs`, in order.  inputs: names that the other system gave them."""

    module: Module
    inputs: tuple[str, ...]
