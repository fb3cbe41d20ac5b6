"""CUDA arrays, memory, streams, DLPack and programs. The module is skipped without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.backend.cuda import streams
from meta.errors import DeviceError
from meta.optim.sgd import with_sgd
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


def randoms(*shape: int, seed: int = 0, device: str = "cuda") -> Any:
    return meta.array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), device=device)


def test_copies_to_the_device_and_back() -> None:
    host = np.random.default_rng(0).standard_normal((300, 7)).astype(np.float32)
    x = meta.array(host, device="cuda")
    assert str(x.device) == "cuda"
    np.testing.assert_array_equal(x.numpy(), host)
    np.testing.assert_array_equal(x.to("cpu").numpy(), host)
    np.testing.assert_array_equal(meta.array(host).to("cuda").numpy(), host)
    assert meta.array(np.zeros((0, 3), np.float32), device="cuda").numpy().shape == (0, 3)
    x[2:4] = 1.0
    assert (x.numpy()[2:4] == 1).all()


def test_copies_of_arrays_and_tensors_stay_on_their_device() -> None:
    x, tensor = randoms(3, 2), torch.ones(3, 2, device="cuda")
    for copied in (meta.array(x), meta.asarray(x), meta.array(tensor), meta.asarray(tensor)):
        assert str(copied.device) == "cuda"
    assert str(meta.array(x, device="cpu").device) == "cpu"
    x.__array_namespace__().asarray(tensor, copy=False)[0] = 2
    assert tensor[0].tolist() == [2, 2]


def test_results_and_gradients_are_on_the_device_of_their_operands() -> None:
    x, w = randoms(4, 8), randoms(8, 3, seed=1)
    w.requires_grad = True
    y = meta.relu(meta.matmul(x, w)).sum()
    y.backward()
    assert w.grad is not None
    assert str(w.grad.device) == "cuda"
    expected = x.numpy().T @ ((x.numpy() @ w.detach().numpy()) > 0).astype(np.float32)
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(meta.errors.MetaError, match="cuda"):
        meta.add(x, meta.array(np.ones((4, 8), np.float32)))


def test_repeated_calls_make_no_driver_calls() -> None:
    x = randoms(256, 256)
    y = meta.tanh(x + x)
    before = meta.device_memory_stats("cuda").driver_calls
    for _ in range(500):
        y = meta.tanh(x + x)
    assert meta.device_memory_stats("cuda").driver_calls - before <= 2
    np.testing.assert_allclose(y.numpy(), np.tanh(2 * x.numpy()), rtol=1e-5, atol=1e-6)


def test_frees_memory() -> None:
    x = meta.zeros((64, 1 << 20), device="cuda")
    assert meta.device_memory_stats("cuda").in_use >= x.nbytes
    size = x.nbytes
    before = meta.device_memory_stats("cuda").peak_reserved
    del x
    assert meta.device_memory_stats("cuda").cached >= size
    meta.empty_cache("cuda")
    meta.reset_peak_memory("cuda")
    assert meta.device_memory_stats("cuda").peak_reserved <= before - size
    assert meta.device_memory_stats("cuda").cached < size


def test_recovers_from_running_out_of_memory() -> None:
    with pytest.raises(DeviceError, match=r"cannot allocate 4,194,304\.0 MiB on cuda: .* in use, .* cached"):
        meta.zeros((1 << 20, 1 << 20), device="cuda")
    assert meta.ones((2,), device="cuda").numpy().tolist() == [1, 1]


def test_work_runs_in_stream_order() -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    x = randoms(2000, 2000)
    meta.synchronize("cuda")
    with meta.use_stream(stream.cuda_stream):
        y = x + 0.0
        for _ in range(50):
            y = meta.matmul(x, x) * 0.0 + y  # kernels of torch and meta on the same stream
        result = y.numpy()
    np.testing.assert_array_equal(result, x.numpy())


def test_dlpack_synchronises_with_the_stream_of_torch() -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    x = randoms(3000, 3000)
    for turn in range(5):
        y = x + float(turn)
        with torch.cuda.stream(stream):
            theirs = torch.from_dlpack(y) * 2  # waits for the default stream
            ours = meta.from_dlpack(theirs)  # the default stream waits for theirs
        del y
        z = meta.zeros((3000, 3000), device="cuda")  # may reuse the memory of y after torch has finished with it
        np.testing.assert_allclose(ours.numpy(), 2 * (x.numpy() + turn), rtol=1e-6)
        assert not z.numpy().any()
    t = torch.arange(6.0, device="cuda")
    shared = meta.from_dlpack(t)
    t += 1
    torch.cuda.synchronize()
    np.testing.assert_array_equal(shared.numpy(), t.cpu().numpy())


class Net(meta.Model):
    """Convolution, batch norm, pooling, dropout: parameters, buffers and random keys."""

    def build(self, p: float) -> None:
        self.conv = meta.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = meta.nn.BatchNorm2d(4)
        self.drop = meta.nn.Dropout(p)
        self.last = meta.nn.Linear(4 * 4 * 4, 10)

    def forward(self, x: Any) -> Any:
        h = meta.max_pool2d(meta.relu(self.norm(self.conv(x))), 2)
        return self.last(self.drop(h.reshape((h.shape[0], -1))))


def net(device: str, p: float) -> Net:
    meta.random.seed(1)
    return Net(p).to(device)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_training_steps_match_the_cpu(graphs: bool, p: float) -> None:
    steps = {d: with_sgd(0.05, 0.9)(net(d, p), loss=meta.cross_entropy) for d in ("cpu", "cuda")}
    runs = {d: meta.vm.compile(s, device=d, graphs=graphs) for d, s in steps.items()}
    for seed in range(6):
        labels = np.random.default_rng(seed).integers(0, 10, 6)
        losses = []
        for device, run in runs.items():
            meta.random.seed(seed)
            losses.append(run(randoms(6, 1, 8, 8, seed=seed, device=device), meta.array(labels, device=device)).item())
        assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    for (name, a), (_, b) in zip(steps["cpu"].named_state(), steps["cuda"].named_state(), strict=True):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), atol=2e-4, rtol=1e-3, err_msg=name)


def test_records_a_graph_and_keeps_earlier_results() -> None:
    executor = meta.vm.compile(meta.trace(lambda x, y: (meta.softmax(x @ y), x + 1.0)), device="cuda")
    results = []
    for seed in range(6):
        x, y = randoms(8, 16, seed=seed), randoms(16, 4, seed=seed + 9)
        results.append((executor(x, y), x, y))
    for (soft, plus), x, y in results:  # every call returns new memory
        np.testing.assert_allclose(plus.numpy(), x.numpy() + 1, rtol=1e-6)
        np.testing.assert_allclose(soft.numpy(), meta.softmax(x @ y).numpy(), rtol=1e-4, atol=1e-6)
    machine = next(iter(executor._programs.values())).machine
    assert machine.graph, machine.refusal


def test_runs_programs_without_graphs() -> None:
    x = randoms(6, 5)
    executor = meta.vm.compile(meta.trace(lambda x: meta.softmax(x) * 2.0), device="cuda", graphs=False)
    np.testing.assert_allclose(executor(x).numpy(), meta.softmax(x).numpy() * 2, rtol=1e-5)


def test_current_stream_is_the_default_one() -> None:
    assert streams.stream_getter(meta.array([1.0], device="cuda").device)() == 0
