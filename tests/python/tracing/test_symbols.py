"""Symbols inside and after their trace: the uses that they refuse, and the trace that they belong to."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import meta
from meta import tracing
from meta.errors import TraceError
from meta.ir.builder import Builder
from meta.modes import modes, suspended
from meta.tracing.symbol import Symbol
from tests.python.recorded import array


@pytest.mark.parametrize(
    ("use", "remedy"),
    [
        (bool, r"write meta\.where\(.*meta\.cond\("),
        (int, "leave out the call"),
        (float, "leave out the call"),
        (complex, "leave out the call"),
        (lambda x: x.item(), r"leave out \.item\(\)"),
        (lambda x: x.tolist(), r"leave out .*\.tolist\(\)"),
        (lambda x: x.numpy(), r"meta\.tanh\(x\) in place of np\.tanh"),
        (np.asarray, r"meta\.tanh\(x\) in place of np\.tanh"),
        (np.from_dlpack, "meta's function in place of the other library's"),
        (lambda x: [1][x], r"write x\.shape\[axis\]"),
        (lambda x: f"{x:.3f}", "print it outside"),
    ],
)
def test_rejects_reading_values_of_symbols(use, remedy):
    pattern = rf"\[trace\] the value of <Symbol x.* is needed .*{remedy}.*test_symbols"
    with pytest.raises(TraceError, match=pattern):
        tracing.record(lambda x: use(x), (array(1),), {})


def test_control_flow_on_a_symbol_names_the_line():
    def f(x):
        if x.sum() > 0:
            return x
        return -x

    line = f.__code__.co_firstlineno + 1
    with pytest.raises(TraceError, match=rf"is needed while tracing; .*\(at .*test_symbols\.py:{line}\)"):
        tracing.record(f, (array(2),), {})


@pytest.mark.parametrize(
    "use", [bool, float, lambda x: x.item(), lambda x: x.numpy(), lambda x: x.tolist(), np.asarray]
)
def test_rejects_reading_values_of_state(use):
    rate = meta.array(0.5)
    with pytest.raises(TraceError, match=r"\[\w+\] the value of rate, .* is needed while tracing"):
        tracing.record(lambda x: x * use(rate), (array(1),), {})


def test_rejects_symbols_after_their_trace():
    symbols = []
    tracing.record(lambda x: symbols.append(x * 2.0), (array(2),), {})
    assert "Symbol" in repr(symbols[0])
    with pytest.raises(TraceError, match="a symbol of a finished trace is used as an array"):
        meta.relu(symbols[0])
    with pytest.raises(TraceError, match=r"\[add\] <Symbol .* belongs to another trace"):
        tracing.record(lambda x: x + symbols[0], (array(2),), {})
    with pytest.raises(TraceError, match="belongs to another trace"):
        tracing.record(lambda x: symbols[0], (array(2),), {})
    with pytest.raises(TraceError, match="written after its trace"):
        symbols[0].update(array(2))


def test_recordings_nest_and_are_local_to_a_thread():
    kinds = [("x", array(2).type)]
    seen = []
    outer, inner = Builder(), Builder()
    with outer.function("outer", kinds) as f, tracing.recording(outer):
        Symbol(f.params[0]).relu()
        with inner.function("inner", kinds) as g, tracing.recording(inner):
            g.ret((Symbol(g.params[0]) + 1.0).atom)
            thread = threading.Thread(target=lambda: seen.append(modes.emit))
            thread.start()
            thread.join()
        with suspended():
            assert (array(2) + 1.0).shape == (2,)
        f.ret((Symbol(f.params[0]) - 1.0).atom)
    assert [b.value.op.name for b in g.function.body.bindings] == ["add"]
    assert [b.value.op.name for b in f.function.body.bindings] == ["relu", "subtract"]
    assert seen == [None]
    assert modes.emit is None
