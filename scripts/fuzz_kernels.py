"""Compiles random elementwise programs of many dtypes whose kernels use values several times.

    python -m scripts.fuzz_kernels 1000 --seed 1      programs 0 to 999 of seed 1
    python -m scripts.fuzz_kernels 1 --seed 1 --only 17

Operands are chosen among all earlier values, so that comparisons, casts and numbers of every dtype are shared inside of
a kernel: in vectors, in what is left of them, in scalars. Programs are compared with eager calls, element by element:
fusion changes no bit of an integer, and of a float only what one rounding of each operation explains.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import meta

_FLOATS: Final = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
_INTEGERS: Final = ("int32", "int64", "int8", "uint8", "int16")
_SHAPES: Final = ((), (1,), (7,), (16,), (64,), (67,), (3, 5), (16, 16), (33, 8), (4, 3, 6), (516, 1024))
_FLOAT_OPERATORS: Final = (
    "meta.add({0}, {1})", "meta.multiply({0}, {1})", "meta.subtract({0}, {1})", "meta.maximum({0}, {1})",
    "meta.minimum({0}, {1})", "meta.abs({0})", "meta.negative({0})", "meta.relu({0})", "meta.tanh({0})",
    "meta.sigmoid({0})", "meta.floor({0})", "meta.clip({0}, -1.0, 1.0)", "meta.exp(meta.negative(meta.abs({0})))",
    "meta.where({c}, {0}, {1})", "meta.where({c}, {0}, {1})", "meta.where({c}, {0}, 0.5)",
    "meta.where({c}, {0}, -INFINITY)", "meta.add({0}, meta.where({c}, 0.0, -INFINITY))",
)  # fmt: skip
_INTEGER_OPERATORS: Final = (
    "meta.add({0}, {1})", "meta.multiply({0}, {1})", "meta.subtract({0}, {1})", "meta.maximum({0}, {1})",
    "meta.bitwise_and({0}, {1})", "meta.bitwise_xor({0}, {1})", "meta.abs({0})", "meta.where({c}, {0}, {1})",
    "meta.where({c}, {0}, {1})",
)  # fmt: skip
_COMPARISONS: Final = ("greater", "less", "equal", "not_equal", "less_equal", "greater_equal")
_BOOLS: Final = (
    "meta.logical_and({c}, {d})", "meta.logical_or({c}, {d})", "meta.logical_not({c})", "meta.logical_xor({c}, {d})",
    "meta.where({c}, {d}, {e})",
)  # fmt: skip


def random_source(seed: int, index: int) -> tuple[str, dict[str, tuple[tuple[int, ...], str]]]:
    """The text of a function and the shapes and dtypes of its arguments."""
    rng = random.Random(f"{seed}/{index}")
    shape = rng.choice(_SHAPES)
    dtypes = [rng.choice(_FLOATS), rng.choice(_FLOATS), rng.choice(_INTEGERS), "bool"]
    arguments: dict[str, tuple[tuple[int, ...], str]] = {}
    known: dict[str, list[str]] = {}
    for dtype in [dtypes[0], dtypes[0], *dtypes[1:]]:
        small = rng.choice((shape[1:], ())) if rng.random() < 0.25 else shape
        arguments[f"x{len(arguments)}"] = (small if known else shape, dtype)
        known.setdefault(dtype, []).append(f"x{len(arguments) - 1}")
    lines: list[str] = []
    for i in range(rng.randrange(4, 16)):
        text, dtype = _statement(rng, known)
        lines.append(f"    v{i} = {text}")
        known.setdefault(dtype, []).append(f"v{i}")
    read = " ".join(line.split(" = ")[1] for line in lines)
    names = [f"v{i}" for i in range(len(lines))]
    results = [n for n in names if not re.search(rf"\b{n}\b", read) or rng.random() < 0.05]
    text = "\n".join([f"def function({', '.join(arguments)}):", *lines, f"    return ({', '.join(results)},)"])
    return text, arguments


def _statement(rng: random.Random, known: dict[str, list[str]]) -> tuple[str, str]:
    """The text of an operator's call and the dtype of its result."""

    def chosen(dtype: str) -> str:
        return rng.choice(known[dtype][-2:] if rng.random() < 0.5 else known[dtype])

    pick = {name: chosen("bool") for name in "cde"}
    numbers = [dtype for dtype in known if dtype != "bool"]
    dtype = rng.choice(numbers)
    operands = [chosen(dtype), chosen(dtype)]
    kind = rng.random()
    if kind < 0.2:
        return f"meta.{rng.choice(_COMPARISONS)}({', '.join(operands)})", "bool"
    if kind < 0.3:
        return rng.choice(_BOOLS).format(**pick), "bool"
    if kind < 0.42:
        target = rng.choice([d for d in numbers if d[0] in "fb"] or numbers)
        source = chosen(rng.choice(("bool", dtype)))
        return f'meta.cast({source}, "{target}")', target
    operators = _FLOAT_OPERATORS if "float" in dtype else _INTEGER_OPERATORS
    return rng.choice(operators).format(*operands, **pick), dtype


def arrays(arguments: dict[str, tuple[tuple[int, ...], str]], seed: int, device: str = "cpu") -> list[Any]:
    """Values of the arguments: ties and zeros beside other numbers."""
    rng = np.random.default_rng(seed)

    def values(shape: tuple[int, ...], dtype: str) -> Any:
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        whole = rng.integers(0 if dtype[0] == "u" else -3, 4, shape)
        return whole if "int" in dtype else np.where(rng.random(shape) < 0.3, whole, rng.standard_normal(shape))

    return [meta.array(values(*argument), dtype=argument[1], device=device) for argument in arguments.values()]


_CONTRACTED: Final = {"float64": 1e-15, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}
"""Differences on GPUs, whose compiler rounds a product and a sum once where both are in a kernel."""


def _equal(x: Any, y: Any, tolerance: float) -> bool:
    if x.dtype.kind != "f" or not tolerance:
        return np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
    return np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)


def check(source: str, arguments: dict[str, tuple[tuple[int, ...], str]], device: str = "cpu") -> str:
    """Compile the function and compare its results with eager ones; the problem, "" without one."""
    space: dict[str, Any] = {"meta": meta, "INFINITY": float("inf")}
    exec(compile(source, "<program>", "exec"), space)
    function: Callable[..., Sequence[Any]] = space["function"]
    inputs = arrays(arguments, 0, device)
    expected = function(*inputs)
    try:
        results = meta.vm.compile(meta.trace(function), device=device)(*inputs)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return f"{type(error).__name__}: {str(error)[:300]}"
    for number, (a, b) in enumerate(zip(expected, results, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"result {number} is {b.dtype} {b.shape}, expected {a.dtype} {a.shape}"
        x, y = (np.asarray(v.cast("float64" if "float" in v.dtype else v.dtype).numpy()) for v in (a, b))
        if not _equal(x, y, 0.0 if device == "cpu" else _CONTRACTED.get(a.dtype, 0.0)):
            place = np.unravel_index(np.argmax(x != y), x.shape)
            return f"result {number} at {tuple(map(int, place))} is {y[place]}, expected {x[place]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args = parser.parse_args()
    found = 0
    for index in range(args.count) if args.only is None else (args.only,):
        source, arguments = random_source(args.seed, index)
        if problem := check(source, arguments, args.device):
            found += 1
            print(f"--seed {args.seed} --only {index}: {problem}\n{arguments}\n{source}\n", flush=True)
    print(f"{args.count} programs, {found} findings")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
