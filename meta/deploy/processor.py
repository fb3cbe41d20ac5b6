"""The check of a program, when it opens, that the processor has the instructions of its kernels."""

from __future__ import annotations

from typing import Final

from meta.backend.tvm.cpu import CpuTarget, instruction_sets

_X86: Final = {
    **dict.fromkeys(("ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "bmi", "bmi2"), 5),
    **dict.fromkeys(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"), 6),
    "avx512vnni": 8, "avx512bf16": 10, "avx512fp16": 12,
}  # fmt: skip
"""LLVM's feature -> the first GCC whose `__builtin_cpu_supports` knows it. Clang's 14 knows all."""
_HWCAPS: Final = {
    "aarch64": {
        "lse": (16, 8), "fullfp16": (16, 10), "rdm": (16, 12), "complxnum": (16, 14), "dotprod": (16, 20),
        "sve": (16, 22), "sve2": (26, 1), "i8mm": (26, 13), "bf16": (26, 14),
    },
    "armv7": {"neon": (16, 12), "vfp4": (16, 16), "hwdiv-arm": (16, 17), "hwdiv": (16, 18), "fp16fml": (16, 25)},
    "riscv64": {"v": (16, 21)},
}  # fmt: skip
"""Architecture -> LLVM's feature -> the entry of Linux's auxiliary vector (16 is AT_HWCAP, 26 AT_HWCAP2) and the bit of
it, as in Linux's uapi/asm/hwcap.h."""


def processor_check(cpu: CpuTarget) -> list[str]:
    """The function `missing` in C, which returns the name of an instruction set that the kernels use and the processor
    lacks, NULL if it finds none; no lines where nothing is to be asked."""
    sets = instruction_sets(cpu)
    hwcaps = _HWCAPS.get(cpu.architecture, {})
    entries = {name: place for name, place in hwcaps.items() if name in sets} if cpu.system == "linux" else {}
    versions = {name: gcc for name, gcc in _X86.items() if name in sets} if cpu.architecture == "x86_64" else {}
    if not entries and not versions:
        return []
    lines = ["#if __GNUC__ >= 5 || __clang_major__ >= 14", "  __builtin_cpu_init();", "#endif"] if versions else []
    for gcc in sorted(set(versions.values())):
        lines.append(f"#if __GNUC__ >= {gcc} || __clang_major__ >= 14")
        lines += [
            f'  if (!__builtin_cpu_supports("{name}")) return "{name}";' for name, v in versions.items() if v == gcc
        ]
        lines.append("#endif")
    for name, (entry, bit) in entries.items():
        lines.append(f'  if (!(getauxval({entry}) >> {bit} & 1)) return "{name}";')
    include = ["#include <sys/auxv.h>", ""] if entries else []
    return [*include, "static const char *missing(void) {", *lines, "  return NULL;", "}", ""]
