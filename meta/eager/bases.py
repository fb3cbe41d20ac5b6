"""Base classes of tensors: the type and host values of arrays, and tensors whose type alone is known."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from meta import dtype as dtypes
from meta import spellings
from meta._generated.methods import Tensor
from meta.backend.memory import dlpack, numpy_arrays
from meta.backend.memory.allocation import reporting
from meta.device import Device
from meta.dim import Dim
from meta.dim_expressions import Count
from meta.eager.gradient_graph import GradientNode
from meta.eager.indexing import Index, getitem
from meta.eager.ufuncs import array_ufunc
from meta.errors import ArgumentError, GradientError, TraceError
from meta.ir.type import TensorType
from meta.modes import modes, scopes
from meta.parts import AliasGroup

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self


def _on_first_call(name: str) -> Any:
    """A function of `meta.eager.numpy_functions`, whose tables are loaded when it is called."""

    def run(*args: Any, **options: Any) -> Any:
        return getattr(import_module("meta.eager.numpy_functions"), name)(*args, **options)

    return run


class HostValues:
    """The type of an array, and its values in the memory of the host."""

    __slots__ = ()

    __array_ufunc__ = array_ufunc
    __array_function__ = _on_first_call("array_function")
    __torch_function__: ClassVar[Any] = classmethod(_on_first_call("torch_function"))

    _data: Any
    _type: TensorType
    _node: GradientNode | None

    @property
    def type(self) -> TensorType:
        """Shape, dtype and device as one interned object."""
        return self._type

    @property
    def shape(self) -> tuple[int, ...]:
        return self._type.shape  # type: ignore[return-value]  # arrays have static shapes

    @property
    def dtype(self) -> str:
        return self._type.dtype

    @property
    def device(self) -> Device:
        return self._type.device

    @property
    def ndim(self) -> int:
        return self._type.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return Count(self._type.size)

    def numel(self) -> int:
        """Number of elements."""
        return self.size

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self._type.nbytes  # type: ignore[return-value]

    # --- other libraries ---------------------------------------------------------------------------------------------

    def numpy(self, *, copy: bool = False) -> np.ndarray[Any, Any]:
        """A NumPy array: a read-only view of the same memory on the CPU, a read-only copy from other devices.

        copy: return a writable copy. The view is read-only because gradients cannot see writes of NumPy to values that
        they saved. Raises GradientError for an array that requires gradients: use `x.detach().numpy()`."""
        if self._node is not None:
            raise GradientError(
                "numpy", "the array is part of a gradient graph", "arrays without one", "use x.detach().numpy()"
            )
        host: Any = self._host("numpy")
        with reporting("a copy", host.nbytes):
            return host.copy() if copy else host

    def _host(self, what: str) -> np.ndarray[Any, Any]:
        """The values for `what`, read-only; raises TraceError where they may differ from call to call of a traced
        function."""
        if scopes.active and modes.trace is not None:
            modes.trace.check_readable(self, what)
        host: Any = numpy_arrays.to_numpy(self._data, self.dtype, self.shape, self.device)
        host.flags.writeable = False
        return host

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        out: Any = self._host("numpy")
        same = dtype is None or out.dtype == dtype
        if copy is False and not (same and self.device.kind == "cpu"):
            raise ValueError("numpy", f"{self.type!r} is not in memory as {dtype}", "copy=None or True")
        return out.copy() if copy and same else out if same else out.astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory for another library, writable: in-place writes of that library are not counted, so they must not
        reach values that a gradient saved.

        stream: of the consumer, by DLPack's numbers.  max_version: the newest DLPack of the consumer.  dl_device: its
        device, this one or the CPU.  copy: True for other memory.  Raises GradientError like `numpy`, and ExportError
        where dl_device or `copy` cannot be honoured."""
        if self._node is not None:
            raise GradientError(
                "dlpack", "the array is part of a gradient graph", "arrays without one", "use x.detach()"
            )
        if scopes.active and modes.trace is not None:
            modes.trace.check_readable(self, "dlpack")
        return dlpack.exported(self._data, self.type, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    def item(self) -> Any:
        """The value of an array with one element, as a Python number. Raises ArgumentError for any other size."""
        self._check_single("item", "write x.tolist(), or reduce it: x.sum().item()")
        host: Any = self._host("item")
        return host.reshape(()).item()

    def _check_single(self, what: str, remedy: str) -> None:
        """Raise ArgumentError for an array without exactly one element."""
        if self.size != 1:
            raise ArgumentError(what, f"the array has shape {self.shape}", "one element", remedy)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        with reporting("tolist"):
            return self._host("tolist").tolist()

    def __bool__(self) -> bool:
        self._check_single("bool", "write x.any() or x.all()")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._real_item("int"))

    def __float__(self) -> float:
        return float(self._real_item("float"))

    def __complex__(self) -> complex:
        return complex(self.item())

    def _real_item(self, what: str) -> float:
        """`item`; raises ArgumentError for a complex number."""
        self._check_single(what, f'convert the elements: x.cast("{what}32"), or reduce them: {what}(x.sum())')
        value = self.item()
        if isinstance(value, complex):
            raise ArgumentError(
                what, f"the array has dtype {self.dtype}", "a real dtype", "take meta.real(x) or abs(x)"
            )
        return value

    def __index__(self) -> int:
        if dtypes.is_inexact(self.dtype):
            raise ArgumentError("index", f"the array has dtype {self.dtype}", "an integer dtype")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        """A 0-d array as its value, others as `str` writes them; with a format specification, the one element as a
        number."""
        if spec:
            return format(self.item(), spec)
        return str(self) if self.ndim else str(numpy_arrays.to_numpy(self._data, self.dtype, (), self.device))


class TypedTensor(Tensor):
    """A tensor without elements, as in a trace and inside of a transformation: shape, dtype and device, operators as
    methods, and reading by indices."""

    __slots__ = ("__weakref__", "aliases", "origin", "type")  # type: ignore[override]  # arrays have a property

    type: TensorType
    """Shape, dtype and device as one interned object."""
    origin: Any
    """A reference to the tensor of whose elements this is a copy (see meta.parts), or None."""
    aliases: AliasGroup | None
    """The tensors that share its memory, None for this one alone."""
    _type: ClassVar = "of a trace"
    """No runner of an operator has this in its key, which tells generated functions that a call is not eager."""

    __array_ufunc__ = array_ufunc
    __array_function__ = _on_first_call("array_function")
    __torch_function__: ClassVar[Any] = classmethod(_on_first_call("torch_function"))

    if not TYPE_CHECKING:  # type checkers report unknown attributes

        def __getattr__(self, name: str) -> Any:
            return spellings.missing_member(self, "x", name)

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

    def numel(self) -> Dim:
        """Number of elements."""
        return self.size

    @property
    def nbytes(self) -> Dim:
        """Bytes of the data."""
        return self.type.nbytes

    def to(self, device: Device | str | None = None, dtype: object = None) -> Self:
        """This tensor on `device` with `dtype`."""
        out = self if dtype is None else self.cast(dtype)
        return out if device is None else out.device_copy(device)

    detach = Tensor.stop_gradient

    def snapshot(self) -> Self:
        """The present value as a tensor that nothing writes."""
        out = copy(self)
        out.aliases = out.origin = None
        return out

    def __getitem__(self, index: Index) -> Self:
        """NumPy indexing: integers, slices, ..., None, integer and boolean arrays (see meta.eager.indexing)."""
        return getitem(self, index)

    def __len__(self) -> int:
        if not self.shape:
            raise TraceError("len", "the tensor is 0-d", "at least one dimension")
        return self.shape[0].__index__()

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))
