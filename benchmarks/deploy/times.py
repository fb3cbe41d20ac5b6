"""Training steps through the C call on this machine: against the executor, and with two threads against torch's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import torch

import meta
from benchmarks import training_steps
from benchmarks.deploy.machines import executor_of
from benchmarks.deploy.networks import NETWORKS, Case
from benchmarks.timing import Row, medians

OF_THE_EXECUTOR: Final = 1.02
OF_TORCH: Final = 1.0
Work = Callable[[], Any]


class _Tensor(ctypes.Structure):
    """meta_tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 8), ("ndim", ctypes.c_int32), ("dtype", ctypes.c_int32),
    )  # fmt: skip


class _Options(ctypes.Structure):
    """meta_options."""

    _fields_ = (
        ("threads", ctypes.c_int32), ("allocate", ctypes.c_void_p), ("release", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )  # fmt: skip


_DTYPES: Final = {"int64": 8, "float32": 11}
"""Numbers of meta_dtype."""


class CStep:
    """A program in a shared library, called with the same inputs each time. One result, a float32."""

    def __init__(self, path: Path, name: str, inputs: Sequence[np.ndarray[Any, Any]], threads: int) -> None:
        self.library = ctypes.CDLL(str(path))
        self.program = ctypes.c_void_p()
        code = ctypes.c_char.in_dll(self.library, f"{name}_code")
        self._try(
            self.library.meta_program_open(
                ctypes.byref(self.program), ctypes.byref(code), ctypes.byref(_Options(threads))
            )
        )
        self._try(self.library.meta_program_load(self.program, f"{path}.safetensors".encode()))
        self.arrays = [_aligned(x) for x in inputs]
        tensors = [_Tensor(x.ctypes.data, x.shape, x.ndim, _DTYPES[x.dtype.name]) for x in self.arrays]
        self.inputs = (_Tensor * len(tensors))(*tensors)
        self.result = _Tensor()

    def _try(self, status: int) -> None:
        if status:
            self.library.meta_program_error.restype = ctypes.c_char_p
            raise RuntimeError(self.library.meta_program_error(self.program).decode())

    def __call__(self) -> float:
        run, result = self.library.meta_program_run, ctypes.byref(self.result)
        self._try(run(self.program, self.inputs, len(self.inputs), result, 1))
        return ctypes.cast(self.result.data, ctypes.POINTER(ctypes.c_float))[0]

    def close(self) -> None:
        self.library.meta_program_close(self.program)


def _aligned(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that starts at a multiple of 64 bytes."""
    memory = np.empty(x.nbytes + 64, "uint8")
    start = -memory.ctypes.data % 64
    out = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def _library(folder: Path, name: str, case: Case) -> tuple[Any, Path]:
    """The executor of a case, and its program as a library."""
    executor = executor_of(case, None)
    executor.program(*map(meta.array, case.calls[0]))
    path = folder / f"{name}.so"
    executor.save(path, format="library")
    return executor, path


def against_the_executor(names: Sequence[str]) -> Iterator[Row]:
    """One thread."""
    for name in names:
        case = NETWORKS[name].case("step")
        with TemporaryDirectory(prefix="meta-") as folder:
            executor, path = _library(Path(folder), name, case)
            step = CStep(path, name, case.calls[0], 1)
            arrays = [meta.array(x) for x in case.calls[0]]
            ours, theirs = medians(step, lambda executor=executor, arrays=arrays: executor(*arrays), seconds=3)
            step.close()
        yield Row(f"{name} step, C call / executor", ours * 1e6, theirs * 1e6, "us", OF_THE_EXECUTOR)


def against_torch(names: Sequence[str]) -> Iterator[Row]:
    """Two threads each."""
    torch.set_num_threads(2)
    for name in names:
        network = training_steps.NETWORKS[name]
        data = network.data()

        def make(network: Any = network) -> Any:
            model = network.ours().train_mode()
            optimizer = meta.optim.SGD(model.parameters(), learning_rate=0.01, momentum=0.9)
            return meta.optim.TrainStep(model, optimizer, meta.cross_entropy)

        symbol = name.replace("-", "_")
        with TemporaryDirectory(prefix="meta-") as folder:
            _, path = _library(Path(folder), symbol, Case(make, [data]))
            step = CStep(path, symbol, data, 2)
            ours, theirs = medians(step, _torch_step(network.theirs(), data), seconds=6, fewest=9)
            step.close()
        yield Row(f"{name} step, C with two threads / torch with two", ours * 1e3, theirs * 1e3, "ms", OF_TORCH)


def _torch_step(model: torch.nn.Module, data: Sequence[np.ndarray[Any, Any]]) -> Work:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, target = map(torch.from_numpy, data)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    return step


def main() -> int:
    """Print the rows. Returns 1 if one misses its limit."""
    misses = 0
    for rows in (against_the_executor(("mlp", "lenet", "lstm", "unet", "bert")), against_torch(("mlp", "bert-mini"))):
        for row in rows:
            measured = f"{row.value:.1f} {row.unit} / {row.reference:.1f} {row.unit} = {row.measured:.3f}"
            print(f"{row.name:48} {measured}{'' if row.holds else f'  MISSES {row.limit}'}", flush=True)
            misses += not row.holds
    return int(misses > 0)
