"""Rows of the table in traces, as graphs call them: samples of OpInfo, calls of training graphs, symbolic sizes.

Kernels are the reference ones where there are any, so that nothing is compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import meta
from meta.dim import sym
from meta.frontend.torch import aten
from meta.interpreter.run import run as interpret
from meta.ir.type import tensor_type
from tests.python.conformance import graph_calls, symbolic_calls
from tests.python.conformance.adapter import ADAPTER
from tests.python.conformance.case import Case
from tests.python.conformance.checks import message, value_dependent
from tests.python.conformance.compare import differences
from tests.python.conformance.opinfos import UNDEFINED, database, samples
from tests.python.conformance.rows_in_traces import problem, traced

pytestmark = pytest.mark.filterwarnings("ignore")

STEP = 16


@pytest.fixture(autouse=True)
def reference_kernels() -> Any:
    with meta.with_dialect(["reference", "tvm"]):
        yield


def sample_problem(name: str) -> str:
    """How the first sample of an entry differs in a trace, "" if it does not or has a reason for having no program."""
    op = database()[name]
    if torch.float32 not in op.dtypes:
        return ""
    case = Case(op, samples(op, torch.float32, 1)[0])
    expected, _ = case.expected()
    function = ADAPTER.lookup(op.name, op.variant_test_name)
    assert function is not None
    try:
        results = traced(lambda *xs: case.call(function, xs), case.arrays())
    except Exception as error:  # noqa: BLE001
        return "" if value_dependent(name, error) else message(error)
    if name in UNDEFINED or op.has_nondeterministic_output:
        return ""
    actual = [ADAPTER.to_torch(y) if isinstance(y, meta.NDArray) else y for y in results]
    return differences(actual, expected, torch.float32, 4, case.exact)


@pytest.mark.parametrize("group", range(2))
def test_samples(group: int) -> None:
    names = list(database())[1::STEP][group::2]
    assert {name: text for name in names if (text := sample_problem(name))} == {}


def test_a_row_that_needs_a_value_is_reported() -> None:
    assert "the value of <Symbol" in message(_error(lambda x: aten.find("item")(x)))
    row = aten.find("tanh")
    wrong = problem(lambda x: meta.add(row(x), 1), (torch.ones(2),), {}, torch.tanh(torch.ones(2)))
    assert wrong == "2 of 2 values are off, by up to 1"


def _error(function: Callable[..., Any]) -> Exception:
    with contextlib.suppress(AssertionError):
        try:
            traced(function, [meta.ones(())])
        except Exception as error:  # noqa: BLE001
            return error
    raise AssertionError("no error")


class _Operators:
    """ATen's operators as attributes: torch's, or the rows."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Any:
        return self._find(name)


def symbolic_problem(call: symbolic_calls.Call) -> str:
    """How the results of one program for all sizes differ from torch's at two sizes; "" if they do not."""
    rows, torchs = _Operators(aten.find), _Operators(lambda name: getattr(torch.ops.aten, name))
    program = meta.trace(lambda x: call(rows, x, x.shape[0]))
    try:
        record = program.record(tensor_type((sym("n"), 6), "float32"))
        for n in (4, 3):
            x = torch.randn(n, 6)
            (result,) = interpret(record.module, ADAPTER.from_torch(x, False), *(array for _, array in record.state))
            text = differences([ADAPTER.to_torch(result)], [call(torchs, x, n)], torch.float32, 4)
            if text:
                return text
    except Exception as error:  # noqa: BLE001
        return message(error)
    return ""


def test_symbolic_sizes() -> None:
    torch.manual_seed(0)
    calls = symbolic_calls.CALLS
    assert {name: text for name in calls if (text := symbolic_problem(calls[name]))} == {}


def test_a_symbolic_call_that_differs_is_reported() -> None:
    assert "4 of 4 values are off, by up to 3" in symbolic_problem(lambda o, x, n: o.full([4], n if n == 4 else 7))
    assert "static sizes, or elements that" in symbolic_problem(lambda o, x, n: o.as_strided(x, [n, 2], [1, 1]))


@pytest.mark.parametrize("name", sorted(graph_calls.CALLS))
def test_calls_of_graphs(name: str) -> None:
    assert graph_calls.failures(name) == []
