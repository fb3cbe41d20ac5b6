"""Higher-order operators of torch: branches, loops and regions, whose bodies are graphs among their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import meta
from meta.errors import NotSupportedError
from meta.frontend.torch.nodes import Graph
from meta.schema._dsl import TensorLike

RunGraph = Callable[[Graph, Sequence[Any]], Any]
"""(graph, the values of its placeholders) -> its outputs."""


def _region(run: RunGraph, enabled: bool, graph: Graph, *values: Any) -> Any:
    """A graph that runs with or without gradients."""
    mode: AbstractContextManager[Any] = nullcontext() if enabled else meta.no_grad()
    with mode:
        return run(graph, values)


def _flag(predicate: Any) -> Any:
    """A predicate as a bool or a 0-d tensor: torch takes any tensor of one element."""
    return meta.reshape(predicate, ()) if hasattr(predicate, "shape") else predicate


def _cond(run: RunGraph, predicate: object, then: Graph, otherwise: Graph, operands: Sequence[Any] = ()) -> Any:
    return meta.cond(_flag(predicate), lambda: run(then, operands), lambda: run(otherwise, operands))


def _while_loop(
    run: RunGraph, condition: Graph, body: Graph, carried: Sequence[Any], additional: Sequence[Any] = ()
) -> Any:
    _check_tensors("while_loop", carried)

    def goes_on(carry: tuple[Any, ...]) -> Any:
        result = run(condition, (*carry, *additional))
        return _flag(result[0] if isinstance(result, (tuple, list)) else result)

    return meta.while_loop(goes_on, lambda carry: tuple(run(body, (*carry, *additional))), tuple(carried))


def _scan(run: RunGraph, body: Graph, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any] = ()) -> Any:
    _check_tensors("scan", (*init, *xs))

    def step(carry: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        results = tuple(run(body, (*carry, *x, *additional)))
        return results[: len(carry)], results[len(carry) :]

    carry, ys = meta.scan(step, tuple(init), tuple(xs))
    return *carry, *ys


def _map(run: RunGraph, body: Graph, xs: Sequence[Any], additional: Sequence[Any] = ()) -> Any:
    return _scan(run, body, (), xs, additional)


def _check_tensors(name: str, values: Sequence[Any]) -> None:
    for value in values:
        if not isinstance(value, TensorLike):
            raise NotSupportedError(name, f"a loop carries {value!r}"[:200], "tensors")


HIGHER_ORDER: Mapping[str, Callable[..., Any]] = {
    "higher_order.cond": _cond, "higher_order.map_impl": _map, "higher_order.scan": _scan,
    "higher_order.while_loop": _while_loop, "higher_order.wrap_with_set_grad_enabled": _region,
}  # fmt: skip
"""Name of a higher-order operator -> (RunGraph, *its arguments) -> its results."""
