"""Device tests compare with float32 references, so convolutions must not use TF32; and kernels need little memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from meta.backend.cuda import nvrtc
from meta.backend.cuda.driver import probe
from meta.backend.cudnn import settings
from meta.backend.tvm import adapter as tvm


@pytest.fixture(autouse=True)
def exact_float32() -> Iterator[None]:
    settings.allow_tf32(False)
    torch = sys.modules.get("torch")
    before = torch.backends.cudnn.allow_tf32 if torch else True
    if torch:
        torch.backends.cudnn.allow_tf32 = False
    yield
    settings.allow_tf32(None)
    if torch:
        torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(autouse=True, scope="session")
def little_local_memory() -> None:
    """Kernels that the tests compile need at most 1 KiB of local memory a thread: the driver reserves it for all."""
    if probe():
        return
    nvrtc.install()

    def compiled(code: str) -> bytes:
        cubin = nvrtc.compile_source(code)
        sizes = nvrtc.stack_sizes(cubin)
        assert max(sizes.values()) <= 1024, sizes
        return cubin

    tvm.register_global_func("tvm_callback_cuda_compile", compiled, override=True)
