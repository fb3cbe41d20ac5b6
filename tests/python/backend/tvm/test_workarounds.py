"""The faults of TVM for which meta/backend/tvm/workarounds has a file each, shown with TVM alone.

A test that fails says that TVM is right: delete the workaround, and the test."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.script import tirx as T

FLOAT, NAN, LARGEST = "float32", float("nan"), 2**31 - 1


def number(value: float, dtype: str = FLOAT) -> Any:
    return tirx.const(value, dtype)


def run(module: Any, *arrays: np.ndarray, dtype: str) -> list[float]:
    """Compile a function of arrays of one shape for the CPU and call it; the result, of `dtype`."""
    inputs = [tvm.runtime.tensor(array) for array in arrays]
    out = tvm.runtime.empty(arrays[0].shape, dtype)
    tvm.compile(module, target="llvm")["main"](*inputs, out)
    return out.numpy().astype("float64").tolist()


def elementwise(compute: Callable[..., Any], *arrays: np.ndarray) -> list[float]:
    """`compute` of one element of each array, for all elements."""
    xs = [te.placeholder(array.shape, str(array.dtype), f"x{i}") for i, array in enumerate(arrays)]
    y = te.compute(arrays[0].shape, lambda *i: compute(*(x(*i) for x in xs)), "y")
    function = te.create_prim_func([*xs, y])
    return run(tvm.IRModule({"main": function}), *arrays, dtype=str(y.dtype))


def schedule(result: Any, *inputs: Any) -> tuple[Any, Any]:
    """A schedule of the computation of `result`, and its block."""
    sch = tvm.s_tir.Schedule(te.create_prim_func([*inputs, result]), enable_check=False)
    return sch, sch.get_sblock(result.op.name)


FLOATS: dict[str, tuple[Callable[[Any, Any], Any], float, float, float]] = {
    "x - x": (lambda x, y: x - x, NAN, 0, NAN),
    "x * 0": (lambda x, y: x * number(0), NAN, 0, NAN),
    "(x + y) - x": (lambda x, y: (x + y) - x, 1e8, 1, 0),
    "x == x": (lambda x, y: tirx.EQ(x, x).astype(FLOAT), NAN, 0, 0),
    "not x < y": (lambda x, y: tirx.Not(tirx.LT(x, y)).astype(FLOAT), NAN, 0, 1),
}
"""Operation -> x, y and its value in floating-point arithmetic."""


@pytest.mark.parametrize("name", FLOATS)
def test_exact_floats_are_simplified_as_real_numbers(name: str) -> None:
    compute, x, y, expected = FLOATS[name]
    (value,) = elementwise(compute, np.array([x], FLOAT), np.array([y], FLOAT))
    assert not np.array_equal(value, expected, equal_nan=True)


def test_exact_integers_are_simplified_as_numbers_without_limits() -> None:
    """The largest integer plus 1 is the lowest one."""
    assert elementwise(lambda x: (x + number(1, "int32") > x).astype("int32"), np.array([LARGEST], "int32")) == [1]


def test_exact_bfloat16_is_not_rounded_between_operations() -> None:
    """1 plus half of the distance to the next bfloat16 is 1, twice."""
    x, y = (np.array([value], ml_dtypes.bfloat16) for value in (1, 2**-8))
    assert elementwise(lambda x, y: (x + y) + y, x, y) != [1]


def test_select_loses_what_keeps_an_index_in_bounds() -> None:
    """Both sides of a selection are computed: without the maximum, row 0 reads index -1."""
    i, analyzer = tirx.Var("i", "int32"), tvm.sym.Analyzer()
    index = tirx.Max(i - 1, 0)
    simplified = analyzer.simplify(tirx.Select(i >= 1, index, number(0, "int32")))
    assert tvm_ffi.structural_equal(simplified.true_value, analyzer.simplify(i - 1))


def vectors_with_tail(result: Any, lanes: int, *inputs: Any) -> Any:
    """A schedule whose last loop is in vectors; LoopPartition separates the vectors that need a condition."""
    sch, block = schedule(result, *inputs)
    outer, inner = sch.split(sch.get_loops(block)[-1], [None, lanes])
    sch.vectorize(inner)
    sch.annotate(outer, "pragma_loop_partition_hint", 1)
    return sch


def test_loop_partition_computes_elements_twice() -> None:
    """In place, an element that is computed twice has 1 added twice. The array has memory after its end, since the
    loops also pass that."""
    size = 33
    x = te.placeholder((size, size), FLOAT, "x")
    y = te.compute(x.shape, lambda i, j: tirx.Select(j <= i, x[i, j] + number(1), x[i, j] - number(1)), "y")
    module = tvm.compile(vectors_with_tail(y, 8, x).mod, target="llvm")
    memory = tvm.runtime.tensor(np.zeros(size * (size + 8), FLOAT))
    array = tvm.runtime.from_dlpack(memory)._create_view((size, size))
    module["main"](array, array)
    assert array.numpy().tolist() != np.where(np.tri(size), 1, -1).tolist()


def test_loop_partition_mixes_widths_of_positions() -> None:
    n = tirx.Var("n", "int64")
    x = te.placeholder((n, number(5, "int64")), FLOAT, "x")
    y = te.compute(x.shape, lambda i, j: x[i, j] + number(1), "y")
    with pytest.raises(Exception, match=r"mismatched types. int32 vs. int64"):
        tvm.compile(vectors_with_tail(y, 4, x).mod, target="llvm")


def test_registers_analyses_substitute_nested_variables() -> None:
    """The generator of LLVM's code binds variables to their values in an analyzer, in time exponential in the nesting:
    each value of 10 nested variables, which reads the one before twice, doubles the number of leaves."""
    analyzer, value = tvm.sym.Analyzer(), tirx.Var("x", FLOAT)
    for i in range(10):
        variable = tirx.Var(f"t{i}", FLOAT)
        analyzer.bind(variable, tirx.exp(value) * value)
        value = variable
    assert str(analyzer.simplify(value)).count("x") >= 2**10


@T.prim_func(s_tir=True)
def rows_backwards(x: T.Buffer((64, 8), "float32"), y: T.Buffer((64, 8), "float32")):
    for i in T.parallel(64):
        row = T.alloc_local((8,), "float32")
        for j in range(8):
            row[j] = x[i, j] + T.float32(1)
        for j in range(8):
            y[i, j] = row[7 - j]


def test_small_buffers_of_parallel_loops_are_on_the_heap() -> None:
    code = tvm.tirx.build(tvm.IRModule({"main": rows_backwards}), target="llvm").inspect_source("ll")
    assert "TVMBackendAllocWorkspace" in code


def test_bfloat16_nans_become_numbers() -> None:
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], "uint32").view(FLOAT)
    assert not np.isnan(elementwise(lambda x: x.astype("bfloat16"), nans)).any()


def test_bfloat16_variables_are_refused() -> None:
    t, x = tirx.Var("t", "bfloat16"), np.ones(4, ml_dtypes.bfloat16)
    with pytest.raises(Exception, match=r"value\.ty"):
        elementwise(lambda x: tirx.Let(t, x + x, t * t), x)


def in_vectors(result: Any, x: Any) -> None:
    sch, block = schedule(result, x)
    sch.vectorize(sch.split(sch.get_loops(block)[-1], [None, 8])[1])
    tvm.compile(sch.mod, target="llvm")


def test_bfloat16_vectors_of_variables_are_refused() -> None:
    t, x = tirx.Var("t", FLOAT), te.placeholder((16,), "bfloat16", "x")
    y = te.compute((16,), lambda i: tirx.Let(t, x[i].astype(FLOAT), t * t).astype("bfloat16"), "y")
    with pytest.raises(Exception, match="Let cannot bind the same var to two different values"):
        in_vectors(y, x)


def test_bfloat16_vectors_of_copies_are_refused() -> None:
    x = te.placeholder((2,), "bfloat16", "x")
    y = te.compute((2, 8), lambda i, j: x[i], "y")
    with pytest.raises(TypeError, match="dtype mismatch on BufferStore"):
        in_vectors(y, x)


@pytest.fixture(name="cuda_code")
def _cuda_code() -> Iterator[Callable[[Any, Any, int], tuple[Any, str]]]:
    """The host's module and the CUDA code of a computation in blocks of 32 threads, generated without a GPU."""
    limits = {"max_threads_per_block": 1024, "thread_warp_size": 32, "max_shared_memory_per_block": 49152}
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90", **limits}, host={"kind": "llvm"})
    name = "tvm_callback_cuda_compile"
    before = tvm.get_global_func(name, allow_missing=True)
    tvm.register_global_func(name, lambda code: bytes(16), override=True)

    def generate(y: Any, x: Any, lanes: int = 1) -> tuple[Any, str]:
        sch, block = schedule(y, x)
        loop = sch.fuse(*sch.get_loops(block))
        blocks, threads, vector = sch.split(loop, [None, 32, lanes])
        sch.bind(blocks, "blockIdx.x")
        sch.bind(threads, "threadIdx.x")
        sch.vectorize(vector)
        module = tvm.tirx.build(sch.mod, target=target)
        code = "".join(each.inspect_source() for each in module.imports)
        return module, code[code.rindex('extern "C"') :]

    yield generate
    if before is not None:
        tvm.register_global_func(name, before, override=True)


def test_floors_of_offsets_are_lost_on_gpus(cuda_code: Any) -> None:
    """A matrix rolled along both axes is read as if it was rolled along the first one."""
    x = te.placeholder((4, 6), FLOAT, "x")
    _, code = cuda_code(te.compute(x.shape, lambda i, j: x[(i + 1) % 4, (j + 4) % 6], "y"), x)
    assert "x_ptr[((((int)threadIdx.x) + 6) % 24)]" in code


def test_bool_vectors_are_stored_as_wider_numbers(cuda_code: Any) -> None:
    x = te.placeholder((256,), FLOAT, "x")
    _, code = cuda_code(te.compute(x.shape, lambda i: x[i] > number(0), "y"), x, 4)
    assert re.search(r"\*\(ushort4\*\)\(y_ptr \+ ", code)


def test_empty_grids_are_launched(cuda_code: Any) -> None:
    """The host's function calls the kernel under no condition."""
    before_launch: list[str] = []

    @tvm.ir.instrument.pass_instrument
    class Launches:
        def run_before_pass(self, module: Any, info: Any) -> None:
            if info.name == "tirx.LowerTVMBuiltin":
                (function,) = module.functions.values()
                scope = function.script().partition('"compute_scope"')[2]
                before_launch.append(scope[: scope.index("T.call_ffi_kernel(")])

    n = tirx.Var("n", "int32")
    x = te.placeholder((n,), FLOAT, "x")
    with tvm.transform.PassContext(instruments=[Launches()]):
        cuda_code(te.compute(x.shape, lambda i: x[i] + number(1), "y"), x)
    (text,) = before_launch
    assert "if " not in text


def test_parameter_sizes_of_linear_axes_are_not_solved() -> None:
    h = tirx.Var("h", "int64")
    x = tvm.relax.Var("x", tvm.relax.TensorType([2 * h], FLOAT))
    builder = tvm.relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(tvm.relax.op.reshape(x, tvm.relax.ShapeExpr([h, 2]))))
    with pytest.raises(tvm.error.InternalError, match="is not computed"):
        tvm.compile(builder.get(), target="llvm")


@pytest.fixture(scope="module")
def process() -> subprocess.CompletedProcess[str]:
    """A process that splits two loops of symbolic size, printing how many new pages each touches, and writes JSON."""
    code = """
import resource, tvm
from tvm import te
n = tvm.tirx.Var("n", "int64")
x = te.placeholder((n,), "float32", "x")
y = te.compute((n,), lambda i: x[i] + tvm.tirx.const(1, "float32"), "y")
for _ in range(2):
    sch = tvm.s_tir.Schedule(te.create_prim_func([x, y]), enable_check=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, 8])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
tvm.ir.save_json(te.create_prim_func([x, y]))
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux decides which memory it keeps")
def test_heap_of_analyses_is_given_back(process: subprocess.CompletedProcess[str]) -> None:
    assert min(map(int, process.stdout.split())) > 2000, process


def test_json_of_expressions_ends_the_process(process: subprocess.CompletedProcess[str]) -> None:
    """Why meta.backend.tvm.parallel.serialization writes functions itself."""
    assert process.stdout.count("\n") == 2
    assert process.returncode != 0
