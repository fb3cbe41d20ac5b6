"""Dialects: backends that implement operators, and the choice between them.

A dialect implements a base operator with an `Implementation`: a priority (plevel), checkers of the argument types, and
a payload for its `kernel` function. The highest plevel that accepts a call wins, of equal ones the dialect that was
registered later; `with_dialect` replaces that order. `explain` lists the reason of every choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from typing import Final

from meta.errors import ArgumentError, DispatchError, RegistryError, did_you_mean
from meta.ir.expr import CallInfo as CallInfo
from meta.ir.expr import OpLike
from meta.locks import new_lock
from meta.modes import modes, scoped
from meta.op import plugins
from meta.op.implementation import COPIES, implementations_of, on_change, refuse_real
from meta.op.implementation import Checker as Checker
from meta.op.implementation import Dialect as Dialect
from meta.op.implementation import Implementation as Implementation
from meta.op.implementation import Kernel as Kernel
from meta.op.plugins import BUILT_IN as BUILT_IN
from meta.records import record

_registered: dict[str, Dialect] = {}
"""Dialects from outside of this package."""
_LAST: Final = "reference"
"""The dialect whose modules are imported only for calls that no other dialect accepts."""
_lock = new_lock("dialects")


@cache
def load_family(family: str) -> None:
    """Import the modules of usable dialects for a family of operators, except the last dialect's, and the dialects of
    installed packages."""
    plugins.load(plugins.DIALECTS)  # outside of the lock of families, which a plugin in another thread may wait for
    for name in BUILT_IN:
        if name != _LAST:
            plugins.load_family(name, family)


def _load_again(op: str | None) -> None:
    """Load the families again after a change of all operators: a dialect may have become usable."""
    if op is None:
        plugins.forget_families()
        load_family.cache_clear()


on_change(_load_again)


def dialect_names() -> tuple[str, ...]:
    """The names of all dialects: first this package's, then the dialects of installed packages and of the program."""
    plugins.load(plugins.DIALECTS)
    return (*BUILT_IN, *_registered)


def dialect(name: str) -> Dialect:
    """The dialect called `name`; raises RegistryError, with near names."""
    if name in BUILT_IN:
        return import_module(f"meta.op.dialect.{name}").DIALECT
    if name not in _registered:
        plugins.load(plugins.DIALECTS)
    registered = _registered.get(name)
    if registered is None:
        names = dialect_names()
        raise RegistryError(
            "with_dialect",
            f"no dialect is called {name!r}",
            f"one of {', '.join(names)}",
            did_you_mean(name, names) if isinstance(name, str) else "",
        )
    return registered


def add_dialect(added: Dialect) -> None:
    """Make a dialect known by its name. Raises RegistryError when the name is taken."""
    with _lock:
        if added.name in BUILT_IN or added.name in _registered:
            raise RegistryError(
                "register_dialect",
                f"a dialect called '{added.name}' exists already",
                "a new name",
                f"take another one, or call meta.unregister_dialect({added.name!r}) first"
                if added.name in _registered
                else "",
            )
        _registered[added.name] = added


def is_registered(which: Dialect) -> bool:
    """Whether this very dialect, of those from outside of this package, is known."""
    return _registered.get(which.name) is which


def remove_dialect(name: str) -> None:
    """Remove a dialect and its implementations. Raises RegistryError for an unknown one and one of this package."""
    removed = dialect(name)
    if name in BUILT_IN:
        raise RegistryError(
            "unregister_dialect",
            f"'{name}' is a dialect of meta",
            "one that register_dialect returned",
            f'to leave it out, lower its priority: meta.dialect("{name}").set_plevel(0)',
        )
    with _lock:
        removed.remove_all()
        del _registered[name]


def implementations(op: OpLike) -> list[Implementation]:
    """All implementations of `op`, highest plevel first."""
    load_family(op.family)
    plugins.load_family(_LAST, op.family)
    return implementations_of(op.name)


def implementation(op: OpLike, dialect: str) -> Implementation | None:
    """The implementation of `op` by a dialect, None if there is none."""
    load_family(op.family)
    if dialect == _LAST:
        plugins.load_family(_LAST, op.family)
    return next((i for i in implementations_of(op.name) if i.dialect.name == dialect), None)


@record
class Candidate:
    """An implementation and why it was refused (None: it accepts).

    rank: how it is ordered among the others with its plevel, "" if there is none."""

    implementation: Implementation
    refusal: str | None
    rank: str = ""

    @property
    def priority(self) -> str:
        """`plevel 10`, with its rank."""
        return ", ".join(filter(None, (f"plevel {self.implementation.plevel}", self.rank)))

    def __str__(self) -> str:
        return f"{self.implementation.dialect.name} ({self.priority}): {self.refusal or 'accepts'}"


def candidates(call: CallInfo, *, in_program: bool = False) -> list[Candidate]:
    """Every implementation of the call's operator, in the order of preference, each with its refusal; those for complex
    tensors only if the call has one."""
    return _asked(call, implementations(call.op), in_program)


def foremost_candidates(call: CallInfo, *, in_program: bool = False) -> list[Candidate]:
    """`candidates`, without the last dialect's if an implementation that precedes them accepts the call."""
    load_family(call.op.family)
    if modes.dialects is None:
        asked = _asked(call, implementations_of(call.op.name), in_program)
        last = dialect(_LAST).plevel
        if any(c.refusal is None and c.implementation.plevel > last for c in asked):
            return asked
    return candidates(call, in_program=in_program)


def _asked(call: CallInfo, implementations: list[Implementation], in_program: bool) -> list[Candidate]:
    is_complex = bool(call.complex_dtype())
    ordered = [i for i in _in_order(implementations) if is_complex or i.options.get("accepts") is not refuse_real]
    refusals = (_preference_refusal(i, in_program) or i.refusal(call, in_program=in_program) for i in ordered)
    return [Candidate(i, refusal, _rank(i, ordered)) for i, refusal in zip(ordered, refusals, strict=True)]


def _in_order(implementations: list[Implementation]) -> list[Implementation]:
    if modes.dialects is None:
        return implementations
    order = {name: i for i, name in enumerate(modes.dialects)}
    return sorted(implementations, key=lambda i: order.get(i.dialect.name, len(order)))


def _rank(i: Implementation, ordered: list[Implementation]) -> str:
    """The dialects of the same plevel that were registered before it, or else after it; "" inside `with_dialect`."""
    if modes.dialects is not None:
        return ""
    equal = [other.dialect for other in ordered if other.plevel == i.plevel and other is not i]
    before = [d.name for d in equal if d.order < i.dialect.order]
    if before:
        return f"registered after {', '.join(before)}"
    return f"registered before {', '.join(d.name for d in equal)}" if equal else ""


def _preference_refusal(i: Implementation, in_program: bool) -> str | None:
    if modes.dialects is None or i.op in COPIES:
        if in_program and i.options.get("eager_only"):
            return "for eager calls only: programs fuse the kernel of another dialect"
        return f"plevel {i.plevel}: by name only" if i.plevel <= 0 else None
    if i.dialect.name not in modes.dialects:
        return f"not among with_dialect({list(modes.dialects)})"
    return None


def choose(call: CallInfo) -> Implementation:
    """The implementation that runs `call` eagerly; raises DispatchError listing every candidate and its reason."""
    return accepting(call, foremost_candidates(call)).implementation


def accepting(call: CallInfo, tried: Sequence[Candidate]) -> Candidate:
    """The first of a call's candidates that accepts; observers are told of it. Raises DispatchError, with all reasons,
    if there is none."""
    for candidate in tried:
        if candidate.refusal is None:
            for observer in modes.observers:
                observer(call, candidate)
            return candidate
    absent = [name for name in modes.dialects or () if all(c.implementation.dialect.name != name for c in tried)]
    off = [f"{name} is off: {reason}" for name in absent if (reason := dialect(name).unavailable())]
    listed = "; ".join([*off, *map(str, tried)]) or "no dialect implements it"
    shown = ", ".join(f"{k}={v!r}" for k, v in call.bind().items())
    raise DispatchError(call.op.name, f"no dialect accepts {call.op.name}({shown}): {listed}")


def first_accepting(call: CallInfo, *, in_program: bool = False) -> Implementation | None:
    """The implementation that would run `call`, None if no dialect accepts it. Observers are not told."""
    tried = foremost_candidates(call, in_program=in_program)
    return next((c.implementation for c in tried if c.refusal is None), None)


def with_dialect(names: Sequence[str | Dialect] | str | Dialect) -> AbstractContextManager[None]:
    """Only the named dialects, in this order of preference; a context manager and a decorator.

    names: names, or what `dialect` and `register_dialect` return.
    Raises RegistryError for an unknown name, ArgumentError for something other than names."""
    if not isinstance(names, (str, Dialect, list, tuple)):
        raise ArgumentError("with_dialect", f"got {type(names).__name__}", "a name, or a list of names")
    several = (names,) if isinstance(names, (str, Dialect)) else names
    dialect_names = tuple([each.name if isinstance(each, Dialect) else each for each in several])
    for name in dialect_names:
        dialect(name)
    return scoped(dialects=dialect_names)
