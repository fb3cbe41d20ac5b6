"""Dialects whose implementations are Python functions of arrays, from `meta.register_dialect` or for Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from meta.backend.functions import Specialised, bind, on_arrays
from meta.errors import RegistryError
from meta.op.implementation import CallInfo, Dialect, Implementation, ImplementationOptions, Kernel, check_callable
from meta.records import mutable

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensors = Literal["numpy", "torch", "dlpack"]


@mutable(eq=False)
class FunctionDialect(Dialect):
    """A dialect whose implementations are Python functions that write their results (see meta.backend.functions).

    tensors: what the functions are called with: NumPy arrays, torch tensors, or raw tensors with `__dlpack__`."""

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

    def _check_payload(self, op: str, payload: object) -> None:
        if not isinstance(payload, Specialised) and not callable(payload):
            problem = f"its implementation is {type(payload).__name__} {payload!r}"
            raise RegistryError(f"{self.name}.{op}", problem, "a function of the arguments and `out`")


def function_kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    """The kernel of a FunctionDialect."""
    dialect = cast(FunctionDialect, implementation.dialect)
    function = bind(implementation.payload, call, f"its {dialect.name} implementation")
    if dialect.tensors == "numpy":
        return on_arrays(function, call)
    if dialect.tensors == "torch":
        from meta.backend.torch.bridge import on_device, on_torch

        kernel = on_torch(function, call)
        return on_device(kernel, call.device) if call.device.kind == "cuda" else kernel
    return function
