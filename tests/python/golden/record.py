"""Records of golden programs as text: what the passes, the planner and the kernels made of each."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import meta
from tests.python.golden.case import Case
from tests.python.golden.plans import cuda_plan, kernel_count, kernel_sequence

TOLERANCE = 1e-6
"""Of values, relative to the largest of a line."""
_TITLES = {
    "sizes": "planned bytes", "values": "values", "kernels": "kernels", "cuda_kernels": "kernels on CUDA",
    "ir": "program",
}  # fmt: skip
_SIZES = ("state", "outputs", "intermediates", "workspace", "dynamic")


@dataclass(frozen=True, slots=True)
class Record:
    """sizes: planned bytes, and numbers of tensors of unknown size and of kernels.  values: the first results of each
    call; a checksum of all results and of the state.  kernels, cuda_kernels: see `plans.kernel_sequence`.
    ir: the program after the passes."""

    sizes: Mapping[str, int]
    values: Mapping[str, tuple[float, ...]]
    kernels: Sequence[str]
    cuda_kernels: Sequence[str]
    ir: Sequence[str]

    def __str__(self) -> str:
        sections = {
            "sizes": [f"{name} {size}" for name, size in self.sizes.items()],
            "values": [f"{name} {' '.join(f'{x:.9g}' for x in numbers)}" for name, numbers in self.values.items()],
            **{name: getattr(self, name) for name in ("kernels", "cuda_kernels", "ir")},
        }
        return "".join(f"[{_TITLES[name]}]\n" + "".join(f"{x}\n" for x in lines) for name, lines in sections.items())


def parse(text: str) -> Record:
    """The record that a text is of."""
    titles = "|".join(rf"^\[{title}\]\n" for title in _TITLES.values())
    sizes, values, kernels, cuda_kernels, ir = (x.splitlines() for x in re.split(titles, text, flags=re.MULTILINE)[1:])
    return Record(
        {name: int(size) for name, size in map(str.split, sizes)},
        {name: tuple(map(float, numbers)) for name, *numbers in map(str.split, values)},
        kernels,
        cuda_kernels,
        ir,
    )


def record(case: Case) -> Record:
    """Compile and run a program."""
    args = case.calls[0]
    kernels = kernel_sequence(case.executor, args)
    memory = case.executor.memory(*args)
    cuda_sizes, cuda_kernels = cuda_plan(case.executor, args) if case.on_cuda else ({}, [])
    return Record(
        {name: getattr(memory, name) for name in _SIZES}
        | {"kernels": kernel_count(kernels), **cuda_sizes, "cuda_kernels": kernel_count(cuda_kernels)},
        dict(_values(case)),
        kernels,
        cuda_kernels,
        re.sub(r"  # \S+:\d+$", "", case.executor.ir(*args), flags=re.MULTILINE).splitlines(),
    )


def seed() -> None:
    """Seed the generators that programs draw their parameters from."""
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    meta.random.seed(0)


def _values(case: Case) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Up to four numbers of each call, in double precision; then of all results and the state the sum of magnitudes,
    and a sum with a weight for each position."""
    results = case.run()
    arrays: list[np.ndarray[Any, Any]] = []
    for i, result in enumerate(results):
        flat = [_host(x) for x in _leaves(result)]
        arrays += flat
        yield f"call_{i}", tuple(float(x) for x in np.concatenate(flat)[:4])
    if results:
        arrays += [_host(x) for _, x in case.executor.program(*case.calls[0]).record.state]
        numbers = np.concatenate(arrays)
        yield "checksum", (float(np.abs(numbers).sum()), float(numbers @ np.cos(np.arange(len(numbers)))))


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for item in result:
            yield from _leaves(item)
    else:
        yield result


def _host(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x.detach().numpy()).astype(np.float64).ravel()


def differences(expected: Record, actual: Record) -> list[str]:
    """What is worse or other than expected, a text for each. Fewer bytes and fewer kernels count as no difference of
    sizes."""
    found = [
        f"{name}: {size} instead of {expected.sizes.get(name, 0)}"
        for name, size in actual.sizes.items()
        if size > expected.sizes.get(name, 0)
    ]
    for name in {**expected.values, **actual.values}:
        a, b = expected.values.get(name, ()), actual.values.get(name, ())
        if len(a) != len(b) or not np.allclose(b, a, rtol=0.0, atol=TOLERANCE * max(map(abs, (*a, 1e-30)))):
            found.append(f"values of {name}: {_numbers(b)} instead of {_numbers(a)}")
    for name in ("kernels", "cuda_kernels", "ir"):
        a, b, title = getattr(expected, name), getattr(actual, name), _TITLES[name]
        text = "\n".join(difflib.unified_diff(a, b, f"expected {title}", f"actual {title}", lineterm=""))
        found += [text] if text else []
    return found


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{x:.9g}" for x in values) or "none"
