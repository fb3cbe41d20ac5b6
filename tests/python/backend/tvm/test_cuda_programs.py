"""Programs planned for CUDA without a GPU: which kernels they have, and their results with the iterations of all
threads one after the other on the CPU."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meta
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm import target as targets
from meta.backend.tvm.lowering import pipeline
from meta.backend.tvm.schedule.buffers import relax_alignment
from meta.backend.tvm.schedule.gpu import checks
from meta.device import CPU, device
from meta.interpreter.run import run
from meta.ir.builder import Module
from meta.ir.expr import Call
from meta.ir.type import tensor_type
from meta.ir.visitor import walk
from meta.passes import fuse_concatenations, place
from meta.vm.build.generate import build_module, finish, plan_source
from meta.vm.lower.choose import prepare
from meta.vm.plan import bundle
from meta.vm.plan.pipeline import Planned
from meta.vm.runner import Machine
from tests.python.backend.tvm.test_cuda_code import COMPILER, LIMITS
from tests.python.vm.programs import flat, program, randoms

SHAPES = [(64, 32), (33,), (40, 24, 1, 1), (64, 32)]
"""Two of one shape, one that needs a bound check, and one with axes of extent 1."""


@contextmanager
def cuda_target(monkeypatch: pytest.MonkeyPatch) -> Generator[None, None, None]:
    """A target for CUDA without a GPU."""
    cpu = targets.target("cpu")
    gpu = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=cpu)
    with monkeypatch.context() as patch:
        patch.setattr(targets, "target", lambda kind: gpu if kind == "cuda" else cpu)
        yield


def plan(module: Module, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """The program for CUDA, with its memory planned."""
    with cuda_target(monkeypatch):
        return plan_source(prepare(place("cuda")(module), device("cuda")), fuse=True)


def run_serially(planned: Planned, arrays: Sequence[Any]) -> Any:
    """The result of a planned program whose threads share no reduction; it writes the arrays that it replaces."""

    def to_serial(loop: Any) -> Any:
        return tvm.For(loop.loop_var, loop.min, loop.extent, tvm.tirx.ForKind.SERIAL, loop.body)

    functions = {
        name: relax_alignment(tvm.structural_map(f, (tvm.For, to_serial))) if isinstance(f, tvm.PrimFunc) else f
        for name, f in planned.module.functions.items()
    }
    serial = replace(planned, module=tvm.IRModule(functions, attrs=planned.module.attrs))
    target = targets.target("cpu")
    executable = tvm.relax_build(
        finish(serial, static=True),
        target=target,
        relax_pipeline=None,
        tir_pipeline=pipeline(checks=False),
        exec_mode="compiled",
    )
    source: Any = SimpleNamespace(device=CPU, static=True, calls_python=False)
    return Machine(executable.mod, source).main(*(x._data for x in arrays))


def updates(shapes: Sequence[tuple[int, ...]], weight_decay: float) -> Module:
    """Momentum updates of weights, with gradients computed from a bfloat16 copy of them."""
    types = {f"{kind}{i}": shape for kind in "wv" for i, shape in enumerate(shapes)}

    def body(ops: Any, rate: Any, *arrays: Any) -> list[Any]:
        weights, velocities = arrays[: len(shapes)], arrays[len(shapes) :]
        low = [ops.cast(w, "bfloat16") for w in weights]
        gradients = [ops.cast(ops.cumsum(x, axis=0), "float32") for x in low]
        new = [
            ops.sgd(*each, rate, momentum=0.9, weight_decay=weight_decay)
            for each in zip(weights, gradients, velocities, strict=True)
        ]
        get = ops.builder.get_item
        return [ops.cumsum(low[0], axis=0), *(get(n, 0) for n in new), *(get(n, 1) for n in new)]

    count = 2 * len(shapes)
    return program({"rate": (), **types}, body, mutates={i + 1: i + 1 for i in range(count)})


def used_at_once() -> Module:
    """An update whose result the gradient of the next one depends on, and a cast of a weight after its update."""

    def body(ops: Any, rate: Any, w0: Any, w1: Any, v0: Any, v1: Any) -> list[Any]:
        get = ops.builder.get_item
        first = ops.sgd(w0, w0, v0, rate, momentum=0.9)
        x0, low = get(first, 0), ops.cast(w1, "bfloat16")
        second = ops.sgd(w1, ops.cumsum(x0, axis=0), v1, rate, momentum=0.9)
        sums = ops.cumsum(ops.cast(x0, "bfloat16"), axis=1)
        return [sums, ops.cumsum(low, axis=0), x0, get(second, 0), get(first, 1), get(second, 1)]

    types = dict.fromkeys(("w0", "w1", "v0", "v1"), (32, 32))
    return program({"rate": (), **types}, body, mutates={2: 1, 3: 2, 4: 3, 5: 4})


def kernel_calls(planned: Planned) -> list[str]:
    """The kernels that the program calls, in order."""
    return [call.function for call in planned.main.calls if not call.packed]


def check(module: Module, planned: Planned, arrays: Sequence[Any], written: Sequence[int]) -> None:
    """The program returns and writes what the interpreter computes."""
    expected = flat(run(module, *(x.copy() for x in arrays)))
    result = run_serially(planned, arrays)
    actual = list(result) if len(expected) - len(written) > 1 else [result]
    actual += [arrays[i]._data for i in written]
    for ours, theirs in zip(actual, expected, strict=True):
        value = meta.from_dlpack(ours).astype("float32").numpy()
        np.testing.assert_allclose(value, theirs.astype("float32").numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_updates_and_casts_are_bundled(weight_decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    module = updates(SHAPES, weight_decay)
    planned = plan(module, monkeypatch)
    calls = kernel_calls(planned)
    count = len(SHAPES)
    assert sorted(planned.kernels[c] for c in calls if c.startswith("bundle"))[0] == ("tvm.cast",) * count
    assert sum(planned.kernels[c].count("tvm.sgd") for c in calls if c.startswith("bundle")) == count
    assert not any("copy" in name for c in calls for name in planned.kernels[c])
    arrays = [meta.array(0.5), *randoms(*SHAPES, *SHAPES)]
    check(module, planned, arrays, range(1, 2 * count + 1))


def test_functions_that_launch_kernels_check_no_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of the tensors of large bundles take LLVM half a minute."""
    tvm.load()
    before = tvm.get_global_func(COMPILER, allow_missing=True)
    tvm.register_global_func(COMPILER, lambda code: bytes(16), override=True)
    try:
        with cuda_target(monkeypatch):
            source = prepare(place("cuda")(updates(SHAPES, 0.0)), device("cuda"))
            planned = plan_source(source, fuse=True)
            code = library.link(build_module(source, planned, mode="bytecode"))
    finally:
        if before is not None:
            tvm.register_global_func(COMPILER, before, override=True)
    if code is None:
        pytest.skip("there is no linker")
    assert b"bundle_tvm_cast" in code
    assert b"Mismatched type on argument" not in code


def test_updates_share_the_numbers_that_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates by Adam have 9 operands each, 5 of which are the same: 21 parameters are enough for four updates."""
    monkeypatch.setattr(bundle, "_BUNDLE_PARAMS", 21)
    count, numbers = 5, ("rate", "beta1", "beta2", "eps", "decay")
    types = {f"{kind}{i}": (33,) for i in range(count) for kind in "xgmv"}

    def body(ops: Any, *arrays: Any) -> list[Any]:
        scalars, tensors = arrays[: len(numbers)], arrays[len(numbers) :]
        get = ops.builder.get_item
        steps = [ops.adam(*tensors[i : i + 4], None, *scalars) for i in range(0, len(tensors), 4)]
        return [ops.cumsum(tensors[1], axis=0), *(get(step, i) for step in steps for i in range(3))]

    places = [len(numbers) + 4 * i + offset for i in range(count) for offset in (0, 2, 3)]
    module = program({**dict.fromkeys(numbers, ()), **types}, body, mutates=dict(enumerate(places, 1)))
    planned = plan(module, monkeypatch)
    assert [planned.kernels[c] for c in kernel_calls(planned) if c.startswith("bundle")] == [("tvm.adam",) * 4]
    values = [meta.array(value) for value in (0.1, 0.9, 0.99, 1e-8, 0.01)]
    arrays = [x if i % 4 < 3 else x * x for i, x in enumerate(randoms(*[(33,)] * (4 * count)))]
    check(module, planned, [*values, *arrays], places)


def test_bundles_end_where_results_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = used_at_once()
    planned = plan(module, monkeypatch)
    assert not any(c.startswith("bundle") for c in kernel_calls(planned) if len(planned.kernels[c]) > 2)
    check(module, planned, [meta.array(0.5), *randoms(*[(32, 32)] * 4)], range(1, 5))


def test_large_kernels_are_not_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUNDLE_MEMBER_BYTES", 4 * 33 * 5)
    planned = plan(updates(SHAPES, 0.0), monkeypatch)
    assert not any(c.startswith("bundle") for c in kernel_calls(planned))


def test_wide_copies_of_narrow_tensors_need_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel that reads the cast, or the difference after it, computes both anew."""

    def body(ops: Any, x: Any, row: Any) -> list[Any]:
        wide = ops.cast(ops.cumsum(x, axis=0), "float32")
        shifted = ops.subtract(wide, row)
        return [ops.transpose(ops.sigmoid(shifted)), ops.flip(shifted, axis=1), ops.multiply(wide, wide)]

    module = program({"x": tensor_type((512, 48), "bfloat16"), "row": (48,)}, body)
    planned = plan(module, monkeypatch)
    kernels = [planned.kernels[c] for c in kernel_calls(planned)]
    assert ("tvm.cast",) not in kernels
    assert not any(k[-1] == "tvm.subtract" for k in kernels)
    assert sum("tvm.cast" in k for k in kernels) == 3
    check(module, planned, [*randoms((512, 48), dtype="bfloat16"), *randoms((48,))], ())


def test_tensors_that_take_as_many_bytes_to_compute_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(ops: Any, x: Any) -> list[Any]:
        y = ops.exp(ops.cumsum(x, axis=0))
        return [ops.transpose(y), ops.flip(y, axis=1)]

    planned = plan(program({"x": (32, 48)}, body), monkeypatch)
    assert sum("tvm.exp" in planned.kernels[c] for c in kernel_calls(planned)) == 1


def test_casts_of_new_values_follow_the_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The update of w0 is put off to that of w1, behind the first cast; the cast of the new w0 must not join that."""

    def body(ops: Any, rate: Any, w0: Any, w1: Any, v0: Any, v1: Any, q: Any) -> list[Any]:
        get = ops.builder.get_item
        first = ops.sgd(w0, w0, v0, rate, momentum=0.9)
        low = ops.cast(q, "bfloat16")
        second = ops.sgd(w1, w1, v1, rate, momentum=0.9)
        new = ops.cumsum(ops.cast(get(first, 0), "bfloat16"), axis=1)
        return [ops.cumsum(low, axis=0), new, get(first, 0), get(second, 0), get(first, 1), get(second, 1)]

    types = dict.fromkeys(("w0", "w1", "v0", "v1", "q"), (32, 32))
    module = program({"rate": (), **types}, body, mutates={2: 1, 3: 2, 4: 3, 5: 4})
    check(module, plan(module, monkeypatch), [meta.array(0.5), *randoms(*[(32, 32)] * 5)], range(1, 5))


def vector_loops(planned: Planned) -> int:
    """The number of kernels with vectorised loops."""
    names: set[str] = set()

    def visit(name: str, loop: Any) -> None:
        if loop.kind == tvm.tirx.ForKind.VECTORIZED:
            names.add(name)

    for name, function in planned.module.functions.items():
        if isinstance(function, tvm.PrimFunc):
            tvm.structural_walk(function, (tvm.For, partial(visit, name.name_hint)))
    return len(names)


@pytest.mark.parametrize(("columns", "vectors"), [(256, 1), (254, 0)])
def test_operands_of_rows_and_columns_are_read_in_vectors(
    columns: int, vectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One element of each row, and rows that all of the result share, beside a matrix; rows of other lengths do not
    start where vectors do."""

    def body(ops: Any, x: Any, column: Any, row: Any) -> list[Any]:
        numbers = ops.arange(0, columns, 1, "int32", device("cpu"))
        hits = ops.cast(ops.equal(numbers, ops.cast(column, "int32")), "float32")
        y = ops.subtract(ops.multiply(ops.cast(x, "float32"), column), ops.add(hits, row))
        return [ops.cast(y, "bfloat16")]

    types = {"x": tensor_type((512, columns), "bfloat16"), "column": (512, 1), "row": (columns,)}
    module = program(types, body)
    planned = plan(module, monkeypatch)
    assert (len(kernel_calls(planned)), vector_loops(planned)) == (1, vectors)
    x, (column, row) = randoms((512, columns), dtype="bfloat16")[0], randoms((512, 1), (columns,))
    check(module, planned, [x, meta.round(column * 100), row], ())


@pytest.mark.parametrize(("axes", "vectors"), [((2, 0, 3, 1, 4), 1), ((2, 0, 3, 4, 1), 0)])
def test_transposes_that_keep_the_last_axis_move_vectors(
    axes: tuple[int, ...], vectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(ops: Any, x: Any) -> list[Any]:
        parts = ops.split(ops.transpose(x, axes), 3, 0)
        return [ops.builder.get_item(parts, i) for i in range(3)]

    module = program({"x": tensor_type((2, 32, 3, 8, 64), "bfloat16")}, body)
    planned = plan(module, monkeypatch)
    assert (len(kernel_calls(planned)), vector_loops(planned)) == (1, vectors)
    check(module, planned, randoms((2, 32, 3, 8, 64), dtype="bfloat16"), ())


@pytest.mark.parametrize(
    ("axis", "axes", "fused"), [(0, (1, 0, 2), True), (2, (1, 0, 2), False), (0, (1, 2, 0), False)]
)
def test_concatenations_that_a_transpose_reads_are_one_kernel_of_vectors(
    axis: int, axes: tuple[int, ...], fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts are parameters. TVM is chosen for the fusion only if their last axis stays the last one."""

    def body(ops: Any, *parts: Any) -> list[Any]:
        return [ops.transpose(ops.concatenate(list(parts), axis), axes)]

    module = program(dict.fromkeys("abc", tensor_type((2, 64, 128), "bfloat16")), body)
    after = fuse_concatenations(place("cuda")(module))
    calls = [b.value for b in walk(after.main) if isinstance(b.value, Call)]
    assert [call.dialect for call in calls] == ["tvm" if fused else None, None]
    planned = plan(module, monkeypatch)
    assert (len(kernel_calls(planned)), vector_loops(planned)) == (1, int(fused))
    check(module, planned, randoms(*[(2, 64, 128)] * 3, dtype="bfloat16"), ())


def test_operands_have_names_that_c_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of torch's parameters begin with a digit after TVM has dropped what precedes it."""

    def body(ops: Any, x: Any, w: Any) -> list[Any]:
        return [ops.relu(ops.add(x, w))]

    planned = plan(program({"x": (64, 32), "_0.weight": (32,)}, body), monkeypatch)
    names = {str(p.name) for f in planned.module.functions.values() if isinstance(f, tvm.PrimFunc) for p in f.params}
    assert names
    assert not [name for name in names if not name.lstrip("_")[:1].isalpha()]


@pytest.mark.parametrize("kept", [False, True])
def test_large_tensors_that_only_kernels_read_are_computed_anew(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel reads x; what the program returns is written once."""
    monkeypatch.setattr(limits, "UNWRITTEN_BYTES", 1 << 10)

    def body(ops: Any, x: Any, w: Any) -> list[Any]:
        y = ops.add(x, w)
        powers = ops.exp(ops.subtract(y, ops.max(y, (1,), True)))
        return [ops.divide(powers, ops.sum(powers, (1,), True)), *([powers] if kept else [])]

    planned = plan(program({"x": (640, 300), "w": (300,)}, body), monkeypatch)
    calls = kernel_calls(planned)
    second = "fused_add_subtract_exp" if kept else "fused_add_subtract_exp_sum"
    assert [call.replace("1", "") for call in calls[:2]] == ["fused_add_max", second], calls


def test_results_that_nothing_reads_need_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout whose mask alone is used: CUDA kernels cannot allocate a buffer in global memory for the rest."""

    def drop(key: Any) -> Any:
        return meta.dropout(meta.uniform(key, (7,)), key, 0.25)[1]

    planned = plan(meta.vm.compile(meta.trace(drop)).module(meta.array([-7, 11])), monkeypatch)
    kernels = [f for f in planned.module.functions.values() if isinstance(f, tvm.PrimFunc)]
    assert kernels
    assert not any("alloc_buffer" in str(f) for f in kernels)


def _gradient(loss: Any) -> Any:
    """The function that computes the gradient of a loss by its first argument."""

    def function(x: Any, *others: Any) -> Any:
        x = x.detach()
        x.requires_grad = True
        return meta.autograd.grad([loss(x, *others)], [x])[0]

    return function


@pytest.mark.parametrize(
    ("loss", "dtype"),
    [(meta.nll_loss, "int64"), (meta.cross_entropy, "int64"), (meta.mse_loss, "float32"),
     (meta.binary_cross_entropy_with_logits, "float32")],
    ids=lambda value: getattr(value, "__name__", value),
)  # fmt: skip
def test_gradients_of_losses_have_threads_for_all_elements(
    loss: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dlight puts a sum to one element and the gradient of 2**21 elements that reads it into one block of threads."""
    x = meta.zeros((512, 4096))
    target = meta.zeros((512,) if dtype == "int64" else (512, 4096), dtype=dtype)
    planned = plan(meta.trace(_gradient(loss)).record(x, target).module, monkeypatch)
    kernels = {str(n.name_hint): f for n, f in planned.module.functions.items() if isinstance(f, tvm.PrimFunc)}
    assert max(map(checks.serial_work, kernels.values())) < x.size // 64
