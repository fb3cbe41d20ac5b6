from typing import Any

from tvm.ir import Object
from tvm.tirx import Stmt

class SBlock(Stmt):
    """A block: the computation of an element, for all positions."""

class SBlockRealize(Stmt):
    """A block for given positions."""

class LoopRV(Object):
    """A loop of a schedule."""

class SBlockRV(Object):
    """A block of a schedule."""

class Schedule(Object):
    """A module and the primitives that change its loops."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
