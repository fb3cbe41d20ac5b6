"""Inputs that were exported with sizes such as `2*h` and `h + 1`: from_exported solves for the sizes that they are
computed from, in eager calls, compiled programs and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.dim import sym
from meta.errors import ArgumentError, IRError
from meta.frontend.torch import from_exported

torch = pytest.importorskip("torch")
nn = torch.nn
Dim = torch.export.Dim


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any], count: int) -> None:
        super().__init__()
        self.function, self.count = function, count

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


@dataclass(frozen=True)
class Case:
    """shapes: of the inputs, for calls; the program is exported with the first."""

    name: str
    module: Callable[[], Any]
    sizes: Sequence[Mapping[int, Any] | None]
    shapes: Sequence[Sequence[tuple[int, ...]]]


def _function(function: Callable[..., Any], count: int = 1) -> Callable[[], Any]:
    return lambda: Function(function, count)


def _skip_network() -> Any:
    """Halves images, doubles them and joins both, as segmentation networks do."""

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(3, 4, 3, 2, 1), nn.ConvTranspose2d(4, 3, 2, 2)

        def forward(self, x: Any) -> Any:
            return torch.cat([x, self.up(torch.relu(self.down(x)))], 1).mean(1)

    return Network()


h, w = Dim("h", min=2, max=50), Dim("w", min=2, max=50)
CASES = [
    Case("double", _function(lambda x: x.reshape(2, -1).sum(0) * x.shape[0]), [{0: 2 * h}], [[(8,)], [(6,)], [(20,)]]),
    Case("one more", _function(lambda x: x[1:] - x[:-1]), [{0: h + 1}], [[(8, 3)], [(6, 3)], [(20, 3)]]),
    Case("odd", _function(lambda x: x[::2] * x.shape[0]), [{0: 2 * h + 1}], [[(9,)], [(5,)], [(21,)]]),
    Case("one less", _function(lambda x: torch.cat([x, x]).cumsum(0)), [{0: h - 1}], [[(9,)], [(5,)], [(21,)]]),
    Case(
        "with the size itself", _function(lambda x, y: torch.cat([x[::2], y]) + y.shape[0], 2),
        [{0: 2 * h}, {0: h}], [[(8,), (4,)], [(6,), (3,)]],
    ),
    Case(
        "two multiples", _function(lambda x, y: x[::2] + y[::3], 2),
        [{0: 2 * h}, {0: 3 * h}], [[(8,), (12,)], [(20,), (30,)]],
    ),
    Case(
        "sum and multiple", _function(lambda x, y: x[1:] @ y.reshape(2, -1).T, 2),
        [{0: h + 1}, {0: 2 * h}], [[(9,), (16,)], [(5,), (8,)]],
    ),
    Case("halves", _function(lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1]), [{1: 2 * h}], [[(2, 8)], [(2, 4)]]),
    Case(
        "parts", _function(lambda x: x.split([2 * (x.shape[0] // 3), x.shape[0] // 3])[1]),
        [{0: 3 * h}], [[(6,)], [(9,)]],
    ),
    Case(
        "pixels", _function(lambda x: torch.nn.functional.pixel_unshuffle(x, 2) * 2), [{1: 2 * h, 2: 2 * w}],
        [[(3, 8, 6)], [(3, 4, 10)]],
    ),
    Case("height and width", _skip_network, [{2: 2 * h, 3: 4 * w}], [[(1, 3, 8, 12)], [(1, 3, 6, 8)]]),
]  # fmt: skip


def _arrays(shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    return [meta.array(np.random.default_rng(i).standard_normal(s).astype("float32")) for i, s in enumerate(shapes)]


def _tensors(arrays: Sequence[Any]) -> list[Any]:
    return [torch.from_numpy(x.numpy().copy()) for x in arrays]


def _exported(case: Case) -> tuple[Any, Any]:
    torch.manual_seed(0)
    module = case.module()
    args = tuple(torch.randn(s) for s in case.shapes[0])
    sizes = tuple(case.sizes) if not isinstance(module, Function) else (tuple(case.sizes),)
    return module, torch.export.export(module, args, dynamic_shapes=sizes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sizes_are_solved_for(case: Case, tmp_path: Path) -> None:
    module, program = _exported(case)
    torch.export.save(program, tmp_path / "model.pt2")
    model = meta.frontend.torch.from_exported(program)
    executor = meta.vm.compile(model)
    compiled = meta.vm.compile(meta.frontend.torch.from_exported(tmp_path / "model.pt2"))
    for shapes in case.shapes:
        inputs = _arrays(shapes)
        expected = module(*_tensors(inputs)).detach().numpy()
        for run in (model, executor, compiled):
            np.testing.assert_allclose(run(*inputs).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert len(executor._programs) == len(compiled._programs) == 1
    executor.save(str(tmp_path / "program"))
    saved = meta.vm.load(str(tmp_path / "program"))
    np.testing.assert_allclose(saved(*inputs).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_size_that_solves_no_equation_is_refused(compiled: bool) -> None:
    model = meta.frontend.torch.from_exported(_exported(CASES[0])[1])
    run: Any = meta.vm.compile(model) if compiled else model
    name = model._inputs[0].path
    with pytest.raises(ArgumentError, match=rf"axis 0 of '{name}' is 7; expected 2\*\w+ for a whole number \w+ from 0"):
        run(meta.ones((7,)))
    with pytest.raises(ArgumentError, match=rf"size \w+ \(axis 0 of '{name}' is 2\*\w+\) is 51; expected 2 to 50"):
        run(meta.ones((102,)))
    assert run(meta.ones((8,))).tolist() == [16.0] * 4


def test_inputs_that_disagree_are_refused() -> None:
    model = meta.frontend.torch.from_exported(_exported(CASES[5])[1])
    with pytest.raises(ArgumentError, match=r"is Tensor\[\(13,\), \"float32\"\]; expected .*3\*\w+.* with \w+ = 4"):
        model(meta.ones((8,)), meta.ones((13,)))


def test_training_with_derived_sizes() -> None:
    case = CASES[-1]
    module, program = _exported(case)
    model = meta.frontend.torch.load(program)
    step = meta.trace(lambda x: _backward(model(x).square().mean()))
    compiled = meta.vm.compile(step, dynamic={"x": {2: 2 * sym("h"), 3: 4 * sym("w")}})
    for shapes in case.shapes:
        (x,) = _arrays(shapes)
        module.zero_grad()
        loss = module(*_tensors([x])).square().mean()
        loss.backward()
        for p in model.parameters():
            p.grad = None
        np.testing.assert_allclose(compiled(x).item(), loss.item(), rtol=1e-4)
        for name, p in model.state_dict().items():
            expected = module.get_parameter(name).grad.numpy()
            np.testing.assert_allclose(p.grad.numpy(), expected, rtol=1e-3, atol=1e-5, err_msg=name)
    assert len(compiled._programs) == 1
    with pytest.raises(ArgumentError, match="axis 3 of 'x' is 6; expected 4\\*w for a whole number w from 0"):
        compiled(meta.ones((1, 3, 8, 6)))


def _backward(loss: Any) -> Any:
    loss.backward()
    return loss


def test_sizes_that_no_equation_determines() -> None:
    product = sym("h") * sym("w")
    executor = meta.vm.compile(lambda x: x + 1, dynamic={"x": {0: product}})
    with pytest.raises(IRError, match=r"the size h\*w depends on h, w, which no input has"):
        executor(meta.ones((6,)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_torch_compile_of_any_sizes(case: Case) -> None:
    torch._dynamo.reset()
    module = case.module()
    fast = torch.compile(module, backend=meta.frontend.torch.compile_backend, dynamic=True, fullgraph=True)
    for shapes in case.shapes:
        inputs = [x.requires_grad_() for x in _tensors(_arrays(shapes))]
        results = []
        for run in (module, fast):
            y = run(*inputs)
            results.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_onnx_models_of_derived_sizes(case: Case) -> None:
    ort, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    module, program = _exported(case)
    proto = meta.frontend.onnx.to_onnx(meta.frontend.torch.from_exported(program))
    onnx.checker.check_model(proto, full_check=True)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    read = meta.frontend.onnx.from_onnx(proto)
    for shapes in case.shapes:
        inputs = _arrays(shapes)
        expected = module(*_tensors(inputs)).detach().numpy()
        feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs, strict=True)}
        np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(read(*inputs).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_relax_modules_of_derived_sizes(case: Case) -> None:
    tvm = pytest.importorskip("tvm")
    module, program = _exported(case)
    relax = meta.frontend.relax.to_relax(meta.frontend.torch.from_exported(program))
    machine = tvm.relax.VirtualMachine(tvm.compile(relax, "llvm"), tvm.cpu())
    for shapes in case.shapes:
        inputs = _arrays(shapes)
        expected = module(*_tensors(inputs)).detach().numpy()
        result = machine["main"](*[tvm.runtime.tensor(x.numpy()) for x in inputs])
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_sizes_keep_the_names_that_they_were_given():
    class Product(torch.nn.Module):
        def forward(self, x, y):
            return (x @ y) + 1

    batch, time = torch.export.Dim("batch", max=64), torch.export.Dim("time")
    shapes = {"x": {0: batch, 1: 2 * time}, "y": {0: 2 * time}}
    program = torch.export.export(Product(), (torch.ones(4, 6), torch.ones(6, 8)), dynamic_shapes=shapes)
    executor = meta.vm.compile(from_exported(program))
    np.testing.assert_array_equal(executor(meta.ones((5, 8)), meta.ones((8, 8))).numpy(), np.full((5, 8), 9.0))
    with pytest.raises(ArgumentError, match=r"the size batch \(axis 0 of 'x'\) is 65; expected 0 to 64"):
        executor(meta.ones((65, 8)), meta.ones((8, 8)))
    with pytest.raises(ArgumentError, match=r"axis 1 of 'x' is 7; expected 2\*time for a whole number time"):
        executor(meta.ones((5, 7)), meta.ones((7, 8)))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("has_offsets", [False, True])
def test_bags_of_an_open_number(mode, has_offsets):
    class Bags(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = torch.nn.EmbeddingBag(10, 4, mode=mode, include_last_offset=has_offsets)

        def forward(self, x, offsets):
            return self.bag(x, offsets) if has_offsets else self.bag(x)

    def arguments(bags):
        x = torch.arange(bags * 5).reshape(bags, 5) * 7 % 10
        return (x.flatten() if has_offsets else x), torch.arange(0, 5 * bags + 1, 5)

    module = Bags().eval()
    n, batch = torch.export.Dim("n"), torch.export.Dim("batch", min=3)
    shapes = {"x": {0: n if has_offsets else batch}, "offsets": {0: batch} if has_offsets else {}}
    program = torch.export.export(module, arguments(3), dynamic_shapes=shapes)
    model = from_exported(program)
    executor = meta.vm.compile(model)
    for bags in (3, 5) if has_offsets else (3,):
        args = arguments(bags)
        arrays = [meta.array(x.numpy()) for x in args]
        for run in (model, executor):
            np.testing.assert_allclose(run(*arrays).numpy(), module(*args).detach().numpy(), atol=1e-6)
