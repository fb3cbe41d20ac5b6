"""Run models eagerly and on the virtual machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.device import Device
from meta.eager.ndarray import NDArray
from meta.tree import named_leaves


def run_vm_model(model: Any, device: Device | str, args: Sequence[Any]) -> Any:
    """The result of `model(*args)`, compiled for `device` and run on the virtual machine.

    model: a Model, a traced function or a Module.  args: arrays on any device; they are moved to `device`. The result
    has the structure of the eager one, with arrays on `device`."""
    from meta.vm import compile as compile_program

    executor = compile_program(model, device=device)
    return executor(*[a.to(device=device) if isinstance(a, NDArray) else a for a in args])


def run_model(model: Any, device: Device | str, args: Sequence[Any], *, rtol: float = 1e-5, atol: float = 1e-5) -> Any:
    """The eager result of `model(*args)`, compared with the result of the virtual machine.

    Raises AssertionError if they differ by more than atol + rtol * |eager|."""
    from meta.testing.arrays import check

    moved = [a.to(device=device) if isinstance(a, NDArray) else a for a in args]
    eager = model(*moved)
    check(_leaves(run_vm_model(model, device, args)), _leaves(eager), rtol=rtol, atol=atol)
    return eager


def _leaves(result: Any) -> list[Any]:
    return [leaf for _, leaf in named_leaves(result, NDArray)]
