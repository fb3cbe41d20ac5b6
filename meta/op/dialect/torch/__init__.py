"""The torch dialect: ATen kernels through DLPack, for operators where MKL, oneDNN or cuBLAS are faster. Optional."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any

from meta.device import Device
from meta.errors import install_hint
from meta.op.dispatch import CallInfo, Dialect, Implementation, Kernel


def _probe() -> str | None:
    return None if find_spec("torch") else f"torch is not installed; install it: {install_hint('torch')}"


def _kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.backend.torch.bridge import kernel

    return kernel(implementation.payload, call)


def _private_memory(on: Device) -> Callable[[], AbstractContextManager[Any]]:
    from meta.backend.torch.bridge import private_memory

    return private_memory(on)


DIALECT = Dialect("torch", frozenset({"cpu", "cuda"}), 12, _probe, _kernel, _private_memory)
