"""cuDNN's C library: where it is, its functions, and why the dialect is off where it is not usable."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from meta.backend.cuda import driver as cuda
from meta.backend.cudnn.functions import Functions, StatusError

NAME: Final = "libcudnn.so.9"
_BUNDLES: Final = ("nvidia/cudnn/lib", "torch/lib")
"""Where the wheels nvidia-cudnn-* and those of torch keep it, under a folder of packages."""
_LEAST: Final = 90000

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
    """Files that may be the library, in the order in which nvidia-cudnn-frontend looks for it too: both must end up
    with the same one."""
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
    """The library and where it was found. Raises OSError that lists where it was not."""
    try:
        return ctypes.CDLL(NAME, os.RTLD_NOLOAD | os.RTLD_NOW), f"{NAME} (loaded already)"
    except OSError:
        pass
    tried: list[str] = []
    for path in candidates():
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            tried.append(path if path != NAME else f"the paths of the dynamic linker ({error})")
    raise OSError(f"libcudnn not found in {', '.join(tried)}")


def bind(library: Any) -> Functions:
    """The functions of a loaded library, with its own words for its errors."""
    library.cudnnGetErrorString.restype = ctypes.c_char_p

    def explain(status: int) -> tuple[str, str]:
        name = library.cudnnGetErrorString(ctypes.c_int(status)) or b"an unknown status"
        text = ctypes.create_string_buffer(1024)
        library.cudnnGetLastErrorString(text, ctypes.c_size_t(len(text)))
        return f"{name.decode()} ({status})", " ".join(text.value.decode(errors="replace").split())

    return Functions(library, _SIGNATURES, explain)


@cache
def functions() -> Functions:
    """The functions of cuDNN. Raises OSError where it is not installed."""
    return bind(find()[0])


def probe() -> str | None:
    """Why cuDNN cannot be used on this machine, None when it can."""
    if not sys.platform.startswith("linux"):
        return f"cuDNN is looked for on Linux only, not on {sys.platform}"
    reason = cuda.probe()
    if reason:
        return reason
    try:
        library, path = find()
        version = int(library.cudnnGetVersion())
    except (OSError, AttributeError) as error:
        return str(error)
    if version < _LEAST:
        return f"{path} is cuDNN {version}, at least {_LEAST} is needed"
    return None


__all__ = ["NAME", "Functions", "StatusError", "bind", "candidates", "find", "functions", "probe"]
