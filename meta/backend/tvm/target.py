"""Compilation targets of devices, knobs of kernels for them, and identities for the keys of compiled code.

A knob is a size of tiles, an order of loops and the like, which a heuristic chooses and tuning may change. A schedule,
or a compute that decides how it is scheduled, asks for a value where its constant would be:

    rows = choose("tile_rows", 8, (8, 6, 4))

Outside of tuned programs the answer is the default, and nothing is recorded. A tuned program has `KnobChoices` in the
mode `meta.modes.modes.tuning`. While one of its kernels is computed or scheduled, the mode `knobs` has its `Knobs`. A
choice that is not among the options, such as one that another version of the schedule offered, is ignored.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from os import listdir
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from meta.backend.cuda import nvrtc
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import cpu as cpus
from meta.backend.tvm import devices, runtime
from meta.backend.tvm.cpu import CpuTarget
from meta.modes import modes, scoped
from meta.records import record

_CPU_FOLDERS: Final = (
    *("", "ir", "op"),
    *("backend", "backend/tvm", "backend/tvm/workarounds", "backend/tvm/te"),
    *("backend/tvm/schedule", "backend/tvm/schedule/cpu"),
)
"""Folders of meta with the sources of lowering for the CPU, and those whose functions computes call."""
_CUDA_FOLDERS: Final = (*_CPU_FOLDERS, "backend/tvm/schedule/gpu", "backend/cuda")


def target(kind: str) -> Any:
    """The TVM target for a device kind: "cpu" (LLVM for the CPU compiled for) or "cuda" (the current GPU).

    Raises:
        ValueError: the kind is unknown, or TVM does not find the GPU.
    """
    if kind == "cpu":
        return _cpu_target(modes.cpu or cpus.host())
    if kind == "cuda":
        return _cuda_target()
    raise ValueError(f"no TVM target for device kind {kind!r}; expected 'cpu' or 'cuda'")


@cache
def _cpu_target(cpu: CpuTarget) -> Any:
    return tvm.Target(cpu.llvm())


@cache
def _cuda_target() -> Any:
    nvrtc.install()
    return tvm.Target(tvm.Target.from_device(tvm.cuda(0)), host=_cpu_target(cpus.host()))


def lanes(bits: int) -> int:
    """The number of elements of `bits` bits in a vector register of the CPU compiled for."""
    return max(vector_bits() // bits, 1)


def vector_bits() -> int:
    """The width of the vector registers of the CPU compiled for, in bits; 64, two floats, for one without."""
    return _vector_bits(modes.cpu or cpus.host())


@cache
def _vector_bits(cpu: CpuTarget) -> int:
    features = cpus.features_of(cpu)
    return next((bits for bits, names in _VECTORS if not features.isdisjoint(names)), 64)


_VECTORS: Final = (
    (512, ("avx512f",)), (256, ("avx2",)), (128, ("sse2", "neon", "simd128", "v", "altivec", "vector", "lsx")),
)  # fmt: skip
"""Bits of vector registers, and the features of CPUs that have them."""


def vector_registers() -> int:
    """The number of vector registers of the CPU compiled for. Engines of WebAssembly use the registers of x86."""
    features = cpus.features_of(modes.cpu or cpus.host())
    return 16 if "avx512f" not in features and not features.isdisjoint(_SIXTEEN_REGISTERS) else 32


_SIXTEEN_REGISTERS: Final = ("sse2", "simd128", "aclass")
"""Features of x86, WebAssembly and 32-bit ARM."""


def identity(kind: str) -> str:
    """A digest of everything outside a kernel that its machine code depends on: target, CPU, TVM, sources of
    lowering, choices of tuning.

    It keeps a cache directory valid across machines and upgrades. The digest does not load TVM's compiler.
    """
    own = _identity(kind, modes.cpu)
    return f"{own} {modes.tuning.digest}" if modes.tuning is not None and modes.tuning.kernels else own


@cache
def _identity(kind: str, cpu: CpuTarget | None) -> str:
    processor = describe_processor() if cpu is None else str(cpu.llvm())
    parts = [tvm_version(), processor, "" if kind == "cpu" else _describe_gpu()]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in lowering_sources(kind):
        with open(path, "rb", buffering=0) as file:
            digest.update(file.read())
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
    folders = [package / folder for folder in (_CPU_FOLDERS if kind == "cpu" else _CUDA_FOLDERS)]
    sources = [folder / name for folder in folders for name in sorted(listdir(folder)) if name.endswith(".py")]
    return [*sources, package / "_generated" / "limits.py"]


@cache
def describe_processor() -> str:
    """Text that identifies the instruction set of this CPU."""
    system = f"{sys.platform} {platform.machine()} {cpus.requested_cpu()}".rstrip()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            # Only the first core: the operating system generates the entries of further cores on demand.
            first = file.read(1 << 13).split("\n\n")[0]
    except OSError:
        return f"{system} {tvm.system_cpu()} {sorted(cpus.features_of(cpus.host()))}"
    return "\n".join([system, *(line for line in first.splitlines() if line.startswith(_CPU_FACTS))])


_CPU_FACTS: Final = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU architecture", "CPU variant",
                     "CPU part", "Features", "isa", "uarch")  # fmt: skip


# --- knobs ------------------------------------------------------------------------------------------------------------

Value: TypeAlias = "bool | int | tuple[int, ...]"
"""What a knob is set to."""
V = TypeVar("V", bound="bool | int | tuple[int, ...]")


@record
class Knob:
    """A question of a schedule. options: the allowed values, the most promising first."""

    name: str
    default: Value
    options: tuple[Value, ...]


class Knobs:
    """The knobs of one kernel. chosen: values by name.  asked: the knobs that it has asked for, in order.  used: the
    values that they have."""

    def __init__(self, chosen: Mapping[str, Value]) -> None:
        self.chosen = chosen
        self.asked: dict[str, Knob] = {}
        self.used: dict[str, Value] = {}

    def choose(self, name: str, default: Value, options: Sequence[Value]) -> Value:
        """The chosen value. A name that is asked for again, for another block, gets a number."""
        count = sum(each.partition(".")[0] == name for each in self.asked)
        name = f"{name}.{count}" if count else name
        self.asked[name] = Knob(name, default, tuple(options))
        value = self.chosen.get(name, default)
        self.used[name] = value if any(_same(value, option) for option in options) else default
        return self.used[name]


def choose(name: str, default: V, options: Sequence[V]) -> V:
    """The value of a knob of the kernel that this thread computes or schedules.

    options: the allowed values; each gives a correct kernel."""
    knobs: Knobs | None = modes.knobs
    if knobs is None:
        return default
    value = knobs.choose(name, default, options)
    return next((option for option in options if _same(option, value)), default)


def choose_divisor(name: str, default: int, extent: int) -> int:
    """A knob: how many of `extent` tiles or images make a block, all powers of two and the extent that divide it."""
    sizes = {default, extent, *(1 << n for n in range(extent.bit_length()))}
    return choose(name, default, [n for n in sorted(sizes) if n and extent % n == 0])


def _same(a: Value, b: Value) -> bool:
    return type(a) is type(b) and a == b


@contextmanager
def tentative() -> Generator[Callable[[], None], None, None]:
    """A block that may not apply: unless it calls what it receives, the questions asked inside of it are withdrawn."""
    knobs: Knobs | None = modes.knobs
    before = None if knobs is None else (dict(knobs.asked), dict(knobs.used))
    kept: list[bool] = []
    try:
        yield lambda: kept.append(True)
    finally:
        if knobs is not None and before is not None and not kept:
            knobs.asked, knobs.used = before


@record
class KnobChoices:
    """The choices of tuning for one target, by the key of a kernel and the name of a knob."""

    kernels: Mapping[str, Mapping[str, Value]]

    @property
    def digest(self) -> str:
        """A hash of the choices, which tells the code compiled with them apart from other code."""
        return hashlib.sha256(json.dumps(self.kernels, sort_keys=True).encode()).hexdigest()[:32]

    def merged(self, other: KnobChoices | None) -> KnobChoices:
        """These choices, completed by the choices of `other` for further kernels."""
        return self if other is None else KnobChoices({**other.kernels, **self.kernels})


@contextmanager
def knobs_of(key: Callable[[], str]) -> Generator[None, None, None]:
    """Compute or schedule one kernel inside the block, with the choices of the program. key: returns the kernel's."""
    tuning: KnobChoices | None = modes.tuning
    if tuning is None:
        yield
        return
    with scoped(knobs=Knobs(tuning.kernels.get(key(), {}))):
        yield
