"""NVIDIA's Python bindings of CUDA (package cuda-bindings), imported at the first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from meta.errors import DeviceError, install_hint

INSTALL: Final = f"install the extra: {install_hint('cuda')}"


@cache
def bindings(name: str) -> Any:
    """The module `cuda.bindings.<name>`. Raises DeviceError with the extra to install if it is missing."""
    try:
        return import_module(f"cuda.bindings.{name}")
    except ImportError:
        raise DeviceError(
            "cuda", f"cuda.bindings.{name} cannot be imported", "the package cuda-bindings", INSTALL
        ) from None
