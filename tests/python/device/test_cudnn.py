"""The cuDNN dialect on a GPU: samples and larger shapes against float64 on the CPU, threads, streams, graph capture."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.cudnn import settings
from meta.device import device
from meta.errors import KernelError
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, tensor_type
from meta.op.dispatch import dialect, implementations
from meta.op.registry import as_type, get
from meta.schema._dsl import TensorLike
from meta.testing.generic import check_types, check_values, make_call
from meta.testing.samples import FLOAT_DTYPES, Sample
from tests.python.device.cudnn_calls import LIMITS, assert_close, reference, run, values
from tests.python.op.samples import samples

OFF = dialect("cudnn").unavailable()
if OFF:
    pytest.skip(f"cuDNN is off: {OFF}", allow_module_level=True)

torch = pytest.importorskip("torch")
CUDA = device("cuda")


def cudnn_implementation(name: str) -> Any:
    """cuDNN's implementation of an operator, or None."""
    return next((i for i in implementations(get(name)) if i.dialect.name == "cudnn"), None)


@contextmanager
def capture(graph: Any, stream: Any) -> Iterator[None]:
    """Capture the block into `graph`, without garbage collections: torch reports an error when one destroys the graph
    of an earlier test during a capture. Such graphs are garbage in cycles, so they are collected before."""
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph, stream=stream), meta.use_stream(stream.cuda_stream):
            yield
    finally:
        gc.enable()


class Typed(TensorLike):
    """A tensor without values."""

    def __init__(self, type_: TensorType) -> None:
        self.type = type_


def call_info(sample: Sample, dtype: str) -> CallInfo:
    """The types of a sample's call on CUDA."""
    op = sample.operator
    args, kwargs = sample.map(lambda t, _: Typed(tensor_type(t.shape, t.dtype_in(dtype), CUDA)))
    types = tuple(map(as_type, op.schema.bind(op.name, args, kwargs)))
    return CallInfo(op, types, op.declare(*types), CUDA)


def accepted_samples() -> list[Any]:
    """Every sample and dtype that cuDNN accepts."""
    settings.allow_tf32(False)
    out = []
    for sample in samples():
        implementation = cudnn_implementation(sample.op)
        if implementation is None:
            continue
        for dtype in sample.run_dtypes():
            with meta.with_dialect("cudnn"):  # skips the measured limits
                accepts = implementation.refusal(call_info(sample, dtype)) is None
            if accepts:
                out.append(pytest.param(sample, dtype, id=f"{sample!r}-{dtype}"))
    settings.allow_tf32(None)
    return out


@pytest.mark.parametrize(("sample", "dtype"), accepted_samples())
def test_samples_match_the_reference(sample: Sample, dtype: str) -> None:
    host = make_call(sample, dtype)
    call = host.to_meta("cuda")
    with meta.with_dialect("cudnn"):
        result = call.run()
    check_types(call, result)
    check_values(sample, host, result, f"cudnn.{sample.op}")


def test_samples_miss_only_expected_operators() -> None:
    """Tests below run the others: cuDNN rejects samples of adaptive pooling of one and three axes (unequal windows), of
    conv1d (one-sided padding) and of the gradient of attention (not half precision)."""
    accepted = {parameters.values[0].op for parameters in accepted_samples()}
    implemented = {s.op for s in samples() if cudnn_implementation(s.op)}
    missed = {name for name in implemented - accepted if not name.startswith("adaptive") or "2d" in name}
    assert missed == {"conv1d", "conv1d_dx", "conv1d_dw", "attention_with_lse_dx"}


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 3, 4, 6, 8)])
def test_adaptive_pooling_of_one_and_three_axes(shape: tuple[int, ...]) -> None:
    rank = len(shape) - 2
    x, name = values(*shape), f"adaptive_max_pool{rank}d"
    assert_close(run(name, [x], 2), reference(name, [x], 2), LIMITS["float32"])


LARGE = [
    ((8, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
    ((4, 3, 65, 47), (32, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((4, 64, 14, 14), (96, 32, 1, 1), {"groups": 2}),
    ((2, 32, 19, 23), (32, 1, 3, 3), {"padding": 2, "dilation": 2, "groups": 32}),
    ((4, 16, 129), (24, 16, 5), {"stride": 2, "padding": 2}),
    ((2, 8, 9, 11, 10), (16, 8, 3, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("x", "w", "attributes"), LARGE)
def test_large_convolutions(x: Any, w: Any, attributes: dict[str, Any], dtype: str) -> None:
    data, kernel = values(*x, dtype=dtype), values(*w, seed=1, dtype=dtype)
    terms = float(np.prod(w[1:]))
    name = f"conv{len(x) - 2}d"
    y = reference(name, [data, kernel], **attributes)
    assert_close(run(name, [data, kernel], **attributes), y, LIMITS[dtype], terms)
    dy = values(*y[0].shape, seed=2, dtype=dtype)
    expected = reference(f"{name}_dx", [kernel, dy], x, **attributes)
    assert_close(run(f"{name}_dx", [kernel, dy], x, **attributes), expected, LIMITS[dtype], terms)
    expected = reference(f"{name}_dw", [data, dy], w, **attributes)
    assert_close(
        run(f"{name}_dw", [data, dy], w, **attributes), expected, LIMITS[dtype], float(np.prod(dy.shape) / dy.shape[1])
    )


def test_tf32_can_be_switched_off() -> None:
    x, w = values(4, 64, 28, 28), values(64, 64, 3, 3, seed=1)
    exact = reference("conv2d", [x, w], padding=1)[0]
    errors = {}
    for allowed in (False, True):
        settings.allow_tf32(allowed)
        errors[allowed] = float(np.abs(run("conv2d", [x, w], padding=1)[0] - exact).max())
    assert errors[False] < 1e-3
    assert errors[False] * 4 < errors[True] < 0.2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_large_softmax(name: str, dtype: str) -> None:
    x = values(64, 5000, dtype=dtype)
    assert_close(run(name, [x]), reference(name, [x]), LIMITS[dtype])


@pytest.mark.parametrize("axis", [1, -1])
def test_large_batch_norm(axis: int) -> None:
    x = values(16, 32, 14, 14) if axis == 1 else values(16, 14, 14, 32)
    state = [values(32, seed=1), np.abs(values(32, seed=2)), values(32, seed=3), values(32, seed=4)]
    limits = LIMITS["float32"]
    expected = reference("batch_norm_train", [x, *state], axis=axis)
    assert_close(run("batch_norm_train", [x, *state], axis=axis), expected, limits)
    assert_close(
        run("batch_norm_infer", [x, *state], axis=axis), reference("batch_norm_infer", [x, *state], axis=axis), limits
    )
    arrays = [values(*x.shape, seed=5), x, state[2], *(e.astype(np.float32) for e in expected[3:])]
    results = run("batch_norm_train_dxwb", arrays, axis=axis)
    assert_close(results, reference("batch_norm_train_dxwb", arrays, axis=axis), limits, 3136)


def test_running_statistics_are_updated_in_place() -> None:
    x, mean, var = (
        meta.array(a, device="cuda") for a in (values(4, 8, 5, 5), values(8, seed=1), np.ones(8, "float32"))
    )
    before = mean.numpy().copy()
    with meta.with_dialect("cudnn"):
        _, new_mean, _, batch_mean, _ = meta.batch_norm_train(x, mean, var, momentum=0.25)
    assert new_mean is mean
    np.testing.assert_allclose(mean.numpy(), 0.75 * before + 0.25 * batch_mean.numpy(), 1e-5, 1e-6)


def test_new_statistics_may_be_separate_arrays() -> None:
    """Programs may pass separate arrays for the updated statistics."""
    x, mean, var = values(4, 8, 5, 5), values(8, seed=1), np.ones(8, "float32")
    op = get("batch_norm_train")
    operands = [meta.array(a, device="cuda") for a in (x, mean, var)]
    types = tuple(map(as_type, op.schema.bind(op.name, operands, {})))
    info = CallInfo(op, types, op.declare(*types), CUDA)
    results = [meta.array(np.zeros(t.shape, "float32"), device="cuda") for t in info.outputs()]
    dialect("cudnn").kernel(cudnn_implementation(op.name), info)(*[a._data for a in (*operands, *results)])
    assert_close([r.numpy() for r in results], reference(op.name, [x, mean, var]), LIMITS["float32"])
    np.testing.assert_array_equal(operands[1].numpy(), mean)


def test_compiled_programs_match_the_reference() -> None:
    """The first call of a compiled program, a recorded one, and one with new inputs."""

    @meta.trace
    def program(x: Any, w: Any, gamma: Any) -> Any:
        y = meta.conv2d(x, w, padding=1)
        pooled = meta.max_pool2d(meta.tanh(y), 2)
        return meta.log_softmax(meta.layer_norm(pooled, gamma), 1), meta.conv2d_dw(x, y, tuple(w.shape), padding=1)

    w, gamma = values(16, 8, 3, 3, seed=1), values(7, seed=2)
    parameters = [meta.array(a, device="cuda") for a in (w, gamma)]
    with meta.with_dialect(["cudnn", "tvm"]):
        compiled = meta.vm.compile(program, "cuda")
    for seed in (3, 4, 5):
        x = values(4, 8, 14, 14, seed=seed)
        results = compiled(meta.array(x, device="cuda"), *parameters)
        with meta.with_dialect(["torch", "reference"]):
            expected = program(*(meta.array(a.astype(np.float64)) for a in (x, w, gamma)))
        assert_close([r.numpy() for r in results], [e.numpy() for e in expected], LIMITS["float32"], 784)


def test_concurrent_threads_and_streams_match_one_thread() -> None:
    """Threads with separate streams run the same operators concurrently and get the results of one thread."""
    x, w = meta.array(values(4, 32, 28, 28), device="cuda"), meta.array(values(32, 32, 3, 3, seed=1), device="cuda")

    def work() -> Any:
        with meta.with_dialect("cudnn"):
            y = meta.conv2d(x, w, padding=1)
            return meta.softmax(meta.max_pool2d(y, 2), 1).numpy()

    expected = work()

    def on_a_stream(_: int) -> Any:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), meta.use_stream(stream.cuda_stream):
            results = [work() for _ in range(5)]
            torch.cuda.current_stream().synchronize()
        return results

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(on_a_stream, range(8)):
            for result in results:
                np.testing.assert_array_equal(result, expected)


def test_replays_captured_kernels_on_new_values() -> None:
    """Kernels captured in a CUDA graph run again on new values, with their scratch memory."""
    x, w = meta.array(values(4, 32, 28, 28), device="cuda"), meta.array(values(32, 32, 3, 3, seed=1), device="cuda")
    gamma = meta.array(values(28, seed=2), device="cuda")
    with meta.with_dialect("cudnn"):
        y = meta.conv2d(x, w, padding=1)
        out = [y, meta.softmax(y), meta.layer_norm(y, gamma), meta.conv2d_dw(x, y, tuple(w.shape), padding=1)]
    calls = [("conv2d", (x, w, 1, 1, 1, 1)), ("softmax", (y, -1)), ("layer_norm", (y, gamma, None, -1, 1e-5)),
             ("conv2d_dw", (x, y, tuple(w.shape), 1, 1, 1, 1))]  # fmt: skip
    kernels = []
    for (name, args), result in zip(calls, out, strict=True):
        op = get(name)
        bound = op.schema.bind(name, args, {})
        types = tuple(map(as_type, bound))
        kernel = dialect("cudnn").kernel(cudnn_implementation(name), CallInfo(op, types, op.declare(*types), CUDA))
        operands = [bound[i] for i in op.schema.tensor_positions if bound[i] is not None]
        kernels.append((kernel, [t._data for t in (*operands, result)]))

    def launch() -> None:
        for kernel, raw in kernels:
            kernel(*raw)

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), meta.use_stream(stream.cuda_stream):
        for _ in range(2):
            launch()
    stream.synchronize()
    with capture(graph, stream):
        launch()
    fresh = values(4, 32, 28, 28, seed=7)
    torch.from_dlpack(x).copy_(torch.from_numpy(fresh))
    graph.replay()
    torch.cuda.synchronize()
    y_again = reference("conv2d", [fresh, w.numpy()], padding=1)[0]
    assert_close([out[0].numpy()], [y_again], LIMITS["float32"], 288)
    assert_close([out[1].numpy()], reference("softmax", [y_again]), (1e-3, 1e-4))
    expected = reference("conv2d_dw", [fresh, y_again], tuple(w.shape), padding=1)
    assert_close([out[3].numpy()], expected, LIMITS["float32"], 28 * 28 * 4 * 288)


def test_rejects_a_first_call_during_capture() -> None:
    x, w = meta.array(values(2, 8, 11, 13), device="cuda"), meta.array(values(8, 8, 3, 3, seed=1), device="cuda")
    out = meta.array(values(2, 8, 9, 11), device="cuda")
    op = get("conv2d")
    bound = op.schema.bind("conv2d", (x, w), {})
    types = tuple(map(as_type, bound))
    kernel = dialect("cudnn").kernel(cudnn_implementation("conv2d"), CallInfo(op, types, op.declare(*types), CUDA))
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with capture(graph, stream):
        torch.from_dlpack(x).add_(1)  # an empty graph is worth a warning to torch
        with pytest.raises(KernelError, match="run it once before the capture"):
            kernel(x._data, w._data, out._data)


def test_convolution_samples_run_in_every_float_dtype() -> None:
    """The first sample of conv2d runs in every float dtype that cuDNN supports for it."""
    sample = next(s for s in samples() if s.op == "conv2d")
    assert {p.values[1] for p in accepted_samples() if p.values[0] is sample} >= set(FLOAT_DTYPES) - {"float64"}


LATER_PROCESS = """
import sys, numpy, meta
from meta.backend.cudnn import frontend
if sys.argv[1] == "second":
    frontend.OperationGraph.fastest = frontend.OperationGraph.build_plans = None
x, w = (meta.array(numpy.load(path), device="cuda") for path in sys.argv[2:4])
with meta.with_dialect("cudnn"):
    numpy.save(sys.argv[4], meta.conv2d(x, w).numpy())
"""


def test_later_processes_run_the_plan_that_was_chosen(tmp_path: Any) -> None:
    tmp_path.chmod(0o700)
    arrays = [values(2, 16, 9, 11), values(24, 16, 3, 3, seed=1)]
    paths = [str(tmp_path / f"{name}.npy") for name in ("x", "w", "first", "second")]
    for path, array in zip(paths, arrays, strict=False):
        np.save(path, array)
    environment = {**os.environ, "META_CACHE": "1", "META_CACHE_DIR": str(tmp_path), "META_CUDNN_TF32": "0"}
    for which, out in (("first", paths[2]), ("second", paths[3])):
        command = [sys.executable, "-c", LATER_PROCESS, which, *paths[:2], out]
        subprocess.run(command, env=environment, check=True, timeout=120)
    assert_close([np.load(paths[3])], reference("conv2d", arrays), LIMITS["float32"], terms=144)
