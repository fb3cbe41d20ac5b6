"""Compiled kernels of other packages as implementations of operators, under the public name `meta.kernels`.

    hub = meta.register_dialect("hub", plevel=30)
    built = meta.kernels.compile(source, functions=["relu"])
    hub.from_ffi("relu", built.relu)

    activation = meta.kernels.load("kernels/activation", version=1, trust="3f0a...")
    hub.from_torch("silu", activation.silu)

variants    build variants of a folder, and which of them runs here
loading     folders in the layout of Hugging Face's kernels
compiling   sources in C++ and CUDA
library     what both return
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.backend.foreign import KernelFunction as KernelFunction
    from meta.op.user.kernels.compiling import compile as compile  # noqa: A004
    from meta.op.user.kernels.library import KernelLibrary as KernelLibrary
    from meta.op.user.kernels.loading import load as load
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.backend.foreign": ("KernelFunction",),
        "meta.op.user.kernels.compiling": ("compile",),
        "meta.op.user.kernels.library": ("KernelLibrary",),
        "meta.op.user.kernels.loading": ("load",),
    })  # fmt: skip
