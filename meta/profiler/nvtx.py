"""Ranges of NVTX, which NVIDIA's Nsight tools show beside the kernels of a GPU."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


@dataclass(frozen=True, slots=True)
class Ranges:
    """push opens a range with a name in this thread, pop closes the last one.  source: the library behind them."""

    push: Callable[[str], Any]
    pop: Callable[[], Any]
    source: str


@cache
def ranges() -> Ranges | None:
    """NVTX by the package nvtx, by torch if it is loaded already, or by NVIDIA's library; None without all of them."""
    return _package() or _torch() or _library()


def _package() -> Ranges | None:
    if find_spec("nvtx") is None:
        return None
    nvtx: Any = import_module("nvtx")
    return Ranges(nvtx.push_range, nvtx.pop_range, "nvtx")


def _torch() -> Ranges | None:
    """NVTX by torch with CUDA, if the process has loaded torch already."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return Ranges(torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop, "torch")


def _library() -> Ranges | None:
    name = ctypes.util.find_library("nvToolsExt") or "libnvToolsExt.so.1"
    try:
        library = ctypes.CDLL(name)
        push, pop = library.nvtxRangePushA, library.nvtxRangePop
    except (OSError, AttributeError):
        return None
    push.argtypes = [ctypes.c_char_p]
    return Ranges(lambda text: push(text.encode()), pop, name)
