"""Recursion in compiled programs: loops where a function calls itself last, a bounded depth elsewhere."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.memory import stack
from meta.errors import IRError
from meta.interpreter.run import run
from meta.ir.parser import parse
from meta.ir.verifier import verify
from meta.passes.tail_loops import tail_loops
from meta.vm.lower import calls
from meta.vm.lower.calls import special_calls

N = 'Tensor[(), "int64"]'
ROW = 'Tensor[(n,), "float32"]'
TAIL = f"""
def count(%n: {N}, %sum: {N}) -> {N} {{
  %c = less_equal(%n, 0)
  %r = if %c {{ %sum }} else {{
    %m = subtract(%n, 1)
    %b = add(%sum, %n)
    %s = @count(%m, %b)
    %s
  }}
  %r
}}
def main(%n: {N}) -> {N} {{
  %z = zeros((), "int64")
  %r = @count(%n, %z)
  %r
}}"""
NOT_TAIL = f"""
def total(%n: {N}) -> {N} {{
  %c = less_equal(%n, 0)
  %r = if %c {{ %n }} else {{
    %m = subtract(%n, 1)
    %s = @total(%m)
    %t = add(%s, %n)
    %t
  }}
  %r
}}
def main(%n: {N}) -> {N} {{
  %r = @total(%n)
  %r
}}"""
MUTUAL = f"""
def even(%n: {N}) -> Tensor[(), "bool"] {{
  %c = less_equal(%n, 0)
  %r = if %c {{ const(True, "bool") }} else {{
    %m = subtract(%n, 1)
    %s = @odd(%m)
    %s
  }}
  %r
}}
def odd(%n: {N}) -> Tensor[(), "bool"] {{
  %c = less_equal(%n, 0)
  %r = if %c {{ const(False, "bool") }} else {{
    %m = subtract(%n, 1)
    %s = @even(%m)
    %s
  }}
  %r
}}
def main(%n: {N}) -> Tensor[(), "bool"] {{
  %r = @even(%n)
  %r
}}"""
# Two exits, a tuple of results, sizes without a number, a captured variable, and a call that is not the last.
CLOSURE = f"""
def main(%x: {ROW}, %n: {N}) -> ({ROW}, {N}) {{
  %half = multiply(%x, 0.5)
  %loop = fn loop(%y: {ROW}, %k: {N}) -> ({ROW}, {N}) {{
    %c = less_equal(%k, 0)
    %r = if %c {{ (%y, %k) }} else {{
      %m = subtract(%k, 1)
      %d = equal(%m, 7)
      %s = if %d {{
        %a = %loop(%half, %m)
        %f = %a[0]
        %g = negative(%f)
        (%g, %m)
      }} else {{
        %z = add(%y, %half)
        %t = %loop(%z, %m)
        %t
      }}
      %s
    }}
    %r
  }}
  %r = %loop(%x, %n)
  %r
}}"""


def number(value: int) -> Any:
    return meta.array(np.array(value, "int64"))


@pytest.mark.parametrize("count", [0, 1, 5, 20_000])
def test_tail_calls_are_loops(count: int) -> None:
    assert meta.vm.compile(parse(TAIL))(number(count)).item() == count * (count + 1) // 2


def test_loops_keep_the_meaning_of_a_program() -> None:
    module = parse(CLOSURE)
    x = meta.array(np.array([1.0, -3.0, 4.0], "float32"))
    compiled = meta.vm.compile(module)
    for count in (0, 1, 3, 8, 12):
        expected, remainder = run(module, x, number(count))
        y, k = compiled(x, number(count))
        np.testing.assert_array_equal(y.numpy(), expected.numpy())
        assert k.item() == remainder.item()


def test_a_loop_is_well_formed() -> None:
    looped = tail_loops(parse(TAIL))
    assert set(looped) == {"count", "count_step", "main"}
    verify(looped)
    assert special_calls(looped).steps == {"count_step"}
    assert set(tail_loops(parse(NOT_TAIL))) == {"total", "main"}


@pytest.mark.parametrize(("text", "names"), [(NOT_TAIL, "total"), (MUTUAL, "even|odd")])
def test_other_recursion_is_bounded(text: str, names: str) -> None:
    module = parse(text)
    compiled = meta.vm.compile(module)
    assert compiled(number(300)).item() == run(module, number(300)).item()
    with pytest.raises(IRError, match=rf"\[vm\] calls of '({names})' nest deeper than the stack of this thread allows"):
        compiled(number(10**6))
    assert compiled(number(5)).item() == run(module, number(5)).item()


def test_the_bound_is_the_bound_of_the_thread() -> None:
    compiled = meta.vm.compile(parse(NOT_TAIL))
    compiled(number(1))
    outcomes: dict[int, Any] = {}

    def attempt(size: int) -> None:
        try:
            outcomes[size] = compiled(number(2000)).item()
        except IRError as error:
            outcomes[size] = error.problem

    before = threading.stack_size()
    try:
        for size in (1 << 20, 64 << 20):
            threading.stack_size(size)
            thread = threading.Thread(target=attempt, args=(size,))
            thread.start()
            thread.join()
    finally:
        threading.stack_size(before)
    assert "(1024 KiB)" in outcomes[1 << 20]
    assert outcomes[64 << 20] == 2001000


def test_long_chains_of_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without inlining, as for programs that would grow too large."""
    monkeypatch.setattr(sys.modules[meta.passes.inline_calls.transform.__module__], "MAX_INLINED", 0)
    monkeypatch.setattr(calls, "MAX_CHAIN", 5)
    chain = [f"def f{i + 1}(%x: {N}) -> {N} {{\n%y = @f{i}(%x)\n%z = negative(%y)\n%z }}" for i in range(8)]
    main = f"def main(%x: {N}) -> {N} {{\n%y = @f8(%x)\n%y }}"
    module = parse("\n".join([f"def f0(%x: {N}) -> {N} {{ %x }}", *chain, main]))
    assert special_calls(module).checked == {f"f{i}" for i in range(9)}
    assert meta.vm.compile(module)(number(3)).item() == 3


def test_the_stack_shrinks_with_calls() -> None:
    code = "from meta.backend.memory.stack import left, size; assert size() >= 1 << 20; assert 0 < left() <= size()"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert stack.size() > 0
