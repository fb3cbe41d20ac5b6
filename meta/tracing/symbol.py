"""Symbol: a tensor of a program that is being traced. Operators on symbols record calls."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NoReturn

from meta.dtype import is_float
from meta.eager.assignment import setitem
from meta.eager.bases import TypedTensor
from meta.eager.indexing import Index
from meta.errors import GradientError, TraceError
from meta.modes import modes
from meta.parts import TEMPORARY, check_whole, is_part

if TYPE_CHECKING:
    from meta.ir.expr import Atom


def _no_value(remedy: str) -> Any:
    """A method that needs the value of a symbol. remedy: what to write in its place."""

    def refuse(x: object, *_: object, **__: object) -> NoReturn:
        raise TraceError(
            "trace",
            f"the value of {x!r} is needed while tracing",
            "shapes and dtypes, which are all that is known while tracing",
            f"{remedy}; or compute outside of the traced function",
        )

    return refuse


_no_format = _no_value("print it outside of the traced function")


class Symbol(TypedTensor):
    """A traced tensor: an atom of the IR (a Var or a Constant) with the methods and operators of an array.

    A write in place replaces the atom by one of the same type."""

    __slots__ = ("atom",)

    def __init__(self, atom: Atom) -> None:
        self.atom = atom
        self.type = atom.type  # type: ignore[assignment]  # symbols are tensors
        self.origin = self.aliases = None

    # --- gradients ---------------------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether this tensor depends on one that requires gradients; in a program that a pass builds, whether it is
        floating. Setting it makes the tensor a leaf, whose `.grad` `backward` fills."""
        if modes.trace is None:
            return is_float(self.dtype)
        return modes.trace.depends_on_leaves(self)

    @requires_grad.setter
    def requires_grad(self, required: bool) -> None:
        if modes.trace is None:
            raise TraceError("requires_grad", f"{self!r} is used after its trace", "arrays", "return it")
        if not required:
            raise GradientError("requires_grad", "a traced tensor is made to require no gradient", "arrays",
                                        "use x.detach()")  # fmt: skip
        if not is_float(self.dtype):
            raise GradientError("requires_grad", f"the tensor has dtype {self.dtype}", "floating dtypes")
        if not self.requires_grad:
            modes.trace.mark(self)

    @property
    def grad(self) -> Symbol | None:
        """The gradient that `backward` accumulated in this trace."""
        return None if modes.trace is None else modes.trace.gradient(self)

    @grad.setter
    def grad(self, gradient: Symbol | None) -> None:
        if modes.trace is not None:
            modes.trace.assign_gradient(self, gradient)

    def backward(self, dy: object = None, *, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Emit the gradients of this tensor with respect to everything in the trace that requires them, and accumulate
        them into `.grad` for the rest of the trace. Arguments and errors are the same as for NDArray.backward."""
        if modes.trace is None:
            raise GradientError("backward", "a symbol is differentiated outside of a trace", "inside a traced function")
        modes.trace.backward(self, dy, retain_graph=retain_graph, create_graph=create_graph)

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Not available: a program has no place for Python calls."""
        raise TraceError(
            "register_hook",
            f"a hook is put on {self!r}",
            "hooks on arrays, outside of the traced function",
            "write what the hook does into the function",
        )

    # --- values ------------------------------------------------------------------------------------------------------

    def update(self, value: object) -> None:
        """Overwrite the values, in place, with the values of a tensor of the same type."""
        check_whole("update", self)
        if modes.transform is not None:
            modes.transform.write_captured("update", self, Symbol.update, value)
        else:
            self._trace("update").update(self, value)

    def _trace(self, what: str) -> Any:
        if modes.trace is None:
            raise TraceError(what, f"{self!r} is written after its trace", "symbols of the trace")
        return modes.trace

    def _in_place(self, function: Callable[[Any, Any], Any], other: object) -> Symbol:
        """This tensor, after `function(self, other)` replaced its value: what `+=` and the like do."""
        if is_part(self):
            if getrefcount(self) > TEMPORARY:
                check_whole(function.__name__, self)
            return function(self, other)
        if modes.transform is not None:
            return modes.transform.write_captured(function.__name__, self, Symbol._in_place, function, other)
        if modes.trace is None:
            return function(self, other)
        modes.trace.assign(function.__name__, self, function(self, other))
        return self

    def __setitem__(self, index: Index, value: object) -> None:
        """Overwrite a part of the values in place."""
        check_whole("setitem", self)
        if modes.transform is not None:
            modes.transform.write_captured("setitem", self, Symbol.__setitem__, index, value)
        else:
            self._trace("setitem").assign("setitem", self, setitem(self, index, value))

    def __format__(self, spec: str) -> str:
        return _no_format(self) if spec else repr(self)

    __bool__ = _no_value("write meta.where(condition, a, b), or meta.cond(condition, f, g, x)")
    __int__ = __float__ = __complex__ = _no_value("leave out the call: tensors of one element take part in operators")
    __index__ = _no_value("write x.shape[axis] for a size; for a loop, meta.while_loop or meta.scan")
    __array__ = numpy = _no_value("call meta's function in place of np.'s: meta.tanh(x) in place of np.tanh(x.numpy())")
    __dlpack__ = __dlpack_device__ = _no_value("call meta's function in place of the other library's")
    item = tolist = _no_value("leave out .item() and .tolist(): tensors take part in operators as they are")
    __hash__ = object.__hash__  # `==` is an operator, identity stays hashable

    def __repr__(self) -> str:
        return f"<Symbol {getattr(self.atom, 'name', '') or 'tensor'}: {self.type!r}>"


def exact(gradient: Any) -> Any:
    """A gradient in the dtype of its parameter. A trace records this as a cast, so that after the pass AutoCast too an
    update is computed from a gradient in that dtype."""
    return gradient if modes.trace is None else gradient.cast(gradient.dtype)
