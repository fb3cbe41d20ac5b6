"""Dialects from outside of this package: `meta.register_dialect`.

    mine = meta.register_dialect("mine", plevel=20)

    @mine.implement("softmax")
    def softmax(x, axis, *, out):                  # NumPy arrays; writes into out
        e = np.exp(x - x.max(axis, keepdims=True))
        np.divide(e, e.sum(axis, keepdims=True), out=out)

docs/own-dialect.md shows one from end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from keyword import iskeyword
from typing import Any, cast, get_args

from meta.device import KINDS, Device
from meta.errors import RegistryError, did_you_mean, install_hint
from meta.op.dispatch import add_dialect, is_registered, remove_dialect
from meta.op.function_dialect import FunctionDialect, Tensors, function_kernel
from meta.op.implementation import Checker, Dialect, check_callable, check_plevel
from meta.schema.annotations import explained

TENSORS: tuple[str, ...] = get_args(Tensors)
_SUBJECT = "register_dialect"


class UserDialect(FunctionDialect):
    """The dialect that `register_dialect` returns. As a context manager it is unregistered at the end of the block."""

    def unregister(self) -> None:
        """Remove the dialect and its implementations; programs that are compiled keep its kernels."""
        remove_dialect(self.name)

    def __enter__(self) -> UserDialect:
        return self

    def __exit__(self, *_: object) -> None:
        if is_registered(self):
            self.unregister()

    def _check_payload(self, op: str, payload: object) -> None:
        if not is_registered(self):
            raise RegistryError(f"{self.name}.{op}", f"dialect '{self.name}' was unregistered", "a registered dialect")
        super()._check_payload(op, payload)


@explained
def register_dialect(
    name: str,
    plevel: int,
    *,
    accepts: Checker | None = None,
    devices: Iterable[str] = ("cpu",),
    probe: Callable[[], str | None] | None = None,
    tensors: Tensors = "numpy",
    private_memory: Callable[[Device], Callable[[], AbstractContextManager[Any]]] | None = None,
) -> UserDialect:
    """Register a dialect, for `with_dialect(name)`, `explain` and every call that one of its implementations accepts.

    name: an identifier that no dialect has.
    plevel: its priority: the highest one that accepts a call runs it, of equal ones the dialect registered later. tvm
        has 10, torch 12, reference 1. With 0 or below it runs only inside `with_dialect`.
    accepts: called with a CallInfo (operator, argument types, result type, device): None to accept the call, or the
        reason to refuse it, which `explain` prints. Asked before an implementation's own check.
    devices: the kinds of devices it runs on, "cpu" and "cuda".
    probe: None if this machine can run the dialect, or the reason why not; called once, at the first dispatch.
    tensors: what implementations are called with: "numpy" arrays (on the CPU only), "torch" tensors, or raw tensors
        with `__dlpack__` ("dlpack"). All share memory with the operands and results.
    private_memory: for a library that allocates CUDA memory itself; see meta.op.dispatch.Dialect.
    Implementations are added with `implement` and `implement_maker`. Raises RegistryError for a taken name and for
    arguments of a wrong kind."""
    _check_name(name)
    check_plevel(_SUBJECT, plevel)
    kinds = _checked_devices(devices)
    check_callable(_SUBJECT, "accepts", accepts, "a function of a CallInfo that returns None or a reason")
    check_callable(_SUBJECT, "probe", probe, "a function without parameters that returns None or a reason")
    check_callable(_SUBJECT, "private_memory", private_memory, "a function of a device")
    if tensors not in TENSORS:
        hint = did_you_mean(str(tensors), TENSORS)
        raise RegistryError(_SUBJECT, f"tensors is {tensors!r}", f"one of {', '.join(TENSORS)}", hint)
    others = ", ".join(sorted(kinds - {"cpu"}))
    if tensors == "numpy" and others:
        remedy = 'pass tensors="torch" or tensors="dlpack"'
        raise RegistryError(_SUBJECT, f"NumPy arrays cannot be on {others}", 'devices=("cpu",)', remedy)
    added = UserDialect(
        name, kinds, plevel, _probe_of(probe, tensors), function_kernel, private_memory, accepts, tensors=tensors
    )
    add_dialect(added)
    return added


def unregister_dialect(which: str | Dialect) -> None:
    """Remove a dialect that `register_dialect` returned, or that is called so, with its implementations. Programs that
    are compiled keep its kernels. Raises RegistryError for an unknown one, and for one of this package."""
    remove_dialect(which.name if isinstance(which, Dialect) else which)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
        raise RegistryError(_SUBJECT, f"a dialect cannot be called {name!r}", "a name as Python's, such as 'mine'")


def _checked_devices(devices: object) -> frozenset[str]:
    kinds = (devices,) if isinstance(devices, str) else devices
    if not isinstance(kinds, Iterable) or not all(isinstance(kind, str) for kind in kinds):  # pyright: ignore[reportUnknownVariableType]
        raise RegistryError(_SUBJECT, f"devices is {devices!r}", f"kinds of devices: {', '.join(KINDS)}")
    for kind in cast("Iterable[str]", kinds):
        if kind not in KINDS:
            hint = did_you_mean(kind, KINDS)
            raise RegistryError(_SUBJECT, f"no kind of device is called {kind!r}", " or ".join(KINDS), hint)
    unique = frozenset(cast("Iterable[str]", kinds))
    if not unique:
        raise RegistryError(_SUBJECT, "devices is empty", f"at least one of {', '.join(KINDS)}")
    return unique


def _probe_of(probe: Callable[[], str | None] | None, tensors: str) -> Callable[[], str | None]:
    def run() -> str | None:
        if tensors == "torch" and find_spec("torch") is None:
            return f"torch is not installed: {install_hint('torch')}"
        return probe() if probe else None

    return run
