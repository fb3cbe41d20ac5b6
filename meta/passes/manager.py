"""Runs passes: times them, prints and verifies between them, and can stop after N rewrites to find a bad one.

with meta.passes.PassContext(print_after=["cse"], verify=True) as context:
    module = meta.passes.standard()(module)
print(context.report())
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from threading import local
from typing import TYPE_CHECKING, Literal, TextIO

from meta.errors import ArgumentError, did_you_mean
from meta.ir.analysis import contents
from meta.ir.builder import Module
from meta.ir.expr import FunctionExpr
from meta.records import mutable, record

if TYPE_CHECKING:
    from typing_extensions import Self

Transform = Callable[[Module], Module]


@mutable
class PassContext:
    """How passes run inside a `with` block of this thread.

    print_after: names of passes ("all" for every one) whose result is printed to `file` (stdout by default).
    verify: check the rules of the IR after every pass.  disabled: names of passes to leave out.
    stop_after: number of rewrites after which no rule is applied (see `bisect`).  rewrites: their number so far.
    last: the last rewrite, when `stop_after` is set: the pass, and the binding before and after.
    Raises ArgumentError for an unknown name of a pass. The innermost context applies.
    """

    print_after: Sequence[str] | Literal["all"] = ()
    verify: bool = False
    disabled: Sequence[str] = ()
    stop_after: int | None = None
    file: TextIO | None = None
    rewrites: int = 0
    last: str = ""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Pass name -> seconds spent, filled as passes run."""

    def __post_init__(self) -> None:
        printed = () if self.print_after == "all" else self.print_after
        for name in (*printed, *self.disabled):
            if name not in pass_names():
                names = pass_names()
                problem, hint = f"no pass is called '{name}'", did_you_mean(name, names)
                raise ArgumentError("passes", problem, f"one of {', '.join(names)}", hint)

    def __enter__(self) -> Self:
        _stack.contexts.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _stack.contexts.pop()

    def report(self) -> str:
        """One line for each pass: milliseconds and name, slowest first."""
        rows = sorted(self.seconds.items(), key=lambda item: -item[1])
        return "\n".join(f"{seconds * 1e3:9.2f} ms  {name}" for name, seconds in rows)


class _Stack(local):
    def __init__(self) -> None:
        self.contexts: list[PassContext] = []


_stack = _Stack()


def open_context() -> PassContext | None:
    """The innermost context of this thread; None when there is none."""
    return _stack.contexts[-1] if _stack.contexts else None


def context() -> PassContext:
    """The innermost context of this thread; a plain one when there is none."""
    return open_context() or PassContext()


@record
class Pass:
    """A named transformation. Call it on a Module; its contract is its documentation.

    looks_for: the pass changes only modules that have one of these, named as in `Contents.operators`; empty: all
        modules.  device: the kind of device that it is about, "" for all. Other modules are passed over.
    """

    name: str
    transform: Transform
    doc: str = ""
    looks_for: tuple[str, ...] = ()
    device: str = ""

    def __post_init__(self) -> None:
        _created.add(self.name)

    def __call__(self, module: Module) -> Module:
        now = context()
        if self.name in now.disabled:
            return module
        start = time.perf_counter()
        out = self.transform(module) if self.concerns(module) else module
        now.seconds[self.name] = now.seconds.get(self.name, 0.0) + time.perf_counter() - start
        if now.print_after == "all" or self.name in now.print_after:
            print(f"# after {self.name}\n{out}", file=now.file or sys.stdout)
        if now.verify and out is not module:
            from meta.ir.verifier import verify  # asked for by those who write passes

            verify(out)
        return out

    def concerns(self, module: Module) -> bool:
        """Whether the module has what the pass is about."""
        if not self.looks_for and not self.device:
            return True
        found = contents(module)
        return (not self.looks_for or found.has(*self.looks_for)) and (not self.device or self.device in found.devices)


@record
class Pipeline:
    """Passes in order."""

    passes: tuple[Pass, ...]

    def __call__(self, module: Module) -> Module:
        for each in self.passes:
            module = each(module)
        return module


_created: set[str] = set()


def pass_names() -> list[str]:
    """The names of the passes of the package, and of those created so far."""
    packaged = {"align_products", "auto_cast", "auto_diff", "channels_last", "composites", "cse", "dce",
            "drop_stop_gradient", "expand_losses", "expand_norms", "fold_batch_norm", "fold_const", "from_relay",
            "fuse_concatenations", "fuse_epilogues", "inline_calls", "join_gradients", "join_updates",
            "lift_closures", "narrow_gathers", "outline_branches", "outline_loops", "place", "separate_biases",
            "simplify", "split_joins", "tail_loops", "widen_sums"}  # fmt: skip
    return sorted(packaged | _created)


def function_pass(
    name: str, *looks_for: str, device: str = ""
) -> Callable[[Callable[[FunctionExpr], FunctionExpr]], Pass]:
    """Make a Pass of a function on one IR function; its docstring is the contract. The rest: see Pass."""

    def make(transform: Callable[[FunctionExpr], FunctionExpr]) -> Pass:
        def run(module: Module) -> Module:
            new = {n: transform(f) for n, f in module.functions.items()}
            return module if all(new[n] is f for n, f in module.functions.items()) else Module(new)

        return Pass(name, run, transform.__doc__ or "", looks_for, device)

    return make


def bisect(transform: Transform, module: Module, good: Callable[[Module], bool]) -> str | None:
    """The first rewrite after which `good(transform(module))` no longer holds, as text; None when it always does.

    good: for instance, runs the program and compares results. It is called a number of times that grows with the
    logarithm of the number of rewrites. Raises ArgumentError when the result is not good without any rewrite."""

    def attempt(limit: int) -> tuple[bool, PassContext]:
        with PassContext(stop_after=limit) as now:
            out = transform(module)
        return good(out), now

    fine, unlimited = attempt(sys.maxsize)
    if fine:
        return None
    low, high = 0, unlimited.rewrites
    if not attempt(0)[0]:
        wrong = "the result is wrong without any rewrite"
        raise ArgumentError("bisect", wrong, "transforms that are right when no rule is applied")
    last = unlimited.last
    while high - low > 1:
        middle = (low + high) // 2
        fine, now = attempt(middle)
        if fine:
            low = middle
        else:
            high, last = middle, now.last
    return last
