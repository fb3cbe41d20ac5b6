"""CUDA source of every operator, generated without a GPU: no loop is left to the host, and no threads race."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library, shape_generic
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import Compiled, unscheduled
from meta.backend.tvm.schedule import blocks, patterns
from meta.backend.tvm.schedule.gpu import checks
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.backend.tvm.te.philox import MULTIPLIERS, ROUNDS
from meta.device import device
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, Value, tensor_type
from meta.op.dispatch import implementations
from meta.op.registry import as_type, get
from meta.testing.generic import make_call
from meta.testing.layouts import empty_variants
from meta.testing.samples import Sample
from tests.python.op.samples import first_rows, samples

CUDA = device("cuda")
COMPILER = "tvm_callback_cuda_compile"
DIVISION_BY_SIZE = re.compile(r" [su](div|rem) i\d+ [^,]+, %")
"""A division by a value that is not constant, in LLVM code of the host."""
LIMITS = {"max_threads_per_block": 1024, "thread_warp_size": 32, "max_shared_memory_per_block": 49152}


@pytest.fixture(name="target")
def _gpu_target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A GPU target; NVRTC is replaced, so that code is generated and not compiled."""
    tvm.load()
    gpu = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=targets.target("cpu"))
    monkeypatch.setattr(targets, "target", lambda kind: gpu)
    before = tvm.get_global_func(COMPILER, allow_missing=True)
    tvm.register_global_func(COMPILER, lambda code: bytes(16), override=True)
    yield gpu
    if before is not None:
        tvm.register_global_func(COMPILER, before, override=True)


def to_cuda(argument: Any) -> Any:
    if isinstance(argument, TensorType):
        return tensor_type(argument.shape, argument.dtype, CUDA)
    return tuple(map(to_cuda, argument)) if isinstance(argument, tuple) else argument


def loop_widths(func: Any) -> set[str]:
    """The dtypes of a function's loop extents; none for hand-written loops, which are not split."""
    widths: set[str] = set()
    if str(func.body.block.name_hint) == "root":
        tvm.structural_walk(func, (tvm.For, lambda loop: widths.add(str(loop.extent.ty.dtype))))
    return widths


def schedule_sample(sample: Sample, monkeypatch: pytest.MonkeyPatch, target: Any) -> list[Any]:
    """The scheduled functions of a sample's TVM kernels on CUDA, for eager calls and for programs; none if TVM does not
    implement the call."""
    call = make_call(sample, sample.run_dtypes(())[0])
    types = tuple(to_cuda(as_type(a)) for a in call.to_meta().bound_arguments())
    if "device" in call.op.schema.names:
        types = tuple(CUDA if a == device("cpu") else a for a in types)
    out = call.op.declare(*types)
    info = CallInfo(call.op, types, out, CUDA)
    candidates = [i for i in implementations(call.op) if i.dialect.name == "tvm" and not isinstance(out, Value)]
    if call.op.view or not candidates or candidates[0].refusal(info):
        return []
    functions: list[Any] = []

    def build(spec: KernelSpec) -> Compiled:
        func = unscheduled(spec).function
        if spec.index == "int32":  # TVM miscompiled reductions with loops of both widths
            assert loop_widths(func) <= {"int32"}
        functions.append(patterns.schedule(func, spec.pattern, target))
        return Compiled(lambda *_: None)

    monkeypatch.setattr(shape_generic, "build", build)
    monkeypatch.setattr(shape_generic, "_constant", lambda value, t: None)
    shape_generic.kernel(candidates[0].payload, info)
    if functions:  # programs have static sizes, and their fused functions have no declared pattern
        static = shape_generic.spec(candidates[0].payload, info, symbolic=False)
        functions.append(patterns.schedule(unscheduled(static).function, "", target))
    return functions


@pytest.mark.parametrize("sample", [row for row in samples() if row in first_rows()], ids=repr)
def test_code_is_generated(sample: Sample, monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    for function in schedule_sample(sample, monkeypatch, target):
        assert checks.runs_on_device(function)
        assert checks.is_race_free(function)
        library.compile_functions({"kernel": function}, target)  # as kernels of operators are


def empty_rows() -> list[Sample]:
    """One sample of each operator without elements; for kernels that fuse several blocks, each dimension in turn."""
    rows = [row for row in samples() if row in first_rows()]
    return [e for row in rows for e in empty_variants(row)[: None if "with_indices" in row.op else 1]]


@pytest.mark.parametrize("sample", empty_rows(), ids=repr)
def test_code_for_empty_operands(sample: Sample, monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    for function in schedule_sample(sample, monkeypatch, target):
        module = library.compile_functions({"kernel": function}, target)
        # A size of 0 would end the process.
        assert not DIVISION_BY_SIZE.search(module.inspect_source("ll"))


def test_a_host_loop_is_detected() -> None:
    """TVM would start a kernel in each iteration, and none if there are no iterations."""
    x = tvm.te.placeholder((8, 8), "float32", "x")
    sch = tvm.Schedule(tvm.create_prim_func([x, tvm.te.compute((8, 8), lambda i, j: x[i, j] + 1, "y")]))
    outer, inner = sch.get_loops(sch.get_sblock("y"))
    sch.bind(inner, "threadIdx.x")
    assert not checks.runs_on_device(sch.mod["main"])
    sch.bind(outer, "blockIdx.x")
    assert checks.runs_on_device(sch.mod["main"])


def test_a_race_is_detected() -> None:
    """TVM does not recognise a reduction across threads if a condition ties its loops together; the threads race."""
    x = tvm.te.placeholder((1000, 64), "float32", "x")
    k = tvm.te.reduce_axis((0, 1000), "k")
    sch = tvm.Schedule(tvm.create_prim_func([x, tvm.te.compute((64,), lambda j: tvm.te.sum(x[k, j], k), "y")]))
    row = sch.get_loops(sch.get_sblock("y"))[1]
    partial = sch.rfactor(sch.split(row, factors=[None, 16, 32])[1], 0)
    sch.bind(sch.get_loops(sch.get_sblock("y"))[0], "blockIdx.x")
    loops = sch.get_loops(partial)
    sch.bind(loops[0], "blockIdx.x")
    assert checks.is_race_free(sch.mod["main"])
    sch.bind(loops[-1], "threadIdx.y")
    assert not checks.is_race_free(sch.mod["main"])


def kernel_spec(name: str, *tensors: TensorType, static: bool) -> KernelSpec:
    """The specification of an operator's kernel on CUDA, for static sizes or for symbolic ones."""
    op = get(name)
    args = (*tensors, *(arg.default for arg in op.schema.args[len(tensors) :]))
    info = CallInfo(op, args, op.declare(*args), CUDA)
    payload = next(i for i in implementations(op) if i.dialect.name == "tvm").payload
    return shape_generic.spec(payload, info, symbolic=not static)


def generate_code(spec: KernelSpec, target: Any) -> str:
    """The CUDA source of a kernel."""
    module = library.compile_functions(
        {"kernel": patterns.schedule(unscheduled(spec).function, spec.pattern, target)}, target
    )
    source = "".join(m.inspect_source() for m in module.imports)
    return str(source[source.rindex('extern "C"') :])


@pytest.mark.parametrize(("rows", "static", "elements"), [(8192, True, 8), (64, True, 2), (8, True, 1), (64, False, 4)])
def test_elements_per_thread(rows: int, static: bool, elements: int, target: Any) -> None:
    code = generate_code(kernel_spec("sign", tensor_type((rows, 8192), "int32", CUDA), static=static), target)
    assert re.search(rf"blockIdx\.x\)? \* {256 * elements}\)", code)
    assert len(re.findall(r"^ *sign_ptr\[.*\] = ", code, re.MULTILINE)) == elements


@pytest.mark.parametrize(
    ("op", "dtype", "vector"),
    [("exp", "bfloat16", "nv_bfloat164"), ("gelu", "float16", "half4"), ("exp", "float32", "float4"),
     ("relu", "bfloat16", "nv_bfloat164"), ("exp", "float64", "")],
)  # fmt: skip
def test_vectors_of_floats(op: str, dtype: str, vector: str, target: Any) -> None:
    """Four elements in one load and store, where all arithmetic is in float32."""
    code = generate_code(kernel_spec(op, tensor_type((64, 8192), dtype, CUDA), static=True), target)
    assert re.findall(rf"\*\((\w+)\*\)\({op}_ptr", code) == ([vector] if vector else [])


@pytest.mark.parametrize("static", [True, False])
def test_elements_of_a_thread_share_random_bits(static: bool, target: Any) -> None:
    """Two pairs of words for four elements. Unknown sizes have one check of bounds for all four and, where it fails,
    one for each store."""
    x, key = tensor_type((64, 8192), "bfloat16", CUDA), tensor_type((2,), "int64", CUDA)
    code = generate_code(kernel_spec("dropout", x, key, static=static), target)
    stores = len(re.findall(r"^ *mask_ptr\[.*\] = ", code, re.MULTILINE))
    elements = stores if static else stores // 2
    assert code.count(f"{MULTIPLIERS[0]}ULL") == ROUNDS * elements // 2
    assert code.count("if (") == (0 if static else 1 + 2 * elements)


@pytest.mark.parametrize(
    ("dtype", "vector"), [("bfloat16", "nv_bfloat164"), ("float16", "half4"), ("float32", "float4")]
)
def test_large_dropouts_store_vectors(dtype: str, vector: str, target: Any) -> None:
    """Four vectors of four elements that share four blocks; the mask in bytes, which nothing reads back."""
    x, key = tensor_type((8192, 8192), dtype, CUDA), tensor_type((2,), "int64", CUDA)
    code = generate_code(kernel_spec("dropout", x, key, static=True), target)
    assert re.findall(r"^ *\*\((\w+)\*\)\((\w+) \+ ", code, re.MULTILINE) == [
        ("uint", "mask_bytes"), (vector, "dropout_ptr")
    ] * 4  # fmt: skip
    assert code.count("mask_ptr") == 2  # the parameter, and its address as bytes
    assert "ulonglong4 words_ptr" in code


@pytest.mark.parametrize("op", ["softmax", "exp"])
def test_empty_grids_are_not_launched(op: str, target: Any) -> None:
    """TVM's runtime launches one block in place of none, which a row without elements is not."""
    spec = kernel_spec(op, tensor_type((64, 8192), "float32", CUDA), static=False)
    scheduled = patterns.schedule(unscheduled(spec).function, spec.pattern, target)
    host = library.compile_functions({"kernel": scheduled}, target).inspect_source("ll")
    assert re.search(
        r"icmp sgt i32 %\w+, 0.*\n +br i1 ", host[host.index("define internal") : host.rindex("__tvm_func_handle_init")]
    )


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_constants_of_bfloat16(value: str, target: Any) -> None:
    x = tvm.te.placeholder((64,), "bfloat16", "x")
    constant = tvm.tirx.FloatImm("bfloat16", float(value))
    compute = tvm.te.compute(
        x.shape, lambda *i: tvm.tirx.Select(x(*i) > tvm.tirx.FloatImm("bfloat16", 0), x(*i), constant), "y"
    )
    func = tvm.create_prim_func([x, compute]).without_attr("global_symbol")
    module = library.compile_functions({"kernel": patterns.schedule(func, "elemwise", target)}, target)
    bits = {"nan": 0x7FC0, "inf": 0x7F80, "-inf": 0xFF80}[value]
    assert f"__ushort_as_bfloat16((ushort){bits})" in "".join(m.inspect_source() for m in module.imports)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_no_literal_has_an_address(dtype: str, target: Any) -> None:
    """TVM reads the bits of a number through its address."""
    x = tensor_type((64, 32), dtype, CUDA)
    assert not re.search(r"\(&\(-?\d", generate_code(kernel_spec("nextafter", x, x, static=False), target))


def test_literals_near_the_smallest_float32_are_exact(target: Any) -> None:
    """NVRTC refuses others: the least probability whose logarithm exceeds -100 is denormal."""
    x, weight = tensor_type((64,), "float32", CUDA), None
    op = get("binary_cross_entropy")
    info = CallInfo(op, (x, x, weight, "mean"), op.declare(x, x, weight, "mean"), CUDA)
    payload = next(i for i in implementations(op) if i.dialect.name == "tvm").payload
    code = generate_code(shape_generic.spec(payload, info, symbolic=False), target)
    literals = {float.fromhex(text) for text in re.findall(r"(0x[0-9a-f.]+p[-+]\d+)f", code)}
    assert min(literals - {0.0}) < 1e-43
    assert all(float(np.float32(value)) == value for value in literals)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("uint8", r"\(uchar\)\(\(\(int\)"), ("int8", r"\(signed char\)\(\(\(int\)"), ("int16", r"\(short\)\(\(\(int\)"),
     ("int32", r"\(int\)\(\(\(uint\)"), ("int64", r"\(int64_t\)\(\(\(uint64_t\)")],
)  # fmt: skip
def test_integers_wrap_around(dtype: str, expected: str, target: Any) -> None:
    """C++ promotes narrow integers to int and leaves the overflow of signed ones undefined."""
    x = tensor_type((64, 8192), dtype, CUDA)
    for op, symbol in (("add", r"\+"), ("subtract", "-"), ("multiply", r"\*"), ("left_shift", "<<")):
        code = generate_code(kernel_spec(op, x, x, static=True), target)
        assert re.search(rf"\({expected}.* {symbol} \(\(", code), op
    code = generate_code(kernel_spec("bitwise_not", x, static=True), target)
    assert re.search(rf"= \({expected[: expected.index(')') + 1]}\(~\(\(", code)


def test_arithmetic_in_halves_has_no_vectors(target: Any) -> None:
    x = tvm.te.placeholder((64, 8192), "float16", "x")
    func = tvm.create_prim_func([x, tvm.te.compute(x.shape, lambda *i: x(*i) * x(*i), "y")])
    scheduled = patterns.schedule(func.without_attr("global_symbol"), "elemwise", target)
    assert "vectorized" not in str(scheduled)


@pytest.mark.parametrize("static", [True, False])
def test_both_sides_of_a_selection_are_loaded_before_its_condition(static: bool, target: Any) -> None:
    x, mask = (tensor_type((512, 512), dtype, CUDA) for dtype in ("float32", "bool"))
    code = generate_code(kernel_spec("where", mask, x, x, static=static), target)
    assert "?" in code
    assert "else" not in code


INDICES = [("bias_add", "float32", "int32"), ("bias_add", "int64", "int64"), ("softmax", "float32", "int32"),
           ("sum", "float32", "int64")]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype", "index"), INDICES)
def test_index_width_of_shape_generic_kernels(op: str, dtype: str, index: str, target: Any) -> None:
    """32 bits, except with operands of int64 and in reductions of outer axes."""
    x, bias = (tensor_type(shape, dtype, CUDA) for shape in ((64, 32, 8), (32,)))
    spec = kernel_spec(op, *(x, bias)[: 2 if op == "bias_add" else 1], static=False)
    assert spec.index == index
    if index == "int32":
        assert "(int64_t)blockIdx" not in generate_code(spec, target)


def test_codes_of_imports_are_read_by_kind(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (function,) = schedule_sample(next(row for row in first_rows() if row.op == "tanh"), monkeypatch, target)[:1]
    ((kind, code),) = library.import_codes(library.compile_functions({"kernel": function}, target))
    assert kind == "cuda"
    assert b"kernel_kernel" in code


def test_small_buffers_between_kernels_are_on_the_device(target: Any) -> None:
    """A kernel that gets the address of a buffer on the host's stack ends in an illegal access."""
    x, y = (TensorSpec((rows, 8), "float32") for rows in (4096, 1))

    def compute(x: Any) -> Any:
        k = tvm.te.reduce_axis((0, 4096))
        total = tvm.te.compute((1, 8), lambda i, j: tvm.te.sum(x[k, j], k), "total")
        return tvm.te.compute((1, 8), lambda i, j: tvm.tirx.exp(total[i, j]), "y")

    function = patterns.schedule(
        unscheduled(KernelSpec("it", compute, (x,), (y,), "reduce")).function, "reduce", target
    )
    code = library.compile_functions({"it": function}, target).inspect_source("ll")
    sizes = [math.prod(map(int, b.shape)) for b in blocks.list_buffers(function) if str(b.scope()) == "global"]
    assert [size for size in sizes if 0 < 4 * size < 1024 and size != 8], "sums of parts are on the way to the sums"
    assert "TVMBackendAllocWorkspace" in code


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_code_of_values_that_are_read_twice_is_linear(dtype: str, target: Any) -> None:
    def link(x: Any) -> Any:
        doubled = tvm.te.compute(x.shape, lambda i: x[i] + x[i])
        return tvm.te.compute(x.shape, lambda i: x[i] * doubled[i])

    def length(links: int) -> int:
        x = y = tvm.te.placeholder((1000,), dtype)
        for _ in range(links):
            y = link(y)
        function = patterns.schedule(tvm.create_prim_func([x, y]), "", target)
        module = library.compile_functions({"kernel": function}, target)
        return sum(len(m.inspect_source()) for m in module.imports)

    assert length(24) - length(16) <= 1.2 * (length(16) - length(8))
