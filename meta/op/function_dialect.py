"""Dialects whose implementations are functions of users and of other packages, from `meta.register_dialect` or for
Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from meta.backend.foreign import FfiFunction, KernelFunction, Out, TorchFunction
from meta.backend.functions import Specialised, bind, on_arrays
from meta.backend.tvm.bound import is_function
from meta.device import KINDS
from meta.errors import RegistryError, did_you_mean
from meta.op.implementation import (
    CallInfo,
    Checker,
    Dialect,
    Implementation,
    ImplementationOptions,
    Kernel,
    check_callable,
)
from meta.op.registry import Op, find
from meta.records import mutable

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Tensors = Literal["numpy", "torch", "dlpack"]


@mutable(eq=False)
class FunctionDialect(Dialect):
    """A dialect whose implementations are Python functions that write their results (see meta.backend.functions), or
    functions of other packages (see meta.backend.foreign).

    tensors: what the functions of `implement` are called with: NumPy arrays, torch tensors, or raw tensors with
        `__dlpack__`."""

    tensors: Tensors = "numpy"

    def implement_maker(
        self, op: str | Callable[..., Any], maker: Callable[[CallInfo], Kernel] | None = None, *,
        override: bool = False, **options: Unpack[ImplementationOptions],
    ) -> Any:  # fmt: skip
        """Like `implement`, with a function that is called once for each kernel: `maker(call)` returns
        `kernel(*inputs, *outputs)` for calls of these types and attributes."""

        def register(maker: Callable[[CallInfo], Kernel]) -> Callable[[CallInfo], Kernel]:
            check_callable(self.name, "the maker", maker, "a function CallInfo -> kernel")
            self.implement(op, Specialised(maker), override=override, **options)
            return maker

        return register if maker is None else register(maker)

    def from_ffi(
        self, op: str | Callable[..., Any], function: Any, *, takes: Sequence[str] | None = None,
        out: Out = "last", override: bool = False, **options: Unpack[ImplementationOptions],
    ) -> Self:  # fmt: skip
        """Implement an operator by a compiled function that follows tvm-ffi's ABI and writes its results: a function of
        `meta.kernels.load` and `meta.kernels.compile`, or of a tvm_ffi.Module. Eager calls and compiled programs call
        it without Python.

        function: the function, or a mapping from "cpu" and "cuda" to functions.
        takes: the operator's arguments that it takes, in its order; by default all, in schema order. Calls that give
            the others anything but their defaults are refused.
        out: whether its results come "first" or "last" among its arguments.
        options, override: as for `implement`. Calls with empty tensors, and with attributes other than numbers and
        texts, are refused. Returns the dialect. Raises RegistryError as `implement` does, and for arguments of a wrong
        kind."""
        operator = find(op)
        subject = f"{self.name}.{operator.name}"
        by_kind = cast("Mapping[str, Any]", function) if isinstance(function, Mapping) else {"": function}
        functions = {kind: _kernel_function(subject, kind, each) for kind, each in by_kind.items()}
        if out not in ("first", "last") or not functions:
            problem = f"out is {out!r}" if functions else "there is no function"
            raise RegistryError(subject, problem, 'a function, and out="first" or out="last"')
        payload = FfiFunction(functions, _taken(operator, takes, subject), out)
        return self._implement_foreign(operator, payload, override, options)

    def from_torch(
        self, op: str | Callable[..., Any], function: Callable[..., Any], *, takes: Sequence[str] | None = None,
        override: bool = False, **options: Unpack[ImplementationOptions],
    ) -> Self:  # fmt: skip
        """Implement an operator by a function on torch tensors that returns its results, such as the functions of
        FlagGems, Liger and the packages of Hugging Face's kernels. The tensors share memory with the operands; results
        are copied, unless the function has a parameter `out`, which it writes to.

        takes, options, override: as for `from_ffi`. Returns the dialect. Raises RegistryError as `implement` does."""
        operator = find(op)
        subject = f"{self.name}.{operator.name}"
        check_callable(subject, "its implementation", function or False, "a function of torch tensors")
        payload = TorchFunction(function, _taken(operator, takes, subject))
        return self._implement_foreign(operator, payload, override, options)

    def _implement_foreign(
        self, op: Op, payload: FfiFunction | TorchFunction, override: bool, options: ImplementationOptions
    ) -> Self:
        accepts = options.get("accepts")
        check_callable(f"{self.name}.{op.name}", "accepts", accepts, "a function of a CallInfo")
        own: Checker = payload.refusal
        both: Checker = own if accepts is None else lambda call: own(call) or accepts(call)
        self.implement(op.name, payload, override=override, **{**options, "accepts": both})
        return self

    def _check_payload(self, op: str, payload: object) -> None:
        if not isinstance(payload, (Specialised, FfiFunction, TorchFunction)) and not callable(payload):
            problem = f"its implementation is {type(payload).__name__} {payload!r}"
            raise RegistryError(f"{self.name}.{op}", problem, "a function of the arguments and `out`")


def _kernel_function(subject: str, kind: str, function: Any) -> KernelFunction:
    if kind and kind not in KINDS:
        raise RegistryError(subject, f"no kind of device is called {kind!r}", " or ".join(KINDS))
    if isinstance(function, KernelFunction):
        return function
    if is_function(function):
        return KernelFunction("", "", function)
    problem = f"its implementation is {type(function).__name__} {function!r}"[:200]
    remedy = "for a Python function: implement(...), or from_torch(...) if it returns torch tensors"
    raise RegistryError(subject, problem, "a compiled function that follows tvm-ffi's ABI", remedy)


def _taken(op: Op, takes: Sequence[str] | None, subject: str) -> tuple[str, ...]:
    """The arguments that a function takes. Raises RegistryError for unknown names, and where required ones and lists of
    tensors cannot be passed."""
    names = op.schema.names
    taken = names if takes is None else tuple(takes)
    unknown = [name for name in taken if name not in names]
    if unknown or isinstance(takes, str):
        what = f"takes names the argument {unknown[0]!r}" if unknown else f"takes is {takes!r}"
        hint = did_you_mean(unknown[0], names) if unknown else ""
        raise RegistryError(subject, what, f"names of {op.schema.signature(op.name)}", hint)
    left_out = [arg.name for arg in op.schema.args if arg.required and arg.name not in taken]
    if left_out:
        raise RegistryError(subject, f"takes leaves out '{left_out[0]}'", f"all of {op.schema.signature(op.name)}")
    return taken


def function_kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    """The kernel of a FunctionDialect."""
    dialect, payload = cast(FunctionDialect, implementation.dialect), implementation.payload
    what = f"its {dialect.name} implementation"
    if isinstance(payload, FfiFunction):
        return payload.kernel(call, what)
    returns = isinstance(payload, TorchFunction)
    function = bind(payload.writing(call, what) if returns else payload, call, what)
    if returns or dialect.tensors == "torch":
        from meta.backend.torch.bridge import on_device, on_torch

        kernel = on_torch(function, call)
        return on_device(kernel, call.device) if call.device.kind == "cuda" else kernel
    return on_arrays(function, call) if dialect.tensors == "numpy" else function
