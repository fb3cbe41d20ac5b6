"""A training step as one program: forward, backward, update, running statistics, random numbers."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import nn, passes
from meta.ir.analysis import op_counts
from meta.ir.expr import MUTATES
from meta.optim.sgd import with_sgd
from tests.python.recorded import assert_equal, check_ir, execute


class Net(meta.Model):
    def build(self):
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.25)
        self.last = nn.Linear(4 * 4 * 4, 10)

    def forward(self, x):
        h = meta.max_pool2d(meta.relu(self.norm(self.conv(x))), 2, 2)
        return self.last(self.dropout(h.reshape((x.shape[0], -1))))


def step_and_batch():
    meta.random.seed(0)
    step = with_sgd(0.1, 0.9)(Net(), loss=meta.cross_entropy)
    rng = np.random.default_rng(0)
    x = meta.array(rng.standard_normal((8, 1, 8, 8)).astype("float32"))
    return step, (x, meta.array(rng.integers(0, 10, 8)))


def losses(run, batch, steps=4):
    meta.random.seed(3)
    return [run(*batch).item() for _ in range(steps)]


@pytest.fixture(scope="module", name="eager")
def eager_run():
    step, batch = step_and_batch()
    return losses(step, batch), {name: x.detach().numpy().copy() for name, x in step.named_state()}


@pytest.mark.parametrize("optimize", [False, True])
def test_program_agrees_with_the_step(eager, optimize):
    step, batch = step_and_batch()
    record = step.record(*batch)
    module = passes.standard()(record.module) if optimize else record.module
    check_ir(module)
    expected, state = eager
    result = losses(lambda *b: execute(record, *b, module=module), batch)
    np.testing.assert_allclose(result, expected, rtol=1e-4)
    for name, x in step.named_state():
        np.testing.assert_allclose(x.detach().numpy(), state[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_writes_every_parameter_statistic_and_slot():
    step, batch = step_and_batch()
    main = step.record(*batch).main
    updated = {main.params[index].name for index in main.attrs[MUTATES].values()}
    parameters = {name for name, _ in step.model.named_parameters()}
    assert updated == parameters | {f"{n}.velocity" for n in parameters} | {"norm.running_mean", "norm.running_var"}
    numbers = {"learning_rate", "momentum", "weight_decay"}
    assert {p.name for p in main.params} - updated == {"args.0", "args.1", "key"} | numbers


def test_mixed_precision_trains_and_casts_each_weight_once(eager):
    step, batch = step_and_batch()
    record = step.record(*batch)
    module = check_ir(passes.standard()(passes.auto_cast("bfloat16")(record.module)))
    result = losses(lambda *b: execute(record, *b, module=module), batch)
    np.testing.assert_allclose(result, eager[0], rtol=5e-2)
    assert [p.type for p in module.main.params] == [p.type for p in record.main.params]
    low = [b.value.args[0] for b in module.main.body.bindings
           if getattr(b.value, "op_name", "") == "cast" and b.var.type.dtype == "bfloat16"]  # fmt: skip
    assert len(low) == len(set(low))


def test_inference_records_another_program():
    step, batch = step_and_batch()
    model = step.model
    trained, again = model.record(batch[0]), model.infer_mode().record(batch[0])
    assert "batch_norm_train" in op_counts(trained.main)
    assert op_counts(again.main).keys() >= {"batch_norm_infer"}
    assert again.random == ()
    assert MUTATES not in again.main.attrs
    assert_equal(execute(again, batch[0]), model(batch[0]), rtol=1e-4)
