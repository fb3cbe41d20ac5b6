"""Calls of the user's `forward` and `backward`, with their checks, and a call as a node of the tape."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from meta import dtype as dtypes
from meta.autograd.context import Context
from meta.eager.gradient_graph import GradientNode, next_order
from meta.eager.ndarray import NDArray
from meta.eager.tape import link, versions_of
from meta.errors import GradientError, KernelError, MetaError, line_of_function, raised
from meta.modes import GradMode
from meta.op.grad.rule import GradRule, as_tuple, check_gradient
from meta.parts import Writes


def run_forward(function: Any, ctx: Context, args: Sequence[Any], kind: type) -> tuple[Any, tuple[Any, ...]]:
    """The value that `forward` returned, and its results, which are of class `kind`. Nothing is recorded for
    gradients."""
    with GradMode(False):
        try:
            returned = function.forward(ctx, *args)
        except MetaError as error:
            _add_place(error, f"in {function.__name__}.forward")
            raise
        except Exception as error:
            raise raised(KernelError, function.__name__, "its forward", error) from error
    results = as_tuple(returned)
    for r in results:
        if not isinstance(r, kind):
            problem = f"forward returned {type(r).__name__}"
            raise GradientError(function.__name__, problem, "an NDArray or a tuple of them")
    return returned, results


def run_backward(
    function: Any, ctx: Context, dys: Sequence[Any], needs: Sequence[bool], types: Sequence[Any], kind: type
) -> tuple[Any, ...]:
    """The gradients that `backward` returned, which are of class `kind`.

    needs: which arguments of `forward` need one.  types: the types of the tensors among the arguments, None for
    others."""
    name = function.__name__
    try:
        returned = function.backward(ctx, *dys)
    except MetaError as error:
        _add_place(error, f"in {name}.backward")
        raise
    except Exception as error:
        raise raised(GradientError, name, "its backward", error) from error
    gradients = as_tuple(returned)
    if len(gradients) != len(types):
        raise GradientError(
            name,
            f"backward returned {len(gradients)} gradients",
            f"one for each of the {len(types)} arguments of forward",
            "return None where there is none",
        )
    for i, (g, t, need) in enumerate(zip(gradients, types, needs, strict=True)):
        if need and g is not None:
            check_gradient(name, f"argument {i}", g, t, kind, line_of_function(function.backward) or None)
    return gradients


def _add_place(error: MetaError, where: str) -> None:
    error.details = "\n".join(filter(None, (error.details, where)))


def flowing(ctx: Context, results: Sequence[Any]) -> frozenset[int]:
    """The indices of the results that gradients flow from."""
    stopped = ctx._non_differentiable
    return frozenset(
        i for i, r in enumerate(results) if dtypes.is_inexact(r.dtype) and not any(r is s for s in stopped)
    )


def record_node(
    function: Any, ctx: Context, args: Sequence[Any], edges: Any, results: tuple[NDArray, ...], flows: frozenset[int]
) -> None:
    """Record a call on arrays. args: the arguments of `forward`, or the types of the tensors among them.  flows: the
    results that gradients flow from."""
    node = GradientNode()
    node.order = next_order()
    node.hooks = None
    node.edges = edges
    _detach_outputs(ctx, results)
    node.args = (ctx,)
    types = tuple(a.type if isinstance(a, NDArray) else None for a in args)
    node.rule = GradRule(
        function.__name__, _rule(function, types), tuple(range(len(args))), outputs=len(results),
        differentiable_outputs=flows,
    )  # fmt: skip
    node.outs = tuple(r.type for r in results)
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


def _rule(function: Any, types: tuple[Any, ...]) -> Any:
    """The user's `backward` in the form of a generated gradient function."""

    def run(needs: tuple[bool, ...], ctx: Context, *outs_and_dys: Any) -> tuple[Any, ...]:
        dys = outs_and_dys[len(outs_and_dys) // 2 :]
        gradients = run_backward(function, ctx, dys, needs, types, NDArray)
        for g, need in zip(gradients, needs, strict=True):
            if need and g is not None and g._version is None:
                g._version = Writes((0,))  # the user may hold it too
        return gradients

    return run
