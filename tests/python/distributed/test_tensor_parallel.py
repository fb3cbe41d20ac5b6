"""Steps with parts of parameters: their programs, plans and errors, for ranks that do not exist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

import meta
from meta import distributed, nn
from meta.dim import sym
from meta.distributed import shard
from meta.errors import ArgumentError, NotSupportedError
from meta.ir.type import tensor_type
from tests.python.distributed.models import LAYERS, VOCABULARY, Encoder
from tests.python.distributed.test_partition import collectives

TP = distributed.Group("tp", 2)


def _mlp(**settings: Any) -> Any:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
    return meta.optim.TrainStep(model, meta.optim.SGD(model, 0.1), loss=meta.mse_loss, **settings)


COLUMNS_ROWS = {"layers.0.*": shard(0), "layers.2.w": shard(1)}


def _divided(plan: Mapping[str, Any] = COLUMNS_ROWS, ranks: int = 2, **settings: Any) -> Any:
    return distributed.tensor_parallel(plan, distributed.Group("tp", ranks), broadcast=False)(_mlp(**settings))


PROGRAM = """
  %0: Tensor[(3, 4), "float32"] = stop_gradient(%layers.0.w)
  %1: Tensor[(3,), "float32"] = stop_gradient(%layers.0.b)
  %2: Tensor[(4, 3), "float32"] = stop_gradient(%layers.2.w)
  %3: Tensor[(5, 3), "float32"] = dense(%args.0, %0, %1)
  %4: Tensor[(5, 3), "float32"] = relu(%3)
  %5: Tensor[(5, 4), "float32"] = dense(%4, %2)
  %6: Tensor[(5, 4), "float32"] = all_reduce(%5, group="tp", ranks=2)
  %7: Tensor[(5, 4), "float32"] = add(%6, %layers.2.b)
  %8: Tensor[(), "float32"] = mse_loss(%7, %args.1)
  %9: Tensor[(), "float32"] = ones(shape=(), device=device("cpu"))
  %10: Tensor[(5, 4), "float32"] = mse_loss_dx(%7, %args.1, %9)
  %11: Tensor[(5, 3), "float32"] = matmul(%10, %2)
  %12: Tensor[(4, 3), "float32"] = matmul(%10, %4, transpose_a=True)
  %13: Tensor[(4,), "float32"] = sum_to(%10, shape=(4,))
  %14: Tensor[(5, 3), "float32"] = relu_dx(%4, %11)
  %15: Tensor[(3, 4), "float32"] = matmul(%14, %args.0, transpose_a=True)
  %16: Tensor[(3,), "float32"] = sum_to(%14, shape=(3,))
"""


def test_the_program_of_columns_and_rows() -> None:
    text = re.sub(r"  # .*", "", _divided().ir(meta.ones((5, 4)), meta.ones((5, 4))))
    assert text.partition("{\n")[2].partition("  %17")[0] == PROGRAM.lstrip("\n"), text


def test_norms_of_gradients_cover_all_parts() -> None:
    module = _divided(clip_norm=1.0).record(meta.ones((5, 4)), meta.ones((5, 4))).module
    assert collectives(module) == {"all_reduce": 2}  # that of the forward pass, and one of the sum of squares


class Gated(meta.Model):
    """Queries, keys and values of one product, split along its last axis; a gate; scores by the embedding's table."""

    def build(self) -> None:
        self.embedding, self.scale = nn.Embedding(12, 8), meta.ones(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        h = self.embedding(x)
        parts = meta.split(self.qkv(meta.rms_norm(h, self.scale)), 3, -1)
        q, k, v = (part.reshape(*x.shape, 4, 2).transpose((0, 2, 1, 3)) for part in parts)
        y = meta.scaled_dot_product_attention(q, k, v, is_causal=True).transpose((0, 2, 1, 3))
        h = h + self.out(y.reshape(*x.shape, 8))
        h = h + self.down(meta.silu(self.gate(h)) * self.up(h))
        return meta.dense(h, self.embedding.w).reshape(-1, 12)


def test_gates_and_fused_projections_need_nothing_more() -> None:
    model = Gated()
    step = meta.optim.TrainStep(model, meta.optim.SGD(model, 0.1), loss=meta.cross_entropy)
    plan = {
        "embedding.w": shard(0), "qkv.*": shard(0, blocks=3), "out.w": shard(1), "gate.*": shard(0), "up.*": shard(0),
        "down.w": shard(1),
    }  # fmt: skip
    distributed.tensor_parallel(plan, TP, broadcast=False)(step)
    module = step.record(tensor_type((2, 3), "int64"), tensor_type((6,), "int64")).module
    assert collectives(module) == {"all_reduce": 4 + 1 + 3 + 1}


@pytest.mark.parametrize("stage", [1, 3])
def test_zero_over_another_axis_leaves_the_parts_apart(stage: int) -> None:
    step = distributed.zero(stage, distributed.Group("dp", 4), broadcast=False)(_divided())
    plan = distributed.plan(step, meta.ones((5, 4)), meta.ones((5, 4)))
    assert [(c.operator, c.calls) for c in plan.collectives if c.group == "tp"] == [("all_reduce", 1)]


@pytest.mark.parametrize("batch", [5, sym("n")], ids=str)
def test_a_transformer_sums_twice_in_each_direction_of_a_layer(batch: Any) -> None:
    model = Encoder()
    step = meta.optim.TrainStep(model, meta.optim.SGD(model, 0.1), loss=meta.cross_entropy)
    distributed.tensor_parallel(LAYERS | {"embedding.w": shard(0)}, TP, broadcast=False)(step)
    inputs = tensor_type((batch, 3), "int64"), tensor_type((batch * 3,), "int64")
    module = step.record(*inputs).module
    # Two layers; the embedding, three rows of numbers of the loss, and the gradient of the last layer's result.
    assert collectives(module) == {"all_reduce": 2 * 4 + 1 + 3 + 1}
    assert VOCABULARY % TP.ranks == 0


def test_parts_are_what_the_model_and_the_optimizer_hold() -> None:
    step = _divided()
    assert {name: x.shape for name, x in step.model.named_parameters()} == {
        "layers.0.w": (3, 4), "layers.0.b": (3,), "layers.2.w": (4, 3), "layers.2.b": (4,),
    }  # fmt: skip
    assert [x.shape for x in step.optimizer.parameters] == [(3, 4), (3,), (4, 3), (4,)]
    assert step.optimizer.slots["velocity"]["layers.0.w"].shape == (3, 4)


def test_the_plan_says_where_arrays_are() -> None:
    step = distributed.zero(2, distributed.Group("dp", 4), broadcast=False)(_divided())
    plan = distributed.plan(step, meta.ones((5, 4)), meta.ones((5, 4)))
    rows = {row.name: (row.share, row.where) for row in plan.arrays}
    assert rows["layers.0.w"] == (0.5, "axis 0 over tp")
    assert rows["layers.0.w.shard.velocity"] == (0.125, "axis 0 over tp, elements over dp")
    assert rows["layers.2.b.shard.velocity"] == (0.25, "elements over dp")
    assert rows["layers.2.b"] == (1.0, "each rank")
    assert {c.group for c in plan.collectives} == {"tp", "dp"}
    assert "axis 0 over tp, elements over dp" in str(plan)


ERRORS: list[tuple[Mapping[str, Any], str]] = [
    ({"layer.0.w": shard(0)}, r"\[tensor_parallel\] no parameter is called 'layer.0.w'; expected patterns of names "
     r"among layers.0.w, layers.0.b, layers.2.w, layers.2.b; did you mean 'layers.0.w'"),
    ({"layers.0.*": shard(0), "*.w": shard(1)}, r"'layers.0.w' is matched by 'layers.0.\*' and by '\*.w'; expected one "
     "pattern for each parameter"),
    ({"layers.0.b": shard(1)}, r"'layers.0.b' has shape \(6,\), and is divided along axis 1; expected an axis below 1"),
    ({"layers.0.w": shard(0, blocks=2)}, "axis 0 of 'layers.0.w' has size 6, which 2 blocks times 2 ranks do not "
     "divide; expected a multiple of 4; choose another axis, or leave it whole"),
    ({"layers.0.w": 0}, r"the plan has 'layers.0.w': 0; expected a dict of patterns, such as "),
    ({}, r"the plan is \{\}; expected a dict of patterns"),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "text"), ERRORS)
def test_plans_that_do_not_fit_are_refused(plan: Mapping[str, Any], text: str) -> None:
    step = _mlp()
    with pytest.raises(ArgumentError, match=text):
        distributed.tensor_parallel(plan, TP, broadcast=False)(step)
    assert step.exchange is None
    assert step.model.layers[0].w.shape == (6, 4)


def test_steps_that_do_not_fit_are_refused() -> None:
    wrap = distributed.tensor_parallel(COLUMNS_ROWS, TP, broadcast=False)
    with pytest.raises(ArgumentError, match="the step takes part in an exchange already, over group 'tp'"):
        wrap(_divided())
    with pytest.raises(NotSupportedError, match="zero has divided the parameters already; expected whole ones; apply"):
        wrap(distributed.zero(1, distributed.Group("dp", 2), broadcast=False)(_mlp()))
    model = nn.Linear(4, 4)
    with pytest.raises(NotSupportedError, match="LAMB reads whole parameters to update them"):
        wrap(meta.optim.TrainStep(model, meta.optim.LAMB(model, 0.1)))
    with pytest.raises(NotSupportedError, match="would find only the overflows in this rank's parts"):
        wrap(meta.optim.TrainStep(model, meta.optim.SGD(model, 0.1), scaler=meta.amp.GradScaler()))
    function = meta.optim.TrainStep(lambda x: meta.sum(model(x)), meta.optim.SGD(model, 0.1))
    with pytest.raises(NotSupportedError, match=r"the model is of class function; expected a meta\.Model"):
        wrap(function)
    with pytest.raises(ArgumentError, match=r"\[shard\] blocks is 0; expected an int above 0"):
        shard(0, blocks=0)
