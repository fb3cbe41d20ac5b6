"""Programs of torch.export as models: results, state, nests, dynamic sizes, training, errors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import library, nn

import meta
from meta.errors import ArgumentError
from meta.frontend.torch import TorchProgramError, UnsupportedError, examine, from_exported, load

BATCH = torch.export.Dim("batch", min=2, max=64)


class Network(nn.Module):
    """A constant, a buffer that is not persistent, tied weights, moving statistics, nests in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.tied = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.tied.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
        self.register_buffer("shift", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor, batch: dict[str, torch.Tensor], *, k: int = 2) -> dict[str, Any]:
        y = self.norm(self.tied(self.first(x))) * self.scale
        y[:, 0] = batch["a"][:, 0]
        y = y.relu_() + self.shift
        with torch.no_grad():
            z = y * k
        return {"flat": y.view(x.shape[0] * 2, -1), "rest": (z, x.shape[0], None), "k": k}


def exported(module: nn.Module, *args: Any, shapes: Any = None, **kwargs: Any) -> Any:
    return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)


X, A = torch.linspace(-1, 1, 24, dtype=torch.float64).sin().reshape(6, 4), torch.ones(6, 4, dtype=torch.float64)


@pytest.fixture(scope="module")
def network() -> tuple[Network, Any]:
    torch.manual_seed(1)
    module = Network().double().train()
    shapes = {"x": {0: BATCH}, "batch": {"a": {0: BATCH}}, "k": None}
    return module, exported(module, X, {"a": A}, k=3, shapes=shapes)


def ones(rows: int, columns: int = 4) -> meta.NDArray:
    return meta.ones((rows, columns), "float64")


def arrays(*tensors: torch.Tensor) -> list[meta.NDArray]:
    return [meta.array(x.detach().numpy()) for x in tensors]


def close(result: Any, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_results_state_and_statistics_are_torchs(network: tuple[Network, Any]) -> None:
    module, program = network
    model = load(program)
    before = {name: x.clone() for name, x in module.state_dict().items()}
    for run in (model, meta.vm.compile(model)):
        x, a = arrays(X, A)
        result, expected = run(x, {"a": a}, k=3), module(X, {"a": A}, k=3)
        close(result["flat"], expected["flat"])
        close(result["rest"][0], expected["rest"][0])
        assert result["rest"][1:] == (6, None)
        assert result["k"] == 3
        for name, value in module.state_dict().items():
            close(model.state_dict()[name], value)
    module.load_state_dict(before)


def test_state_has_torchs_names_and_shared_weights_once(network: tuple[Network, Any]) -> None:
    module, program = network
    model = load(program)
    assert sorted(model.state_dict()) == sorted(program.state_dict)
    assert model.state_dict()["first.weight"] is model.state_dict()["tied.weight"]
    assert [name for name, _ in model.named_parameters()] == ["first.weight", "first.bias", "norm.weight", "norm.bias"]
    assert all(x.requires_grad for x in model.parameters())
    assert not any(x.requires_grad for x in from_exported(program).parameters())
    assert sorted(model.constants) == ["scale", "shift"]
    model.load_torch_state_dict({name: torch.zeros_like(x) for name, x in module.state_dict().items()})
    assert model.state_dict()["first.weight"].sum().item() == 0
    module.load_state_dict(
        {name: torch.from_dlpack(x.detach()).clone() for name, x in load(program).state_dict().items()}
    )


def test_training_has_torchs_gradients(network: tuple[Network, Any]) -> None:
    module, program = network
    model = load(program)
    x, a = arrays(X, A)

    @meta.trace
    def step(x: meta.NDArray, a: meta.NDArray) -> meta.NDArray:
        loss = (model(x, {"a": a}, k=3)["flat"] ** 2.0).sum()
        loss.backward()
        return loss

    (module(X, {"a": A}, k=3)["flat"] ** 2.0).sum().backward()
    for run in (step, meta.vm.compile(step)):
        model.zero_grad()
        run(x, a)
        for name, parameter in module.named_parameters():
            close(model.state_dict()[name].grad, parameter.grad)
    module.zero_grad()


def test_dynamic_sizes_stay_open_within_their_bounds(network: tuple[Network, Any]) -> None:
    _, program = network
    model = from_exported(program)
    executor = meta.vm.compile(model)
    for rows in (2, 9):
        assert executor(ones(rows), {"a": ones(rows)}, k=3)["flat"].shape == (rows * 2, 2)
    assert len(executor._programs) == 1
    for run, where in ((model, "torch"), (executor, "vm")):
        message = rf"\[{where}\] the size batch \(axis 0 of 'x', axis 0 of 'batch.a'\) is 65; expected 2 to 64"
        with pytest.raises(ArgumentError, match=message):
            run(ones(65), {"a": ones(65)}, k=3)
        with pytest.raises(ArgumentError, match=r"input 'batch.a' is .*\(5, 4\).* with batch = 6"):
            run(ones(6), {"a": ones(5)}, k=3)


@pytest.mark.parametrize(("args", "kwargs", "message"), [
    ((1,), {}, r"\[torch\] missing a required argument: 'batch'; expected \(x, batch, k\)"),
    ((X, {"a": A}), {"k": 3}, r"input 'x' is a torch.Tensor of shape \(6, 4\); expected Tensor\[\(batch.*meta.array"),
    ((ones(6), [1]), {"k": 3}, r"argument 'batch' is \[1\]; expected a mapping with a, as exported"),
    ((ones(6), {"b": 1}), {"k": 3}, "argument 'batch' is {'b': 1}; expected a mapping with a, as exported"),
    ((ones(6), {"a": ones(6)}), {"k": 4}, "input 'k' is 4; expected 3, which the program was"),
    ((ones(6, 5), {"a": ones(6)}), {"k": 3}, r"input 'x' is Tensor\[\(6, 5\)"),
])  # fmt: skip
def test_arguments_that_do_not_fit(network: tuple[Network, Any], args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        from_exported(network[1])(*args, **kwargs)


class Pair(NamedTuple):
    total: torch.Tensor
    parts: list[torch.Tensor]


class Functional(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def test_named_tuples_and_lists_come_back() -> None:
    model = from_exported(exported(Functional(lambda x: Pair(x.sum(), [x, x * 2])), X))
    result = model(*arrays(X))
    assert type(result) is Pair
    assert type(result.parts) is list
    close(result.parts[1], X * 2)


class Scores(dict[str, Any]):
    """A mapping whose constructor looks at its tensors, as those of transformers do."""

    def __init__(self, scores: Any) -> None:
        super().__init__(scores=scores)
        self.rows = 0 if isinstance(scores, torch.Tensor) else len(list(iter(scores)))


def test_registered_mappings_come_back_and_are_dicts_in_programs() -> None:
    torch.utils._pytree.register_pytree_node(
        Scores, lambda s: (list(s.values()), list(s)), lambda values, _: Scores(*values), serialized_type_name="Scores"
    )
    shapes = {"args": ({0: BATCH},)}
    model = from_exported(exported(Functional(lambda x: Scores(x * 2)), X, shapes=shapes))
    result = model(*arrays(X))
    assert type(result) is Scores
    assert result.rows == 6
    record = model.record()
    assert record.result.keys == ("scores",)


def test_an_input_that_is_written_is_also_written_here() -> None:
    model = from_exported(exported(Functional(lambda x: x.mul_(2.0) + 1), X.clone()))
    for run in (model, meta.vm.compile(model)):
        (x,) = arrays(X.clone())
        close(run(x), X * 2 + 1)
        close(x, X * 2)


def test_an_operator_outside_of_the_table_is_decomposed_by_torch() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 1.0
        z = y.reshape(-1)
        z.mul_(2.0)  # a view or a copy: only torch knows
        return y + 1

    close(from_exported(exported(Functional(function), X))(*arrays(X)), function(X))


def test_examine_lists_operators_with_lines() -> None:
    (add, sine) = examine(exported(Functional(lambda x: x.sin() + 1), X))
    assert (add.name, sine.name, sine.count, sine.supported) == ("aten.add.Tensor", "aten.sin.default", 1, True)
    assert "test_from_exported.py:" in str(sine.places[0])


def test_refuses_what_is_not_exported() -> None:
    with pytest.raises(
        TorchProgramError, match=r"the program is torch.nn.modules.linear.Linear; expected a torch.export"
    ):
        from_exported(nn.Linear(2, 2))


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The .grad")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_refuses_sparse_tensors(layout: torch.layout) -> None:
    """Without torch's decompositions, which end the process for a buffer in compressed rows."""

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.eye(2).to_sparse(layout=layout).requires_grad_())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.matmul(self.weight.to_sparse(layout=layout), x)

    program = torch.export.export(Product().eval(), (torch.ones(2, 1),))
    with pytest.raises(UnsupportedError, match="sparse"):
        from_exported(program)


@library.custom_op("exported_tests::lacking", mutates_args=())
def lacking(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@lacking.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_lists_everything_unsupported() -> None:
    """Those inside of branches as well."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: lacking(x) + 1, lambda x: x - 1, (x,))

    problem = r"\[torch\] 1 operator is not supported: exported_tests.lacking.default \(once: "
    with pytest.raises(UnsupportedError, match=problem):
        from_exported(exported(Functional(function), X))


def test_results_have_the_dtypes_that_the_program_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the table that returns a wider integer is corrected, one that returns another kind is refused."""
    from meta.frontend.torch import graph

    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cumsum(0, dtype=torch.int32)

    x = torch.tensor([1, 2, 3])
    program = exported(Sums(), x)
    for dtype in ("int64", "float32"):
        monkeypatch.setattr(graph, "find", lambda *_, dtype=dtype: lambda x, *_, **__: meta.cumsum(x, 0).cast(dtype))
        if dtype == "int64":
            result = from_exported(program)(meta.array(x.numpy()))
            assert (result.dtype, result.tolist()) == ("int32", [1, 3, 6])
        else:
            problem = r"node 'cumsum': .*its result is float32 here, and int32 in the program"
            with pytest.raises(UnsupportedError, match=problem):
                from_exported(program)


def test_tensors_that_export_left_without_values() -> None:
    class Gradient(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.func.grad(lambda y: (y.sin() * y).sum())(x)

    program = torch.export.export(Gradient(), (torch.randn(2, 3),))
    with pytest.raises(UnsupportedError, match=r"the tensor 'lifted_tensor_0' of the exported program has no values"):
        from_exported(program)
