"""Runs passes: times them, prints and verifies between them, and can stop after N rewrites to find a bad one.

    with meta.passes.PassContext(print_after=["cse"], verify=True) as context:
        module = meta.passes.standard()(module)
    print(context.report())
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import local
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO

from meta.errors import ArgumentError, did_you_mean, message
from meta.ir.expr import Atom, Binding, Expr, Function
from meta.ir.module import Module
from meta.ir.verifier import verify
from meta.ir.visitor import Rule, Scope, rewrite

if TYPE_CHECKING:
    from typing_extensions import Self

Transform = Callable[[Module], Module]


@dataclass(slots=True)
class PassContext:
    """How passes run inside a `with` block of this thread.

    print_after: names of passes ("all" for every one) whose result is printed.  file: where to.
    verify: check the rules of the IR after every pass.  disabled: names of passes to leave out.
    stop_after: number of rewrites after which rules are no longer applied; bisect it to find a wrong rewrite.
    """

    print_after: Sequence[str] | Literal["all"] = ()
    verify: bool = False
    disabled: Sequence[str] = ()
    stop_after: int | None = None
    file: TextIO | None = None
    rewrites: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Pass name -> seconds spent, filled as passes run."""

    def __enter__(self) -> Self:
        _stack.contexts.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _stack.contexts.pop()

    def report(self) -> str:
        """One line a pass: seconds and name, slowest first."""
        rows = sorted(self.seconds.items(), key=lambda item: -item[1])
        return "\n".join(f"{seconds * 1e3:9.2f} ms  {name}" for name, seconds in rows)


class _Stack(local):
    def __init__(self) -> None:
        self.contexts: list[PassContext] = []


_stack = _Stack()


def context() -> PassContext:
    """The innermost context of this thread; a plain one when there is none."""
    return _stack.contexts[-1] if _stack.contexts else PassContext()


@dataclass(frozen=True, slots=True)
class Pass:
    """A named transformation. Call it on a Module; its contract is its documentation."""

    name: str
    transform: Transform
    doc: str = ""

    def __call__(self, module: Module) -> Module:
        now = context()
        if self.name in now.disabled:
            return module
        start = time.perf_counter()
        out = self.transform(module)
        now.seconds[self.name] = now.seconds.get(self.name, 0.0) + time.perf_counter() - start
        if now.print_after == "all" or self.name in now.print_after:
            print(f"# after {self.name}\n{out}", file=now.file or sys.stdout)
        if now.verify and out is not module:
            verify(out)
        return out


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in order. Raises ArgumentError when the context disables or prints a pass that nothing is called."""

    passes: tuple[Pass, ...]

    def __call__(self, module: Module) -> Module:
        _check_names(context(), [p.name for p in self.passes])
        for each in self.passes:
            module = each(module)
        return module


def _check_names(now: PassContext, known: list[str]) -> None:
    printed = () if now.print_after == "all" else now.print_after
    for name in (*printed, *now.disabled):
        if name not in known:
            raise ArgumentError(
                message("passes", f"no pass is called '{name}'", f"known: {', '.join(known)}", did_you_mean(name, known))
            )


def function_pass(name: str) -> Callable[[Callable[[Function], Function]], Pass]:
    """Make a Pass of a function on one IR function; its docstring is the contract."""

    def make(transform: Callable[[Function], Function]) -> Pass:
        def run(module: Module) -> Module:
            new = {n: transform(f) for n, f in module.functions.items()}
            return module if all(new[n] is f for n, f in module.functions.items()) else Module(new)

        return Pass(name, run, transform.__doc__ or "")

    return make


def rewrite_pass(name: str, doc: str, rules: Iterable[Rule], *, rounds: int = 4) -> Pass:
    """A Pass that applies `rules` to every binding until nothing changes, at most `rounds` times."""
    counted = tuple(map(_counted, rules))

    def run(function: Function) -> Function:
        for _ in range(rounds):
            new = rewrite(function, *counted)
            if new is function:
                break
            function = new
        return function

    run.__doc__ = doc
    return function_pass(name)(run)


def _counted(rule: Rule) -> Rule:
    """`rule` while the context's limit on rewrites is not reached."""

    def run(binding: Binding, scope: Scope) -> Expr | Atom | None:
        now = context()
        if now.stop_after is not None and now.rewrites >= now.stop_after:
            return None
        answer = rule(binding, scope)
        if answer is not None:
            now.rewrites += 1
        return answer

    return run
