"""Kernels from Python functions that write their results into tensors they are given.

A function takes the operator's arguments in schema order, tensors as arrays of some library (lists of tensors as lists,
absent ones as None), all others as values, and `out`: the array to write into, or a tuple of them if there are several
results. A `Specialised` payload returns, once per call type, `function(*inputs, *outputs)` with the other arguments
fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from meta.backend.memory.numpy_arrays import to_numpy
from meta.device import CPU
from meta.errors import KernelError, MetaError, line_of_function, raised
from meta.ir.type import flat_types
from meta.records import record

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

Kernel = Callable[..., Any]


@record
class Specialised:
    """A payload that builds a function for the arguments of a call."""

    build: Callable[[CallInfo], Callable[..., Any]]


def bind(payload: Callable[..., Any] | Specialised, call: CallInfo, what: str) -> Kernel:
    """The payload as `function(*inputs, *outputs)` on arrays, with the attributes of the call fixed.

    what: the payload in error texts ("its torch implementation"). What the payload raises becomes a KernelError; so
    does a result that it returns instead of writing it."""
    if isinstance(payload, Specialised):
        return _build(payload, call, what)
    counts = [len(flat_types((arg,))) for arg in call.args]
    arguments, input_count, single = call.args, sum(counts), len(call.outputs()) == 1
    name = call.op.name

    def function(*tensors: Any) -> None:
        inputs = iter(tensors)
        args = [take_inputs(arg, count, inputs) for arg, count in zip(arguments, counts, strict=True)]
        out = tensors[input_count] if single else tensors[input_count:]
        try:
            result = payload(*args, out=out)
        except MetaError:
            raise
        except Exception as error:
            raise raised(KernelError, name, what, error) from error
        if single and result is not None and result is not out:
            raise KernelError(
                name,
                f"{what} returned {type(result).__name__}",
                "nothing, or `out`",
                "write the result into `out`: out[...] = result",
                location=line_of_function(payload) or None,
            )

    return function


def _build(payload: Specialised, call: CallInfo, what: str) -> Kernel:
    name = call.op.name
    try:
        kernel: Any = payload.build(call)
    except MetaError:
        raise
    except Exception as error:
        raise raised(KernelError, name, f"the maker of {what}", error) from error
    if not callable(kernel):
        location = line_of_function(payload.build) or None
        problem = f"the maker of {what} returned {type(kernel).__name__}"
        raise KernelError(name, problem, "a function of the inputs and outputs", location=location)

    def run(*tensors: Any) -> None:
        try:
            kernel(*tensors)
        except MetaError:
            raise
        except Exception as error:
            raise raised(KernelError, name, what, error) from error

    return run


def take_inputs(arg: Any, count: int, inputs: Iterator[Any]) -> Any:
    """The next `count` inputs for an argument of tensors; any other argument itself."""
    if not count:
        return arg
    return [next(inputs) for _ in range(count)] if isinstance(arg, tuple) else next(inputs)


def on_arrays(function: Callable[..., Any], call: CallInfo) -> Kernel:
    """`function` on NumPy arrays that share the memory of raw CPU tensors."""
    import numpy as np

    dtypes = [t.dtype for t in (*call.tensors(), *call.outputs())]
    parts = [(i, each) for i, each in enumerate(call.layouts) if each is not None]

    def run(*tensors: Any) -> None:
        arrays = [to_numpy(x, dtype, x.shape, CPU) for x, dtype in zip(tensors, dtypes, strict=True)]
        for i, part in parts:
            memory = arrays[i].reshape(-1)[part.offset :]
            strides = [stride * memory.itemsize for stride in part.strides]
            arrays[i] = np.lib.stride_tricks.as_strided(memory, part.shape, strides)
        for i, axes in call.result_axes():
            arrays[i] = arrays[i].transpose(axes)
        with np.errstate(all="ignore"):  # infinities and NaN are ordinary results
            function(*arrays)

    return run
