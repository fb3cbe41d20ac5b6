"""Function: an operation with a gradient of the user's own.

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

import weakref
from collections.abc import Sequence
from typing import Any

from meta import dtype as dtypes
from meta.eager.engine import connected
from meta.eager.graph import Node, next_order
from meta.eager.ndarray import NDArray
from meta.eager.seeds import check_gradient
from meta.eager.tape import edges_of, link, versions_of
from meta.errors import ArgumentError, GradientError, KernelError, MetaError, TraceError, line_of_function, raised
from meta.modes import modes
from meta.op.grad.rule import GradRule, as_tuple
from meta.parts import Writes
from meta.schema._types import TensorLike


class Context:
    """What `forward` leaves for `backward`. Other attributes may be set freely; plain values only, for arrays set as
    attributes are neither freed nor checked for in-place writes.

    needs_input_grad: for each argument of `forward`, whether its gradient is wanted."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self, name: str, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self._name = name
        self._saved: tuple[Any, ...] = ()
        self._outputs: dict[int, int] = {}
        """Place among the saved -> index of the output that it is."""
        self._node: weakref.ref[Node] | None = None
        self._non_differentiable: tuple[Any, ...] = ()

    def save_for_backward(self, *arrays: NDArray | None) -> None:
        """Keep arguments, results or other arrays for `backward`; call it once. They are freed with the graph."""
        for x in arrays:
            if x is not None and not isinstance(x, NDArray):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(
                    self._name,
                    f"save_for_backward got {type(x).__name__}",
                    "arrays and None",
                    "set other values as attributes of ctx",
                )
        self._saved = arrays

    def mark_non_differentiable(self, *results: NDArray) -> None:
        """Name results of `forward` that no gradient flows from."""
        self._non_differentiable = results

    @property
    def saved_arrays(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given."""
        node = self._node() if self._node is not None else None
        if node is None or not modes.grad_enabled:
            return self._saved
        return tuple(
            connected(node, self._outputs[i], x) if i in self._outputs else x for i, x in enumerate(self._saved)
        )


class Function:
    """Base class of operations with static methods `forward(ctx, *args)` and `backward(ctx, *dys)`.

    `backward` gets the gradient of every result (zeros where there is none) and returns one for each argument of
    `forward`, None for those without (numbers, integer arrays). It is differentiated again with `create_graph=True`, as
    far as it computes with operators. Arrays inside of lists are not tracked."""

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
        if any(isinstance(a, TensorLike) and not isinstance(a, NDArray) for a in args):
            raise TraceError(
                cls.__name__,
                "an autograd.Function is called on traced symbols",
                "eager arrays",
                "declare an operator with a gradient (see docs/add-an-operator.md)",
            )
        edges = edges_of(args) if modes.grad_enabled else (None,) * len(args)
        ctx = Context(cls.__name__, tuple(edge is not None for edge in edges))
        before = modes.grad_enabled
        modes.grad_enabled = False
        try:
            result = cls.forward(ctx, *args)
        except MetaError as error:
            _note(error, f"in {cls.__name__}.forward")
            raise
        except Exception as error:
            raise raised(KernelError, cls.__name__, "its forward", error) from error
        finally:
            modes.grad_enabled = before
        results = as_tuple(result)
        _check_results(cls.__name__, results)
        if not any(edges):
            return result
        results = tuple(_fresh(r, args) for r in results)  # pyright: ignore[reportUnknownVariableType]
        _record(cls, ctx, args, edges, results)
        return results if isinstance(result, (list, tuple)) else results[0]


def _note(error: MetaError, where: str) -> None:
    error.details = "\n".join(filter(None, (error.details, where)))


def _check_results(name: str, results: Sequence[Any]) -> None:
    for r in results:
        if not isinstance(r, NDArray):
            raise GradientError(name, f"forward returned {type(r).__name__}", "an NDArray or a tuple of them")


def _fresh(result: NDArray, args: Sequence[Any]) -> NDArray:
    """A result that is an argument itself, or already belongs to a graph, as a new array."""
    shared = result._node is not None or any(result is a for a in args)
    return result.detach() if shared else result


def _record(cls: type[Function], ctx: Context, args: tuple[Any, ...], edges: Any, results: tuple[NDArray, ...]) -> None:
    node = Node()
    node.order = next_order()
    node.hooks = None
    node.edges = edges
    stopped = ctx._non_differentiable
    flows = frozenset(i for i, r in enumerate(results) if dtypes.is_float(r.dtype) and not any(r is s for s in stopped))
    _detach_outputs(ctx, results)
    node.args = (ctx,)
    types = tuple(a.type if isinstance(a, NDArray) else None for a in args)
    node.rule = GradRule(
        cls.__name__, _rule(cls, types), tuple(range(len(args))), outputs=len(results), differentiable_outputs=flows
    )
    node.out_types = tuple(r.type for r in results)
    node.outs = node.out_types
    node.versions = versions_of(ctx._saved)
    ctx._node = weakref.ref(node)
    link(node, results, flows)


def _detach_outputs(ctx: Context, results: Sequence[NDArray]) -> None:
    """Results among the saved arrays are kept by aliases: they hold the node, which holds what is saved."""
    saved = list(ctx._saved)
    for i, x in enumerate(saved):
        for j, result in enumerate(results):
            if x is result:
                saved[i] = x.detach()
                ctx._outputs[i] = j
    ctx._saved = tuple(saved)


def _rule(cls: type[Function], types: tuple[Any, ...]) -> Any:
    """The user's `backward` in the form of a generated gradient function."""

    def run(needs: tuple[bool, ...], ctx: Context, *outs_and_dys: Any) -> tuple[Any, ...]:
        dys = outs_and_dys[len(outs_and_dys) // 2 :]
        try:
            found = cls.backward(ctx, *dys)
        except MetaError as error:
            _note(error, f"in {cls.__name__}.backward")
            raise
        except Exception as error:
            raise raised(GradientError, cls.__name__, "its backward", error) from error
        gradients = as_tuple(found)
        if len(gradients) != len(types):  # pyright: ignore[reportUnknownArgumentType]
            raise GradientError(
                cls.__name__,
                f"backward returned {len(gradients)} gradients",
                f"one for each of the {len(types)} arguments of forward",
                "return None where there is none",
            )
        for i, (g, t, need) in enumerate(zip(gradients, types, needs, strict=True)):
            if need and g is not None:
                check_gradient(cls.__name__, f"argument {i}", g, t, NDArray, line_of_function(cls.backward) or None)
                if g._version is None:
                    g._version = Writes((0,))  # the user may hold it too
        return gradients  # pyright: ignore[reportUnknownVariableType]

    return run
