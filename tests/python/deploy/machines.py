"""Plans of programs as C programs, which emulators run: the calls of `KernelObjects.planned.main` in order."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from meta.deploy.objects import KernelObjects
from meta.dtype import itemsize
from meta.vm.plan.kernels import OWN, PARAMETER, PLANNED, KernelCall, Tensor, leaves

_MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { int32_t kind, index; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } Type;
typedef struct {
  void* data; Device device; int32_t axes; Type type; int64_t *shape, *strides; uint64_t offset;
} Tensor;
typedef struct { int32_t kind; uint32_t zero; union { int64_t integer; void* pointer; }; } Argument;
typedef struct { void* handle; int32_t tasks; } Group;
typedef int (*Task)(int, Group*, void*);

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t n) {
  for (int i = 0; i < n; i++) if (parts[i]) fputs(parts[i], stderr);
  exit(3);
}
static int launch(Task task, void* data, int tasks) { Group group = {0, 1}; return task(0, &group, data); }
static void* allocate(int kind, int device, uint64_t bytes, int code, int bits) {
  return aligned_alloc(64, bytes + 63 & ~63ull);
}
static int release(int kind, int device, void* memory) { free(memory); return 0; }
int (*__TVMBackendParallelLaunch)(Task, void*, int) = launch;
void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
int (*__TVMBackendFreeWorkspace)(int, int, void*) = release;
void* TVMBackendAllocWorkspace(int k, int d, uint64_t n, int c, int b) { return allocate(k, d, n, c, b); }
int TVMBackendFreeWorkspace(int k, int d, void* p) { return release(k, d, p); }

static void call(int (*kernel)(void*, Argument*, int32_t, Argument*), int n, Tensor* tensors) {
  Argument arguments[16] = {0}, result = {0};
  for (int i = 0; i < n; i++) { arguments[i].kind = 7; arguments[i].pointer = tensors + i; }
  if (kernel(0, arguments, n, &result)) exit(2);
}
static void transfer(int writes, FILE* file, void* data, size_t bytes) {
  if ((writes ? fwrite(data, 1, bytes, file) : fread(data, 1, bytes, file)) != bytes) exit(4);
}
"""
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


@dataclass(frozen=True)
class Machine:
    """target, cpu: as for `compile`.  compiler, emulator: the commands that link a program and run it."""

    target: str
    cpu: str | None
    compiler: tuple[str, ...]
    emulator: tuple[str, ...]

    def missing(self) -> str:
        """The first of its commands that this system lacks, "" for none."""
        return next((c for c in (self.compiler[0], *self.emulator[:1]) if shutil.which(c) is None), "")

    def run(self, objects: KernelObjects, inputs: Sequence[np.ndarray[Any, Any]], folder: Path) -> list[bytes]:
        """The results of a straight program."""
        source = folder / "main.c"
        source.write_text(c_source(objects))
        files = [folder / f"kernels{i}.o" for i in range(len(objects.files))]
        for file, code in zip(files, objects.files, strict=True):
            file.write_bytes(code)
        program = folder / "program"
        subprocess.run(
            [*self.compiler, "-O1", "-w", str(source), *map(str, files), "-lm", "-o", str(program)], check=True
        )
        taken, given = folder / "inputs", folder / "results"
        taken.write_bytes(b"".join(np.ascontiguousarray(x).tobytes() for x in inputs))
        with taken.open("rb") as data, given.open("wb") as out:  # WASI reads pipes in part
            command = [*self.emulator, str(program)]
            done = subprocess.run(command, stdin=data, stdout=out, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 0, (done.returncode, done.stderr.decode()[:500])
        sizes = [operand.bytes for operand in leaves(objects.planned.main.result)]
        ends = np.cumsum(sizes).tolist()
        assert given.stat().st_size == sum(sizes)
        results = given.read_bytes()
        return [results[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def c_source(objects: KernelObjects) -> str:
    """A program that reads the arguments from its input, makes the calls of "main", and writes the results."""
    main = objects.planned.main
    declared: list[str] = [_buffer(f"storage{i}", size) for i, size in enumerate(main.storages)]
    names: dict[int, str] = {}
    numbers = count()

    def address(tensor: Tensor) -> str:
        memory = tensor.memory
        if memory.kind == PLANNED:
            return f"storage{memory.storage} + {memory.offset}"
        assert memory.kind in (OWN, PARAMETER)
        if id(memory) not in names:
            names[id(memory)] = f"memory{next(numbers)}"
            declared.append(_buffer(names[id(memory)], tensor.bytes))
        return names[id(memory)]

    parameters = [operand.tensor for _, value in main.parameters for operand in leaves(value)]
    body = [f"transfer(0, stdin, {address(t)}, {t.bytes});" for t in parameters]
    for step in main.steps:
        assert isinstance(step, KernelCall)
        tensors = [_tensor(address(o.tensor), o.tensor.dtype, o.shape or ()) for o in step.operands]
        assert len(tensors) == len(step.arguments)
        declared.append(f"int {objects.symbols[step.function]}(void*, Argument*, int32_t, Argument*);")
        body.append(f"call({objects.symbols[step.function]}, {len(tensors)}, (Tensor[]){{{', '.join(tensors)}}});")
    body += [f"transfer(1, stdout, {address(o.tensor)}, {o.bytes});" for o in leaves(main.result)]
    return "\n".join([_MAIN, *declared, "int main(void) {", *body, "return 0; }"])


def _buffer(name: str, size: int) -> str:
    return f"static char {name}[{size or 1}] __attribute__((aligned(64)));"


def _tensor(data: str, dtype: str, shape: Sequence[int]) -> str:
    code = next(code for kind, code in _CODES.items() if dtype.startswith(kind))
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    lists = [f"(int64_t[]){{{', '.join(map(str, values)) or 0}}}" for values in (shape, strides)]
    return f"{{{data}, {{1, 0}}, {len(shape)}, {{{code}, {8 * itemsize(dtype)}, 1}}, {lists[0]}, {lists[1]}, 0}}"


def decoded(results: Sequence[bytes], expected: Mapping[str, Any]) -> dict[str, Any]:
    """The results by name, as arrays of the dtypes and shapes that this machine gets."""
    pairs = zip(results, expected.items(), strict=True)
    return {name: np.frombuffer(data, x.dtype).reshape(x.shape) for data, (name, x) in pairs}
