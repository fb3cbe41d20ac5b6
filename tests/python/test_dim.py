"""Symbolic sizes: arithmetic, text, ties and values."""

import operator
import pickle
import subprocess
import sys

import numpy as np
import pytest

from meta.dim import (
    WHOLE,
    SymDim,
    compute,
    evaluate,
    is_static,
    least,
    maximum,
    minimum,
    names,
    product,
    same_dim,
    sym,
    unify,
)
from meta.dim_expressions import Quotient, SizeNumber
from meta.errors import ArgumentError, IRError, TypeInferenceError
from meta.ir.lexer import Cursor
from meta.ir.literal_parser import parse_value
from meta.ir.type import Value, tensor_type

N, M = sym("n"), sym("m")
NESTED = ((N + 1) // 2 * M + 3) // (N * M + 1) - 2 * N


def test_normalises_polynomials():
    assert (N + M) * (N - M) == N * N - M * M
    assert N + 1 - N == 1
    assert N * 0 == 0
    assert 3 - N == -(N - 3)
    assert 2 * N + N == 3 * N
    assert str(3 - N * M + 2 * N) == "3 - m*n + 2*n"
    assert product((N, 2, M)) == 2 * (M * N)
    assert product(()) == 1


def test_folds_exact_quotients():
    assert (4 * N + 2) // 2 == 2 * N + 1
    assert (N * M + M * 3) // M == N + 3
    assert N // 1 == N
    assert N // N == 1
    assert (N + 1) // (N + 1) == 1
    assert (N // 4 * (N // 4)) // (2 * (N // 4)) == N // 4 // 2
    assert (N * M + M) // (3 * M) == (N + 1) // 3
    assert (2 * N * M) // (3 * M * N) == 0
    assert 0 // N == 0
    assert isinstance((N + 1) // 2, SymDim)
    assert (N + 1) // 2 == (N + 1) // 2
    assert (N + 1) // M != N // M
    assert (6 * N * M) // (-2 * N) == -3 * M


def test_separates_multiples_of_a_divisor():
    assert (2 * N - 1) // 2 == N - 1
    assert (4 * N + M + 7) // 2 == 2 * N + (M + 7) // 2
    for n, m in ((0, 0), (1, 3), (5, 2)):
        assert evaluate((4 * N + M + 7) // 2, {"n": n, "m": m}) == (4 * n + m + 7) // 2


def test_least_values():
    assert least(2 * N + N * M + 3) == 3
    assert least(7) == 7
    assert least(N) == 0
    assert least(3 - N) is None
    assert least((N - 9) // 2) is None


def test_a_name_makes_a_size():
    assert SymDim("n") == sym("n")
    assert repr(SymDim("n")) == "n"


@pytest.mark.parametrize("value", ["", (), ("n",), ((("n",), 1),), 3, None, N])
def test_every_size_has_a_text(value):
    for kind in (SymDim, sym):
        with pytest.raises(ArgumentError, match=r"\[SymDim\] the name of a symbolic size is .*; write sym\(\"n\"\)"):
            kind(value)
    assert repr(Quotient(value, N))
    assert repr(Value(value))
    assert repr(tensor_type((value,)))


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod])
def test_operands_of_other_kinds(operation):
    for operands in (N, 0.5), (1.5, N):
        assert isinstance(operation(*operands), SizeNumber)
    for operands in (N, None), (None, N):
        with pytest.raises(TypeError, match="unsupported operand"):
            operation(*operands)
    assert operation(N, np.int64(2)) == operation(N, 2)


def test_minima_have_one_form():
    assert minimum(N, 3) == minimum(3, N)
    assert minimum(N, M) == minimum(M, N)
    assert minimum(N + 1, 3) == minimum(N, 2) + 1
    assert maximum(N - 1, 0) == N - minimum(N, 1)
    assert (minimum(N, N + 2), maximum(N, N + 2), minimum(N, 0), minimum(2 * (N // 2), N)) == (
        N,
        N + 2,
        0,
        2 * (N // 2),
    )
    assert (minimum(N, WHOLE), minimum(4, 7)) == (N, 4)
    for size in (minimum(N, 3) * M - 1, N - minimum(N // 2, M)):
        assert parse_value(Cursor(str(size), "")) == size
        assert pickle.loads(pickle.dumps(size)) == size
        assert names(size) == {"n", "m"}
    assert evaluate(minimum(N, 3) * M - 1, {"n": 5, "m": 4}) == 11
    with pytest.raises(IRError, match="the minimum of 1 values; expected two sizes"):
        parse_value(Cursor("min(n)", ""))


def test_orders_that_hold_for_all_sizes():
    assert (N >= 0, N + 1 > 0, N < 0, N < N + 1, N - minimum(N, 1) >= 0) == (True, True, False, True, True)
    assert repr(N > 3) == "n > 3"
    with pytest.raises(TypeInferenceError, match="whether n > 3 is not known"):
        bool(N > 3)


def test_rejects_values_and_order_of_symbolic_sizes():
    with pytest.raises(TypeInferenceError, match="whether n < 3 is not known"):
        assert N < 3
    with pytest.raises(TypeInferenceError, match="the size n is symbolic where a number is needed"):
        range(N)
    assert bool(N)
    assert is_static((1, 2))
    assert not is_static((1, N))


def test_unify_ties_sizes_inside_its_scope():
    assert not same_dim(N, M)
    with unify() as ties:
        assert same_dim(N, M)
        assert same_dim(M, 3)
        assert same_dim(N, 3)
        assert not same_dim(N, 4)
        assert not same_dim(3, 4)
        assert len(ties) == 2
        with unify():
            assert same_dim(N, 4)
        assert not same_dim(N, 4)
    assert not same_dim(N, M)


def test_prints_and_parses_quotients():
    assert str((N + 1) // 2) == "((1 + n)//(2))"
    assert str(7 // N * 2 + M) == "2*((7)//(n)) + m"
    assert str(NESTED) == "((3 + ((1 + n)//(2))*m)//(1 + m*n)) - 2*n"
    assert parse_value(Cursor(str(NESTED), "")) == NESTED
    assert names(NESTED) == {"n", "m"}
    assert names(3) == frozenset()
    assert ((N + 1) // 2).terms != ((N + 1) // 3).terms


def test_only_single_symbols_have_names():
    assert N.name == "n"
    assert [d.name for d in (2 * N, N + 1, N * M, N // 2)] == [None] * 4


def test_evaluates_sizes():
    n, m = 7, 5
    assert evaluate(NESTED, {"n": n, "m": m}) == ((n + 1) // 2 * m + 3) // (n * m + 1) - 2 * n
    assert evaluate(4, {}) == 4
    with pytest.raises(IRError, match=r"the size n \+ q depends on q, which no input has; expected .* n, m"):
        evaluate(N + sym("q"), {"n": n, "m": m})


def test_computes_sizes_in_another_arithmetic():
    class Text(str):
        def __add__(self, other):
            return Text(f"{self}+{other}")

        def __mul__(self, other):
            return Text(f"{self}.{other}")

    text = compute(2 * N * M + N // 3 + 1, Text, lambda i: Text(f"#{i}"), lambda a, b: Text(f"<{a}|{b}>"), min)
    assert text == "#1+<n|#3>+#2.m.n"
    assert compute(5, Text, lambda i: Text(f"#{i}"), lambda a, b: a, min) == "#5"


def test_pickles_sizes_for_other_processes():
    assert pickle.loads(pickle.dumps(NESTED)) == NESTED
    check = "from meta.dim import sym; n = sym('n'); import pickle; "
    check += f"print(hash(pickle.loads({pickle.dumps(N // 2)!r})) == hash(n // 2))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "True\n"
