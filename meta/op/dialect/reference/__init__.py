"""The reference dialect: NumPy on the host, slow and plain. It is tried last, and it is the oracle of the tests."""

from __future__ import annotations

from typing import Any

from meta.device import CPU
from meta.errors import KernelError
from meta.op.dispatch import CallInfo, Dialect, Implementation, Kernel, flat_types


def _kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    """Call the payload `function(*args in schema order) -> array(s)` on NumPy views of the tensors."""
    import numpy as np

    from meta.storage import to_numpy

    function = implementation.payload
    types = call.tensors()

    def run(*tensors: Any) -> None:
        arrays = [to_numpy(x, t.dtype, t.shape, CPU) for x, t in zip(tensors, (*types, *call.outputs()), strict=True)]  # type: ignore[arg-type]
        inputs = iter(arrays[: len(types)])
        with np.errstate(all="ignore"):  # infinities and NaN are results like others
            results = function(*(_fill(arg, inputs) for arg in call.args))
            made = results if isinstance(results, tuple) else (results,)
            for out, result in zip(arrays[len(types) :], made, strict=True):
                if np.shape(result) != out.shape:
                    wrong = f"{implementation.name} made shape {np.shape(result)}, its declaration says {out.shape}"
                    raise KernelError(call.op.name, wrong, "results of the declared shapes")
                out[...] = result

    return run


def _fill(arg: Any, inputs: Any) -> Any:
    """An argument with arrays for its types."""
    count = len(flat_types((arg,)))
    if not count:
        return arg
    return [next(inputs) for _ in range(count)] if isinstance(arg, tuple) else next(inputs)


DIALECT = Dialect("reference", frozenset({"cpu"}), 1, lambda: None, _kernel)
