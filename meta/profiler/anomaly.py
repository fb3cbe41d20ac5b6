"""`meta.detect_anomaly`: the operator that computes the first NaN, and the user's line, eagerly and in programs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import meta
from meta.dtype import is_inexact
from meta.eager.ndarray import NDArray, with_arrays
from meta.errors import AnomalyError
from meta.interpreter.run import run
from meta.ir.expr import MUTATES
from meta.modes import GradMode, scoped, suspended
from meta.op.registry import Op
from meta.random.generator import default_generator
from meta.tree import is_tuple, leaves_of
from meta.vm.arguments import flatten_call
from meta.vm.executor import Executor
from meta.vm.runner import finisher, with_left_gradients


class Anomalies:
    """Looks at the result of every operator of this thread, and runs programs operator by operator."""

    def check(self, op: Op, args: tuple[Any, ...], result: object) -> None:
        """Raise AnomalyError for a result with NaN."""
        found = max(map(_count, leaves_of(result)), default=0)
        if not found:
            return
        for index in op.schema.tensor_positions:
            for x in leaves_of(args[index]):
                if _count(x):
                    name = op.schema.args[index].name
                    problem = f"argument '{name}' of shape {x.shape} has NaN in {_count(x)} elements"
                    raise AnomalyError(
                        op.name, problem, "no NaN inside of detect_anomaly()", "look for NaN in the data"
                    )
        kinds = ", ".join(f"{x.dtype} of shape {x.shape}" for x in leaves_of(args) if isinstance(x, NDArray))
        problem = f"the result has NaN in {found} elements, and its arguments ({kinds}) have none"
        raise AnomalyError(op.name, problem, "no NaN inside of detect_anomaly()")

    def run_program(self, executor: Executor[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a compiled program with the operators of its trace, after the user's passes."""
        args, kwargs = with_arrays((args, kwargs), executor.device)
        traced = executor._trace(args, kwargs, executor._sizes.stated)
        record, indices = with_left_gradients(traced) if traced.left else (traced, ())
        module = executor._rewritten(record)
        inputs = flatten_call(traced.signature, args, kwargs)[1]
        for function in traced.before:
            function()
        keys = [(draws.generator or default_generator).draw(count=draws.count) for draws in traced.random]
        arrays: list[Any] = [*inputs, *(x for _, x in traced.state)]
        with GradMode(False) if traced.left else suspended():
            value: Any = run(module, *arrays, *keys)
        results: list[Any] = list(value) if is_tuple(value) else [value]
        mutates = module.main.attrs.get(MUTATES, {})
        if mutates:  # results keep what they have if they share the memory of an array that is written
            results = [x if i in mutates else x.copy() for i, x in enumerate(results)]
        for i, parameter in mutates.items():
            arrays[parameter].detach().update(results[i].detach())
        return finisher(traced, indices)(inputs, [x for i, x in enumerate(results) if i not in mutates])


def _count(x: Any) -> int:
    """The number of NaN in an array."""
    if not isinstance(x, NDArray) or not is_inexact(x.dtype):
        return 0
    with scoped(anomalies=None), suspended(), GradMode(False):
        return int(meta.sum(meta.isnan(x).cast("int64")).item())


@contextmanager
def detect_anomaly() -> Generator[None, None, None]:
    """Inside the block, the first operator whose result has NaN raises AnomalyError, which names it and the line of
    your code, also in backward passes and in compiled programs.

        with meta.detect_anomaly():
            fast_step(x, target)

    Every result is read, and programs run operator by operator, in the order of their trace: for the call that goes
    wrong, not for a whole training. What a program would write is then not written. Infinite values are no anomaly."""
    with scoped(anomalies=Anomalies()):
        yield
