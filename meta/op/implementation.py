"""Implementations of operators by dialects.

Every registration, removal, change of a priority or of availability is reported to `on_change`, so that no cached
choice outlives what it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, overload

from meta.backend.memory import allocation
from meta.backend.tvm.compute import TEImplementation
from meta.device import Device
from meta.errors import DispatchError, MetaError, RegistryError, line_of_function, raised
from meta.ir.expr import CallInfo
from meta.locks import new_lock
from meta.modes import modes
from meta.op import plugins, work
from meta.op.plugins import BUILT_IN
from meta.op.positions import checked
from meta.op.registry import find
from meta.records import mutable, record

if TYPE_CHECKING:
    from typing_extensions import Unpack

Kernel = Callable[..., Any]
"""`kernel(*inputs, *outputs)` on raw tensors (destination passing). Inputs are the call's tensors in schema order,
lists flattened, absent ones and Python scalars left out."""

P = TypeVar("P")


Checker = Callable[[CallInfo], str | None]
"""None to accept, else the reason to refuse."""


def refuse_real(call: CallInfo) -> str | None:
    """A checker of implementations for complex numbers, beside which another dialect is better for real ones. Dispatch
    leaves such implementations out where it lists the dialects of a real call."""
    return None if call.complex_dtype() else "for complex numbers only: others have kernels for real ones"


def refuse_complex(call: CallInfo) -> str | None:
    """A checker of implementations for real numbers."""
    dtype = call.complex_dtype()
    return f"no kernel for {dtype}" if dtype else None


COPIES = frozenset({"device_copy"})
"""Operators that move data and compute nothing: their kernels take every dtype, and `with_dialect` does not restrict
them."""


class ImplementationOptions(TypedDict, total=False):
    """What an implementation says besides its kernels. Without any, it takes every call at the dialect's plevel.

    plevel: its priority, None for the dialect's.
    accepts: whether it can run a call, by the argument types.
    confirm: the same, asked last, for questions that take time: whether the library has a plan for these sizes.
    eager_only: programs skip it, because they fuse the kernel of another dialect with its neighbours.
    slow_start: whether the first call of a kernel takes long, because it measures or compiles. Programs for GPUs make
        one on uninitialised tensors while other kernels compile; it must only write its results.
    prefers_channels_last: for operators with an argument of that name: whether a call with it takes less time than
        without. None: it does not.
    strided: whether its kernel for a call reads operands in the layouts of the call (`CallInfo.layouts`). None: only
        row-major ones.
    ordered: the same of results with their axes in the orders of the call (`CallInfo.orders`).
    """

    plevel: int | None
    accepts: Checker | None
    confirm: Checker | None
    eager_only: bool
    slow_start: bool
    prefers_channels_last: Callable[[CallInfo], bool] | None
    strided: Callable[[CallInfo], bool] | None
    ordered: Callable[[CallInfo], bool] | None


@record(eq=False)
class Implementation:
    """One dialect's implementation of one operator.

    payload: what the dialect's `kernel` function makes a kernel from.
    generation: how many implementations of the operator the dialect had before in this process.
    """

    op: str
    dialect: Dialect
    payload: Any
    options: ImplementationOptions = field(default_factory=ImplementationOptions)
    generation: int = 0

    @property
    def name(self) -> str:
        return f"{self.dialect.name}.{self.op}"

    @property
    def identity(self) -> str:
        """A digest of the payload that is equal in every process, "" for a payload without one."""
        return getattr(self.payload, "identity", "")

    @property
    def plevel(self) -> int:
        """Its priority: the highest one that accepts a call runs it, one of 0 or below only inside `with_dialect`."""
        own = self.options.get("plevel")
        return self.dialect.plevel if own is None else own

    def refusal(self, call: CallInfo, *, in_program: bool = False) -> str | None:
        """Why this implementation does not take `call`, eager or of a program, None when it does.

        Raises DispatchError for a checker that raises, or that returns neither None nor a reason."""
        if call.device.kind not in self.dialect.devices:
            return f"not on {call.device.kind}"  # whether it is available need not be found out
        off = self.dialect.unavailable()
        if off:
            return f"off: {off}"
        cpu = modes.cpu if in_program else None
        if cpu is not None:
            if not isinstance(self.payload, TEImplementation):
                return f"a function of this machine, not compiled for {cpu}"
            if reason := cpu.refusal([t.dtype for t in (*call.tensors(), *call.outputs())]):
                return reason
        dtype = call.complex_dtype()
        if dtype and not self.dialect.complex and self.op not in COPIES:
            return refuse_complex(call)
        reason = self._ask(self.dialect.accepts, call) or self._ask(self.options.get("accepts"), call)
        if reason is None and modes.dialects is None and not dtype and cpu is None:  # limits are of this machine
            reason = work.refusal(self.dialect.name, call, in_program=in_program)
        return reason or self._ask(self.options.get("confirm"), call)

    def prefers_channels_last(self, call: CallInfo) -> bool:
        """Whether `call` takes less time with channels last than without."""
        faster = self.options.get("prefers_channels_last")
        return faster is not None and faster(call)

    def checked_kernel(self, call: CallInfo) -> Kernel:
        """The kernel of a call, which refuses positions out of range where eager calls do (see meta.op.positions).

        Raises DeviceError for results that are larger than the memory of this machine."""
        allocation.require_memory(call.outputs())
        return checked(self.dialect.kernel(self, call), self.payload, call)

    def _ask(self, checker: Checker | None, call: CallInfo) -> str | None:
        if checker is None:
            return None
        try:
            answer: Any = checker(call)
        except MetaError:
            raise
        except Exception as error:
            raise raised(DispatchError, self.name, "its check of a call", error) from error
        if answer is None or (isinstance(answer, str) and answer):
            return answer
        raise DispatchError(
            self.name,
            f"its check of a call returned {answer!r}",
            "None to accept the call, or the reason to refuse it as a text",
            "return None if something else than a reason is true",
            location=line_of_function(checker) or None,
        )


_later = count(len(BUILT_IN))


@mutable(eq=False)
class Dialect:
    """A backend: its devices, whether it is available, its default plevel, and how it makes kernels.

    probe: None when usable on this machine, else the reason; called once, and again after `refresh`.
    kernel: (implementation, call) -> Kernel.
    private_memory: device -> a function that opens a scope in which the library allocates from a private pool, which a
        CUDA graph keeps; None for a dialect that allocates from the pool (meta.backend.cuda.memory_pool) or not at all.
    accepts: asked about a call before the check of an implementation.
    complex: whether its kernels take complex tensors; TVM has none.
    derived: payloads for the operators of a family, by name, for those that its module does not implement.
    order: rank among equal plevels: the later one goes first.
    """

    name: str
    devices: frozenset[str]
    plevel: int
    probe: Callable[[], str | None]
    kernel: Callable[[Implementation, CallInfo], Kernel]
    private_memory: Callable[[Device], Callable[[], AbstractContextManager[Any]]] | None = None
    accepts: Checker | None = None
    complex: bool = False
    derived: Callable[[str], Mapping[str, Any]] | None = None
    order: int = -1
    _reason: list[str | None] = field(default_factory=list[str | None])

    def __post_init__(self) -> None:
        self.order = BUILT_IN.index(self.name) if self.name in BUILT_IN else next(_later)

    def unavailable(self) -> str | None:
        """Why this machine cannot use the dialect, None if it can."""
        if not self._reason:
            self._reason.append(self._probed())
        return self._reason[0]

    def _probed(self) -> str | None:
        try:
            answer: Any = self.probe()
        # A probe tries out libraries and devices; whatever that raises tells why the dialect cannot be used.
        except Exception as error:  # noqa: BLE001
            return f"its probe raised {type(error).__name__}: {error}"
        if answer is None or isinstance(answer, str):
            return answer
        return f"its probe returned {answer!r}, neither None nor a reason"

    def refresh(self) -> None:
        """Probe again at the next call, and choose again for every call: after a change of what the probe or a checker
        reads (a library that was installed, a setting)."""
        with _lock:
            self._reason.clear()
            report_change(None)

    @overload
    def implement(
        self,
        op: str | Callable[..., Any],
        payload: P,
        *,
        override: bool = False,
        **options: Unpack[ImplementationOptions],
    ) -> P: ...

    @overload
    def implement(
        self, op: str | Callable[..., Any], *, override: bool = False, **options: Unpack[ImplementationOptions]
    ) -> Callable[[P], P]: ...

    def implement(
        self,
        op: str | Callable[..., Any],
        payload: object = None,
        *,
        override: bool = False,
        **options: Unpack[ImplementationOptions],
    ) -> Any:
        """Register `payload` as the implementation of `op` (its name or function) and return it; without a payload,
        return a decorator.

        override: replace an implementation that the dialect has.  options: see ImplementationOptions.
        Raises RegistryError for an unknown operator, a second implementation without `override`, and arguments of a
        wrong kind."""
        operator = self._operator(op)
        check_options(f"{self.name}.{operator}", options)

        def register(payload: object) -> Any:
            self._check_payload(operator, payload)
            _add(
                self,
                operator,
                lambda generation: Implementation(operator, self, payload, options, generation),
                override,
            )
            return payload

        return register if payload is None else register(payload)

    def complete(self, family: str) -> None:
        """Register the derived payloads of a family, whose module is imported."""
        if self.derived is None or self.unavailable() is not None:
            return
        for op, payload in self.derived(family).items():
            if all(i.dialect is not self for i in implementations_of(op)):
                _add(self, op, partial(Implementation, op, self, payload, ImplementationOptions()), False)

    def _operator(self, op: str | Callable[..., Any]) -> str:
        """The name of an operator, after the import of the dialect's own implementations of its family."""
        operator = find(op)
        plugins.load_family_before_change(self.name, operator.family)
        return operator.name

    def _check_payload(self, op: str, payload: object) -> None:
        """Raise RegistryError for what this dialect makes no kernel from."""

    def remove(self, op: str | Callable[..., Any]) -> None:
        """Remove the implementation of `op`. Raises RegistryError if there is none."""
        name = self._operator(op)
        with _lock:
            if all(i.dialect is not self for i in _implementations.get(name, [])):
                raise RegistryError(f"{self.name}.{name}", "is not registered", f"an operator that {self.name} has")
            _store(name, [i for i in _implementations[name] if i.dialect is not self])

    def set_plevel(self, plevel: int, op: str | Callable[..., Any] | None = None) -> None:
        """Change the priority of the dialect, which does not apply to implementations with their own priority; or the
        priority of its implementation of `op`. Raises RegistryError for anything but an int, or without such an
        implementation."""
        check_plevel(self.name, plevel)
        name = op if op is None else self._operator(op)
        with _lock:
            if name is None:
                self.plevel = plevel
                for each in [n for n, own in _implementations.items() if any(i.dialect is self for i in own)]:
                    _store(each, _implementations[each])
                return
            own = [i for i in _implementations.get(name, []) if i.dialect is self]
            if not own:
                raise RegistryError(f"{self.name}.{name}", "is not registered", f"an operator that {self.name} has")
            others = [i for i in _implementations[name] if i.dialect is not self]
            _store(name, [*others, replace(own[0], options={**own[0].options, "plevel": plevel})])

    def remove_all(self) -> None:
        """Remove every implementation of the dialect."""
        with _lock:
            for name in [n for n, own in _implementations.items() if any(i.dialect is self for i in own)]:
                _store(name, [i for i in _implementations[name] if i.dialect is not self])


def check_plevel(subject: str, plevel: object, *, or_none: bool = False) -> None:
    """Raise RegistryError for a priority that is not an int."""
    if (plevel is None and or_none) or (isinstance(plevel, int) and not isinstance(plevel, bool)):
        return
    raise RegistryError(
        subject,
        f"plevel is {plevel!r}",
        "an int; tvm has 10, and a dialect with 0 or below runs only inside with_dialect",
    )


def check_options(subject: str, options: ImplementationOptions) -> None:
    """Raise RegistryError for options of a wrong kind, TypeError for unknown ones."""
    unknown = sorted(options.keys() - ImplementationOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"implement() got an unexpected keyword argument {unknown[0]!r}")
    check_plevel(subject, options.get("plevel"), or_none=True)
    for name in ("accepts", "confirm", "prefers_channels_last", "strided"):
        check_callable(subject, name, options.get(name), "a function of a CallInfo")


def check_callable(subject: str, what: str, value: object, expected: str) -> None:
    """Raise RegistryError for a value that is neither None nor callable."""
    if value is not None and not callable(value):
        raise RegistryError(subject, f"{what} is {type(value).__name__} {value!r}", expected)


# --- the table -------------------------------------------------------------------------------------------------------

_implementations: dict[str, list[Implementation]] = {}
"""By operator, highest plevel first. The lists are replaced, never changed, because calls read them without a lock."""
_generations: dict[tuple[str, str], int] = {}
_listeners: list[Callable[[str | None], None]] = []
_lock = new_lock("implementations")


def on_change(listener: Callable[[str | None], None]) -> None:
    """Call `listener(operator)` after every change of an operator's implementations, `listener(None)` after one that
    concerns all operators."""
    _listeners.append(listener)


def report_change(op: str | None) -> None:
    """Tell the listeners that implementations of `op`, None for any operator, have changed."""
    for listener in _listeners:
        listener(op)


def implementations_of(op: str) -> list[Implementation]:
    """The registered implementations of an operator, highest plevel first, of equal ones the later dialect first."""
    return _implementations.get(op, [])


def remove_implementations(op: str) -> list[Implementation]:
    """Remove the implementations of an operator by all dialects; those removed."""
    with _lock:
        removed = _implementations.pop(op, [])
        report_change(op)
    return removed


def _add(dialect: Dialect, op: str, make: Callable[[int], Implementation], override: bool) -> None:
    """Register what `make` returns for a generation."""
    with _lock:
        others = _implementations.get(op, [])
        if not override and any(i.dialect is dialect for i in others):
            raise RegistryError(
                f"{dialect.name}.{op}",
                "is registered already",
                "one implementation of an operator in a dialect",
                "pass override=True to replace it",
            )
        key = (dialect.name, op)
        generation = _generations.get(key, -1) + 1
        _generations[key] = generation
        remaining = [i for i in others if i.dialect is not dialect]
        _store(op, [*remaining, make(generation)])


def _store(op: str, implementations: list[Implementation]) -> None:
    _implementations[op] = sorted(implementations, key=lambda i: (-i.plevel, -i.dialect.order))
    report_change(op)
