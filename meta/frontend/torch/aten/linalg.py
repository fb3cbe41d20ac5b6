"""Matrix products and linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, direct, into
from meta.frontend.torch.aten._values import position

ROWS: Rows = {"linear": direct("dense", bias="bias"), "matmul": "matmul", "linalg_matmul": "matmul"}


def _product(name: str, a: Any, b: Any, ranks: tuple[int, int]) -> Any:
    """The product of two tensors, each with exactly this many axes."""
    if (a.ndim, b.ndim) != ranks:
        raise ArgumentError(name, f"the operands have {a.ndim} and {b.ndim} axes", f"{ranks[0]} and {ranks[1]}")
    return meta.matmul(a, b)


@into(ROWS)
def mm(self: Any, mat2: Any) -> Any:
    return _product("mm", self, mat2, (2, 2))


@into(ROWS)
def bmm(self: Any, mat2: Any) -> Any:
    if self.ndim == mat2.ndim == 3 and self.shape[0] != mat2.shape[0]:
        raise ArgumentError("bmm", f"batches of {self.shape[0]} and {mat2.shape[0]}", "one size")
    return _product("bmm", self, mat2, (3, 3))


@into(ROWS)
def mv(self: Any, vec: Any) -> Any:
    return _product("mv", self, vec, (2, 1))


@into(ROWS, "dot", "vdot")
def dot(self: Any, tensor: Any) -> Any:
    return _product("dot", self, tensor, (1, 1))


@into(ROWS, "outer", "ger")
def outer(self: Any, vec2: Any) -> Any:
    if self.ndim != 1 or vec2.ndim != 1:
        raise ArgumentError("outer", f"the operands have {self.ndim} and {vec2.ndim} axes", "1 axis each")
    return meta.multiply(meta.expand_dims(self, 1), vec2)


@into(ROWS)
def inner(self: Any, other: Any) -> Any:
    if not self.ndim or not other.ndim:
        return meta.multiply(self, other)
    if self.shape[-1] != other.shape[-1]:
        raise ArgumentError("inner", f"the last axes have sizes {self.shape[-1]} and {other.shape[-1]}", "one size")
    return tensordot(self, other, [self.ndim - 1], [other.ndim - 1])


@into(ROWS)
def tensordot(self: Any, other: Any, dims_self: Sequence[int], dims_other: Sequence[int]) -> Any:
    if len(dims_self) != len(dims_other):
        raise ArgumentError("tensordot", f"{len(dims_self)} and {len(dims_other)} axes", "as many of each")
    first, second = ([position(d, x.ndim) for d in dims] for x, dims in ((self, dims_self), (other, dims_other)))
    labels = [chr(97 + i) for i in range(self.ndim)]
    others = [chr(65 + i) for i in range(other.ndim)]
    for i, j in zip(first, second, strict=True):
        others[j] = labels[i]
    kept = [c for i, c in enumerate(labels) if i not in first] + [c for i, c in enumerate(others) if i not in second]
    return meta.einsum(f"{''.join(labels)},{''.join(others)}->{''.join(kept)}", self, other)


@into(ROWS)
def einsum(equation: str, tensors: Sequence[Any], *, path: Any = None) -> Any:
    return meta.einsum(equation, *tensors)


@into(ROWS)
def trace(self: Any) -> Any:
    if self.ndim != 2:
        raise ArgumentError("trace", f"x has {self.ndim} axes", "2")
    rows, columns = self.shape
    return meta.sum(meta.where(meta.eye(rows, columns, "bool", self.device), self, 0))


@into(ROWS, "diagonal", "diagonal_copy")
def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    first, second = position(dim1, self.ndim), position(dim2, self.ndim)
    if first == second:
        raise ArgumentError("diagonal", f"dim1 and dim2 are {dim1} and {dim2}", "two axes")
    rest = [i for i in range(self.ndim) if i not in (first, second)]
    x = meta.transpose(self, (*rest, first, second))
    rows, columns = x.shape[-2:]
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    flat = meta.reshape(x, (*x.shape[:-2], rows * columns))
    start = max(offset, 0) + max(-offset, 0) * columns
    if not count:
        return meta.strided_slice(flat, [0] * flat.ndim, [*flat.shape[:-1], 0])
    return flat[..., start : start + (count - 1) * (columns + 1) + 1 : columns + 1]


@into(ROWS)
def linalg_diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return diagonal(A, offset, dim1, dim2)
