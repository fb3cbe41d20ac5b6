"""The backward walk over the tape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from meta.autograd.tape import Edge, Leaf, Node, accumulate_lock, check_versions
from meta.errors import GradientError, TypeInferenceError, message
from meta.ir.type import TensorType
from meta.ndarray import NDArray
from meta.scope import modes

Slot = tuple[Node, int]


def backward(y: NDArray, dy: NDArray | None, *, retain_graph: bool = False, create_graph: bool = False) -> None:
    """See NDArray.backward."""
    root = _root(y)
    _walk({root: _seed(y, dy)}, None, retain_graph or create_graph, create_graph)


def grad(
    outputs: NDArray | Sequence[NDArray],
    inputs: NDArray | Sequence[NDArray],
    dys: NDArray | Sequence[NDArray | None] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[NDArray | None, ...]:
    """Gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    dys: the outputs' gradients; needed for outputs with more than one element. allow_unused: None, instead of a
    GradientError, for an input that no output depends on."""
    ys = (outputs,) if isinstance(outputs, NDArray) else tuple(outputs)
    xs = (inputs,) if isinstance(inputs, NDArray) else tuple(inputs)
    seeds = (None,) * len(ys) if dys is None else (dys,) if isinstance(dys, NDArray) else tuple(dys)
    if len(seeds) != len(ys):
        raise GradientError(message("grad", f"{len(seeds)} output gradients for {len(ys)} outputs", "one each"))
    start: dict[Slot, NDArray] = {}
    for y, dy in zip(ys, seeds, strict=True):
        slot, seed = _root(y), _seed(y, dy)
        start[slot] = seed if slot not in start else start[slot] + seed
    wanted = {_root(x, "grad"): None for x in xs}
    found = _walk(start, wanted, retain_graph or create_graph, create_graph)
    out = tuple(found.get(_root(x)) for x in xs)
    for i, g in enumerate(out):
        if g is None and not allow_unused:
            raise GradientError(
                message("grad", f"input {i} was not used to compute the outputs", "inputs in the graph of the outputs",
                        "pass allow_unused=True to get None")
            )  # fmt: skip
    return out


def _root(y: NDArray, where: str = "backward") -> Slot:
    node = y._node  # pyright: ignore[reportPrivateUsage]
    if node is None:
        raise GradientError(
            message(where, "the array does not require grad and was not computed from one that does",
                    "an array in a gradient graph", "set requires_grad = True on an input, outside of no_grad()")
        )  # fmt: skip
    return node, y._index  # pyright: ignore[reportPrivateUsage]


def _seed(y: NDArray, dy: NDArray | None) -> NDArray:
    if dy is None:
        if y.size != 1:
            raise GradientError(
                message("backward", f"the array has shape {y.shape} and no gradient was given",
                        "without dy: arrays with one element", "pass dy, or reduce with .sum()")
            )  # fmt: skip
        from meta._generated.functions import ones

        return ones(y.shape, dtype=y.dtype, device=y.device)
    if dy.type is not y.type:
        raise TypeInferenceError(
            message("backward", f"dy is {dy.type!r}", f"the array's own type: {y.type!r}", "reshape or cast dy")
        )
    return dy


def _walk(
    start: dict[Slot, NDArray], wanted: dict[Slot, None] | None, retain: bool, create: bool
) -> dict[Slot, NDArray]:
    """Propagate from `start`. With `wanted`, collect those gradients and leave `.grad` alone."""
    pending = _dependencies(node for node, _ in start)
    grads: dict[Node, dict[int, NDArray]] = {}
    for (node, index), seed in start.items():
        grads.setdefault(node, {})[index] = seed
    ready = [node for node in grads if not pending[node]]
    found: dict[Slot, NDArray] = {}
    with grad_mode(create):
        while ready:
            node = ready.pop()
            mine = grads.pop(node, None)
            if mine is not None:
                _run_hooks(node, mine)
                if wanted is not None:
                    found.update({(node, i): g for i, g in mine.items() if (node, i) in wanted})
                inputs = _apply(node, mine, wanted is None, create)
                for edge, gradient in inputs:
                    _add(grads.setdefault(edge[0], {}), edge[1], gradient)
            for edge in _flat_edges(node):
                pending[edge[0]] -= 1
                if not pending[edge[0]]:
                    ready.append(edge[0])
            if not retain and not isinstance(node, Leaf):
                node.args = node.outs = None
                node.versions = ()
    return found


def _dependencies(roots: Iterable[Node]) -> dict[Node, int]:
    """For every node reachable from `roots`, how many edges lead to it."""
    stack = list(dict.fromkeys(roots))
    pending: dict[Node, int] = dict.fromkeys(stack, 0)
    while stack:
        for target, _ in _flat_edges(stack.pop()):
            if target in pending:
                pending[target] += 1
            else:
                pending[target] = 1
                stack.append(target)
    return pending


def _flat_edges(node: Node) -> list[Slot]:
    out: list[Slot] = []
    for edge in node.edges:
        if edge is None:
            continue
        if edge[0].__class__ in (tuple, type(None)):
            out.extend(e for e in edge if e is not None)  # type: ignore[misc]
        else:
            out.append(edge)  # type: ignore[arg-type]
    return out


def _apply(node: Node, mine: dict[int, NDArray], accumulate: bool, create: bool) -> list[tuple[Slot, NDArray]]:
    """The gradients of a node's inputs, each with where it goes."""
    if isinstance(node, Leaf):
        if accumulate:
            _accumulate(node, mine[0], create)
        return []
    if node.args is None or node.outs is None:
        raise GradientError(
            message(node.rule.op, "the graph was freed by an earlier backward", "one backward a graph",
                    "pass retain_graph=True to the first one")
        )  # fmt: skip
    check_versions(node)
    rule = node.rule
    needs = tuple([_needs(edge) for edge in node.edges])
    outs = _connected(node) if create and rule.saved_outputs else node.outs
    dys = [_output_gradient(rule.undefined, mine, i, t) for i, t in enumerate(node.out_types)]
    if rule.outputs < 0:
        gradients = rule.function(needs, *node.args, outs, tuple(dys))
    else:
        gradients = rule.function(needs, *node.args, *outs, *dys)
    out: list[tuple[Slot, NDArray]] = []
    for position, edge, gradient in zip(rule.differentiable, node.edges, gradients, strict=True):
        if edge is None:
            continue
        if gradient is None and position in rule.unavailable:
            raise GradientError(
                message(rule.op, f"no gradient for argument {position}", rule.unavailable[position], "detach it")
            )
        if edge[0].__class__ in (tuple, type(None)):
            pairs = zip(edge, gradient or (), strict=False)
            out.extend((e, g) for e, g in pairs if e is not None and g is not None)  # type: ignore[misc]
        elif gradient is not None:
            out.append((edge, gradient))  # type: ignore[arg-type]
    return out


def _needs(edge: Edge | tuple[Edge, ...]) -> bool:
    return edge is not None


def _connected(node: Node) -> tuple[Any, ...]:
    """Saved outputs as part of the graph again, for gradients of gradients."""
    outs: list[Any] = []
    for i, saved in enumerate(node.outs or ()):
        if isinstance(saved, NDArray):
            saved = saved._alias()  # pyright: ignore[reportPrivateUsage]
            saved._node, saved._index = node, i  # pyright: ignore[reportPrivateUsage]
        outs.append(saved)
    return tuple(outs)


def _output_gradient(undefined: frozenset[int], mine: dict[int, NDArray], index: int, t: TensorType) -> Any:
    found = mine.get(index)
    if found is not None or index in undefined:
        return found
    from meta._generated.functions import zeros

    return zeros(t.shape, dtype=t.dtype, device=t.device)


def _add(slots: dict[int, NDArray], index: int, gradient: NDArray) -> None:
    before = slots.get(index)
    slots[index] = gradient if before is None else before + gradient


def _run_hooks(node: Node, mine: dict[int, NDArray]) -> None:
    for index, hooks in (node.hooks or {}).items():
        for hook in list(hooks):
            if index in mine:
                replaced = hook(mine[index])
                mine[index] = mine[index] if replaced is None else replaced


def _accumulate(leaf: Leaf, gradient: NDArray, create: bool) -> None:
    target = leaf.array()
    if target is None:
        return
    with accumulate_lock:
        before = target.grad
        if before is None:
            target.grad = gradient if create else gradient.detach()
        else:
            target.grad = before + gradient


@contextmanager
def grad_mode(enabled: bool):  # noqa: ANN201  # the decorator states the type
    """Record (or do not record) gradients inside the block, in this thread."""
    before = modes.grad_enabled
    modes.grad_enabled = enabled
    try:
        yield
    finally:
        modes.grad_enabled = before
