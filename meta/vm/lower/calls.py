"""Calls inside of programs that take care of the stack, on which the machine keeps the calls in progress.

Steps of loops (`lower/tail_recursion.py`) are repeated by a function in Python. A recursive function takes one more
argument, a token, which its callers get from a function in Python that checks how much of the stack is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from functools import cache
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.errors import IRError
from meta.ir.analysis import call_graph, callees_first, recursive_functions
from meta.ir.expr import Call, GlobalVar
from meta.ir.module import Module
from meta.ir.visitor import walk
from meta.records import record
from meta.vm.lower import stack
from meta.vm.lower.lift import BRANCH
from meta.vm.lower.loop_calls import is_true, loop_calls, step_name
from meta.vm.lower.python_errors import kept
from meta.vm.lower.tail_recursion import LOOP

LOOP_FUNCTION, CHECK_FUNCTION = "meta.vm.loop", "meta.vm.check_stack"
"""The names by which programs call `_loop` and `_check_stack`."""
MAX_CHAIN = 100
"""Functions that call one another without a check of the stack."""
RESERVE = 256 << 10
"""Bytes of the stack that stay free for kernels and for the error."""


class _Running(threading.local):
    """The machines that run in this thread, the innermost last."""

    def __init__(self) -> None:
        self.modules: list[Any] = []


_running = _Running()


@record
class Calls:
    """steps: the functions that loops repeat.  checked: those that take a token."""

    steps: frozenset[str] = frozenset()
    checked: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.steps or self.checked)


def special_calls(module: Module) -> Calls:
    """The steps, and the functions to check: recursive ones, and all of a module whose calls nest deeper than
    MAX_CHAIN. Branches of conditionals are called only by the functions around them, which are checked."""
    calls = {name: called & module.functions.keys() for name, called in call_graph(module).items()}
    recursive = recursive_functions(calls)
    checked = set(calls) if _depth(calls, recursive) > MAX_CHAIN else recursive
    values = [b.value for function in module.functions.values() for b in walk(function)]
    steps = {v.op.name for v in values if isinstance(v, Call) and LOOP in v.attrs and isinstance(v.op, GlobalVar)}
    steps |= {step_name(call) for _, call in loop_calls(module)}
    plain = (n for n in checked - steps - {"main"} if BRANCH not in module[n].attrs)
    return Calls(frozenset(steps), frozenset(plain))


def _depth(calls: Mapping[str, Set[str]], recursive: Set[str]) -> int:
    """The most functions that call one another in a row, other than recursive ones."""
    depths: dict[str, int] = {}
    for name in callees_first(calls):
        depths[name] = 1 + max((depths[n] for n in calls[name] if n in depths and n not in recursive), default=0)
    return max(depths.values(), default=0)


def register() -> None:
    """Make the functions that programs call known to TVM."""
    if tvm.get_global_func(LOOP_FUNCTION, allow_missing=True) is None:
        tvm.register_global_func(LOOP_FUNCTION, kept(_loop))
        tvm.register_global_func(CHECK_FUNCTION, kept(_check_stack))


def entered(module: Any, main: Callable[..., Any]) -> Callable[..., Any]:
    """`main`, which tells the functions in Python that it calls which machine runs."""

    def run(*args: Any) -> Any:
        running = _running
        running.modules.append(module)
        try:
            return main(*args)
        finally:
            running.modules.pop()

    return run


def running_step(name: str) -> Callable[..., Any]:
    """The function of that name in the machine that runs in this thread."""
    return _running.modules[-1][name]


def _loop(name: str, *args: Any) -> Any:
    """Run a step until the first of its results is False; the results."""
    step = running_step(name)
    while True:
        results = step(*args)
        if not is_true(results[0]):
            return results
        args = tuple(results)[1:]


def _check_stack(name: str) -> Any:
    """A token for a call of a function. Raises IRError where the stack is nearly used up."""
    left = stack.left()
    if left is not None and left < RESERVE:
        raise IRError(
            "vm",
            f"calls of '{name}' nest deeper than the stack of this thread allows ({stack.size() >> 10} KiB)",
            "recursion that ends earlier",
            "call itself as the last action of the function, or run the program on the interpreter",
        )
    return _token()


@cache
def _token() -> Any:
    import numpy as np

    return tvm.tensor(np.array(True))
