"""State of traced functions: captured arrays, models and buffers, their names, and writes to them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import meta
from meta import tracing
from meta.errors import GradientError, TypeInferenceError
from meta.ir.expr import MUTATES
from meta.ir.printer import to_text
from tests.python.recorded import array, assert_equal, check_agreement, check_ir, execute


class Net(meta.Model):
    def build(self):
        self.w = array(3, 2, seed=5)
        self.buffer("steps", meta.array(0, dtype="int64"))
        self.scale = 2.0

    @meta.model.trace
    def forward(self, x):
        return (x @ self.w) * self.scale


def test_names_state_by_models_closures_and_containers():
    net, loose, many = Net(), array(2, seed=1), [array(2, seed=2), {"k": array(2, seed=3)}]

    def f(x):
        return net(x) + loose + many[0] + many[1]["k"]

    record = check_agreement(f, array(4, 3))
    assert [name for name, _ in record.state] == ["net.w", "loose", "many.0", "many.1.k"]
    assert [name for name, _ in net.record(array(4, 3)).state] == ["w"]
    assert [name for name, _ in net.forward.record(array(4, 3)).state] == ["w"]


def test_state_names_are_unique():
    w = array(2, seed=1)
    record = check_agreement(lambda w_: w_ + w, array(2))
    assert [p.name for p in record.main.params] == ["w_", "w"]
    record = tracing.record(lambda w: w + many[0] + many[1], (array(2),), {}, {id(x): "w" for x in many})
    assert [p.name for p in record.main.params] == ["w", "w_1", "w_2"]


many = [array(2, seed=8), array(2, seed=9)]


def test_arrays_created_inside_are_constants():
    def f(x):
        table = meta.array(np.arange(3, dtype="float32"))
        return x * table + meta.asarray([1.0, 2.0, 3.0])

    record = check_agreement(f, array(2, 3))
    assert record.state == ()


def test_returned_captured_arrays_are_state():
    net = Net()
    assert [name for name, _ in check_agreement(lambda x: (x, net.w), array(1)).state] == ["net.w"]


def test_an_array_with_two_names_is_one_parameter():
    w = array(2)
    pair = (w, w)
    assert len(check_agreement(lambda x: x * pair[0] + pair[1], array(2)).state) == 1


def test_detach_and_conversions_of_state():
    w = array(3, grad=True)

    def f(x):
        return x * w.detach() + meta.asarray(w).cast("float32") + w.to(dtype="float64").cast("float32")

    record = check_agreement(f, array(3))
    assert len(record.state) == 1


def test_changed_models_invalidate_records():
    net = Net()
    start = tracing.revision()
    net.forward(array(1, 3))
    net.record(array(1, 3))
    net.scale = 2.0
    assert tracing.revision() == start
    visited = {start}
    for change in (
        lambda: setattr(net, "scale", 3.0),
        lambda: setattr(net, "w", array(3, 2)),
        net.infer_mode,
        net.train_mode,
    ):
        change()
        assert tracing.revision() not in visited
        visited.add(tracing.revision())
    assert net.record(array(1, 3)).revision == tracing.revision()


def test_threads_trace_one_model_concurrently():
    net = Net()
    results, errors = [], []

    def loss(x):
        net.zero_grad()
        y = (net(x) ** 2.0).sum()
        y.backward()
        return y, net.w.grad

    def text():
        return to_text(tracing.record(loss, (array(2, 3),), {}).module, spans=False)

    expected = text()

    def work():
        try:
            results.extend(text() for _ in range(5))
        except Exception as error:  # noqa: BLE001  # handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    assert set(results) == {expected}
    assert net.w.grad is None


# --- writes ----------------------------------------------------------------------------------------------------------


def test_in_place_operators_write_state():
    def make():
        return array(3, seed=1), array(3, seed=2)

    def step(w, v, dx):
        before = w * 1.0
        meta.sgd(w, dx, v, 0.1, 0.9, 0.0)
        return before, w * 2.0

    w, v = make()
    record = tracing.record(lambda dx: step(w, v, dx), (array(3),), {}, {id(w): "w", id(v): "v"})
    check_ir(record.module)
    assert record.main.attrs[MUTATES] == {2: 1, 3: 2}
    result = execute(record, array(3))
    w2, v2 = make()
    assert_equal(result, step(w2, v2, array(3)))
    assert_equal([w, v], [w2, v2])


def test_reads_state_after_update_and_assignment():
    def make():
        return array(3, 2, seed=1), meta.array(0, dtype="int64")

    def step(w, n, x):
        n.update(n + 1)
        w[1] = x
        w[:, 0] = 7.0
        return w * 2.0, n + 0

    w, n = make()
    record = tracing.record(lambda x: step(w, n, x), (array(2),), {})
    check_ir(record.module)
    assert set(record.main.attrs[MUTATES].values()) == {1, 2}
    result = execute(record, array(2))
    w2, n2 = make()
    assert_equal(result, step(w2, n2, array(2)))
    assert_equal([w, n], [w2, n2])


def test_overwritten_inputs_are_mutated_parameters():
    def step(w, dx):
        v = meta.zeros((3,))
        meta.sgd(w, dx, v, 0.1, 0.0, 0.0)
        return w + 0.5

    record = tracing.record(step, (array(3), array(3, seed=1)), {})
    check_ir(record.module)
    assert record.main.attrs[MUTATES] == {1: 0}
    traced, eager = array(3), array(3)
    assert_equal(execute(record, traced, array(3, seed=1)), step(eager, array(3, seed=1)))
    assert_equal(traced, eager)


def test_unwritten_state_is_not_a_result():
    w = array(3)
    assert MUTATES not in tracing.record(lambda x: x + w, (array(3),), {}).main.attrs


def test_update_checks_the_type():
    w = array(3)
    with pytest.raises(TypeInferenceError, match=r"\[update\] the value is Tensor\[\(2,\), .*the array's own type"):
        tracing.record(lambda x: w.update(x), (array(2),), {})
    with pytest.raises(TypeInferenceError, match=r"\[update\] the value is Tensor\[\(2,\), .*the array's own type"):
        w.update(array(2))


@pytest.mark.parametrize("write", [lambda w: w.update(w * 2.0), lambda w: w.__setitem__(0, 1.0)])
def test_leaves_are_not_written_while_gradients_are_recorded(write):
    w = meta.array([1.0, 2.0, 3.0], requires_grad=True)

    def run():
        write(w)
        return w * 1.0

    for each in (run, meta.trace(run).record):
        with pytest.raises(GradientError, match=r"\(3,\) written in place is a leaf .*no_grad.*test_state.py:\d+"):
            each()
    with meta.no_grad():
        assert len(meta.trace(run).record().main.attrs["mutates"]) == 1


def test_writes_to_symbols_agree_with_arrays():
    def f(x):
        y = x * 2.0
        y[0] = 1.0
        y.update(y + 1.0)
        return y

    assert MUTATES not in check_agreement(f, array(3)).main.attrs
