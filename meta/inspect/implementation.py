"""The implementations of an operator by dialect: where they are, on which devices, and what they accept."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from meta.inspect.sources import PACKAGE, location_of_function, returned_texts, row, unwrapped
from meta.op import work
from meta.op.dispatch import BUILT_IN, Checker, Dialect, Implementation, dialect, implementations
from meta.op.registry import Op

_GENERIC = (str(PACKAGE / "backend"), str(PACKAGE / "op/dialect/tvm/__init__.py"),
            str(PACKAGE / "op/dialect/reference/__init__.py"), str(PACKAGE / "op/formulas.py"))  # fmt: skip
"""Files whose functions wrap computes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A checker, which refuses some calls. texts: the reasons that it gives, or what its docstring says.
    location: of the checker."""

    texts: tuple[str, ...]
    location: str | None


@dataclass(frozen=True, slots=True)
class DialectKernel:
    """One dialect's implementation of an operator.

    plevel: its priority; None if unknown, because the dialect is off on this machine.
    devices: kinds of device.  off: why the dialect is not usable on this machine; "" if it is.
    refusals: its checkers; empty if it takes every call that the type function accepts.
    limits: amounts of work; outside of them another dialect is faster and this one is skipped.
    eager_only: whether programs skip it.
    """

    dialect: str
    plevel: int | None
    devices: tuple[str, ...]
    location: str | None
    off: str = ""
    refusals: tuple[Refusal, ...] = ()
    limits: tuple[str, ...] = ()
    eager_only: bool = False


def kernels(op: Op) -> tuple[DialectKernel, ...]:
    """The implementations of an operator, highest plevel first; dialects that are off come last."""
    usable = [_kernel(op, implementation) for implementation in implementations(op)]
    dialects = {kernel.dialect for kernel in usable}
    absent = [_absent(op, dialect(name)) for name in BUILT_IN if name not in dialects and dialect(name).unavailable()]
    return (*usable, *(kernel for kernel in absent if kernel is not None))


def _kernel(op: Op, implementation: Implementation) -> DialectKernel:
    on = implementation.dialect
    options = implementation.options
    checkers = (on.accepts, options.get("accepts"), options.get("confirm"))
    return DialectKernel(
        on.name,
        implementation.plevel,
        tuple(sorted(on.devices)),
        _row(op, on) or _location_of(implementation.payload),
        on.unavailable() or "",
        tuple(_refusal(checker) for checker in checkers if checker is not None),
        _limits(op, on),
        options.get("eager_only", False),
    )


def _absent(op: Op, on: Dialect) -> DialectKernel | None:
    """The implementation in a dialect whose modules are not imported, by its row in their files."""
    where = _row(op, on)
    if where is None:
        return None
    return DialectKernel(
        on.name, None, tuple(sorted(on.devices)), where, on.unavailable() or "", limits=_limits(op, on)
    )


def _row(op: Op, on: Dialect) -> str | None:
    return row(PACKAGE / "op/dialect" / on.name / f"{op.family}.py", op.name)


def _limits(op: Op, on: Dialect) -> tuple[str, ...]:
    """The measured limits of an operator's dialects, as text."""
    return tuple(
        f"{device}{', in programs' if limit.in_programs else ''}: {_range(limit)} {limit.unit} ({_measured_on(limit)})"
        for device in sorted(on.devices)
        for limit in work.limits_of(on.name, op.name, device)
    )


def _measured_on(limit: work.Limit) -> str:
    """The instruction set or compute capability, without the date."""
    return limit.measured.partition(",")[0]


def _range(limit: work.Limit) -> str:
    if limit.most == 0:
        return "for no number of"
    least = f"from {limit.least:_}" if limit.least else ""
    most = f"up to {limit.most:_}" if limit.most is not None else ""
    return " ".join(filter(None, (least, most)))


def _refusal(checker: Checker) -> Refusal:
    function = unwrapped(checker)
    doc = " ".join((function.__doc__ or "").split())
    texts = returned_texts(function) or (doc or getattr(function, "__name__", "by a checker without a name"),)
    return Refusal(texts, location_of_function(function))


def _location_of(payload: object) -> str | None:
    """The location of an implementation's function: the first one outside of the modules that wrap computes, else the
    first."""
    functions = _functions(payload, 0)
    own = [f for f in functions if not f.__code__.co_filename.startswith(_GENERIC)]
    return next(map(location_of_function, [*own, *functions]), None)


def _functions(value: object, depth: int) -> list[Any]:
    """The Python functions in a payload: itself, the fields of a dataclass, closures of wrappers, arguments of
    partials."""
    if depth > 3:
        return []
    function: Any = unwrapped(value)
    if not hasattr(function, "__code__"):
        return [
            f
            for field in (fields(value) if is_dataclass(value) else ())
            for f in _functions(getattr(value, field.name), depth + 1)
        ]
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    return [function, *(f for item in inside if callable(item) for f in _functions(item, depth + 1))]
