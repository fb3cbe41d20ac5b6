"""The reference dialect: plain NumPy on the host. Dispatch tries it last, and tests compare other dialects with it.

Operators without a function in the module of their family are computed by their decompositions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

from meta.backend.functions import take_inputs
from meta.backend.memory.allocation import refuse
from meta.backend.memory.numpy_arrays import to_numpy
from meta.device import CPU
from meta.errors import KernelError, MetaError, line_of_function, raised
from meta.ir.expr import CallInfo
from meta.ir.type import flat_types
from meta.modes import isolated, scoped
from meta.op.decomposition import Decomposition, decompositions
from meta.op.dispatch import Dialect, Implementation, Kernel
from meta.op.registry import get
from meta.records import record
from meta.tree import leaves_of, with_leaves


def _kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    """A kernel that calls the payload `function(*args in schema order) -> array(s)` on NumPy views of the tensors."""
    import numpy as np

    function = implementation.payload
    types = call.tensors()
    counts = [len(flat_types((arg,))) for arg in call.args]

    def run(*tensors: Any) -> None:
        arrays = [to_numpy(x, t.dtype, t.shape, CPU) for x, t in zip(tensors, (*types, *call.outputs()), strict=True)]  # type: ignore[arg-type]
        inputs = iter(arrays[: len(types)])
        with np.errstate(all="ignore"):  # infinities and NaN are ordinary results
            try:
                results = function(*map(take_inputs, call.args, counts, repeat(inputs)))
            except MetaError:
                raise
            except MemoryError as error:
                refuse(error, f"the reference implementation of {call.op.name}")
                raise
            except Exception as error:
                raise raised(KernelError, call.op.name, "its reference implementation", error) from error
            outputs = results if isinstance(results, tuple) else (results,)
            if len(outputs) != len(arrays) - len(types):
                raise complain(f"{len(outputs)} results", str(len(arrays) - len(types)))
            for out, result in zip(arrays[len(types) :], outputs, strict=True):
                if result is None:
                    raise complain("None", f"shape {out.shape}")
                if np.shape(result) != out.shape:
                    raise complain(f"shape {np.shape(result)}", str(out.shape))
                out[...] = result

    def complain(returned: str, declared: str) -> KernelError:
        problem = f"its reference implementation returned {returned}, its declaration says {declared}"
        location = line_of_function(function) or None
        return KernelError(call.op.name, problem, "results of the declared shapes", location=location)

    return run


@record
class Evaluation:
    """A function of NumPy arrays: a decomposition on this dialect's other operators."""

    decomposition: Decomposition

    def __call__(self, *args: Any) -> Any:
        operands = with_leaves(args, list(map(self._operand, leaves_of(args))))
        with isolated("reference"), scoped(skips_positions=True):
            results = self.decomposition.function(*operands)
            return tuple(y.numpy() for y in results) if isinstance(results, tuple) else results.numpy()

    def _operand(self, arg: Any) -> Any:
        import numpy as np

        import meta
        from meta.backend.reference.precision import widen

        if not isinstance(arg, np.ndarray):
            return arg
        return meta.from_numpy(widen(arg) if self.decomposition.wide else arg)


def _evaluations(family: str) -> dict[str, Evaluation]:
    return {name: Evaluation(each) for name, each in decompositions(family).items()}


DIALECT = Dialect("reference", frozenset({"cpu"}), 1, lambda: None, _kernel, complex=True, derived=_evaluations)


def plain(table: Mapping[str, Callable[..., Any]]) -> None:
    """Register `function(*args in schema order)` for each operator."""
    for name, function in table.items():
        DIALECT.implement(name, function)


def elementwise(table: Mapping[str, Callable[..., Any]]) -> None:
    """Register `function(*operands, *attributes)`: the operands in their common dtype, halves in float32."""
    plain({name: _promoted(name, function) for name, function in table.items()})


def _promoted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    from meta.backend.reference.precision import promote

    tensors = [arg.is_tensor for arg in get(name).schema.args]

    def run(*args: Any) -> Any:
        operands = [a for a, is_tensor in zip(args, tensors, strict=True) if is_tensor]
        attributes = [a for a, is_tensor in zip(args, tensors, strict=True) if not is_tensor]
        return function(*promote(*operands), *attributes)

    return run
