"""The results of TE computes: compared with what the declaration says, and made outputs of a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meta.backend.tvm import adapter as tvm
from meta.errors import KernelError, line_of_function

if TYPE_CHECKING:
    from meta.backend.tvm.spec import KernelSpec, TensorSpec


def check_results(spec: KernelSpec, results: list[Any], outs: Sequence[TensorSpec]) -> KernelError | None:
    """Compare the results of a compute with their specification.

    outs: the specification, with TVM's expressions for the extents.

    Returns None if all extents were proved equal, and otherwise the error for those that cannot be told apart.
    Raises KernelError if the results differ in number, rank, dtype or extents that are numbers."""

    def mismatch(problem: str) -> KernelError:
        location = line_of_function(spec.compute) or None
        return KernelError(spec.name, f"its TVM compute {problem}", "results of the declared types", location=location)

    if len(results) != len(outs):
        raise mismatch(f"returned {len(results)} tensors, the declaration says {len(outs)}")
    unproved: KernelError | None = None
    for i, (result, out) in enumerate(zip(results, outs, strict=True)):
        if not hasattr(result, "shape"):
            raise mismatch(f"returned {type(result).__name__} as result {i}, the declaration says a tensor")
        if str(result.dtype) != out.dtype:
            raise mismatch(f"returned {result.dtype} as result {i}, the declaration says {out.dtype}")
        shape, declared = _readable(result.shape), list(spec.outs[i].shape)
        if len(shape) == len(declared) and _equal_extents(result, out):
            continue
        error = mismatch(f"returned shape {shape} as result {i}, the declaration says {declared}")
        if len(shape) != len(declared) or any(map(_are_unequal_numbers, shape, declared)):
            raise error
        unproved = error
    return unproved


def _readable(shape: Any) -> list[Any]:
    return [int(d) if isinstance(d, tvm.IntImm) else d for d in shape]


def _are_unequal_numbers(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _equal_extents(result: Any, out: TensorSpec) -> bool:
    """Whether the extents of a result are those of its specification, whatever the values of the symbols."""
    pairs = zip(result.shape, out.shape, strict=True)
    return all(a.same_as(b) or tvm.Analyzer().can_prove_equal(a, b) for a, b in pairs)


def distinct_outputs(results: list[Any], inputs: list[Any]) -> list[Any]:
    """The results, with a copy of each that is an input or an earlier result: an output buffer has one producer."""
    buffers = list(inputs)
    outputs: list[Any] = []
    for result in results:
        is_new = not any(result.same_as(t) for t in buffers)
        outputs.append(result if is_new else _copy(result))
        buffers.append(result)
    return outputs


def _copy(tensor: Any) -> Any:
    return tvm.te.compute(tensor.shape, lambda *i: tensor(*i), name="copy")
