"""`meta.amp.rules` and `meta.amp.report`, the number of casts of a transformer, and the agreement with torch."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import meta
from benchmarks import amp_agreement
from benchmarks.bert import MINI, Bert
from meta import passes
from meta.errors import ArgumentError, RegistryError
from meta.ir.expr import Call, operands
from meta.ir.visitor import walk


@pytest.fixture(scope="module")
def bert() -> tuple[object, tuple[object, object]]:
    step = meta.optim.sgd.with_sgd(0.01, 0.9)(Bert(MINI), loss=meta.cross_entropy)
    indices = np.zeros((8, 64), np.int64)
    return step, (meta.array(indices), meta.array(indices.ravel()))


def model_and_input():
    meta.random.seed(0)
    return meta.nn.Linear(8, 4), meta.zeros((2, 8))


def test_rules_name_every_operator():
    rules = meta.amp.rules()
    assert rules["dense"] == "always"
    assert rules["softmax"] == "never"
    assert rules["relu"] == "infer"
    assert rules["cast"] == "keep"
    assert len(rules) > 200


def test_rules_include_overrides():
    with meta.amp.autocast("bfloat16", overrides={"dense": "never"}):
        assert meta.amp.rules()["dense"] == "never"
        assert meta.amp.rules({"dense": "keep"})["dense"] == "keep"
    assert meta.amp.rules({"softmax": "infer"})["softmax"] == "infer"
    assert meta.amp.rules()["softmax"] == "never"


def test_unknown_rules_are_refused():
    with pytest.raises(ArgumentError, match=r"\[rules\] the rule of 'dense' is 'often'; expected 'always'"):
        meta.amp.rules({"dense": "often"})
    with pytest.raises(RegistryError, match="dens3"):
        meta.amp.report(meta.relu, meta.ones((2,)), overrides={"dens3": "never"})


def test_a_report_has_precision_reason_and_casts():
    model, x = model_and_input()
    report = meta.amp.report(lambda x: meta.softmax(model(x)), x)
    entries = {o.operator: (o.dtype, o.reason) for o in report.operators}
    assert entries["dense"] == ("bfloat16", "always: runs in the low precision")
    assert entries["softmax"] == ("float32", "never: runs in float32")
    assert report.cast_count == 4  # x, w, bias, and the operand of softmax
    assert report.cast_bytes == (16 + 32 + 4 + 8) * 6
    assert sum(c.arguments for c in report.casts) == 3
    assert all(c.line.startswith(__file__) for c in report.casts)


def test_a_report_names_overrides_and_float64():
    model, x = model_and_input()
    report = meta.amp.report(model, x, overrides={"dense": "never"})
    assert [(o.dtype, o.reason) for o in report.operators] == [("float32", "never: runs in float32 (override)")]
    assert report.cast_count == 0
    double = meta.zeros((2, 2), "float64")
    report = meta.amp.report(lambda x: x @ x, double)
    assert report.operators[0].reason == "has a float64 operand"


def test_a_report_of_a_step_with_autocast_inside_adds_nothing():
    model, x = model_and_input()

    def step(x):
        with meta.amp.autocast("bfloat16"):
            return model(x)

    assert meta.amp.report(step, x).cast_count == 3  # x, w, bias: the result stays in bfloat16


def test_a_report_finds_the_dtype_of_the_casts_that_a_step_has():
    model, x = model_and_input()

    def step(x):
        with meta.amp.autocast("float16"):
            return model(x)

    report = meta.amp.report(step, x)
    assert [(c.source, c.target, c.calls) for c in report.casts] == [("float32", "float16", 3)]
    assert [o.dtype for o in report.operators] == ["float16"]


def _without_lines(report):
    return report.operators, [dataclasses.replace(c, line="") for c in report.casts]


def test_a_report_of_an_executor_equals_the_report_of_its_step():
    model, x = model_and_input()
    step = meta.optim.sgd.with_sgd(0.01)(model, loss=meta.cross_entropy)
    args = (x, meta.zeros((2,), "int64"))
    expected = _without_lines(meta.amp.report(step, *args))
    assert _without_lines(meta.amp.report(meta.vm.compile(step), *args)) == expected
    low = meta.vm.compile(step, passes=meta.passes.auto_cast("bfloat16"))
    assert _without_lines(meta.amp.report(low, *args)) == expected
    assert _without_lines(meta.amp.report(meta.vm.compile(step.record(*args).module))) == expected


@pytest.mark.parametrize("leaves_gradients", [False, True])
def test_a_report_of_an_executor_counts_the_casts_of_its_passes(leaves_gradients):
    model, x = model_and_input()

    def step(x):
        loss = meta.sum(model(x))
        if leaves_gradients:
            loss.backward()
        return loss

    low = meta.vm.compile(step, passes=meta.passes.auto_cast("float16"))
    report = meta.amp.report(low, x)
    assert {c.target for c in report.casts} == {"float16", "float32"}
    assert _without_lines(report) == _without_lines(meta.amp.report(step, x, dtype="float16"))


def test_a_report_of_nothing_that_runs_is_refused():
    with pytest.raises(
        ArgumentError, match=r"\[report\] the step is int; expected a Model, a function, a training step"
    ):
        meta.amp.report(3)
    step = meta.optim.sgd.with_sgd(0.01)(model_and_input()[0], loss=meta.cross_entropy)
    with pytest.raises(ArgumentError, match=r"\[TrainStep\] 0 arguments; expected the model's input, then"):
        meta.amp.report(step)


def test_a_report_prints_two_tables_and_totals():
    model, x = model_and_input()
    text = str(meta.amp.report(model, x))
    assert re.search(r"^dense +bfloat16 +1 +always", text, re.M)
    assert re.search(r"^float32 -> bfloat16 +3 +3 +312 ", text, re.M)
    assert text.endswith("casts, 360 bytes read and written where they are not fused")


def test_casts_of_a_transformer_are_minimal(bert):
    """Each of the 34 parameters of its 17 dense layers is cast once, and no value twice to one dtype. Values are cast
    there and back only for the gradients of biases, which add what the products of the gradient read."""
    step, args = bert
    report = meta.amp.report(step, *args)
    assert sum(c.arguments for c in report.casts) == 34
    module = passes.auto_cast("bfloat16")(step.record(*args).module)
    casts = [b for b in walk(module.main) if isinstance(b.value, Call) and b.value.op_name == "cast"]
    pairs = [(b.value.args[0], b.value.type.dtype) for b in casts]
    assert len(set(pairs)) == len(pairs)
    results = {b.var: b.value.args[0] for b in casts}
    round_trips = {b.var for b in casts if b.value.args[0] in results and results[b.value.args[0]].type is b.value.type}
    readers = [b.value for b in walk(module.main) if round_trips & set(operands(b.value))]
    assert {reader.op_name for reader in readers if isinstance(reader, Call)} == {"sum_to"}
    assert len(readers) == len(round_trips) == 9
    # The others are activations and gradients at the borders of dense layers and attention: their operands to bfloat16,
    # and their results to float32 for layer norms, the additions around them, the loss, the sums and the updates.
    assert sum(c.calls for c in report.casts if c.target == "bfloat16") == 70
    assert sum(c.calls for c in report.casts if c.target == "float32") == 52


def test_every_difference_from_torch_is_explained():
    for row in amp_agreement.rows():
        assert row.differs == bool(row.case.why), row


def test_the_page_has_the_table():
    page = amp_agreement.PAGE.read_text()
    start, end = page.index(amp_agreement.BEGIN), page.index(amp_agreement.END)
    table = page[start + len(amp_agreement.BEGIN) : end]
    assert table.strip() == amp_agreement.table().strip(), "run python -m benchmarks.amp_agreement --write"
