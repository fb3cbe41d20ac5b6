"""Graphs with sizes that depend on values, as a sequence of graphs: torch runs the calls that decide such a size, which
is a symbolic size like others in the graphs between them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.passes.split_module import split_module
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.symbol import SymT, symbol_is_type

from meta.frontend.torch.dynamo.report import Fallback, GraphReport
from meta.frontend.torch.dynamo.targets import reported_name

DEPENDENT = "the sizes of its results depend on values"
"""The reason for which torch runs such calls."""

_CHECKS = ("_assert_async", "_functional_assert_async", "_assert_scalar", "_functional_assert_scalar")

Run = Callable[[list[Any]], list[Any]]
Compile = Callable[[GraphModule], tuple[Run, GraphReport]]


def dependent_nodes(module: GraphModule) -> list[Node]:
    """The calls that decide a size by values, or check one, or a condition on values."""
    known: set[Any] = set()
    found: list[Node] = []
    for node in module.graph.nodes:
        symbols = _symbols(node)
        if node.op == "call_function":
            name = reported_name(node).removeprefix("aten::")
            is_check = name in _CHECKS and (not _is_number(node.args[0]) or _is_unbacked(node.args[0]))
            if is_check or symbols - known:
                found.append(node)
        known |= symbols
    return found


def split_graph(
    module: GraphModule, kind: str, dependent: Sequence[Node], compile_part: Compile
) -> tuple[Run, GraphReport]:
    """The call of a graph whose `dependent` nodes torch runs, and a report on all of it.

    compile_part: compiles the graph between two of them."""
    runs_in_torch = set(dependent)
    part, numbers = 0, dict[Node, int]()
    for node in module.graph.nodes:
        if node.target is operator.getitem:  # results of one call stay together
            numbers[node] = numbers[node.args[0]]
            continue
        if node.op == "call_function" and (node in runs_in_torch) == (part % 2 == 0):
            part += 1
        numbers[node] = part
    whole = split_module(module, module, numbers.__getitem__, keep_original_order=True)
    operators, fallbacks, by_torch, per_size = 0, [Fallback(reported_name(n), DEPENDENT) for n in dependent], "", ""
    for name, child in list(whole.named_children()):
        if not name.startswith("submod_") or int(name.removeprefix("submod_")) % 2:
            continue
        run, report = compile_part(child)  # type: ignore[arg-type]
        setattr(whole, name, _Part(run, child.graph.output_node()))  # type: ignore[union-attr, operator]
        operators += report.operators
        fallbacks += report.fallbacks
        by_torch, per_size = by_torch or report.by_torch, per_size or report.per_size
    interpreter = Interpreter(whole)

    def run_all(args: list[Any]) -> list[Any]:
        values = list(args)
        args.clear()
        return list(interpreter.run(*values))

    return run_all, GraphReport(kind, operators + len(dependent), tuple(fallbacks), by_torch, per_size)


class _Part(nn.Module):
    """A compiled graph as the module that the whole graph calls. output: of the graph."""

    def __init__(self, run: Run, output: Node) -> None:
        super().__init__()
        self.run = run
        self.is_single = not isinstance(output.args[0], (tuple, list))

    def forward(self, *args: Any) -> Any:
        results = self.run(list(args))
        return results[0] if self.is_single else tuple(results)


def _symbols(node: Node) -> set[Any]:
    """The symbols in the results of a node whose values are known only when it runs."""
    numbers: list[Any] = []
    for value in tree_leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            numbers += [*value.shape, *value.stride()]
        elif not isinstance(value, torch.Tensor):
            numbers.append(value)
    symbolic = [n for n in numbers if isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool))]
    found: set[Any] = {s for n in symbolic for s in n.node.expr.free_symbols}
    return {s for s in found if symbol_is_type(s, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT))}


def _is_number(value: Any) -> bool:
    return not isinstance(value, Node) or not isinstance(value.meta.get("val"), torch.Tensor)


def _is_unbacked(value: Any) -> bool:
    """Whether a number is computed from a size that depends on values, which has no hint."""
    number = value.meta.get("val") if isinstance(value, Node) else value
    return isinstance(number, torch.SymBool) and number.node.hint is None
