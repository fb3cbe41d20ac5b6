"""CPUs that programs are compiled for: this machine's, or another machine's, by LLVM's names.

The CPU is a mode of the thread (`meta.modes.modes.cpu`, set by `scoped(cpu=...)`; None for `host()`). Everything that
depends on the processor reads it: targets, widths of vectors, the choice of dialects, keys of compiled code. Kernels
that run here, eagerly or in hooks, are compiled inside of `scoped(cpu=None)`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.errors import ArgumentError, NotSupportedError, did_you_mean
from meta.records import record


@record
class CpuTarget:
    """A processor and the system around it.

    triple: architecture, system and ABI ("aarch64-linux-gnu").  cpu: the processor ("cortex-a72").
    features: instruction sets to add to the processor's ("+v").  abi: how functions pass arguments, where the
        triple does not tell."""

    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    abi: str = ""

    @property
    def architecture(self) -> str:
        return self.triple.partition("-")[0]

    @property
    def system(self) -> str:
        """ "linux", "wasi", "unknown", ..."""
        return next((s for s in _SYSTEMS if s in self.triple.split("-")), "unknown")

    @property
    def is_browser(self) -> bool:
        """Whether it is WebAssembly without a system around it."""
        return (self.architecture, self.system) == ("wasm32", "unknown")

    @property
    def toolchain(self) -> str:
        """The prefix of GCC's cross tools for it in the spelling of Debian; "" for a system other than Linux."""
        architecture = "arm" if self.architecture == "armv7" else self.architecture
        return f"{architecture}-{self.triple.partition('-')[2]}" if self.system == "linux" else ""

    @property
    def platform(self) -> str:
        """The system and the machine as Python names them: "linux aarch64"."""
        return f"{self.system} {'armv7l' if self.architecture == 'armv7' else self.architecture}"

    def refusal(self, dtypes: Iterable[str]) -> str | None:
        """Why no kernel for the CPU computes with tensors of these dtypes, None if kernels can."""
        needed = _HALVES.get(self.architecture)
        if needed is None or "float16" not in dtypes or not features_of(self).isdisjoint(needed):
            return None
        return f"no float16 on {self.triple}" + (f" without {' or '.join(needed)}" if needed else "")

    def llvm(self) -> dict[str, Any]:
        """The description that TVM makes a target from."""
        facts: dict[str, Any] = {"kind": "llvm", "mtriple": self._with_vendor(), "mcpu": self.cpu, "mabi": self.abi}
        facts["mfloat-abi"] = "hard" if self.triple.endswith("eabihf") else ""
        facts |= {"mattr": list(self.features), "vector-width": 128 if self.architecture == "wasm32" else 0}
        return {name: fact for name, fact in facts.items() if fact}

    def _with_vendor(self) -> str:
        """The triple with a vendor, without which LLVM takes the system for one, and the ABI for the system: calls of
        libgcc on ARM then pass floats in other registers."""
        first, _, rest = self.triple.partition("-")
        return f"{first}-unknown-{rest}" if rest.startswith(_SYSTEMS) else self.triple

    def __str__(self) -> str:
        return f"{self.triple} ({', '.join((self.cpu, *self.features))})"


@record
class _Architecture:
    """names: other names of it.  systems: system and ABI of its triples; the first is the default.
    cpu, features, abi: the fields of a target without a `cpu`.  needs: features that its ABI or Linux requires."""

    names: tuple[str, ...]
    systems: tuple[str, ...]
    cpu: str
    features: tuple[str, ...] = ()
    abi: str = ""
    needs: tuple[str, ...] = ()


_ARCHITECTURES: Final = {
    "aarch64": _Architecture(("arm64",), ("linux-gnu", "linux-musl"), "generic", needs=("neon",)),
    "armv7": _Architecture(
        ("arm", "armhf", "armv7a", "armv7l"), ("linux-gnueabihf", "linux-musleabihf"), "generic",
        needs=("v7", "aclass", "vfp2"),
    ),
    "riscv64": _Architecture(
        ("riscv64gc",), ("linux-gnu", "linux-musl"), "generic-rv64", ("+m", "+a", "+f", "+d", "+c"), "lp64d",
        ("64bit", "d"),
    ),
    "wasm32": _Architecture(("wasm",), ("unknown-unknown", "wasi"), "generic", ("+simd128",)),
    "x86_64": _Architecture(("amd64", "x86-64"), ("linux-gnu", "linux-musl"), "x86-64", needs=("64bit",)),
}  # fmt: skip
_HALVES: Final = {"riscv64": ("zfh", "zfhmin"), "wasm32": ()}
"""Architectures with float16 only where a CPU has one of some features. On others of RISC-V, the functions that TVM
adds for conversions take integers, and LLVM passes them floats; on WebAssembly LLVM does not end for vectors."""
_SYSTEMS: Final = ("linux", "wasi", "darwin", "windows")
_VENDORS: Final = ("unknown", "none", "pc")


def parse_target(target: str | CpuTarget, cpu: str | None = None) -> CpuTarget:
    """The CPU target of a triple, in the spelling of LLVM, GCC or Debian, and of a processor by LLVM's name.

    cpu: by default one that all machines of the triple can run, with hard floats, and with the SIMD that is usual.
    Raises ArgumentError for an unknown triple, and a processor that LLVM lacks, of another architecture, or without
    the instructions that the triple needs."""
    if isinstance(target, CpuTarget):
        target, cpu, features = target.triple, cpu or target.cpu, target.features
    else:
        features = ()
    if not isinstance(target, str) or not (triple := _canonical(target)):
        raise ArgumentError(
            "target", f"{target!r:.80} is no triple that programs are compiled for", f"one of {', '.join(triples())}",
            did_you_mean(target, triples()) if isinstance(target, str) else "",
        )  # fmt: skip
    name = triple.partition("-")[0]
    architecture = _ARCHITECTURES[name]
    if cpu is None or cpu == architecture.cpu:
        own = (*architecture.features, *(f for f in features if f not in architecture.features))
        return CpuTarget(triple, architecture.cpu, own, architecture.abi)
    _check_cpu(name, triple, cpu)
    return CpuTarget(triple, cpu, features, architecture.abi)


def chosen_target(device: Device, target: str | CpuTarget | None, cpu: str | None) -> CpuTarget:
    """The CPU target of a device. Raises ArgumentError for a target of a GPU's programs."""
    if device.kind != "cpu":
        raise ArgumentError("target", f"the programs are for {device}", 'the device "cpu" for programs with a target')
    return parse_target(target or host().triple, cpu)


def triples() -> tuple[str, ...]:
    """The triples that programs are compiled for."""
    return tuple(f"{name}-{system}" for name, a in _ARCHITECTURES.items() for system in a.systems)


def _canonical(text: str) -> str:
    """The triple of a spelling; "" for others."""
    lowered = text.strip().lower().replace("x86-64", "x86_64")
    first, *rest = lowered.split("-")
    rest = rest[1:] if len(rest) == 3 else rest  # the vendor
    name = next((n for n, a in _ARCHITECTURES.items() if first in (n, *a.names)), "")
    if not name:
        return ""
    systems = _ARCHITECTURES[name].systems
    if name == "wasm32" and rest and all(part in _VENDORS for part in rest):
        return f"{name}-unknown-unknown"
    system = "-".join(part for part in rest if part not in _VENDORS)
    if not rest or system == "linux":
        system = systems[0]
    system = "wasi" if name == "wasm32" and system in ("wasip1", "wasi-libc") else system
    return f"{name}-{system}" if system in systems else ""


def _check_cpu(name: str, triple: str, cpu: Any) -> None:
    known = [str(c) for c in tvm.cpu_names(tvm.Target({"kind": "llvm", "mtriple": triple}))]
    if not isinstance(cpu, str) or cpu not in known:
        others = [each for each in _ARCHITECTURES if tvm.is_valid_cpu(str(cpu), each)]
        problem = f"{cpu!r:.60} is a processor of {others[0]}" if others else f"LLVM knows no processor {cpu!r:.60}"
        raise ArgumentError(
            "target", f"{problem}; the target is {triple}", f"a processor of {name}: {', '.join(known)}",
            did_you_mean(str(cpu), known),
        )  # fmt: skip
    features = _features(CpuTarget(triple, cpu))
    lacking = [f for f in _ARCHITECTURES[name].needs if f not in features]
    if lacking:
        able = [c for c in known if set(_ARCHITECTURES[name].needs) <= _features(CpuTarget(triple, c))]
        raise ArgumentError(
            "target", f"{cpu} lacks {', '.join(lacking)}, which {triple} needs", f"one of {', '.join(able)}"
        )


@cache
def _features(cpu: CpuTarget) -> frozenset[str]:
    return frozenset(str(name) for name in tvm.cpu_features(tvm.Target(cpu.llvm())))


def features_of(cpu: CpuTarget) -> frozenset[str]:
    """Names of a CPU's features in LLVM ("avx2", "avx512f", "neon", ...)."""
    return _features(cpu)


_TUNING: Final = ("allow-", "branchfusion", "ermsb", "false-deps-", "fast", "fsrm", "idiv", "macrofusion", "no-bypass-",
                  "prefer-", "sbb-dep-", "slow-", "tuning-", "vzeroupper")  # fmt: skip
"""Prefixes of LLVM's features that say which instructions are fast, not which ones there are."""


def instruction_sets(cpu: CpuTarget) -> frozenset[str]:
    """The features without which machine code for a CPU does not run."""
    return frozenset(name for name in features_of(cpu) if not name.startswith(_TUNING))


# --- this machine -----------------------------------------------------------------------------------------------------


@cache
def host() -> CpuTarget:
    """The CPU of this machine, or the CPU that META_CPU names."""
    return CpuTarget(tvm.system_triple(), _chosen_cpu() or tvm.system_cpu())


def runs_here(cpu: CpuTarget) -> bool:
    """Whether this machine runs code for a CPU."""
    this = CpuTarget(tvm.system_triple(), tvm.system_cpu())
    return _system(cpu) == _system(this) and instruction_sets(cpu) <= instruction_sets(this)


def _system(cpu: CpuTarget) -> tuple[str, str, bool]:
    return cpu.architecture, cpu.system, "musl" in cpu.triple


def check_runs_here(subject: str, cpu: CpuTarget | None) -> None:
    """Raise NotSupportedError if this machine does not run code for `cpu`. None: for this machine's."""
    if cpu is None or runs_here(cpu):
        return
    raise NotSupportedError(
        subject, f"the program is compiled for {cpu}", f"a program for this machine, {host()}",
        "save it, and run it there; or compile it without `target`",
    )  # fmt: skip


class NotRunnable:
    """In place of the executable of a program for another machine, whose functions raise NotSupportedError."""

    def __init__(self, cpu: CpuTarget | None) -> None:
        self.cpu = cpu

    def implements_function(self, _name: str) -> bool:
        return False

    def __getitem__(self, name: str) -> Any:
        if name in ("vm_load_executable", "vm_initialization"):
            return lambda *_: self
        return lambda *_: check_runs_here("vm", self.cpu)


@cache
def _chosen_cpu() -> str:
    """META_CPU: the processor, by LLVM's name, that kernels are compiled for; "" for this machine's. A name that LLVM
    does not know, or whose instructions this processor lacks, is ignored, with a warning."""
    name = requested_cpu()
    if not name:
        return ""
    triple, system_cpu = tvm.system_triple(), tvm.system_cpu()
    own = instruction_sets(CpuTarget(triple, system_cpu))
    if not tvm.is_valid_cpu(name, triple):
        problem = "is no processor that LLVM knows"
    elif lacking := sorted(instruction_sets(CpuTarget(triple, name)) - own):
        problem = f"has {', '.join(lacking[:5])}, which this processor lacks"
    else:
        return name
    warnings.warn(f"META_CPU={name[:40]!r} {problem}; {system_cpu} is used", UserWarning, stacklevel=2)
    return ""


def requested_cpu() -> str:
    return os.environ.get("META_CPU", "").strip()
