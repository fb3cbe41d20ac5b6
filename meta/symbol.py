"""Symbol: what stands for a tensor while a function is traced. Operators on symbols record calls in the builder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meta._generated.methods import TensorMethods
from meta.device import Device
from meta.errors import TraceError, message
from meta.ir.dim import Dim
from meta.ir.type import TensorType

if TYPE_CHECKING:
    from meta.ir.expr import Constant, Var


class Symbol(TensorMethods):
    """A traced tensor: an atom of the IR (a Var or a Constant) with the methods and operators of an array."""

    __slots__ = ("atom",)

    def __init__(self, atom: Var | Constant) -> None:
        self.atom = atom

    @property
    def type(self) -> TensorType:
        return self.atom.type  # type: ignore[return-value]  # symbols stand for tensors only

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
        return self.type.size

    def to(self, device: Device | str | None = None, dtype: Any = None) -> Symbol:
        """This tensor on `device` with `dtype`."""
        out: Symbol = self if dtype is None else self.cast(dtype)
        return out if device is None else out.device_copy(device)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients may flow through this tensor: any floating one."""
        from meta.dtype import is_float

        return is_float(self.dtype)

    @property
    def grad(self) -> Symbol | None:
        """The gradient of everything `backward` was called on so far with respect to this tensor, None before. It is
        emitted when asked for, so inputs need no flag and cost nothing when nobody asks."""
        from meta.autograd.symbolic import gradient_of

        return gradient_of(self)

    def backward(self, dy: Symbol | None = None, **_: bool) -> None:
        """Emit the gradients of this tensor with respect to every array that the trace reached and that requires
        them, and set their `.grad` for the rest of the trace."""
        from meta.autograd.symbolic import backward

        backward(self, dy)

    def detach(self) -> Symbol:
        """The value, through which no gradient flows."""
        return self.stop_gradient()

    def __len__(self) -> int:
        if not self.shape:
            raise TraceError(message("len", "the tensor is 0-d", "at least one dimension"))
        return self.shape[0].__index__()

    def __iter__(self) -> Iterator[Symbol]:
        return (self[i] for i in range(len(self)))

    def _no_value(self, *_: object) -> Any:
        raise TraceError(
            message("trace", f"the value of {self!r} is needed while tracing", "shapes and dtypes are known, values not",
                    "compute it with operators (meta.where for a choice) or outside of the traced function")
        )  # fmt: skip

    __bool__ = __int__ = __float__ = __index__ = item = numpy = tolist = __array__ = _no_value
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<Symbol {getattr(self.atom, 'name', 'constant')}: {self.type!r}>"
