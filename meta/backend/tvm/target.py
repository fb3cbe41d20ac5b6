"""Compilation targets of this machine's devices, and identities for the keys of compiled code."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from meta.backend.cuda import nvrtc
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import devices, runtime

_CPU_FOLDERS: Final = (
    *("", "ir", "op"),
    *("backend", "backend/tvm", "backend/tvm/workarounds", "backend/tvm/te"),
    *("backend/tvm/schedule", "backend/tvm/schedule/cpu"),
)
"""Folders of meta with the sources of lowering for the CPU, and those whose functions computes call."""
_CUDA_FOLDERS: Final = (*_CPU_FOLDERS, "backend/tvm/schedule/gpu", "backend/cuda")


@cache
def target(kind: str) -> Any:
    """The TVM target for a device kind: "cpu" (LLVM for this processor, or for META_CPU) or "cuda" (the current GPU).

    Raises:
        ValueError: the kind is unknown, or TVM does not find the GPU.
    """
    if kind == "cpu":
        return _cpu_target(_chosen_cpu() or tvm.system_cpu())
    if kind == "cuda":
        nvrtc.install()
        return tvm.Target(tvm.Target.from_device(tvm.cuda(0)), host=target("cpu"))
    raise ValueError(f"no TVM target for device kind {kind!r}; expected 'cpu' or 'cuda'")


def _cpu_target(name: str) -> Any:
    return tvm.Target({"kind": "llvm", "mcpu": name, "mtriple": tvm.system_triple()})


@cache
def _chosen_cpu() -> str:
    """META_CPU: the processor, by LLVM's name, that kernels are compiled for; "" for this machine's. A name that LLVM
    does not know, or whose instructions this processor lacks, is ignored, with a warning."""
    name = _requested_cpu()
    if not name:
        return ""
    if not tvm.is_valid_cpu(name, tvm.system_triple()):
        problem = "is no processor that LLVM knows"
    elif lacking := sorted(instruction_sets(_cpu_target(name)) - instruction_sets(_cpu_target(tvm.system_cpu()))):
        problem = f"has {', '.join(lacking[:5])}, which this processor lacks"
    else:
        return name
    warnings.warn(f"META_CPU={name[:40]!r} {problem}; {tvm.system_cpu()} is used", UserWarning, stacklevel=2)
    return ""


def _requested_cpu() -> str:
    return os.environ.get("META_CPU", "").strip()


@cache
def lanes(bits: int) -> int:
    """The number of elements of `bits` bits in a vector register of the CPU."""
    return max(vector_bits() // bits, 1)


@cache
def vector_bits() -> int:
    """The width of the CPU's vector registers in bits."""
    features = cpu_features()
    return 512 if "avx512f" in features else 256 if "avx2" in features else 128


@cache
def cpu_features() -> frozenset[str]:
    """Names of the CPU's features in LLVM ("avx2", "avx512f", "neon", ...)."""
    return frozenset(str(name) for name in tvm.cpu_features(target("cpu")))


_TUNING: Final = ("allow-", "branchfusion", "ermsb", "false-deps-", "fast", "fsrm", "idiv", "macrofusion", "no-bypass-",
                  "prefer-", "sbb-dep-", "slow-", "tuning-", "vzeroupper")  # fmt: skip
"""Prefixes of LLVM's features that say which instructions are fast, not which ones there are."""


def instruction_sets(target: tvm.Target) -> frozenset[str]:
    """The features of a CPU target without which its machine code does not run."""
    return frozenset(name for f in tvm.cpu_features(target) if not (name := str(f)).startswith(_TUNING))


@cache
def identity(kind: str) -> str:
    """A digest of everything outside a kernel that its machine code depends on: target, CPU, TVM, sources of lowering.

    It keeps a cache directory valid across machines and upgrades. The digest does not load TVM's compiler.
    """
    parts = [tvm_version(), describe_processor(), "" if kind == "cpu" else _describe_gpu()]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in lowering_sources(kind):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _describe_gpu() -> str:
    """Text that identifies what kernels for the GPU are compiled for."""
    # TVM's numbers of what a target for CUDA is made of: threads of a block, threads of a warp, shared memory of a
    # block, and compute capability.
    gpu_facts = (1, 2, 3, 4)
    runtime.load_cuda()
    return repr([str(tvm.device_attribute(devices.CUDA, 0, fact)) for fact in gpu_facts])


def tvm_version() -> str:
    """The version of the installed TVM."""
    return version("apache-tvm")


def lowering_sources(kind: str) -> list[Path]:
    """The sources of meta that decide the compiled code for a device kind."""
    package = Path(__file__).parents[2]
    folders = _CPU_FOLDERS if kind == "cpu" else _CUDA_FOLDERS
    sources = [path for folder in folders for path in sorted((package / folder).glob("*.py"))]
    return [*sources, package / "_generated" / "limits.py"]


@cache
def describe_processor() -> str:
    """Text that identifies the instruction set of this CPU."""
    system = f"{sys.platform} {platform.machine()} {_requested_cpu()}".rstrip()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            # Only the first core: the operating system generates the entries of further cores on demand.
            first = file.read(1 << 13).split("\n\n")[0]
    except OSError:
        return f"{system} {tvm.system_cpu()} {sorted(cpu_features())}"
    return "\n".join([system, *(line for line in first.splitlines() if line.startswith(_CPU_FACTS))])


_CPU_FACTS: Final = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU architecture", "CPU variant",
                     "CPU part", "Features", "isa", "uarch")  # fmt: skip
