"""Gradients of eager calls: `backward` and `grad`."""

from __future__ import annotations

from collections.abc import Sequence

from meta.eager.ndarray import NDArray
from meta.eager.seeds import apart, check_used, output_name, outputs_with_seeds, tensors
from meta.eager.walk import Pending, add_gradient, backward_of, propagate, root_of, seed_of
from meta.modes import modes
from meta.schema.annotations import explained


def backward(
    outputs: NDArray | Sequence[NDArray],
    dys: NDArray | Sequence[NDArray | None] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Accumulate the gradients of the sum of all `outputs` into `.grad` of every array that they depend on.

    dys: the outputs' gradients; needed for outputs with more than one element. The rest is as in NDArray.backward."""
    if modes.trace is not None:
        modes.trace.backward(outputs, dys, retain_graph=retain_graph, create_graph=create_graph)
        return
    if isinstance(outputs, NDArray) and (dys is None or isinstance(dys, NDArray)):
        backward_of(outputs, dys, retain_graph, create_graph)
    else:
        propagate(_start("backward", outputs, dys), None, retain_graph or create_graph, create_graph)


@explained
def grad(
    outputs: NDArray | Sequence[NDArray],
    inputs: NDArray | Sequence[NDArray],
    dys: NDArray | Sequence[NDArray | None] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[NDArray | None, ...]:
    """Gradients of the sum of all `outputs` with respect to `inputs`, without touching any `.grad`.

    dys: the outputs' gradients; needed for outputs with more than one element.  retain_graph, create_graph: as in
    NDArray.backward.  allow_unused: None, instead of a GradientError, for an input that no output depends on.
    Only what lies between the inputs and the outputs is computed (and freed)."""
    if modes.trace is not None:
        return modes.trace.grad(
            outputs, inputs, dys, retain_graph=retain_graph, create_graph=create_graph, allow_unused=allow_unused
        )
    xs = tensors("grad", "inputs", inputs, NDArray)
    slots = [root_of(x, "grad", f"input {i}") for i, x in enumerate(xs)]
    gradients = propagate(_start("grad", outputs, dys), frozenset(slots), retain_graph or create_graph, create_graph)
    out = apart((gradients.get(slot) for slot in slots), tensors("grad", "dys", () if dys is None else dys, object))
    check_used(out, allow_unused)
    return tuple(out)


def _start(where: str, outputs: object, dys: object) -> Pending:
    start: Pending = {}
    pairs = outputs_with_seeds(where, outputs, dys, NDArray)
    for i, (y, dy) in enumerate(pairs):
        name = output_name(i, len(pairs))
        node, index = root_of(y, where, name)
        add_gradient(start.setdefault(node, {}), index, seed_of(where, y, dy, name))
    return start
