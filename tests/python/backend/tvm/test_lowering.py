"""Passes that functions do without, and where buffers are."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library, lowering
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import unscheduled
from meta.backend.tvm.schedule import patterns
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.backend.tvm.te.scan import Scan

X = TensorSpec(("n", "m"), "float32")


def scheduled(compute: Callable[..., Any], pattern: str) -> Any:
    return patterns.schedule(
        unscheduled(KernelSpec("it", compute, (X,), (X,), pattern)).function, pattern, targets.target("cpu")
    )


SHRINKING = "s_tir.CompactBufferAllocation"


def needless(*functions: Any) -> list[str]:
    return lowering.needless_passes(functions, targets.target("cpu"))


def code(func: Any, *, checks: bool = False) -> str:
    """The LLVM code of a function, without addresses of this process."""
    source = library.compile_functions({"it": func}, targets.target("cpu"), checks=checks).inspect_source("ll")
    return re.sub(r"0x[0-9a-f]+", "", source)


def test_functions_without_buffers_do_without_the_pass_that_shrinks_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    func = scheduled(lambda x: tvm.topi.tanh(x), "elemwise")
    assert SHRINKING in needless(func)
    short = code(func)
    monkeypatch.setattr(lowering, "needless_passes", lambda *_: [])
    assert code(func) == short


def softmax(x: Any) -> Any:
    return tvm.topi.nn.softmax(x)


def normalised(x: Any) -> list[Any]:
    """Rows minus their means, and these, each from a sum of rows and of their last axis but one."""
    mean = tvm.topi.sum(x, axis=-1, keepdims=True)
    return [tvm.topi.subtract(x, mean), tvm.topi.multiply(mean, mean)]


@pytest.mark.parametrize("shape", [("n", "m"), (64, 70), (2, "n", 5), (512, 1024)], ids=str)
@pytest.mark.parametrize("compute", [softmax, normalised])
def test_buffers_of_a_row_are_as_small_as_the_pass_makes_them(
    monkeypatch: pytest.MonkeyPatch, compute: Callable[..., Any], shape: tuple[int | str, ...]
) -> None:
    x = TensorSpec(shape, "float32")
    outs = (x,) if compute is softmax else (x, TensorSpec((*shape[:-1], 1), "float32"))
    spec = KernelSpec("it", compute, (x,), outs, "softmax")
    func = patterns.schedule(unscheduled(spec).function, "softmax", targets.target("cpu"))
    assert SHRINKING in needless(func)
    short = code(func)
    monkeypatch.setattr(lowering, "needless_passes", lambda *_: [])
    assert code(func) == short


def test_functions_with_buffers_of_several_rows_take_all_passes() -> None:
    columns = scheduled(lambda x: tvm.topi.nn.softmax(x, axis=0), "softmax")
    tanh = scheduled(lambda x: tvm.topi.tanh(x), "elemwise")
    assert SHRINKING not in needless(columns)
    assert SHRINKING not in needless(tanh, columns)


def test_small_buffers_of_parallel_loops_are_on_the_stack() -> None:
    x = TensorSpec(("n", "m"), "float32")
    running_sum = Scan(operator.add, 0, axis=1, exclusive=False, reverse=False, dtype="float32", by_halves=True)
    spec = KernelSpec("it", lambda t: running_sum.of(t, "cpu"), (x,), (x,), "opaque")
    func = patterns.schedule(unscheduled(spec).function, "opaque", targets.target("cpu"))
    source = code(func)
    assert "TVMBackendParallelLaunch" in source
    assert "TVMBackendAllocWorkspace" not in source


def test_functions_check_their_arguments_where_asked() -> None:
    func = scheduled(lambda x: tvm.topi.tanh(x), "elemwise")
    assert "Mismatched" in code(func, checks=True)
    assert "Mismatched" not in code(func)


def test_assertions_of_a_function_stay() -> None:
    func = scheduled(lambda x: tvm.topi.tanh(x), "opaque")
    name = func.params[0]
    condition, text = tvm.tirx.NE(name.shape[0], tvm.tirx.const(7, "int64")), tvm.StringImm("seven rows")
    body = tvm.SeqStmt([tvm.tirx.AssertStmt(condition, tvm.StringImm("ValueError"), [text]), func.body])
    assert "seven rows" in code(func.with_body(body))
