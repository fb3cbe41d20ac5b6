from typing import Any

from tvm.ir import Expr, Object

class Var(Expr):
    """A variable of a loop, block, expression or size."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class Buffer(Expr):
    """The variable of memory with a shape."""

    def __getitem__(self, index: Any) -> Expr: ...

class PrimFunc(Object):
    """A loop program."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class Stmt(Object):
    """A statement of a loop program."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class For(Stmt): ...
class BufferStore(Stmt): ...
class SeqStmt(Stmt): ...

def __getattr__(name: str) -> Any: ...
