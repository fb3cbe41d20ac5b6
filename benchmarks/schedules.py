"""`python -m benchmarks.schedules [--device cuda] [--only TEXT]`: each size condition of the schedules, on and off.

A line gives the microseconds of a kernel with the condition and without, their ratio (above 1, the condition gains),
and torch's time. Kernels have static sizes, as in programs, unless the name of the condition has "symbolic". CPU times
are minima, on one thread if TVM_NUM_THREADS is 1; GPU times are medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.cuda import gpu_times
from meta._generated import limits
from meta.backend.memory import allocation
from meta.backend.tvm import library, shape_generic, spec
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import unscheduled
from meta.backend.tvm.schedule import patterns
from meta.backend.tvm.schedule.cpu import elementwise, max_pool, tiles
from meta.backend.tvm.schedule.gpu import elementwise as gpu_elementwise
from meta.backend.tvm.schedule.gpu import rows as gpu_rows
from meta.backend.tvm.schedule.gpu import separate
from meta.device import device as device_named
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, flat_types, tensor_type
from meta.op.dialect.tvm import linalg, pool
from meta.op.dispatch import implementations
from meta.op.registry import as_type
from meta.schema._dsl import TensorLike
from meta.testing.arrays import to_torch
from meta.testing.generic import make_call
from meta.testing.samples import Sample, T

Work = Callable[[], Any]
NEVER = 1 << 40
"""A threshold that no size reaches."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A size condition of a schedule and calls that reach it.

    Attributes:
        name: what is printed.
        module, attribute: the constant or function that holds the condition; no attribute if results
            would be wrong without it.
        disabled: the value of `attribute` without the condition.
        calls: operator calls; `ref` is torch's counterpart.
        symbolic: whether the kernels are those of eager calls, with symbolic sizes.
    """

    name: str
    module: Any
    attribute: str
    disabled: Any
    calls: tuple[Sample, ...]
    symbolic: bool = False

    @contextmanager
    def disable(self) -> Iterator[None]:
        """A context in which schedules ignore the condition."""
        enabled = getattr(self.module, self.attribute)
        setattr(self.module, self.attribute, self.disabled)
        try:
            yield
        finally:
            setattr(self.module, self.attribute, enabled)


def _matmul(m: int, k: int, n: int) -> Sample:
    return Sample("matmul", T(m, k), T(k, n), ref=torch.matmul)


def _batch_matmul(m: int, k: int, n: int) -> Sample:
    """Two products, which are in no register tiles of `meta.backend.tvm.te.product`."""
    return Sample("matmul", T(2, m, k), T(2, k, n), ref=torch.matmul)


def _dense(*rows: int, terms: int, columns: int) -> Sample:
    return Sample("dense", T(*rows, terms), T(columns, terms), None, ref=lambda x, w, bias: x @ w.T)


def _sum(*shape: int, axis: int | None = None, dtype: str = "float32") -> Sample:
    def reference(x: Any, axis: int | None = None) -> Any:
        return x.sum() if axis is None else x.sum(axis)

    return Sample("sum", T(*shape, dtype=dtype), axis=axis, ref=reference)


def _max(*shape: int, axis: int) -> Sample:
    return Sample("max", T(*shape), axis=axis, ref=lambda x, axis: x.amax(axis))


def _unary(op: str, *shape: int, dtype: str = "float32") -> Sample:
    return Sample(op, T(*shape, dtype=dtype), ref=getattr(torch, op))


def _transpose(*shape: int, dtype: str = "float32") -> Sample:
    return Sample("transpose", T(*shape, dtype=dtype), ref=lambda x: x.T.contiguous())


def _max_pool(*shape: int, kernel: int = 2, stride: int = 2, padding: int = 0, indices: bool = False) -> Sample:
    def reference(x: Any, kernel: int, stride: int, padding: int) -> Any:
        return torch.nn.functional.max_pool2d(x, kernel, stride, padding, return_indices=indices)

    op = "max_pool2d_with_indices" if indices else "max_pool2d"
    return Sample(op, T(*shape), kernel, stride, padding, ref=reference)


def _avg_pool(*shape: int, kernel: int, stride: int = 2, padding: int = 0) -> Sample:
    return Sample("avg_pool2d", T(*shape), kernel, stride, padding, ref=torch.nn.functional.avg_pool2d)


def _convolution(*shape: int, to: int = 11, kernel: int = 3) -> Sample:
    """A convolution to as many elements per channel. No register tile of a CPU's contraction divides 11 channels."""
    batch, channels, *spatial = shape
    image = T(batch, channels, *(d + kernel - 1 for d in spatial))
    rank = len(spatial)
    window = (kernel,) * rank
    return Sample(f"conv{rank}d", image, T(to, channels, *window), ref=getattr(torch, f"conv{rank}d"))


def _softmax(*shape: int) -> Sample:
    return Sample("softmax", T(*shape), axis=-1, ref=lambda x, axis: x.softmax(axis))


def _where(*shape: int) -> Sample:
    return Sample("where", T(*shape, dtype="bool"), T(*shape), T(*shape), ref=torch.where)


def _cast(*shape: int) -> Sample:
    def reference(x: Any, dtype: str) -> Any:
        return x.to(getattr(torch, dtype))

    return Sample("cast", T(*shape), dtype="float16", ref=reference)


def _add(*shape: int, dtype: str) -> Sample:
    return Sample("add", T(*shape, dtype=dtype), T(*shape, dtype=dtype), ref=torch.add)


def _cross_entropy(count: int, classes: int) -> Sample:
    def reference(x: Any, target: Any, reduction: str) -> Any:
        return torch.nn.functional.cross_entropy(x, target, reduction=reduction)

    labels = T(count, dtype="int64", low=0, high=classes)
    return Sample("cross_entropy", T(count, classes), labels, reduction="mean", ref=reference)


def _batch_norm(*shape: int) -> Sample:
    def reference(x: Any, mean: Any, variance: Any, scale: Any, bias: Any) -> Any:
        return torch.nn.functional.batch_norm(x, mean, variance, scale, bias, training=True)

    c = shape[1]
    return Sample("batch_norm_train", T(*shape), T(c), T(c, low=0.5, high=1.5), T(c), T(c), ref=reference)


def _bias_add(*shape: int, dtype: str = "float32") -> Sample:
    return Sample(
        "bias_add", T(*shape, dtype=dtype), T(shape[-1], dtype=dtype), axis=-1, ref=lambda x, bias, axis: x + bias
    )


def _without(rows_: int) -> tuple[int, ...]:
    return tuple(r for r in limits.CONTRACTION_TILE_ROWS if r != rows_)


def cpu_conditions() -> Iterator[Condition]:
    """The size conditions of the CPU schedules."""
    yield Condition("contraction: products at least", limits, "LEAST_PACKED_PRODUCTS", 0,
                    (_matmul(8, 16, 16), _matmul(2, 64, 64), _matmul(16, 16, 32)))  # fmt: skip
    for tile_rows, sizes in {
        8: (8, 64),
        7: (7, 49),
        6: (6, 18),
        5: (5, 25),
        4: (4, 44),
        3: (3, 27),
        2: (2, 26),
    }.items():
        others = tuple(r for r in limits.CONTRACTION_TILE_ROWS if r != tile_rows)
        yield Condition(f"contraction: tiles of {tile_rows} rows", limits, "CONTRACTION_TILE_ROWS", others,
                        tuple(_batch_matmul(size, 256, 256) for size in sizes))  # fmt: skip
    yield Condition("contraction: rows of a cache block", limits, "CACHE_BLOCK_BYTES", NEVER,
                    (_batch_matmul(512, 512, 512), _batch_matmul(2048, 512, 1024)))  # fmt: skip
    yield from _product_conditions()
    yield Condition("rows: sums in lanes from 2 vectors", limits, "LEAST_ROW_VECTORS", 0,
                    (_sum(8192, 5, axis=1), _sum(8192, 24, axis=1), _softmax(8192, 17), _softmax(8192, 30),
                     _max(8192, 31, axis=1)))  # fmt: skip
    yield Condition("rows: long sums in 4 registers", limits, "LONG_ROW_VECTORS", NEVER,
                    (_sum(16, 1024, axis=1), _sum(16, 4096, axis=1), _softmax(256, 1024)))  # fmt: skip
    yield Condition("rows: unrolled windows", limits, "UNROLLED_STEPS", 0,
                    (_batch_matmul(11, 3, 1024), _avg_pool(4, 16, 128, 128, kernel=2),
                     _avg_pool(4, 16, 64, 64, kernel=3, stride=1),
                     _avg_pool(1, 64, 112, 112, kernel=3, padding=1), _convolution(1, 1, 100, 100)))  # fmt: skip
    yield Condition("rows: unrolled windows at most", limits, "UNROLLED_STEPS", NEVER,
                    (_avg_pool(1, 16, 56, 56, kernel=7, stride=1, padding=3), _sum(64, 1024, axis=0)))  # fmt: skip
    yield Condition("rows: tiles of overlapping windows", limits, "TILED_STEPS", 0,
                    (_convolution(2, 4, 32, 32), _convolution(1, 3, 28, 28, to=7), _convolution(2, 4, 64, 64),
                     _convolution(2, 1, 64, 64, kernel=5), _convolution(1, 2, 60, 60),
                     _avg_pool(1, 16, 56, 56, kernel=7, stride=1, padding=3)))  # fmt: skip
    yield Condition("rows: tiles of overlapping windows at most", limits, "TILED_STEPS", NEVER,
                    (_convolution(1, 7, 28, 28), _convolution(1, 10, 28, 28)))  # fmt: skip
    yield Condition("rows: no tiles of 3 registers", limits, "WINDOW_TILE_REGISTERS", (4, 3, 2, 1),
                    (_convolution(1, 4, 48, 48), _convolution(1, 4, 96, 96)))  # fmt: skip
    yield Condition("rows: columns of a thread at most", limits, "THREAD_COLUMNS", 64,
                    (_sum(1024, 1024, axis=0), _max(1024, 1008, axis=0), _sum(4096, 512, axis=0)))  # fmt: skip
    yield Condition("windows: maxima by planes", pool, "_loops_over_planes", lambda kind: False,
                    (_max_pool(1, 64, 56, 56, kernel=3, stride=1, padding=1),
                     _max_pool(1, 64, 30, 30, kernel=3, stride=1, padding=1),
                     _max_pool(1, 64, 112, 112, kernel=3, stride=1, padding=1),
                     _max_pool(1, 64, 112, 112, kernel=3, padding=1), _max_pool(1, 64, 112, 112),
                     _max_pool(1, 16, 56, 56, kernel=7, stride=1, padding=3),
                     _max_pool(1, 512, 7, 7, kernel=7)))  # fmt: skip
    yield Condition("windows: large ones along rows, then columns", max_pool, "_in_two_steps", lambda axes: False,
                    (_max_pool(1, 64, 28, 28, kernel=5, stride=1, padding=2), _max_pool(1, 64, 56, 56, kernel=56),
                     _max_pool(1, 64, 56, 56, kernel=56, indices=True)))  # fmt: skip
    yield Condition("elementwise: tail of long loops", limits, "LEAST_TAIL_VECTORS", NEVER,
                    (_unary("exp", 100003), _unary("exp", 10007, dtype="bfloat16"),
                     _unary("log", 10007, dtype="float64"), _softmax(256, 1001)))  # fmt: skip
    yield Condition("elementwise: no tail of short loops", limits, "LEAST_TAIL_VECTORS", 0,
                    (_unary("tanh", 33), _softmax(4096, 10), _softmax(4096, 61)))  # fmt: skip
    yield Condition("elementwise: short rows in vectors", limits, "UNROLLED_BY_LLVM", 0,
                    (_bias_add(4096, 28), _bias_add(4096, 48)))  # fmt: skip
    yield Condition("elementwise: tiles of a transpose", elementwise, "find_transposed_axis", lambda block: None,
                    (_transpose(64, 64), _transpose(1024, 1024)))  # fmt: skip
    yield Condition("indices of 32 bits", patterns, "_narrow_indices", lambda func: func,
                    (_unary("exp", 100003), _softmax(256, 1001), _bias_add(4096, 30)))  # fmt: skip
    yield Condition("indices of 64 bits for int64", patterns, "", None,
                    (_add(100003, dtype="int64"), _sum(1024, 1001, axis=1, dtype="int64")))  # fmt: skip
    yield Condition("elementwise: no tail of 64-bit loops", elementwise, "", None,
                    (_transpose(1001, 1001, dtype="int64"), _bias_add(4096, 30, dtype="int64")))  # fmt: skip


def _product_conditions() -> Iterator[Condition]:
    """Those of products with a matrix in register tiles."""
    yield Condition("products: in tiles", linalg, "_in_tiles", lambda *_: False,
                    (_matmul(512, 256, 768), _matmul(512, 1024, 256), _matmul(512, 256, 1000), _matmul(64, 784, 256),
                     _matmul(64, 256, 10), _matmul(8, 64, 32), _dense(8, 64, terms=256, columns=1024)))  # fmt: skip
    yield Condition("products: at most 8 rows of a tile", limits, "PRODUCT_TILE_ROWS", 14,
                    (_matmul(784, 1024, 256), _matmul(42, 2048, 256)))  # fmt: skip
    yield Condition("products: zeros after the rows cost time", limits, "PRODUCT_COPY_COST", 1,
                    (_matmul(44, 256, 256), _matmul(44, 256, 64), _matmul(52, 1024, 256)))  # fmt: skip
    yield Condition("products: rows of a cache block", limits, "PRODUCT_BLOCK_ROWS", 8,
                    (_matmul(512, 4096, 1024), _matmul(2048, 512, 1024)))  # fmt: skip
    yield Condition("products: matrices exchanged in registers", tiles, "_exchange_axes", lambda *_: False,
                    (_dense(512, terms=1024, columns=256), _dense(512, terms=256, columns=1000),
                     _dense(8, 64, terms=256, columns=1024)))  # fmt: skip
    yield Condition("products: stores of lanes that are all in the result", limits, "LEAST_STORED_LANES", NEVER,
                    (_matmul(512, 256, 1000), _matmul(256, 64, 784)))  # fmt: skip


def column_conditions() -> Iterator[Condition]:
    """Those of reductions over outer axes: sums, then others."""
    sums = (_sum(8192, 1024, axis=0), _sum(1 << 20, 32, axis=0))
    yield Condition("column sums: by two kernels", limits, "COLUMN_SUM_LEAST_ROWS", NEVER, sums)
    yield Condition("column sums: for 528 blocks of threads", limits, "COLUMN_SUM_BLOCKS", 132, sums)
    yield Condition("column sums: loads of 16 bytes", limits, "COLUMN_SUM_LOAD_BYTES", 4, sums)
    yield Condition("column sums: at most 512 parts, symbolic", limits, "SYMBOLIC_PARTS", NEVER, sums,
                    symbolic=True)  # fmt: skip
    yield Condition("columns: 32 threads add more than 128 parts", limits, "COLUMN_SERIAL_PARTS", NEVER,
                    (_max(8192, 1024, axis=0), _max(65536, 256, axis=0)))  # fmt: skip
    yield Condition("columns: at most 1024 parts", limits, "COLUMN_PARTS", NEVER,
                    (_max(65536, 32, axis=0), _max(1 << 20, 32, axis=0)))  # fmt: skip
    yield Condition("columns: at most 512 parts, symbolic", limits, "SYMBOLIC_PARTS", NEVER,
                    (_max(65536, 32, axis=0), _max(16384, 1024, axis=0)), symbolic=True)  # fmt: skip
    yield Condition("columns: class of vast sizes, symbolic", spec, "LEAST_SIZES", {"long": 1 << 8},
                    (_max(65536, 32, axis=0), _max(16384, 1024, axis=0)), symbolic=True)  # fmt: skip


def gpu_conditions() -> Iterator[Condition]:
    """The size conditions of the CUDA schedules."""
    for elements, side in {8: 8192, 4: 1024, 2: 768}.items():
        calls = tuple(_add(side, side, dtype=d) for d in ("int64", "float64"))
        yield Condition(f"elementwise: {elements} elements per thread", gpu_elementwise, "choose_thread_elements",
                        lambda block: 1, calls)  # fmt: skip
    yield Condition("elementwise: 1 element per thread", gpu_elementwise, "choose_thread_elements", lambda block: 8,
                    (_add(256, 256, dtype="int64"), _add(256, 256, dtype="float64")))  # fmt: skip
    yield Condition("elementwise: 4 adjacent elements per thread", gpu_elementwise, "_choose_vector_lanes",
                    lambda block: 1,
                    (_cast(8192, 8192), _cast(768, 768), _add(1024, 1024, dtype="float16")))  # fmt: skip
    yield Condition("elementwise: 4 elements per thread, symbolic", gpu_elementwise, "choose_thread_elements",
                    lambda block: 1, (_cast(256, 256), _cast(4096, 4096)), symbolic=True)  # fmt: skip
    both_sides = "_load_both_sides"
    yield Condition("elementwise: both sides loaded", gpu_elementwise, both_sides, lambda func: func,
                    (_where(256, 256), _where(8192, 8192)))  # fmt: skip
    yield Condition("elementwise: both sides loaded, symbolic", gpu_elementwise, both_sides, lambda func: func,
                    (_where(256, 256), _where(4096, 4096)), symbolic=True)  # fmt: skip
    yield from column_conditions()
    yield Condition("rows: sum to one element in two kernels", gpu_rows, "_parts_divide", lambda block: False,
                    (_sum(1 << 17), _sum(8192, 8192)))  # fmt: skip
    for threads, calls in {32: (_cross_entropy(8192, 10), _cross_entropy(8192, 100)), 256: (_batch_norm(8, 16, 8, 8),),
                           1024: (_batch_norm(64, 64, 56, 56), _cross_entropy(8192, 1000))}.items():  # fmt: skip
        other = 32 if threads == 256 else 256
        yield Condition(f"separate: {threads} threads per sum", separate, "_choose_sum_threads",
                        lambda block, other=other: other, calls)  # fmt: skip
    yield Condition("windows: a thread per result up to", limits, "THREAD_WINDOW", 0,
                    (_max_pool(64, 64, 112, 112, kernel=3, padding=1), _max_pool(64, 64, 112, 112),
                     _max_pool(8, 64, 14, 14), _max_pool(64, 512, 7, 7, kernel=7)))  # fmt: skip
    yield Condition("windows: shared by threads from", limits, "SHARED_WINDOW", NEVER,
                    (_max_pool(64, 256, 14, 14, kernel=14, indices=True),
                     _max_pool(64, 64, 56, 56, kernel=56, indices=True)))  # fmt: skip
    yield Condition("windows: shared by threads below", limits, "SHARED_WINDOW", 0,
                    (_max_pool(64, 512, 7, 7, kernel=7, indices=True),
                     _max_pool(64, 64, 48, 48, kernel=8, stride=8, indices=True)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Operand(TensorLike):
    """A tensor without values, as an argument of a declaration."""

    type: TensorType


def scheduled_function(sample: Sample, device: str, symbolic: bool) -> tuple[Any, tuple[TensorType, ...]]:
    """The scheduled function of a sample's TVM kernel, and the types of its results."""
    op, on = sample.operator, device_named(device)
    args, kwargs = sample.map(lambda t, _: _Operand(tensor_type(t.shape, t.dtype, on)))
    types = tuple(map(as_type, op.schema.bind(op.name, args, kwargs)))
    info = CallInfo(op, types, op.declare(*types), on)
    payload = next(i.payload for i in implementations(op) if i.dialect.name == "tvm")
    described = shape_generic.spec(payload, info, symbolic=symbolic)
    pattern = described.pattern if symbolic else ""  # programs fuse operators: their functions have no declared one
    function = patterns.schedule(unscheduled(described).function, pattern, targets.target(device))
    return function, tuple(flat_types((info.out,)))


def compile_call(function: Any, device: str, tensors: list[Any]) -> Work:
    run = library.compile_functions({"kernel": function}, targets.target(device))["kernel"]
    return lambda: run(*tensors)


def torch_work(sample: Sample, device: str) -> Work:
    """A function that calls torch's counterpart of the sample."""
    call = make_call(sample).map(lambda a: to_torch(a).to(device))
    return lambda: call.apply(sample.ref)  # pyright: ignore[reportArgumentType]


def cpu_times(*works: Work, seconds: float, rounds: int = 25) -> list[float]:
    """Least microseconds per call of each function over rounds in which the functions take turns."""
    counts: list[int] = []
    for work in works:
        work()
        start = time.perf_counter()
        work()
        once = max(time.perf_counter() - start, 1e-7)
        counts.append(max(1, int(seconds / rounds / len(works) / once)))
    least = [float("inf")] * len(works)
    for _ in range(rounds):
        for i, (work, count) in enumerate(zip(works, counts, strict=True)):
            start = time.perf_counter()
            for _ in range(count):
                work()
            least[i] = min(least[i], (time.perf_counter() - start) / count * 1e6)
    return least


def measure(condition: Condition, sample: Sample, device: str, seconds: float) -> tuple[float, float | None, float]:
    """Microseconds with the condition, without it (None if it cannot be disabled) and of torch."""
    function, outs = scheduled_function(sample, device, condition.symbolic)
    inputs = [a._data for a in make_call(sample).to_meta(device).arrays()]
    tensors = [*inputs, *(allocation.empty(t.shape, t.dtype, t.device) for t in outs)]
    works = [compile_call(function, device, tensors), torch_work(sample, device)]
    if condition.attribute:
        with condition.disable():
            disabled, _ = scheduled_function(sample, device, condition.symbolic)
        works.append(compile_call(disabled, device, tensors))
    enabled, reference, *others = gpu_times(*works) if device == "cuda" else cpu_times(*works, seconds=seconds)
    return enabled, others[0] if others else None, reference


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per condition and call."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default="", help="only conditions whose names contain this text")
    parser.add_argument("--seconds", type=float, default=0.5, help="time per call on a CPU")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(f"{'condition':45} {'call':35} {'on us':>9} {'off us':>9} {'off/on':>7} {'torch us':>9} {'on/torch':>8}")
    for condition in cpu_conditions() if options.device == "cpu" else gpu_conditions():
        if options.only not in condition.name:
            continue
        for sample in condition.calls:
            on, off, reference = measure(condition, sample, options.device, options.seconds)
            without = f"{'-':>9} {'-':>7}" if off is None else f"{off:9.2f} {off / on:7.2f}"
            print(f"{condition.name:45} {sample!r:35} {on:9.2f} {without} {reference:9.2f} {on / reference:8.2f}",
                  flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
