"""Questions about tensors, and assertions: what a graph keeps of the checks of its program."""

from __future__ import annotations

from typing import Any

import meta
from meta.dim import product
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten._values import is_tensor, position

ROWS: Rows = {}


@into(ROWS, "sym_size", "size")
def size(self: Any, dim: int | None = None) -> Any:
    return tuple(self.shape) if dim is None else self.shape[position(dim, self.ndim)]


@into(ROWS, "sym_numel", "numel")
def numel(self: Any) -> Any:
    return product(self.shape)


@into(ROWS, "sym_stride", "stride")
def stride(self: Any, dim: int | None = None) -> Any:
    """Of a compact array, as all of meta's are."""
    strides = tuple(product(self.shape[i + 1 :]) for i in range(self.ndim))
    return strides if dim is None else strides[position(dim, self.ndim)]


@into(ROWS, "sym_storage_offset", "storage_offset")
def storage_offset(self: Any) -> int:
    return 0


@into(ROWS)
def dim(self: Any) -> int:
    return self.ndim


@into(ROWS)
def _shape_as_tensor(self: Any) -> Any:
    return (
        meta.stack([meta.full((), n, "int64", self.device) for n in self.shape])
        if self.ndim
        else meta.zeros((0,), "int64", self.device)
    )


@into(ROWS)
def _local_scalar_dense(self: Any) -> Any:
    return self.item()


@into(ROWS)
def _assert_tensor_metadata(a: Any, size: Any = None, stride: Any = None, dtype: Any = None, **placement: Any) -> None:
    """Raises ArgumentError for a tensor of another shape or dtype. Strides and devices are torch's."""
    if dtype is not None and a.dtype != dtype:
        raise ArgumentError("_assert_tensor_metadata", f"the tensor is {a.dtype}", str(dtype))
    if size is not None and tuple(a.shape) != tuple(size):
        raise ArgumentError("_assert_tensor_metadata", f"the shape is {tuple(a.shape)}", f"{tuple(size)}")


@into(ROWS, "_assert_scalar", "_functional_assert_scalar")
def _assert_scalar(self: Any, assert_msg: str, dep_token: Any = None) -> Any:
    """Raises ArgumentError with torch's text for a condition that is false. Those on symbolic sizes are bools by then,
    or facts that the program's own checks of its inputs state."""
    if not is_tensor(self) and not self:
        raise ArgumentError("_assert_scalar", assert_msg, "a condition that holds")
    return dep_token


@into(ROWS, "_assert_async", "_functional_assert_async")
def _assert_async(self: Any, assert_msg: str = "", dep_token: Any = None) -> Any:
    """Checks an array; a value inside of a program is not checked, as on devices that torch checks asynchronously."""
    if isinstance(self, meta.NDArray) and not self.item():
        raise ArgumentError("_assert_async", assert_msg or "the value is false", "a tensor that is true")
    return dep_token


@into(ROWS, "sym_constrain_range", "sym_constrain_range_for_size")
def sym_constrain_range(size: Any, *, min: Any = None, max: Any = None) -> None:
    """Nothing: it only tells torch the range of a size."""
