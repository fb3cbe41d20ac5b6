"""Dialects: backends that implement operators, and the choice between them.

A dialect implements a base operator with an `Implementation`: a priority (plevel), checkers of the argument types, and
a payload for its `kernel` function. The highest plevel that accepts a call wins; `with_dialect` replaces that order.
`explain` lists the reason of every choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from typing import Any

from meta.device import Device
from meta.errors import ArgumentError, DispatchError, RegistryError, did_you_mean
from meta.ir.type import TensorType, Type, flat_types
from meta.modes import modes, scoped
from meta.op import crossover
from meta.op.registry import Op

Kernel = Callable[..., Any]
"""`kernel(*inputs, *outputs)` on raw tensors (destination passing). Inputs are the call's tensors in schema order,
lists flattened, absent ones and Python scalars left out."""


@dataclass(frozen=True, slots=True, eq=False)
class CallInfo:
    """A call as a dialect sees it: `args` in schema order, tensors as types, everything else as values."""

    op: Op
    args: tuple[Any, ...]
    out: Type
    device: Device

    def tensors(self) -> tuple[TensorType, ...]:
        """The types of the inputs a kernel is called with."""
        return tuple(flat_types(self.args))

    def outputs(self) -> tuple[TensorType, ...]:
        """The types of the results."""
        return tuple(flat_types((self.out,)))

    def bind(self) -> dict[str, Any]:
        """Arguments by name."""
        return dict(zip(self.op.schema.names, self.args, strict=True))


Checker = Callable[[CallInfo], str | None]
"""None to accept, else the reason to refuse."""


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """One dialect's implementation of one operator.

    payload: what the dialect's `kernel` function makes a kernel from.
    accepts: whether it can run a call, by the argument types.
    confirm: the same, asked last, for questions that take time: whether the library has a plan for these sizes.
    eager_only: programs skip it, because they fuse the kernel of another dialect with its neighbours.
    """

    op: str
    dialect: Dialect
    plevel: int
    payload: Any
    accepts: Checker | None = None
    confirm: Checker | None = None
    eager_only: bool = False

    @property
    def name(self) -> str:
        return f"{self.dialect.name}.{self.op}"

    def refusal(self, call: CallInfo) -> str | None:
        """Why this implementation does not take `call`, None when it does."""
        off = self.dialect.unavailable()
        if off:
            return f"off: {off}"
        if call.device.kind not in self.dialect.devices:
            return f"not on {call.device.kind}"
        reason = self.accepts(call) if self.accepts else None
        if reason is None and modes.dialects is None:
            reason = crossover.refusal(self.dialect.name, call)
        return self.confirm(call) if reason is None and self.confirm else reason


@dataclass(eq=False)
class Dialect:
    """A backend: its devices, whether it is available, its default plevel, and how it makes kernels.

    probe: None when usable on this machine, else the reason; called once.
    kernel: (implementation, call) -> Kernel.
    private_memory: device -> a maker of scopes in which the library allocates from memory of its own, which a CUDA
        graph keeps; None for a dialect that allocates from the pool (meta.backend.cuda.pool) or not at all.
    """

    name: str
    devices: frozenset[str]
    plevel: int
    probe: Callable[[], str | None]
    kernel: Callable[[Implementation, CallInfo], Kernel]
    private_memory: Callable[[Device], Callable[[], AbstractContextManager[Any]]] | None = None
    _reason: list[str | None] = field(default_factory=list[str | None])

    def unavailable(self) -> str | None:
        if not self._reason:
            self._reason.append(self.probe())
        return self._reason[0]

    def implement(
        self,
        op: str,
        payload: Any,
        *,
        plevel: int | None = None,
        accepts: Checker | None = None,
        confirm: Checker | None = None,
        eager_only: bool = False,
    ) -> Implementation:
        """Register an implementation of `op`; raises RegistryError for a second one, or an equal plevel."""
        level = self.plevel if plevel is None else plevel
        implementation = Implementation(op, self, level, payload, accepts, confirm, eager_only)
        others = _implementations.setdefault(op, [])
        for other in others:
            if other.dialect is self or other.plevel == level:
                raise RegistryError(
                    "registry",
                    f"{implementation.name} at plevel {level} meets {other.name} at {other.plevel}",
                    "one implementation a dialect and distinct plevels",
                )
        others.append(implementation)
        others.sort(key=lambda i: -i.plevel)
        return implementation


DIALECTS: tuple[str, ...] = ("cudnn", "torch", "tvm", "reference")
"""Packages under meta/op/dialect, each with a `DIALECT` and one module per family, imported when a call of that family
is first dispatched."""

_implementations: dict[str, list[Implementation]] = {}
_loaded_families: set[str] = set()
_lock = RLock()


def load_family(family: str) -> None:
    """Import the modules that usable dialects have for a family of operators."""
    if family in _loaded_families:
        return
    with _lock:
        for name in DIALECTS:
            package = f"meta.op.dialect.{name}"
            if find_spec(package) is None or dialect(name).unavailable():
                continue
            if find_spec(f"{package}.{family}") is not None:
                import_module(f"{package}.{family}")
        _loaded_families.add(family)


def dialect(name: str) -> Dialect:
    """The dialect called `name`; raises RegistryError, with near names."""
    if name not in DIALECTS:
        raise RegistryError(
            "with_dialect",
            f"no dialect is called {name!r}",
            f"one of {', '.join(DIALECTS)}",
            did_you_mean(name, DIALECTS),
        )
    return import_module(f"meta.op.dialect.{name}").DIALECT


def implementations(op: Op) -> list[Implementation]:
    """All implementations of `op`, highest plevel first."""
    load_family(op.family)
    return _implementations.get(op.name, [])


@dataclass(frozen=True, slots=True)
class Candidate:
    """An implementation and why it was refused (None: it accepts)."""

    implementation: Implementation
    refusal: str | None

    def __str__(self) -> str:
        i = self.implementation
        return f"{i.dialect.name} (plevel {i.plevel}): {self.refusal or 'accepts'}"


def candidates(call: CallInfo, *, in_program: bool = False) -> list[Candidate]:
    """Every implementation of the call's operator, in the order of preference, each with its refusal."""
    return [
        Candidate(i, _preference_refusal(i, in_program) or i.refusal(call)) for i in _in_order(implementations(call.op))
    ]


def _in_order(implementations: list[Implementation]) -> list[Implementation]:
    if modes.dialects is None:
        return implementations
    order = {name: i for i, name in enumerate(modes.dialects)}
    return sorted(implementations, key=lambda i: order.get(i.dialect.name, len(order)))


def _preference_refusal(i: Implementation, in_program: bool) -> str | None:
    if modes.dialects is None:
        if in_program and i.eager_only:
            return "for eager calls only: programs fuse the kernel of another dialect"
        return "plevel 0: by name only" if i.plevel <= 0 else None
    if i.dialect.name not in modes.dialects:
        return f"not among with_dialect({list(modes.dialects)})"
    return None


def choose(call: CallInfo, *, in_program: bool = False) -> Implementation:
    """The implementation that runs `call`, eagerly or in a program; raises DispatchError listing every candidate and
    its reason."""
    tried = candidates(call, in_program=in_program)
    for candidate in tried:
        if candidate.refusal is None:
            for observer in modes.observers:
                observer(call, candidate)
            return candidate.implementation
    listed = "; ".join(map(str, tried)) or "no dialect implements it"
    shown = ", ".join(f"{k}={v!r}" for k, v in call.bind().items())
    raise DispatchError(call.op.name, f"no dialect accepts {call.op.name}({shown}): {listed}")


def with_dialect(names: Sequence[str] | str) -> AbstractContextManager[None]:
    """Only the named dialects, in this order of preference; a context manager and a decorator.

    Raises RegistryError for an unknown name, ArgumentError for something other than names."""
    if not isinstance(names, (str, list, tuple)):
        raise ArgumentError("with_dialect", f"got {type(names).__name__}", "a name, or a list of names")
    chosen = (names,) if isinstance(names, str) else tuple(names)
    for name in chosen:
        dialect(name)
    return scoped("dialects", chosen)
