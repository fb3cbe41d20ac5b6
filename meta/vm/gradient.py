"""Gradients of compiled calls.

A call whose inputs or state require gradients runs the program with further results, the values that its gradient
reads, and records one node of the tape. The first backward pass through such a node compiles the gradient, a second
program. Calls under `no_grad` and calls without anything to differentiate run the plain program (see
`runner.recording_runner`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from meta import tracing
from meta.eager.gradient_graph import Edges, GradientNode, check_no_leaf, next_order
from meta.eager.ndarray import NDArray
from meta.eager.seeds import zeros_of
from meta.eager.tape import link, versions_of
from meta.eager.walk import mark_shared
from meta.errors import GradientError, MetaError
from meta.ir.builder import Module
from meta.ir.expr import MUTATES
from meta.modes import modes
from meta.op.grad.rule import GradRule
from meta.passes.split_gradient import Split, differentiable_results, split
from meta.records import mutable
from meta.tree import flatten
from meta.vm.program import Program
from meta.vm.runner import Finish, Runner, flat_tree, is_floating

Compile = Callable[[tracing.Record, Module], Program]
"""Compiles a program whose passes before the standard ones have run."""
Gradients = Callable[[Sequence[NDArray], Sequence[NDArray]], Sequence[NDArray | None]]
"""(values, gradients of the results) -> the gradient of each parameter that requires one."""


@mutable
class RecordedProgram:
    """The programs of calls in which certain parameters require gradients; `backward` is compiled when needed."""

    record: tracing.Record
    split: Split
    forward: Program
    compile: Compile
    backward: Program | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def gradients(self, values: Sequence[NDArray], dys: Sequence[NDArray]) -> list[NDArray | None]:
        """The gradients of the wanted parameters; those that share memory with other arrays are marked."""
        with self.lock:
            if self.backward is None:
                self.backward = self.compile(self._backward_record(), self.split.backward)
        results: Sequence[NDArray] = self.backward.run([*values, *dys])
        groups: dict[str, Sequence[NDArray]] = {"incoming": dys, "held": values, "result": results}
        arrays = [None if source is None else groups[source[0]][source[1]] for source in self.split.sources]
        pointers = {x._data.data_ptr() for x in (*values, *dys)}
        for x in arrays:
            if x is None:
                continue
            pointer = x._data.data_ptr()
            if pointer in pointers:
                mark_shared(x)
            pointers.add(pointer)
        return arrays

    def _backward_record(self) -> tracing.Record:
        """The gradient as a record that has inputs only."""
        main = self.split.backward.main
        names = tuple(p.name for p in main.params)
        result = flat_tree(len(main.body.results))
        return replace(
            self.record, module=self.split.backward, inputs=names, state=(), random=(), result=result, containers=()
        )


def recording_call(
    plain: Runner, record: tracing.Record, module: Module, count: int, compile: Compile, finish: Finish
) -> Runner:
    """The call of one specialisation that records a node.

    plain: the call without gradients.  record, module: the program after the passes before the standard ones; `count`
    results belong to the caller.  finish: from all results of the program to what the call returns."""
    state = [x for _, x in record.state]
    params = record.main.params[: len(record.inputs) + len(state)]
    floating = [i for i, p in enumerate(params) if is_floating(p)]
    programs: dict[tuple[int, ...], RecordedProgram | MetaError | None] = {}

    def prepare(tracked: tuple[int, ...]) -> RecordedProgram | MetaError | None:
        try:
            parts = split(module, tracked, record.constant, count, record.recorded)
        except MetaError as error:  # a user's `backward` may raise any
            return error
        if parts is None:
            return None
        main = parts.forward.main
        result = flat_tree(len(main.body.results) - len(main.attrs.get(MUTATES, {})))
        forward = compile(replace(record, module=parts.forward, result=result), parts.forward)
        return RecordedProgram(record, parts, forward, compile)

    written: dict[int, int] = module.main.attrs.get(MUTATES, {})

    def outputs(result: int, results: Sequence[NDArray], arrays: Sequence[NDArray]) -> NDArray:
        return arrays[written[result]] if result in written else results[result]

    def call(inputs: Sequence[NDArray]) -> Any:
        arrays = [*inputs, *state]
        for i in record.recorded:
            check_no_leaf("vm", arrays[i])
        tracked = tuple([i for i in floating if arrays[i]._node is not None])
        if tracked not in programs:
            programs[tracked] = prepare(tracked)
        recorded = programs[tracked]
        if recorded is None:
            return plain(inputs)
        edges: Any = tuple([(arrays[i]._node, arrays[i]._index) for i in tracked])
        if isinstance(recorded, MetaError):
            # The error matters only if `backward` asks for the gradient.
            result = plain(inputs)
            flows = differentiable_results(module.main, tracked, record.constant, count, record.recorded)
            leaves = [x for _, x in flatten(result, NDArray)[0]]
            _refuse([outputs(i, leaves, arrays) for i in flows], edges, recorded)
            return result
        results = recorded.forward.run(inputs)
        parts = recorded.split
        # Aliases of results: the results hold the node, which holds the values.
        values = [arrays[i] if kind == "parameter" else results[i]._alias() for kind, i in parts.held]
        for i in record.recorded:
            arrays[i]._node = None
        _link([outputs(i, results, arrays) for i in parts.flows], edges, values, recorded.gradients)
        return finish(inputs, results[: len(results) - parts.extra])

    return call


def without_gradient(run: Runner, inputs: Sequence[NDArray], error: MetaError) -> Any:
    """A call whose floating results raise `error` in `backward`."""
    result = run(inputs)
    results = [x for _, x in flatten(result, NDArray)[0] if is_floating(x)]
    edges: Any = tuple([(x._node, x._index) for x in inputs if x._node is not None])
    _refuse([x for x in results if all(x is not y for y in inputs)], edges, error)
    return result


def _refuse(outputs: Sequence[NDArray], edges: Edges, error: MetaError) -> None:
    """Record a call whose gradient raises an error."""

    def refuse(*_: Any) -> Any:
        raise error

    _link(outputs, edges, (), refuse)


def _link(outputs: Sequence[NDArray], edges: Edges, values: Sequence[NDArray], gradients: Gradients) -> None:
    """Record a call: a node of the results that gradients flow from. values: what `gradients` reads."""
    out_types = tuple([x.type for x in outputs])

    def pull(needs: tuple[bool, ...], values: Sequence[NDArray], *outs_and_dys: Any) -> tuple[NDArray | None, ...]:
        """The gradient in the form of a generated gradient function."""
        if modes.grad_enabled:
            raise GradientError(
                "vm",
                "the gradient of a compiled call is differentiated",
                "first derivatives of compiled calls",
                "run the function eagerly, or take all derivatives inside the compiled function",
            )
        dys = outs_and_dys[len(out_types) :]
        filled = [zeros_of(t) if dy is None else dy for t, dy in zip(out_types, dys, strict=True)]
        arrays = gradients(values, filled)
        return tuple([g if need else None for g, need in zip(arrays, needs, strict=True)])

    node = GradientNode()
    node.order = next_order()
    node.hooks = None
    node.edges = edges
    node.args = (tuple(values),)
    node.outs = out_types
    node.versions = versions_of(values)
    indices = range(len(outputs))
    node.rule = GradRule(
        "vm", pull, tuple(range(len(edges))), outputs=len(outputs),
        differentiable_outputs=frozenset(indices), undefined=frozenset(indices),
    )  # fmt: skip
    link(node, outputs, indices)
