"""Function: an operation with a user-defined gradient.

class Square(meta.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_arrays
        return 2 * x * dy

y = Square.apply(x)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.autograd.context import Context as Context
from meta.autograd.traced_calls import traced_call
from meta.autograd.user_calls import flowing, record_node, run_forward
from meta.eager.ndarray import NDArray
from meta.eager.tape import edges_of
from meta.modes import modes


class Function:
    """Base class of operations with static methods `forward(ctx, *args)` and `backward(ctx, *dys)`.

    `backward` gets the gradient of every result (zeros where there is none) and returns one for each argument of
    `forward`, None for those without (numbers, integer arrays). It is differentiated again with `create_graph=True`, as
    far as it computes with operators. Arrays inside of lists are not tracked.

    In a traced function both run on symbols: `forward` where it is called, `backward` where a gradient reaches the
    call, also when the program is differentiated later. Code that reads values of arrays raises a TraceError there.

    Inside of `jvp`, `vjp` and `vmap`, `forward` runs twice for each call. Forward mode transposes `backward`, unless
    the class has a static method `jvp(ctx, *tangents)`, which gets a tangent for each argument of `forward` (zeros
    where there is none, None for arguments that are not floating tensors) and returns the results' tangents."""

    @staticmethod
    def forward(ctx: Context, *args: Any) -> Any:
        """The results: an NDArray or a tuple of them. Runs under `no_grad`."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Context, *dys: Any) -> Any:
        """The gradients of the arguments of `forward`."""
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run `forward` and record the call.

        Raises KernelError for an exception in `forward`, with its line; later, backward raises GradientError for an
        exception in `backward`, or when it returns a wrong number or type of gradients."""
        if modes.transform is not None:
            return modes.transform.apply(cls, args)
        if modes.emit is not None:
            return traced_call(cls, args)
        edges = edges_of(args) if modes.grad_enabled else (None,) * len(args)
        ctx = Context(cls.__name__, tuple(edge is not None for edge in edges))
        returned, results = run_forward(cls, ctx, args, NDArray)
        if not any(edges):
            return returned
        flows = flowing(ctx, results)
        fresh = tuple(_fresh(r, args) for r in results)
        record_node(cls, ctx, args, edges, fresh, flows)
        return fresh if isinstance(returned, (list, tuple)) else fresh[0]


def _fresh(result: NDArray, args: Sequence[Any]) -> NDArray:
    """A result that is an argument itself, or already belongs to a graph, as a new array."""
    shared = result._node is not None or any(result is a for a in args)
    return result.detach() if shared else result
