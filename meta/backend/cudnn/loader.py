"""cuDNN's C library: search, functions, and the reason if it is unavailable."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from meta.backend.cuda import driver as cuda
from meta.backend.cudnn.c_functions import CFunctions, StatusError

NAME: Final = "libcudnn.so.9"
_BUNDLES: Final = ("nvidia/cudnn/lib", "torch/lib")
"""Folders of the library in the wheels nvidia-cudnn-* and torch, under a folder of packages."""

_SIGNATURES: Final = {
    "cudnnCreate": "p",
    "cudnnDestroy": "p",
    "cudnnSetStream": "pp",
    "cudnnCreateTensorDescriptor": "p",
    "cudnnDestroyTensorDescriptor": "p",
    "cudnnSetTensorNdDescriptor": "piipp",
    "cudnnCreatePoolingDescriptor": "p",
    "cudnnDestroyPoolingDescriptor": "p",
    "cudnnSetPoolingNdDescriptor": "piiippp",
    "cudnnPoolingForward": "pppppppp",
    "cudnnSoftmaxForward": "piipppppp",
    "cudnnSoftmaxBackward": "piipppppppp",
    "cudnnBatchNormalizationForwardTraining": "pippppppppp" + "dpp" + "dpp",
    "cudnnBatchNormalizationForwardInference": "pippppppppppp" + "d",
    "cudnnBatchNormalizationBackward": "pi" + "pppp" + "pppppp" + "pppp" + "dpp",
}


def candidates() -> Iterator[str]:
    """Possible paths of the library, in the search order of nvidia-cudnn-frontend: both must load the same one."""
    folders = [Path(f) for f in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if f]
    folders += [Path(f) / bundle for f in sys.path if f for bundle in _BUNDLES]
    seen: set[str] = set()
    for folder in folders:
        path = str(folder / NAME)
        if path not in seen and os.path.isfile(path):
            seen.add(path)
            yield path
    yield NAME


def find() -> tuple[Any, str]:
    """The library and its path. Raises OSError with the paths tried."""
    try:
        return ctypes.CDLL(NAME, os.RTLD_NOLOAD | os.RTLD_NOW), f"{NAME} (already loaded)"
    except OSError:
        pass
    tried: list[str] = []
    for path in candidates():
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            tried.append(path if path != NAME else f"the paths of the dynamic linker ({error})")
    raise OSError(f"libcudnn not found in {', '.join(tried)}")


def bind(library: Any) -> CFunctions:
    """The functions of a loaded library; errors have the library's messages."""
    library.cudnnGetErrorString.restype = ctypes.c_char_p

    def explain(status: int) -> tuple[str, str]:
        name = library.cudnnGetErrorString(ctypes.c_int(status)) or b"an unknown status"
        text = ctypes.create_string_buffer(1024)
        library.cudnnGetLastErrorString(text, ctypes.c_size_t(len(text)))
        return f"{name.decode()} ({status})", " ".join(text.value.decode(errors="replace").split())

    return CFunctions(library, _SIGNATURES, explain)


@cache
def functions() -> CFunctions:
    """The functions of cuDNN. Raises OSError if it is not installed."""
    return bind(find()[0])


def version() -> int:
    """The version of the library, as 91900 for 9.19. Raises OSError if it is not installed."""
    return int(find()[0].cudnnGetVersion())


def probe() -> str | None:
    """Why cuDNN is unavailable on this machine, or None."""
    min_version = 90000
    if not sys.platform.startswith("linux"):
        return f"cuDNN is supported on Linux only, not on {sys.platform}"
    reason = cuda.probe()
    if reason:
        return reason
    try:
        installed, path = version(), find()[1]
    except (OSError, AttributeError) as error:
        return str(error)
    if installed < min_version:
        return f"{path} is cuDNN {installed}; at least {min_version} is needed"
    return None


__all__ = ["NAME", "CFunctions", "StatusError", "bind", "candidates", "find", "functions", "probe", "version"]
