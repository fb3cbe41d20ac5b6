"""Gradients of compiled calls.

A call whose inputs or state require gradients runs the program with further results, the values that its gradient
reads, and records one node of the tape. The first backward pass through such a node compiles the gradient, a second
program. Calls under `no_grad` and calls without anything to differentiate run the plain program.

`backward` inside a traced function is part of its program. The gradients that it leaves are further results, which the
call puts into `.grad`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from meta import tracing
from meta.eager.gradient_graph import Edges, GradientNode, accumulate_lock, next_order
from meta.eager.ndarray import NDArray, copy_of
from meta.eager.seeds import add_up, zeros_of
from meta.eager.tape import link, versions_of
from meta.errors import GradientError, MetaError
from meta.ir.expr import MUTATES, Block, Tuple
from meta.ir.module import Module
from meta.ir.type import TensorType
from meta.modes import GradMode, modes
from meta.op.grad.rule import GradRule
from meta.passes.split_gradient import Split, differentiable_results, is_floating, split
from meta.records import mutable
from meta.tree import Tree, flatten
from meta.vm.program import Program
from meta.vm.runner import Runner, builder, with_numbers

Compile = Callable[[tracing.Record, Module], Program]
"""Compiles a program whose passes before the standard ones have run."""
Gradients = Callable[[Sequence[NDArray], Sequence[NDArray]], Sequence[NDArray | None]]
"""(values, gradients of the results) -> the gradient of each parameter that requires one."""
Finish = Callable[[Sequence[NDArray], Sequence[NDArray]], Any]


# --- gradients that a program leaves ---------------------------------------------------------------------------------


def with_left_gradients(record: tracing.Record) -> tuple[tracing.Record, tuple[int | None, ...]]:
    """The record of a program that also returns the gradients it leaves, in a flat tuple, and the index of each there
    (None for no gradient)."""
    if not record.left:
        return record, ()
    main = record.main
    count = record.result.count()
    outputs, written = main.body.results[:count], main.body.results[count:]
    values = tuple(dict.fromkeys(g.value for g in record.left if g.value is not None and g.value not in outputs))
    returned = (*outputs, *values)
    mutates = {len(values) + i: parameter for i, parameter in main.attrs.get(MUTATES, {}).items()}
    body = Block(main.body.bindings, Tuple((*returned, *written)))
    module = record.module.with_function("main", replace(main, body=body, attrs={MUTATES: mutates} if mutates else {}))
    indices = tuple(None if g.value is None else returned.index(g.value) for g in record.left)
    return replace(record, module=module, result=flat_tree(len(returned))), indices


def flat_tree(count: int) -> Tree:
    """A tuple of tensors."""
    return Tree("tuple", (Tree("leaf"),) * count)


def finisher(record: tracing.Record, indices: Sequence[int | None]) -> Finish:
    """(inputs, all results of a program) -> what the call returns, with the left gradients put in place.

    indices: those of the left gradients of `record` among the results."""
    count = record.result.count()
    build, sized = builder(record.result), with_numbers(record)
    state = [x for _, x in record.state]
    targets = [(g.target, index, g.assigned) for g, index in zip(record.left, indices, strict=True)]
    cleared = [target for target, index, _ in targets if index is None]
    filled = [(target, index, assigned) for target, index, assigned in targets if index is not None]

    def finish(inputs: Sequence[NDArray], results: Sequence[NDArray]) -> Any:
        for target in cleared:
            x = inputs[target] if isinstance(target, int) else target
            x._grad = None
        if filled:
            # Each `.grad` has its own memory.
            pointers = {x._data.data_ptr() for x in (*inputs, *state)}
            for target, index, assigned in filled:
                x = inputs[target] if isinstance(target, int) else target
                if x._node is not None:
                    _leave(x, _own(results[index], pointers), assigned)
        result = build(list(results[:count]))
        return result if sized is None else sized(inputs, result)

    return finish


def _own(gradient: NDArray, pointers: set[int]) -> NDArray:
    """A gradient, copied if its memory is among the addresses `pointers`; adds its own."""
    pointer = gradient._data.data_ptr()
    if pointer in pointers:
        return copy_of(gradient)
    pointers.add(pointer)
    return gradient


def _leave(x: NDArray, gradient: NDArray, assigned: bool) -> None:
    with accumulate_lock, GradMode(False):
        x._grad = gradient if assigned else add_up(x._grad, gradient)


# --- recorded calls --------------------------------------------------------------------------------------------------


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
        from meta.eager.engine import mark_shared  # calls without gradients do without it

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


class GradientRecorder:
    """Calls of one specialisation: plain ones, and those that record a node.

    plain: the call without gradients.  record, module: the program after the passes before the standard ones; `count`
    results belong to the caller.  finish: from all results of the program to what the call returns."""

    def __init__(
        self, plain: Runner, record: tracing.Record, module: Module, count: int, compile: Compile,
        finish: Finish,
    ) -> None:  # fmt: skip
        self.plain = plain
        self.record = record
        self.module = module
        self.count = count
        self.compile = compile
        self.finish = finish
        self.state = [x for _, x in record.state]
        self.first = len(record.inputs)
        params = record.main.params[: self.first + len(self.state)]
        self.floating = [i for i, p in enumerate(params) if is_floating(p.type)]
        self.differentiable = bool(differentiable_results(module.main, self.floating, record.constant, count))
        self._watched = [self.state[i - self.first] for i in self.floating if i >= self.first]
        self._recorded: dict[tuple[int, ...], RecordedProgram | MetaError | None] = {}

    def runner(self) -> Runner:
        """The call: plain where nothing can require gradients."""
        if not self.differentiable:
            return self.plain
        plain, watched, recorded = self.plain, self._watched, self._call

        def run(inputs: Sequence[NDArray]) -> Any:
            if modes.grad_enabled:
                for x in inputs:
                    if x._node is not None:
                        return recorded(inputs)
                for x in watched:
                    if x._node is not None:
                        return recorded(inputs)
            return plain(inputs)

        return run

    def _call(self, inputs: Sequence[NDArray]) -> Any:
        arrays = [*inputs, *self.state]
        tracked = tuple([i for i in self.floating if arrays[i]._node is not None])
        if tracked not in self._recorded:
            self._recorded[tracked] = self._prepare(tracked)
        recorded = self._recorded[tracked]
        if recorded is None:
            return self.plain(inputs)
        edges: Any = tuple([(arrays[i]._node, arrays[i]._index) for i in tracked])
        if isinstance(recorded, MetaError):
            return self._without_gradient(inputs, tracked, edges, recorded)
        results = recorded.forward.run(inputs)
        parts = recorded.split
        # Aliases of results: the results hold the node, which holds the values.
        values = [arrays[i] if kind == "parameter" else results[i]._alias() for kind, i in parts.held]
        _link([results[i] for i in parts.flows], edges, values, recorded.gradients)
        return self.finish(inputs, results[: len(results) - parts.extra])

    def _without_gradient(
        self, inputs: Sequence[NDArray], tracked: Sequence[int], edges: Edges, error: MetaError
    ) -> Any:
        """A call of a program that has no gradient, which matters only if `backward` asks for it."""
        result = self.plain(inputs)
        results = [x for _, x in flatten(result, NDArray)[0]]
        flows = differentiable_results(self.module.main, tracked, self.record.constant, self.count)

        def refuse(*_: Any) -> Any:
            raise error

        _link([results[i] for i in flows], edges, (), refuse)
        return result

    def _prepare(self, tracked: tuple[int, ...]) -> RecordedProgram | MetaError | None:
        try:
            parts = split(self.module, tracked, self.record.constant, self.count)
        except MetaError as error:  # a user's `backward` may raise any
            return error
        if parts is None:
            return None
        result = flat_tree(len(parts.forward.main.body.results) - len(parts.forward.main.attrs.get(MUTATES, {})))
        forward = self.compile(replace(self.record, module=parts.forward, result=result), parts.forward)
        return RecordedProgram(self.record, parts, forward, self.compile)


def without_gradient(run: Runner, inputs: Sequence[NDArray], error: MetaError) -> Any:
    """A call whose floating results raise `error` in `backward`."""
    result = run(inputs)

    def refuse(*_: Any) -> Any:
        raise error

    results = [x for _, x in flatten(result, NDArray)[0] if is_floating(x.type)]
    edges: Any = tuple([(x._node, x._index) for x in inputs if x._node is not None])
    _link([x for x in results if all(x is not y for y in inputs)], edges, (), refuse)
    return result


def _link(outputs: Sequence[NDArray], edges: Edges, values: Sequence[NDArray], gradients: Gradients) -> None:
    """Record a call: a node of the results that gradients flow from. values: what `gradients` reads."""
    node = GradientNode()
    node.order = next_order()
    node.hooks = None
    node.edges = edges
    node.args = (tuple(values),)
    node.outs = out_types = tuple([x.type for x in outputs])
    node.versions = versions_of(values)
    indices = range(len(outputs))
    node.rule = GradRule(
        "vm", _rule(gradients, out_types), tuple(range(len(edges))), outputs=len(outputs),
        differentiable_outputs=frozenset(indices), undefined=frozenset(indices),
    )  # fmt: skip
    link(node, outputs, indices)


def _rule(gradients: Gradients, out_types: Sequence[TensorType]) -> Any:
    """The gradient of a recorded call in the form of a generated gradient function."""

    def run(needs: tuple[bool, ...], values: Sequence[NDArray], *outs_and_dys: Any) -> tuple[NDArray | None, ...]:
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

    return run
