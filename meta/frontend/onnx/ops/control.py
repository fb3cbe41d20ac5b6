"""Conditionals and loops. What is known at conversion decides there; the rest becomes `meta.cond`, `meta.scan` and
`meta.while_loop`, whose branches and steps have one type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.frontend.onnx.errors import OnnxError, UndecidedError
from meta.frontend.onnx.ops._row import MAX_UNROLLED, Node, refuse, row
from meta.frontend.onnx.ops._values import axis_of, tensor, value_of
from meta.frontend.onnx.types import empty_stack
from meta.modes import modes
from meta.schema._dsl import TensorLike


@row("If", raw=True, folds=False)
def if_(node: Node, cond: Any, *, then_branch: Any, else_branch: Any) -> Any:
    if _is_known(cond):
        return then_branch() if _flag(node, cond) else else_branch()

    def branch(graph: Any) -> Callable[[], Any]:
        return lambda: tuple(_tensor(node, v) for v in graph())

    try:
        return meta.cond(meta.reshape(cond, ()), branch(then_branch), branch(else_branch))
    except ArgumentError as error:
        raise _undecided(node, f"its branches differ: {error.problem}") from error


@row("Loop", raw=True, folds=False)
def loop(node: Node, M: Any = None, cond: Any = None, *carried: Any, body: Any) -> Any:  # ONNX's name
    limit = _limit(node, M)
    starts = cond is None or (_is_known(cond) and _flag(node, cond))
    if cond is not None and _is_known(cond) and not starts:
        limit = 0
    bounded = M is None or limit is not None
    if modes.emit is None or limit == 0:
        return _stepwise(node, limit, carried, body)
    if limit is not None and starts and body.keeps_going():
        try:
            return _counted(node, limit, carried, body)
        except (ArgumentError, UndecidedError):
            return _stepwise(node, limit, carried, body)
    if bounded and starts and all(isinstance(v, (np.ndarray, list)) for v in carried):
        try:
            return _stepwise(node, limit, carried, body)
        except UndecidedError:
            pass  # the condition depends on tensors around the loop
    return _conditional(node, M if limit is None else limit, cond, carried, body)


@row("Scan", since=9, raw=True)
def scan(
    node: Node, *inputs: Any, body: Any, num_scan_inputs: int, scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (), scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
) -> Any:  # fmt: skip
    count = len(inputs) - num_scan_inputs
    outputs = len(body.outputs) - count
    if not 0 < num_scan_inputs <= len(inputs) or outputs < 0:
        problem = f"{len(inputs)} inputs, {num_scan_inputs} of them scanned, and {len(body.outputs)} results"
        raise OnnxError("onnx", f"{node.name}: {problem}", "states, then scanned inputs")
    operands = [_tensor(node, v) for v in inputs]
    states, scanned = operands[:count], operands[count:]
    axes, directions = _padded(scan_input_axes, num_scan_inputs), _padded(scan_input_directions, num_scan_inputs)
    rows = [
        _oriented(meta.moveaxis(x, axis_of("Scan", axis, x.ndim), 0), backward)
        for x, axis, backward in zip(scanned, axes, directions, strict=True)
    ]

    def step(carry: Any, elements: Any) -> Any:
        values = [_tensor(node, v) for v in body(*carry, *elements)]
        return tuple(values[:count]), tuple(values[count:])

    last, items = meta.scan(step, tuple(states), tuple(rows))
    axes, directions = _padded(scan_output_axes, outputs), _padded(scan_output_directions, outputs)
    stacks = [
        meta.moveaxis(_oriented(x, backward), 0, axis_of("Scan", axis, x.ndim))
        for x, axis, backward in zip(items, axes, directions, strict=True)
    ]
    return (*last, *stacks)


@row("Scan", since=8, raw=True)
def scan_8(
    node: Node, lengths: Any = None, *inputs: Any, body: Any, num_scan_inputs: int, directions: Sequence[int] = ()
) -> Any:  # fmt: skip
    """States and scanned inputs have a batch axis in front; all sequences of a batch have one length here."""
    if lengths is not None:
        refuse(node, "sequence_lens is given", "sequences of one length")
    operands = [_tensor(node, v) for v in inputs]
    size = operands[0].shape[0] if operands and operands[0].ndim else None
    if not isinstance(size, int) or not 0 < size <= MAX_UNROLLED:
        refuse(node, f"the batch has {size} sequences", f"1 to {MAX_UNROLLED}")
    results = [
        scan(
            node, *(meta.select(x, 0, i) for x in operands), body=body, num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )
        for i in range(size)
    ]  # fmt: skip
    return tuple(meta.stack(column) for column in zip(*results, strict=True))


# --- loops -----------------------------------------------------------------------------------------------------------


def _stepwise(node: Node, limit: int | None, carried: Sequence[Any], body: Any) -> tuple[Any, ...]:
    """Step by step: values may be sequences, and change their types. A program holds all of the steps."""
    declared = body.outputs[len(carried) + 1 :]
    values, stacks = list(carried), [[] for _ in declared]
    flag: Any = np.asarray(True)
    count = 0
    while (limit is None or count < limit) and _flag(node, flag):
        if modes.emit is not None and count == MAX_UNROLLED:
            raise _undecided(node, f"more than {MAX_UNROLLED} steps differ in type or condition")
        flag, *results = body(np.asarray(count, np.int64), flag, *values)
        values = results[: len(carried)]
        for stack, item in zip(stacks, results[len(carried) :], strict=True):
            stack.append(item)
        count += 1
    return (*values, *(_stacked(node, stack, d) for stack, d in zip(stacks, declared, strict=True)))


def _counted(node: Node, limit: int, carried: Sequence[Any], body: Any) -> tuple[Any, ...]:
    """A loop of known length, as one body."""

    def step(carry: Any, index: Any) -> Any:
        _, *values = body(index, np.asarray(True), *carry)
        tensors = [_tensor(node, v) for v in values]
        return tuple(tensors[: len(carried)]), tuple(tensors[len(carried) :])

    start = tuple(_tensor(node, v) for v in carried)
    last, items = meta.scan(step, start, meta.arange(limit, dtype="int64"))
    return (*last, *items)


def _conditional(node: Node, limit: Any, cond: Any, carried: Sequence[Any], body: Any) -> tuple[Any, ...]:
    """A loop whose number of steps depends on values; it stacks nothing."""
    if len(body.outputs) > len(carried) + 1:
        raise _undecided(node, "the number of its steps is the size of an output")
    start_flag = meta.full((), True, dtype="bool") if cond is None else meta.reshape(_tensor(node, cond), ())
    bound = np.asarray(limit) if isinstance(limit, int) else limit
    most = None if bound is None else meta.reshape(_tensor(node, bound), ())

    def going(carry: Any) -> Any:
        count, flag = carry[:2]
        return flag if most is None else meta.logical_and(flag, meta.less(count, most))

    def step(carry: Any) -> Any:
        count, flag, values = carry
        new, *results = body(count, flag, *values)
        flag = meta.reshape(_tensor(node, new), ())
        return count + 1, flag, tuple(_tensor(node, v) for v in results)

    start = (meta.full((), 0, dtype="int64"), start_flag, tuple(_tensor(node, v) for v in carried))
    try:
        return meta.while_loop(going, step, start)[2]
    except ArgumentError as error:
        raise _undecided(node, f"its steps differ: {error.problem}") from error


def _limit(node: Node, most: Any) -> int | None:
    """The number of steps if it is known; None for one that is computed, or no bound."""
    if most is None:
        return None
    return int(value_of(node, most, "M").reshape(()).item()) if _is_known(most) else None


def _stacked(node: Node, items: list[Any], declared: Any) -> Any:
    if not items:
        return empty_stack(declared, node.name)
    if all(isinstance(v, np.ndarray) and v.dtype != object for v in items):
        return np.stack(items)
    return meta.stack([_tensor(node, v) for v in items])


# --- values ----------------------------------------------------------------------------------------------------------


def _is_known(value: Any) -> bool:
    return isinstance(value, (np.ndarray, NDArray))


def _flag(node: Node, value: Any) -> bool:
    array = value_of(node, value, "the condition")
    if array.size != 1:
        raise OnnxError("onnx", f"{node.name}: the condition has shape {array.shape}", "one bool")
    return bool(array.reshape(()).item())


def _tensor(node: Node, value: Any) -> Any:
    if isinstance(value, (TensorLike, np.ndarray)):
        return tensor(value)
    what = "a sequence" if isinstance(value, list) else "an empty optional"
    raise _undecided(node, f"{what} goes through a branch or a step of the program")


def _undecided(node: Node, problem: str) -> UndecidedError:
    remedy = "call `interpret`"
    return UndecidedError("onnx", f"{node.name}: {problem}", "what constants and shapes decide", remedy=remedy)


def _oriented(x: Tensor, backward: int) -> Any:
    return meta.flip(x, 0) if backward else x


def _padded(values: Sequence[int], count: int) -> Sequence[int]:
    return values if len(values) else (0,) * count
