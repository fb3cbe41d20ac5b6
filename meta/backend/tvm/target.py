"""The compilation target of a device kind on this machine, and the identity that compiled code depends on."""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from meta.backend.cuda import nvrtc
from meta.backend.tvm import adapter as tvm

_CPU_ROOMS: Final = ("tvm", "tvm/te", "tvm/schedule", "tvm/schedule/cpu")
"""Folders of meta.backend whose modules decide what is compiled for the CPU."""
_CUDA_ROOMS: Final = (*_CPU_ROOMS, "tvm/schedule/gpu", "cuda")


@cache
def target(kind: str) -> Any:
    """The TVM target for a device kind: "cpu" (LLVM for exactly this processor) or "cuda" (the current GPU).

    Raises:
        ValueError: another kind, or a GPU that TVM cannot find.
    """
    if kind == "cpu":
        return tvm.Target({"kind": "llvm", "mcpu": tvm.system_cpu(), "mtriple": tvm.system_triple()})
    if kind == "cuda":
        nvrtc.install()
        return tvm.Target(tvm.Target.from_device(tvm.cuda(0)), host=target("cpu"))
    raise ValueError(f"no TVM target for device kind {kind!r}; known kinds: 'cpu', 'cuda'")


@cache
def lanes(bits: int) -> int:
    """Elements of `bits` bits in one vector register of this machine's CPU."""
    return max(vector_bits() // bits, 1)


@cache
def vector_bits() -> int:
    """Width of the CPU's vector registers in bits."""
    features = cpu_features()
    return 512 if "avx512f" in features else 256 if "avx2" in features else 128


@cache
def cpu_features() -> frozenset[str]:
    """Names of the features that LLVM knows this CPU to have ("avx2", "avx512f", "neon", ...)."""
    return frozenset(str(name) for name in tvm.cpu_features(target("cpu")))


@cache
def identity(kind: str) -> str:
    """Digest of everything outside a kernel that its machine code depends on: target, CPU, TVM, our lowering sources.

    A cache directory that moves to another machine, or outlives an upgrade, is so never misused. For the CPU it is
    found out without loading TVM.
    """
    parts = [version("apache-tvm"), processor(), "" if kind == "cpu" else str(target(kind))]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in lowering(kind):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def lowering(kind: str) -> list[Path]:
    """Our sources that compiled code for a device kind depends on."""
    backend = Path(__file__).parents[1]
    rooms = _CPU_ROOMS if kind == "cpu" else _CUDA_ROOMS
    return [path for room in rooms for path in sorted((backend / room).glob("*.py"))]


@cache
def processor() -> str:
    """Everything that decides which instructions this CPU has, as text."""
    system = f"{sys.platform} {platform.machine()}"
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read(1 << 13).split("\n\n")[0]  # the first core; reading on would ask all of them
    except OSError:
        return f"{system} {tvm.system_cpu()} {sorted(cpu_features())}"
    return "\n".join([system, *(line for line in first.splitlines() if line.startswith(_CPU_FACTS))])


_CPU_FACTS: Final = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU architecture", "CPU variant",
                     "CPU part", "Features", "isa", "uarch")  # fmt: skip
