"""Loops as ONNX's Scan and Loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from meta.frontend.onnx.export_graph import ExportGraph, value_info
from meta.frontend.onnx.export_types import held_type
from meta.ir.expr import Block
from meta.tracing.loop_op import LoopOp

WriteBlock = Callable[[ExportGraph, Block], list[Any]]


def write_loop(
    graph: ExportGraph,
    op: LoopOp,
    args: Sequence[str],
    used: Collection[int],
    values: dict[Any, Any],
    write: WriteBlock,
) -> tuple[str, ...] | None:
    """The names of the results of a loop, "" for stacks that are not used; None for one that ONNX cannot express.

    args: the values of its arguments.  used: the fields that the program reads.  values: by variable; the body's values
    are added.  write: adds the nodes of a block to a graph."""
    body, carried, scanned = op.body, op.carried, op.scanned
    if body is None or (op.reverse and not scanned and op.length is not None):
        return None
    count = len(op.result.fields)
    stacks = [i for i in range(carried, count) if i in used]
    inner = graph.branch()
    names = [inner.name(p.name or "carry") for p in body.params[: carried + scanned]]
    inner.dtypes.update((name, held_type(p.type).dtype) for name, p in zip(names, body.params, strict=False))  # type: ignore[arg-type]
    values.update(zip(body.params, (*names, *args[carried + scanned :]), strict=True))
    results = write(inner, body.body)
    fields = (*range(carried), *stacks)
    outputs = [value_info(_copied(inner, results[i]), body.body.results[i].type) for i in fields]  # type: ignore[arg-type]
    inputs = [value_info(n, p.type) for n, p in zip(names, body.params, strict=False)]  # type: ignore[arg-type]
    written = (_scan if scanned else _repeat)(graph, inner, op, args, inputs, outputs)
    by_field = dict(zip(fields, written, strict=True))
    return tuple(by_field.get(i, "") for i in range(count))


def _copied(inner: ExportGraph, value: str) -> str:
    """A value as an output of a body, which may be neither an input nor a value from outside."""
    return inner.node("Identity", value)


def _graph(inner: ExportGraph, inputs: list[Any], outputs: list[Any]) -> Any:
    import onnx

    return onnx.helper.make_graph(inner.nodes, inner.name("body"), inputs, outputs, initializer=inner.initializers)


def _scan(
    graph: ExportGraph, inner: ExportGraph, op: LoopOp, args: Sequence[str], inputs: list[Any], outputs: list[Any]
) -> tuple[str, ...]:
    """Steps over elements, from the first or from the last one; the stacks have the order of the elements."""
    direction = int(op.reverse)
    stacks = len(outputs) - op.carried
    result = graph.node(
        "Scan", *args[: op.carried + op.scanned], outputs=max(len(outputs), 1), num_scan_inputs=op.scanned,
        body=_graph(inner, inputs, outputs), scan_input_directions=[direction] * op.scanned,
        scan_output_directions=[direction] * stacks if stacks else None,
    )  # fmt: skip
    return result if isinstance(result, tuple) else (result,)


def _repeat(
    graph: ExportGraph, inner: ExportGraph, op: LoopOp, args: Sequence[str], inputs: list[Any], outputs: list[Any]
) -> tuple[str, ...]:
    """A number of steps, or steps while the first value that is carried is true."""
    import onnx

    step, condition = inner.name("step"), inner.name("condition")
    inner.dtypes.update({step: "int64", condition: "bool"})
    first_inputs = [
        onnx.helper.make_tensor_value_info(step, onnx.TensorProto.INT64, []),
        onnx.helper.make_tensor_value_info(condition, onnx.TensorProto.BOOL, []),
    ]
    going = inner.node("Identity", condition if op.length is not None else outputs[0].name)
    declared = [onnx.helper.make_tensor_value_info(going, onnx.TensorProto.BOOL, []), *outputs]
    limit, first = "", args[0]
    if op.length is not None:
        limit = graph.node("Squeeze", graph.size(op.length), graph.integers([0]))
        first = graph.constant(True, "bool")
    result = graph.node(
        "Loop", limit, first, *args[: op.carried], outputs=max(len(outputs), 1),
        body=_graph(inner, [*first_inputs, *inputs], declared),
    )  # fmt: skip
    return result if isinstance(result, tuple) else (result,)
