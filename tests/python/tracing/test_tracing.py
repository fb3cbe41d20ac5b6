"""Tracing: the recorded program agrees with the eager call."""

from __future__ import annotations

import functools
from collections import namedtuple

import numpy as np
import pytest

import meta
from meta import tracing
from meta.dim import sym
from meta.errors import ArgumentError, TraceError
from meta.ir.analysis import op_counts
from meta.ir.type import tensor_type
from meta.modes import modes, scopes
from tests.python.recorded import array, assert_equal, check_agreement, check_ir, execute

Pair = namedtuple("Pair", "left right")


# --- what goes in and out --------------------------------------------------------------------------------------------


def test_nested_arguments_and_results():
    def f(x, rest, scale=2.0, *, bias=None):
        a, b = rest["pair"]
        return {"y": x * scale + a, "pair": Pair(b + bias, [a, None]), "k": 3, 7: (x,)}

    x, a, b, bias = (array(2, 3, seed=i) for i in range(4))
    record = check_agreement(f, x, {"pair": Pair(a, b)}, bias=bias)
    assert record.inputs == ("x", "rest.pair.left", "rest.pair.right", "bias")
    result = f(x, {"pair": Pair(a, b)}, bias=bias)
    assert isinstance(execute(record, x, a, b, bias)["pair"], type(result["pair"]))


@pytest.mark.parametrize("number", [np.float32(1.5), np.int8(2), np.bool_(True), np.float16(0.5)])
def test_numbers_of_numpy_are_numbers(number):
    def f(x, factor):
        return {"y": x * factor, "twice": factor * 2, "factor": factor}

    x = array(3)
    result, expected = meta.vm.compile(f)(x, number), f(x, number)
    assert (result["twice"], result["factor"]) == (expected["twice"], expected["factor"])
    assert_equal(result["y"], expected["y"])


def test_distinguishes_keys_of_dicts():
    record = check_agreement(lambda d: d[1] - d["1"], {1: array(2, seed=1), "1": array(2, seed=2)})
    assert len(record.main.params) == 2


def test_binds_every_kind_of_parameter():
    def f(a, /, b, *more, c=1.0, **named):
        return a + b * c + sum(more[1:], more[0]) * named["d"]

    xs = [array(3, seed=i) for i in range(5)]
    record = check_agreement(f, *xs[:4], d=xs[4])
    assert record.inputs == ("a", "b", "more.0", "more.1", "named.d")
    with pytest.raises(ArgumentError, match=r"\[f\] missing a required argument: 'b'"):
        tracing.record(f, (xs[0],), {})


def test_traces_with_types_and_symbolic_sizes():
    n = sym("n")
    record = meta.trace(lambda x: meta.softmax(x.reshape((n * 4,)) * 2.0)).record(tensor_type((n, 4)))
    check_ir(record.module)
    for size in (1, 5):
        x = array(size, 4)
        assert_equal(execute(record, x), (meta.softmax(x.reshape((size * 4,)) * 2.0),)[0])


def test_rejects_returned_values_that_are_not_tensors():
    with pytest.raises(TraceError, match=r"\[trace\] a object is returned; expected tensors, numbers, strings"):
        tracing.record(lambda x: (x, object()), (array(1),), {})


def test_rejects_functions_without_a_signature():
    with pytest.raises(TraceError, match="has no signature; expected Python functions"):
        tracing.record(max, (array(1), array(1)), {})


def test_traced_functions_run_eagerly_and_keep_their_names():
    @meta.trace
    def double(x):
        """Twice x."""
        return x * 2.0

    assert (double.__name__, double.__doc__) == ("double", "Twice x.")
    assert_equal(double(array(3)), array(3) * 2.0)
    assert "multiply(%x, 2.0)" in double.ir(array(3))


def test_spans_are_lines_of_user_code():
    text = meta.trace(lambda x: meta.relu(x)).ir(array(2))
    assert "test_tracing.py:" in text.split("relu")[1].split("\n")[0]


# --- values, modes, nesting ------------------------------------------------------------------------------------------


def test_reads_values_of_arrays_created_inside():
    check_agreement(lambda x: x * meta.array(3.0).item(), array(2))


def test_models_reject_symbols_as_attributes():
    class Keeps(meta.Model):
        def forward(self, x):
            self.last = x
            return x

    with pytest.raises(TraceError, match=r"\[Keeps\] 'last' is set to <Symbol x"):
        Keeps().record(array(2))


def test_restores_modes_after_an_exception():
    w = array(3, grad=True)
    w.grad = array(3)
    kept = w.grad

    def f(x):
        (x * w).sum().backward()
        with meta.no_grad(), meta.amp.autocast("bfloat16"), meta.with_dialect("tvm"):
            raise KeyError("stop")

    before = scopes.active
    with pytest.raises(KeyError):
        tracing.record(f, (array(3),), {})
    assert scopes.active == before
    assert (modes.trace, modes.autocast, modes.dialects, modes.grad_enabled) == (None, None, None, True)
    assert modes.emit is None
    assert w.grad is kept


def test_nested_records_are_separate():
    inner = []

    def f(x):
        inner.append(tracing.record(lambda y: y + 1.0, (array(2),), {}))
        return x * 2.0

    outer = check_agreement(f, array(2))
    assert op_counts(outer.main) == {"multiply": 1}
    assert op_counts(inner[0].main) == {"add": 1}


# --- random numbers --------------------------------------------------------------------------------------------------


def test_generators_continue_the_eager_streams():
    """Each generator has a key in the program, also through `next_key` and with gradients taken by the caller."""
    own, other = meta.random.Generator(5), meta.random.Generator(6)
    w = array(3, grad=True)

    def f(x):
        a = meta.random.normal((3,), generator=own) * w
        b = meta.random.uniform((3,), generator=other) + meta.random.uniform((3,), generator=own)
        c = meta.bernoulli(own.next_key(), (3,), 0.5)
        return a + b + c + meta.random.uniform((3,), generator=meta.random.default_generator)

    x = array(3)
    record = tracing.record(f, (x,), {})
    check_ir(record.module)
    assert [(draws.generator, draws.count) for draws in record.random] == [(own, 3), (other, 1), (None, 1)]
    assert own.state == (5, 0)
    compiled = meta.vm.compile(meta.trace(f))

    def runs(call):
        meta.random.seed(7)
        own.seed(5)
        other.seed(6)
        w.grad = None
        results = [call(x) for _ in range(3)]
        if results[0].requires_grad:
            results[1].sum().backward()
        return [r.detach() for r in results], w.grad, own.state, other.state

    expected = runs(f)
    assert expected[2:] == ((5, 9), (6, 3))
    assert_equal(runs(compiled), expected)
    results, _, *states = runs(lambda x: execute(record, x))
    assert_equal(results, expected[0])
    assert states == list(expected[2:])


def test_random_keys_continue_the_eager_stream():
    def f(x):
        noise = meta.random.normal((3,))
        y, _ = meta.dropout(x, meta.random.next_key(), 0.5)
        return y + noise, meta.random.uniform((2,))

    x = array(3)
    record = tracing.record(f, (x,), {})
    check_ir(record.module)
    assert [draws.count for draws in record.random] == [3]
    meta.random.seed(7)
    expected = [f(x), f(x)]
    meta.random.seed(7)
    assert_equal([execute(record, x), execute(record, x)], expected)


def test_partial_functions_and_callables_are_traced():
    w = array(3)

    def f(scale, x):
        return x * scale + w

    check_agreement(functools.partial(f, 2.0), array(3))
