"""NDArray: an eager value. Storage is a TVM-FFI tensor; methods and operators are generated from the registry."""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from meta import dtype as dtypes
from meta import spellings
from meta._generated.methods import Tensor
from meta.backend.memory import allocation, dlpack, numpy_arrays
from meta.device import Device
from meta.device import device as parse_device
from meta.eager.assignment import setitem
from meta.eager.bases import HostValues
from meta.eager.gradient_graph import GradientNode, Leaf, record_write, register_hook, set_requires_grad, version_of
from meta.eager.indexing import Index, assigned_array, check_dtype, check_value, getitem, host_index
from meta.eager.inplace import is_recorded, write_recorded, write_result
from meta.eager.walk import backward_of
from meta.errors import ArgumentError, GradientError, TypeInferenceError, attributed
from meta.ir.type import TensorType, tensor_type
from meta.modes import GradMode, modes, scopes, suspended
from meta.op import rules
from meta.parts import TEMPORARY, Writes, check_whole, is_part, shared_writes
from meta.schema._dsl import TensorLike
from meta.schema.annotations import explained
from meta.tree import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np


_UNSET: dict[str, Any] = {"_frozen": False, "_grad": None, "_hooks": None}
"""Values of the slots that most arrays never fill; filling them would cost every operator call."""


class NDArray(HostValues, Tensor):
    """A tensor with values, on a device, that knows how it was computed when gradients are wanted.

    shape: tuple of ints.  dtype: name, such as "float32".  device: a meta Device.
    grad: the accumulated gradient, an NDArray of the same type, or None.
    """

    __slots__ = ("__weakref__", "_data", "_frozen", "_grad", "_hooks", "_index", "_node", "_type", "_version")

    _node: GradientNode | None
    _index: int
    _version: list[int] | None
    _grad: NDArray | None
    _frozen: bool
    """Whether the user set `requires_grad` to False: a model in train mode leaves the array so."""

    def __init__(self, data: object, type: TensorType) -> None:
        self._data = data
        self._type = type
        self._node = None
        self._index = 0
        self._version = None

    if not TYPE_CHECKING:  # type checkers report unknown attributes

        def __getattr__(self, name: str) -> Any:
            if name in _UNSET:
                return _UNSET[name]
            attribute = getattr(type(self), name, None)
            if isinstance(attribute, property) and attribute.fget is not None:
                return attribute.fget(self)  # raises the AttributeError inside of the property, which says more
            return spellings.missing_member(self, "x", name)

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ArgumentError("len", "the array is 0-d", "at least one dimension")
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray]:
        return (self[i] for i in range(len(self)))

    __hash__ = object.__hash__  # elementwise __eq__ would take it away

    def __reduce__(self) -> tuple[Any, ...]:
        # The copy of a computed array keeps the values, and not how they were computed.
        requires_grad = self.requires_grad and self.is_leaf
        return _restored, (self._host("pickle"), str(self.device), requires_grad, self._frozen)

    def __copy__(self) -> NDArray:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> NDArray:
        """The same values in other memory; a leaf stays a leaf. Raises GradientError for a computed array."""
        if not self.is_leaf:
            raise GradientError("copy", "the array is part of a gradient graph", "leaves", "use x.detach()")
        out = memo[id(self)] = copy_of(self)
        set_requires_grad(out, self.requires_grad)
        out._frozen = self._frozen
        if self._grad is not None:
            out._grad = copy_of(self._grad)
        return out

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape)) or "scalar"
        grad = ", requires_grad" if self._node is not None else ""
        values = numpy_arrays.to_numpy(self._data, self.dtype, self.shape, self.device)
        return f"{values}\n<NDArray [{shape}] @ {self.device}, dtype={self.dtype}{grad}>"

    # --- placement ---------------------------------------------------------------------------------------------------

    @explained
    def to(self, device: Device | str | None = None, dtype: object = None) -> NDArray:
        """This array on `device` with `dtype`; itself when nothing changes. Differentiable."""
        out: NDArray = self if dtype is None or dtypes.canonical(dtype) == self.dtype else self.cast(dtype)
        return out if device is None or parse_device(device) is self.device else out.device_copy(device)

    def update(self, value: NDArray) -> None:
        """Overwrite the values, in place, with an array of the same type, whose gradient graph this array then has.

        Raises TypeInferenceError for another type, GradientError for a leaf that requires gradients, NotSupportedError
        for a part (see meta.parts)."""
        check_whole("update", self)
        if scopes.active and modes.transform is not None:
            modes.transform.write_captured("update", self, NDArray.update, value)
            return
        if scopes.active and modes.trace is not None:
            modes.trace.update(self, value)
            return
        if value._type is not self._type:
            raise TypeInferenceError(
                "update", f"the value is {value.type!r}", f"the array's own type: {self.type!r}", "reshape or cast it"
            )
        if is_recorded(self, value):
            write_recorded("update", self, lambda _: copied(value))
            return
        allocation.copy_into(value._data, record_write("update", self)._data)

    def _in_place(self, function: Callable[[Any, Any], Any], other: Any) -> NDArray:
        """This array, after `function(self, other)` was written into it: what `+=` and the like do."""
        if is_part(self):
            if getrefcount(self) > TEMPORARY:
                check_whole(function.__name__, self)
            return function(self, other)
        if scopes.active and modes.transform is not None:
            return modes.transform.write_captured(function.__name__, self, NDArray._in_place, function, other)
        if scopes.active and modes.trace is not None:
            modes.trace.assign(function.__name__, self, function(self, other))
            return self
        return write_result(self, function, other)

    def __getitem__(self, index: Index) -> NDArray:
        """NumPy indexing: integers, slices, ..., None, integer and boolean arrays (see meta.eager.indexing)."""
        return getitem(self, index)

    def __setitem__(self, index: Index, value: Any) -> None:
        """Overwrite a part of the values in place, with a tensor, number or array-like that broadcasts to it. The array
        has the gradients of the value there, and keeps its own elsewhere.

        Raises PositionError for an index that does not fit, TypeInferenceError for a value that does not, GradientError
        for a leaf that requires gradients, NotSupportedError for a part (see meta.parts)."""
        if value is self and getitem(self, index) is self:
            return  # Python assigns the result of `x[:] *= 2`, which has been written
        check_whole("setitem", self)
        if scopes.active and modes.transform is not None:
            modes.transform.write_captured("setitem", self, NDArray.__setitem__, index, value)
        elif scopes.active and modes.trace is not None:
            modes.trace.assign("setitem", self, setitem(self, index, value))
        elif is_recorded(self, value):
            write_recorded("setitem", self, lambda before: setitem(before, index, before if value is self else value))
        elif self.device.kind == "cpu":
            _write_host(self, index, value)
        else:
            self.update(setitem(self.detach(), index, value))

    # --- gradients ---------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> NDArray | None:
        """The gradient accumulated by `backward`; inside a traced function, the trace's gradient."""
        return modes.trace.gradient(self) if scopes.active and modes.trace is not None else self._grad

    @grad.setter
    def grad(self, gradient: NDArray | None) -> None:
        if scopes.active and modes.trace is not None:
            modes.trace.assign_gradient(self, gradient)
        elif gradient is None or getattr(gradient, "_type", None) is self._type:
            self._grad = gradient
        else:
            kind = getattr(gradient, "type", type(gradient).__name__)
            raise GradientError("grad", f"the gradient is {kind}", f"None, or an array: {self.type!r}")

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this array. Set it on arrays that no operator computed. False freezes
        a parameter of a model: the model's modes leave it so."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, required: bool) -> None:
        set_requires_grad(self, required)
        self._frozen = not required

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operator computed this array."""
        return self._node is None or isinstance(self._node, Leaf)

    @property
    def version(self) -> int:
        """How often the memory was written in place since the count was first asked for."""
        count = self._version
        return 0 if count is None else count[0]

    def backward(self, dy: NDArray | None = None, *, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Accumulate gradients into `.grad` of every array below this one that requires them.

        dy: gradient of this array, of the same shape and dtype; may be left out when there is one element.
        retain_graph: keep what backward needs, to call it again.  create_graph: record the gradients too.
        Raises GradientError (no graph, freed graph, dy needed) and TypeInferenceError (dy of another shape)."""
        backward_of(self, dy, retain_graph, create_graph)

    def detach(self) -> NDArray:
        """The same memory without its history; inside a traced function, the present value."""
        return self.stop_gradient() if scopes.active and modes.trace is not None else self._alias()

    def _alias(self) -> NDArray:
        """Another array over the same memory, sharing the count of in-place writes."""
        version = self._version
        if version is None:
            version = shared_writes(self)
        out = NDArray(self._data, self._type)
        out._version = version
        return out

    def _twin(self) -> NDArray:
        """Another array over the same memory, at the same place of the gradient graph."""
        out = self._alias()
        out._node, out._index = self._node, self._index
        return out

    def _copied(self) -> NDArray:
        """The same values in other memory, without history."""
        data = allocation.empty(self.shape, self.dtype, self.device)
        allocation.copy_into(self._data, data)
        return NDArray(data, self._type)

    def register_hook(self, hook: Callable[[NDArray], NDArray | None]) -> Callable[[], None]:
        """Call `hook(gradient)` when this array's gradient is computed; a result replaces it. Returns a remover."""
        return register_hook(self, hook)


@explained
def array(
    data: Any, dtype: object = None, device: Device | str | None = None, *, requires_grad: bool = False
) -> NDArray:
    """A new array with a copy of `data`: numbers, nested lists, NumPy arrays, NDArrays, or DLPack exporters.

    dtype defaults to the dtype of the data; Python floats give float32, ints int64. device defaults to the device of
    the data, for host data the CPU. Raises ArgumentError for data that has no supported dtype or is ragged, DeviceError
    for a device that is not there, GradientError when gradients are required of a dtype that has none."""
    out = asarray(data, dtype, device, copy=True)
    if requires_grad:
        out.requires_grad = True
    return out


@explained
def asarray(data: Any, dtype: object = None, device: Device | str | None = None, copy: bool = False) -> NDArray:
    """Like `array`, sharing the memory of `data` where `meta.backend.memory.numpy_arrays` can."""
    if isinstance(data, TensorLike):
        source: Any = data
        tracing = scopes.active and modes.trace is not None
        if copy and not tracing and isinstance(source, NDArray):
            out: Any = _as_constant(copy_of(source))
        else:
            out = source.detach()
            out = out.copy() if copy else out
        return out.to(device=device, dtype=dtype)
    if hasattr(data, "__dlpack__") and not hasattr(data, "__array_interface__"):
        return from_dlpack(data, copy=copy).to(device=device, dtype=dtype)
    host = numpy_arrays.host_array(data, dtype)
    tensor = numpy_arrays.from_numpy(host, copy=copy)
    out = _as_constant(NDArray(tensor, tensor_type(host.shape, dtypes.canonical(host.dtype))))
    return out.to(device=device)


def _write_host(x: NDArray, index: Any, value: Any) -> None:
    """`x[index] = value` through a NumPy view of the same memory."""
    items = host_index(x, index)
    if isinstance(value, NDArray):
        with attributed("setitem"):
            rules.same_device(x.type, value.type)
        check_dtype(value.dtype, x.dtype)
        source = numpy_arrays.host_array(value._host("setitem"), x.dtype)
    else:
        source = assigned_array(value, x.dtype)
    target = numpy_arrays.to_numpy(x._data, x.dtype, x.shape, x.device)
    check_value(source.shape, target[items].shape)
    record_write("setitem", x)
    target[items] = source


def _restored(host: np.ndarray[Any, Any], on: str, requires_grad: bool, frozen: bool = False) -> NDArray:
    """An unpickled array."""
    out = array(host, device=on)
    set_requires_grad(out, requires_grad)
    out._frozen = frozen
    return out


def _as_constant(x: NDArray) -> NDArray:
    """`x`, just created, as a constant of the trace or transformation in progress."""
    if scopes.active and modes.trace is not None:
        modes.trace.register_constant(x)
    return modes.transform.constant(x) if scopes.active and modes.transform is not None else x


def copied(x: Tensor) -> Any:
    """The same values in other memory, with gradients."""
    return x.copy()


def copy_of(x: NDArray) -> NDArray:
    """The same values in other memory, without history."""
    return x._copied()


@explained
def from_dlpack(exporter: object, copy: bool = False) -> NDArray:
    """An array over the memory of a DLPack exporter (torch, NumPy, CuPy, ...), or over a copy of it.

    Memory that is strided or read-only is always copied. A torch tensor that requires gradients shares its memory,
    without its history. Raises ArgumentError for an object without DLPack or with an unsupported dtype."""
    data, shape, dtype, where = dlpack.from_dlpack(exporter)
    out = NDArray(data, tensor_type(shape, dtype, where))
    return _as_constant(copy_of(out) if copy else out)


@explained
def from_numpy(host: np.ndarray[Any, Any]) -> NDArray:
    """An array over the memory of a NumPy array (copied when strided, read-only or in foreign byte order)."""
    return asarray(host)


@runtime_checkable
class ArrayLike(Protocol):
    """An array of any library that shares memory: NumPy, PyTorch and others."""

    def __dlpack__(self) -> object: ...


def with_arrays(value: Any, device: Device, converted: list[NDArray] | None = None) -> Any:
    """A nest of arguments with meta arrays on a device in place of NumPy's, torch's and other libraries'. They share
    memory where `meta.asarray` can.

    converted: receives the new arrays."""
    leaves, tree = flatten(value, (TensorLike, ArrayLike))
    if all(isinstance(x, TensorLike) for _, x in leaves):
        return value
    arrays: list[Any] = [x if isinstance(x, TensorLike) else asarray(x, device=device) for _, x in leaves]
    if converted is not None:
        converted += [new for new, (_, x) in zip(arrays, leaves, strict=True) if new is not x]
    return tree.build(iter(arrays))


def move_in_place(x: NDArray, device: Device | str | None = None, dtype: object = None) -> bool:
    """Move an array and its `.grad` to `device` and convert them to `dtype`. Returns whether anything changed.

    The array keeps its identity, so that models, optimizers and graphs that hold it go on with the moved values; one
    that was computed from others becomes a leaf. Other arrays over the old memory keep that memory. A backward pass
    that needs the old values raises GradientError."""
    with suspended(), GradMode(False):
        moved = x.detach().to(device, dtype)
        if moved.type is x.type:
            return False
        version = version_of(x) + 1
        x._data, x._type, x._version = moved._data, moved._type, Writes((version,))
        if not x.is_leaf:
            x._node = None
    if x._grad is not None:
        move_in_place(x._grad, device, dtype)
    return True
