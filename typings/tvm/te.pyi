from typing import Any

from tvm.ir import Expr, Object

class Tensor(Object):
    """A tensor of a computation: its elements are expressions of their positions."""

    shape: Any
    dtype: str
    ndim: int
    name: str
    op: Any
    def __call__(self, *index: Any) -> Expr: ...
    def __getitem__(self, index: Any) -> Expr: ...
    def __hash__(self) -> int: ...

def __getattr__(name: str) -> Any: ...
