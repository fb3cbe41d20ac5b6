"""Programs that are written and read back: ONNX, Relax, and program files.

    python -m tests.python.frontend.round_trips [--onnx | --relax | --file] [PATTERN]

goes through all samples of operators whose text contains the pattern, in every dtype, with static sizes and with an
open axis, and prints what differs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import meta
from meta.dim import sym
from meta.dtype import HALVES
from meta.errors import MetaError, NotSupportedError
from meta.frontend.onnx import from_onnx, to_onnx
from meta.frontend.relax import from_relax, to_relax
from meta.interpreter.run import run
from meta.testing.arrays import to_numpy
from meta.testing.call import flat_results
from meta.testing.generic import make_call, tolerance_of
from meta.testing.programs import trace_call
from meta.testing.samples import Sample
from meta.testing.tolerance import compare
from tests.python.op.samples import first_rows, samples

OTHERS = ("int8", "int32", "int64", "uint8", "bool")


def _by_onnx(program: Any, arrays: list[Any], dynamic: Any) -> Callable[..., Any]:
    return from_onnx(to_onnx(program, arrays, dynamic=dynamic))


def _by_relax(program: Any, arrays: list[Any], dynamic: Any) -> Callable[..., Any]:
    types = [_opened(x.type, (dynamic or {}).get(f"arrays.{i}")) for i, x in enumerate(arrays)]
    module = from_relax(to_relax(program.record(types).module))
    return lambda *each: run(module, *each)


def _opened(kind: Any, axes: dict[int, str] | None) -> Any:
    return (
        kind
        if axes is None
        else kind.with_shape(tuple(sym(axes[i]) if i in axes else d for i, d in enumerate(kind.shape)))
    )


def _by_file(program: Any, arrays: list[Any], dynamic: Any) -> Callable[..., Any]:
    executor = meta.vm.compile(program, dynamic=dynamic)
    executor(arrays)
    with tempfile.TemporaryDirectory() as folder:
        executor.save(Path(folder) / "program")
        loaded = meta.vm.load(Path(folder) / "program")
    return lambda *each: loaded(list(each))


WAYS = {"onnx": _by_onnx, "relax": _by_relax, "file": _by_file}


def open_axis(arrays: list[Any]) -> dict[str, dict[int, str]] | None:
    """`dynamic` that leaves the first axis open of the first tensor, and of those with equally long ones."""
    sizes = [x.shape[0] if x.ndim else 0 for x in arrays]
    first = next((size for size in sizes if size > 1), None)
    return None if first is None else {f"arrays.{i}": {0: "n"} for i, size in enumerate(sizes) if size == first}


def difference(sample: Sample, dtype: str, way: str, *, opened: bool) -> str:
    """What differs after a program was written and read back; "" for nothing, "refused: ..." if it is not written."""
    host = make_call(sample, dtype)
    program, arrays = trace_call(host.to_meta()), host.to_meta().arrays()
    expected = flat_results(host.to_meta().run())
    if not isinstance(expected[0], meta.NDArray):
        return "refused: a number"
    dynamic = open_axis(arrays) if opened else None
    if opened:
        if dynamic is None:
            return "refused: no axis"
        try:
            program.record([_opened(x.type, dynamic.get(f"arrays.{i}")) for i, x in enumerate(arrays)])
        except MetaError as error:
            return f"refused: {error.summary}"
    try:
        again = WAYS[way](program, arrays, dynamic)
        results = flat_results(again(*arrays))
        for ours, theirs in zip(results, expected, strict=True):
            assert ours.type == theirs.type, f"{ours.type} for {theirs.type}"
            compare(way, to_numpy(ours), to_numpy(theirs), tolerance=_tolerance(sample, theirs.dtype))
    except Exception as error:  # noqa: BLE001
        is_refusal = isinstance(error, NotSupportedError) and error.subject in ("to_onnx", "to_relax")
        return f"{'refused: ' if is_refusal else ''}{type(error).__name__} {error}"
    return ""


def _tolerance(sample: Sample, dtype: str) -> tuple[float, float]:
    """The tolerance of the sample; halves are rounded several times by nodes of a model, and once by kernels."""
    rtol, atol = tolerance_of(sample, dtype)
    return (8 * rtol, rtol) if dtype in HALVES else (rtol, atol)


def cases(pattern: str = "") -> Iterator[tuple[Sample, str]]:
    for sample in samples():
        if pattern in repr(sample) and sample.check is None:
            for dtype in sample.run_dtypes(OTHERS) if sample in first_rows() else sample.run_dtypes()[:1]:
                yield sample, dtype


def main(arguments: list[str]) -> int:
    ways = [name for name in WAYS if f"--{name}" in arguments] or list(WAYS)
    pattern = next((argument for argument in arguments if not argument.startswith("--")), "")
    wrong = count = 0
    for sample, dtype in cases(pattern):
        for way, opened in product(ways, (False, True)):
            problem = difference(sample, dtype, way, opened=opened)
            count += not problem
            if problem and not problem.startswith("refused"):
                wrong += 1
                sizes, text = "open" if opened else "static", problem[:300].replace("\n", " ")
                print(way, sizes, repr(sample), dtype, "|", text, flush=True)  # noqa: T201
    print(f"{count} agree, {wrong} differ")  # noqa: T201
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
