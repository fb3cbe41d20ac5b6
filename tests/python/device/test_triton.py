"""The Triton dialect on a GPU: eager calls, gradients, programs, CUDA graphs, streams, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import KernelError
from meta.ir.expr import CallInfo
from meta.testing import opcheck
from tests.python.recorded import array

DIALECT = meta.dialect("triton")
OFF = DIALECT.unavailable()
if OFF:
    pytest.skip(f"Triton is off: {OFF}", allow_module_level=True)
if "cpu" in DIALECT.devices:
    pytest.skip("TRITON_INTERPRET is set: kernels do not run on the GPU", allow_module_level=True)

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from meta.op.dialect.triton import pointwise  # noqa: E402

# Triton 3.9 warns at the first kernel that a default will change; fused multiplications and additions are fine here.
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


@triton.jit
def tanh_kernel(x, y, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    e = tl.exp(2 * tl.load(x + index, mask=inside))
    tl.store(y + index, 1 - 2 / (e + 1), mask=inside)


def launch_tanh(x: Any, *, out: Any) -> None:
    """In two steps, with a temporary tensor from torch's allocator, which a CUDA graph must keep."""
    doubled = torch.empty_like(x)
    torch.add(x, x, out=doubled)
    torch.mul(doubled, 0.5, out=doubled)
    tanh_kernel[(triton.cdiv(x.numel(), 256),)](doubled, out, x.numel(), BLOCK=256)


@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["count"])
@triton.jit
def tuned_kernel(x, y, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    tl.store(y + index, 3 * tl.load(x + index, mask=inside), mask=inside)


def launch_tuned(x: Any, *, out: Any) -> None:
    tuned_kernel[lambda options: (triton.cdiv(x.numel(), options["BLOCK"]),)](x, out, x.numel())


@triton.jit
def add_numbers(x1, x2):
    return x1 + x2


@triton.jit
def leaky(x, alpha):
    return tl.where(x > 0, x, x * alpha)


def only_float32(call: CallInfo) -> str | None:
    dtype = call.outputs()[0].dtype
    return None if dtype == "float32" else f"{dtype}, not float32"


@pytest.fixture(autouse=True)
def implementations() -> Iterator[None]:
    """The kernels of this file, removed after each test."""
    DIALECT.implement("tanh", launch_tanh, accepts=only_float32)
    DIALECT.implement("negative", launch_tuned, accepts=only_float32)  # 3 x tells that it ran
    DIALECT.implement("add", pointwise(add_numbers))
    DIALECT.implement("leaky_relu", pointwise(leaky))
    yield
    DIALECT.remove_all()


def on_gpu(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    return meta.array(array(*shape, seed=seed).numpy(), dtype=dtype, device="cuda")


def exact(x: Any) -> Any:
    return x.detach().numpy().astype(np.float64)


def machine_of(executor: Any) -> Any:
    return next(iter(executor._programs.values())).machine


# --- eager -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 100), (1000, 1001)])
def test_a_function_that_launches_kernels(shape: tuple[int, ...]) -> None:
    x = on_gpu(*shape)
    assert meta.explain("tanh", x).chosen == "triton"
    np.testing.assert_allclose(meta.tanh(x).numpy(), np.tanh(exact(x)), rtol=2e-5, atol=1e-6)


def test_falls_back_where_a_check_refuses() -> None:
    x = on_gpu(3, 4, dtype="float64")
    explained = meta.explain("tanh", x)
    assert explained.chosen == "tvm"
    assert "triton (plevel 20): float64, not float32" in str(explained)
    np.testing.assert_allclose(meta.tanh(x).numpy(), np.tanh(exact(x)), rtol=1e-12)
    on_host = array(3, 4)
    assert "triton (plevel 20): not on cpu" in str(meta.explain("tanh", on_host))
    np.testing.assert_allclose(meta.tanh(on_host).numpy(), np.tanh(exact(on_host)), rtol=1e-5)


def test_an_autotuned_kernel() -> None:
    x = on_gpu(3, 1000)
    np.testing.assert_allclose(meta.negative(x).numpy(), 3 * exact(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((5, 7), (5, 7)), ((5, 7), (7,)), ((5, 1), (1, 7)), ((2, 3, 4, 5), (3, 1, 5)), ((), (3,)), ((), ()),
        ((0, 3), (3,)), ((1, 1), (1,)), ((2, 1, 3, 1), (1, 4, 1, 5)), ((1001, 1003), (1001, 1)), ((4096, 4096), ()),
    ],
)  # fmt: skip
def test_pointwise_broadcasts(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    x, y = on_gpu(*first), on_gpu(*second, seed=1)
    assert meta.explain("add", x, y).chosen == "triton"
    result = meta.add(x, y)
    assert result.shape == np.broadcast_shapes(first, second)
    np.testing.assert_allclose(result.numpy(), exact(x) + exact(y), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8"])
def test_pointwise_in_every_dtype(dtype: str) -> None:
    x = meta.array([1, 2, 3], dtype=dtype, device="cuda")
    assert meta.add(x, x).dtype == dtype
    assert exact(meta.add(x, x)).tolist() == [2, 4, 6]
    assert exact(meta.add(x, 2)).tolist() == [3, 4, 5]


def test_pointwise_promotes_and_takes_numbers() -> None:
    integers, floats = meta.array([1, 2], dtype="int32", device="cuda"), on_gpu(2)
    np.testing.assert_allclose(meta.add(integers, floats).numpy(), np.array([1, 2]) + exact(floats), rtol=1e-6)
    double = on_gpu(5, dtype="float64")
    np.testing.assert_allclose(meta.add(double, 0.1).numpy(), exact(double) + 0.1, rtol=1e-15)
    for alpha in (0.25, 0.5):
        x = on_gpu(4, 5)
        assert meta.explain("leaky_relu", x, alpha).chosen == "triton"
        expected = np.where(exact(x) > 0, exact(x), exact(x) * alpha)
        np.testing.assert_allclose(meta.leaky_relu(x, alpha).numpy(), expected, rtol=1e-6)


def test_reports_errors_of_a_kernel_at_its_launch() -> None:
    def failing(x: Any, *, out: Any) -> None:
        tanh_kernel[(1,)](x, out, BLOCK=256)  # without the count

    DIALECT.implement("tanh", failing, override=True)
    with pytest.raises(KernelError, match=r"\[tanh\] its triton implementation raised TypeError") as caught:
        meta.tanh(on_gpu(3))
    assert caught.value.location.startswith(__file__)


# --- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_of_first_and_second_order() -> None:
    x = on_gpu(4, 5)
    x.requires_grad = True
    meta.tanh(x).sum().backward()
    t = np.tanh(exact(x))
    np.testing.assert_allclose(x.grad.numpy(), 1 - t**2, rtol=1e-4, atol=1e-5)
    (first,) = meta.autograd.grad(meta.tanh(x).sum(), [x], create_graph=True)
    (second,) = meta.autograd.grad(first.sum(), [x])
    np.testing.assert_allclose(second.numpy(), -2 * t * (1 - t**2), rtol=1e-3, atol=1e-4)


def test_opcheck_on_the_gpu() -> None:
    opcheck("tanh", (on_gpu(3, 4),), device="cuda")
    opcheck("add", (on_gpu(3, 4), on_gpu(4, seed=1)), device="cuda")


def test_agrees_with_the_other_dialects() -> None:
    x, y = on_gpu(64, 33), on_gpu(33, seed=1)
    for op, arguments in (("tanh", (x,)), ("add", (x, y)), ("leaky_relu", (x, 0.25))):
        results = []
        for name in ("triton", "tvm"):
            with meta.with_dialect(name):
                results.append(getattr(meta, op)(*arguments).numpy())
        np.testing.assert_allclose(results[0], results[1], rtol=2e-5, atol=1e-6, err_msg=op)


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graphs", [True, False])
def test_programs(graphs: bool) -> None:
    """Results of earlier calls stay, also those of a recorded graph, which has memory of its own."""
    program = meta.trace(lambda x, y: (meta.tanh(x + y) * 2.0, meta.negative(x)))
    executor = meta.vm.compile(program, device="cuda", graphs=graphs)
    calls = []
    for seed in range(6):
        x, y = on_gpu(8, 16, seed=seed), on_gpu(16, seed=seed + 9)
        calls.append((x, y, *executor(x, y)))
    for x, y, first, second in calls:
        np.testing.assert_allclose(first.numpy(), 2 * np.tanh(exact(x) + exact(y)), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(second.numpy(), 3 * exact(x), rtol=1e-6)
    explained = executor.explain(x, y)
    for name in ("triton.tanh", "triton.add", "triton.negative"):
        assert name in explained
    if graphs:
        assert machine_of(executor).graph, machine_of(executor).refusal


def test_temporary_memory_of_a_recorded_graph_is_not_reused() -> None:
    executor = meta.vm.compile(meta.trace(lambda x: meta.tanh(x)), device="cuda")
    for seed in range(4):
        executor(on_gpu(256, 256, seed=seed))
    assert machine_of(executor).graph, machine_of(executor).refusal
    noise = [torch.full((256, 256), 7.0, device="cuda") for _ in range(64)]
    x = on_gpu(256, 256, seed=5)
    np.testing.assert_allclose(executor(x).numpy(), np.tanh(exact(x)), rtol=2e-5, atol=1e-6)
    assert all(bool((each == 7.0).all()) for each in noise)


def test_gradients_in_a_recorded_graph() -> None:
    @meta.trace
    def loss_and_gradient(x: Any) -> Any:
        loss = meta.tanh(x).sum()
        loss.backward()
        return loss, x.grad

    executor = meta.vm.compile(loss_and_gradient, device="cuda")
    for seed in range(6):
        x = on_gpu(5, 9, seed=seed)
        x.requires_grad = True
        loss, gradient = executor(x)
        t = np.tanh(exact(x))
        np.testing.assert_allclose(loss.item(), t.sum(), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(gradient.numpy(), 1 - t**2, rtol=1e-4, atol=1e-5)
    assert machine_of(executor).graph, machine_of(executor).refusal
    assert "triton.tanh" in executor.explain(x)


def test_a_new_program_uses_a_new_kernel_and_a_compiled_one_keeps_its_own() -> None:
    first = meta.vm.compile(meta.trace(lambda x: meta.negative(x)), device="cuda")
    x = on_gpu(16)
    for _ in range(4):
        np.testing.assert_allclose(first(x).numpy(), 3 * exact(x), rtol=1e-6)
    DIALECT.remove("negative")
    second = meta.vm.compile(meta.trace(lambda x: meta.negative(x)), device="cuda")
    np.testing.assert_allclose(second(x).numpy(), -exact(x), rtol=1e-6)
    np.testing.assert_allclose(meta.negative(x).numpy(), -exact(x), rtol=1e-6)
    np.testing.assert_allclose(first(x).numpy(), 3 * exact(x), rtol=1e-6)


# --- streams and devices ---------------------------------------------------------------------------------------------


def test_runs_on_the_current_stream() -> None:
    """The operand is written by work queued on a side stream before, which a kernel on another stream would not see."""
    source = torch.zeros(1000, device="cuda")
    x = meta.from_dlpack(source)
    for op in (meta.tanh, lambda value: meta.add(value, value)):
        op(x)  # compiles
    meta.synchronize("cuda")
    side = torch.cuda.Stream()
    for op, expected in ((meta.tanh, np.tanh(2.0)), (lambda value: meta.add(value, value), 4.0)):
        source.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
            source.fill_(2.0)
        with meta.use_stream(side.cuda_stream):
            result = op(x)
            meta.synchronize("cuda")
            np.testing.assert_allclose(result.numpy(), np.full(1000, expected), rtol=1e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_runs_on_the_device_of_its_operands() -> None:
    """Whichever device torch has made the current one before."""
    x = meta.array(array(100).numpy(), device="cuda:1")
    for current in (0, 1, 0):
        torch.cuda.set_device(current)
        np.testing.assert_allclose(meta.tanh(x).numpy(), np.tanh(exact(x)), rtol=2e-5, atol=1e-6)
        torch.cuda.set_device(current)
        np.testing.assert_allclose(meta.add(x, x).numpy(), 2 * exact(x), rtol=1e-6)
        torch.cuda.set_device(current)
        np.testing.assert_array_equal(x.to("cuda:0").numpy(), x.numpy())
    torch.cuda.set_device(0)
