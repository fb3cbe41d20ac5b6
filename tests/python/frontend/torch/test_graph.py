"""FX graphs of ATen calls as programs: conversion, writes in place, symbolic sizes, what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

import meta
from meta.dim import sym
from meta.frontend.torch.dynamo.backend import decompositions
from meta.frontend.torch.errors import TorchProgramError, UnsupportedError
from meta.frontend.torch.graph import convert, operators, read_graph, run
from meta.interpreter.run import run as interpret
from meta.ir.type import tensor_type

Function = Callable[..., Any]


class Wrapped(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def captured(function: Function, *args: Any, dynamic: bool = False) -> Any:
    shapes = tuple({0: torch.export.Dim.AUTO} for _ in args) if dynamic else None
    return torch.export.export(
        Wrapped(function), args, dynamic_shapes=({"args": shapes} if shapes else None)
    ).graph_module


def agrees(function: Function, *args: torch.Tensor) -> None:
    """The captured function has torch's results, run on arrays and as a traced program."""
    graph = captured(function, *args)
    expected = function(*[x.clone() for x in args])
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result in (
        run(read_graph(graph), [meta.array(x.numpy()) for x in args]),
        interpret(convert(graph).module, *[meta.array(x.numpy()) for x in args]),
    ):
        # A program returns the inputs that it writes after the results.
        for e, g in zip(expected, result, strict=False):
            np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=1e-5)


X = torch.arange(24.0).reshape(4, 6) / 7


def _written_slices(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 1].fill_(-1.0)
    y[1:3, ::2].mul_(3.0)
    y.t()[4].add_(x[0, 1])
    return y


def _read_after_write(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1
    flat, row, rows = y.view(-1), y.select(0, 2), y.split(2)
    y.relu_().sub_(2.0)
    rows[1].zero_()
    return flat * 1.0, row * 1.0, y.permute(1, 0) * 1.0, rows[0] * 1.0


def _pieces(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    first, second = y.chunk(2, 1)
    first.copy_(second * 2)
    y.unbind(0)[3].fill_(7.0)
    y.unsqueeze(0).permute(2, 0, 1)[5].add_(1.0)
    return y


@pytest.mark.parametrize("function", [_written_slices, _read_after_write, _pieces])
def test_writes_in_place_reach_all_names_of_the_memory(function: Function) -> None:
    agrees(function, X)


def test_an_input_that_is_written_is_overwritten() -> None:
    graph = read_graph(captured(lambda x: x.add_(1.0).sum(), X.clone()))
    x = meta.array(X.numpy())
    (total,) = run(graph, [x])
    np.testing.assert_allclose(x.numpy(), X.numpy() + 1, rtol=1e-6)
    assert abs(total.item() - float((X + 1).sum())) < 1e-3


def test_a_write_where_torch_may_have_copied_is_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 1.0
        z = y.reshape(-1)
        z.mul_(2.0)
        return y + 1

    with pytest.raises(UnsupportedError, match=r"node 'add.*written in place and read by another name.*test_graph\.py"):
        convert(captured(function, X))


def test_sizes_stay_symbolic() -> None:
    graph = captured(lambda x: (x.reshape(-1, 2, 3).sum(0) / x.shape[0], x.shape[0] * 2), X, dynamic=True)
    record = convert(graph)
    (shape,) = [p.type.shape for p in record.main.params]
    assert str(record.result.build(iter(["total"]))[1]) == f"2*{shape[0]}"
    result, *_ = interpret(record.module, meta.ones((5, 6)))
    np.testing.assert_allclose(result.numpy(), np.full((2, 3), 1.0), rtol=1e-6)


def test_types_replace_the_types_of_the_capture() -> None:
    graph = captured(lambda x: x.exp(), X)
    kind = tensor_type((sym("n"), 3), "float64")
    assert convert(graph, [kind]).main.body.type.fields == (kind,)
    with pytest.raises(TorchProgramError, match="0 types for 1 placeholders; expected one each: args_0"):
        convert(graph, [])


def test_complex_cumulative_logarithms_need_a_known_size() -> None:
    graph = captured(lambda x: torch.logcumsumexp(x, 0), torch.zeros((5, 2), dtype=torch.complex64))
    with pytest.raises(TorchProgramError, match="x is complex64 and has the unknown size n along dim 0; expected a"):
        convert(graph, [tensor_type((sym("n"), 2), "complex64")])


def test_lists_all_missing_operators_with_lines_and_asks_the_fallback() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    one = graph.call_function(torch.ops.aten._cslt_compress.default, (x,))
    one.meta["stack_trace"] = 'File "/home/me/model.py", line 7, in forward'
    two = graph.call_function(torch.ops.aten.set_.source_Tensor, (one, x))
    graph.output(graph.call_function(torch.ops.aten.set_.source_Tensor, (two, x)))
    types = [tensor_type((2, 3))]
    with pytest.raises(UnsupportedError) as caught:
        convert(graph, types, fallback=lambda node: None)
    assert str(caught.value).startswith(
        "[torch] 2 operators are not supported: aten._cslt_compress.default (once: model.py:7), "
        "aten.set_.source_Tensor (2 times: nodes set__source_tensor, set__source_tensor_1); "
    )
    assert caught.value.operators == {"aten._cslt_compress.default": 1, "aten.set_.source_Tensor": 2}
    nodes: list[Any] = []
    record = convert(graph, types, fallback=lambda node: nodes.append(node.target) or (lambda x, *_: x * 2.0))
    assert record.main.body.type.fields == (types[0],)
    assert torch.ops.aten._cslt_compress.default in nodes
    assert [use.supported for use in operators(read_graph(graph))] == [False, False]


def test_errors_name_the_node_and_the_line() -> None:
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.add.Tensor, (graph.placeholder("x"), graph.placeholder("y")))
    node.meta["stack_trace"] = (
        'File "/home/me/model.py", line 7, in forward\n    File "/lib/torch/nn/modules/x.py", line 3'
    )
    graph.output(node)
    with pytest.raises(TorchProgramError) as caught:
        convert(graph, [tensor_type((2, 3)), tensor_type((4,))])
    assert "[torch] node 'add_tensor': aten.add.Tensor: " in str(caught.value)
    assert caught.value.location == "/home/me/model.py:7"


def test_refuses_graphs_of_modules() -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    with pytest.raises(TorchProgramError, match="is a call_module of 0; expected a graph of ATen calls"):
        convert(graph)


def test_dtypes_that_meta_lacks_are_refused() -> None:
    graph = captured(lambda x: x.to(torch.float8_e4m3fn).to(torch.float32), X)
    with pytest.raises(UnsupportedError, match=r"the dtype torch.float8_e4m3fn is not supported.*test_graph\.py"):
        convert(graph)


def test_memory_is_read_of_contiguous_tensors_alone() -> None:
    agrees(lambda x: (x * 2).as_strided((6, 2), (1, 6), 6), X)
    with pytest.raises(UnsupportedError, match=r"the memory of a tensor with strides \(1, 6\) is read; expected cont"):
        convert(captured(lambda x: (x * 2).t().as_strided((4,), (1,), 0), X))


@pytest.mark.parametrize(("name", "elements"), [("_log_softmax", 1 << 22), ("tanh_backward", 1)])
def test_operators_on_gpus_are_taken_apart(name: str, elements: int) -> None:
    """Where their parts are computed with their neighbours, in fewer passes over memory; kernels of the CPU are kept.
    Fake tensors are on a GPU without having one."""
    decompose = decompositions()[getattr(torch.ops.aten, name).default]
    with FakeTensorMode():
        for device, size, is_apart in ("cuda", elements, True), ("cuda", elements - 1, False), ("cpu", elements, False):
            x = torch.empty(1, size, device=device)
            result = decompose(x, 1, False) if name == "_log_softmax" else decompose(x, x)
            assert isinstance(result, torch.Tensor) == (is_apart or (name == "tanh_backward" and device == "cuda"))
