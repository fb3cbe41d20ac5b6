"""Base class of tensors without elements: those of a trace and those inside of a transformation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meta._generated.methods import TensorMethods
from meta.device import Device
from meta.dim import Count, Dim
from meta.eager.indexing import Index, getitem
from meta.eager.numpy_functions import array_function
from meta.eager.ufuncs import array_ufunc
from meta.errors import TraceError
from meta.ir.type import TensorType

if TYPE_CHECKING:
    from typing_extensions import Self


class TypedTensor(TensorMethods):
    """A tensor of which the type is known: shape, dtype and device, operators as methods, and reading by indices."""

    __slots__ = ("type",)

    type: TensorType
    """Shape, dtype and device as one interned object."""

    __array_ufunc__ = array_ufunc
    __array_function__ = array_function

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def device(self) -> Device:
        return self.type.device

    @property
    def ndim(self) -> int:
        return self.type.ndim

    @property
    def size(self) -> Dim:
        """Number of elements."""
        size = self.type.size
        return Count(size) if isinstance(size, int) else size

    @property
    def nbytes(self) -> Dim:
        """Bytes of the data."""
        return self.type.nbytes

    def to(self, device: Device | str | None = None, dtype: Any = None) -> Self:
        """This tensor on `device` with `dtype`."""
        out = self if dtype is None else self.cast(dtype)
        return out if device is None else out.device_copy(device)

    detach = TensorMethods.stop_gradient

    def __getitem__(self, index: Index) -> Self:
        """NumPy indexing: integers, slices, ..., None, integer and boolean arrays (see meta.eager.indexing)."""
        return getitem(self, index)  # type: ignore[arg-type]

    def __len__(self) -> int:
        if not self.shape:
            raise TraceError("len", "the tensor is 0-d", "at least one dimension")
        return self.shape[0].__index__()

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))
