"""Symbolic sizes, types and pickled IR."""

import pickle

import pytest

from meta.errors import TypeInferenceError
from meta.ir.dim import SymDim, is_static, product, same_dim, sym, unify
from meta.ir.expr import Var
from meta.ir.parser import parse_function
from meta.ir.printer import one_line, to_text
from meta.ir.type import FunctionType, TupleType, Value, tensor_type
from meta.ir.verifier import verify
from tests.python.ir.programs import HEAD, T, build

N, M = sym("n"), sym("m")


def test_polynomials_are_normal():
    assert (N + M) * (N - M) == N * N - M * M
    assert N + 1 - N == 1
    assert N * 0 == 0
    assert 3 - N == -(N - 3)
    assert 2 * N + N == 3 * N
    assert str(3 - N * M + 2 * N) == "3 - m*n + 2*n"
    assert product((N, 2, M)) == 2 * (M * N)
    assert product(()) == 1


def test_quotients_fold_where_they_are_exact():
    assert (4 * N + 2) // 2 == 2 * N + 1
    assert (N * M + M * 3) // M == N + 3
    assert N // 1 == N
    assert N // N == 1
    assert (N + 1) // (N + 1) == 1
    assert 0 // N == 0
    assert isinstance((N + 1) // 2, SymDim)
    assert (N + 1) // 2 == (N + 1) // 2
    assert (N + 1) // M != N // M
    assert (6 * N * M) // (-2 * N) == -3 * M


def test_symbolic_sizes_have_no_value_and_no_order():
    with pytest.raises(TypeInferenceError, match="the order of n and 3 is not known"):
        assert N < 3
    with pytest.raises(TypeInferenceError, match="the size n is symbolic where a number is needed"):
        range(N)
    assert bool(N)
    assert is_static((1, 2))
    assert not is_static((1, N))


def test_sizes_are_tied_together_inside_a_scope():
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


def test_tensor_types_are_one_object_each():
    assert tensor_type((2, N), "int8", "cuda:1") is tensor_type((2, sym("n")), "int8", "cuda(1)")
    assert pickle.loads(pickle.dumps(T)) is T
    assert T.nbytes == 24
    assert T.is_static
    assert not tensor_type((N,)).is_static
    assert tensor_type((N,), "float64").nbytes == 8 * N
    assert repr(tensor_type((N, 2), "int8", "cuda")) == 'Tensor[(n, 2), "int8", "cuda"]'


def test_every_type_survives_reading():
    for kind in (
        TupleType(()), TupleType((T,)), TupleType((T, TupleType((T,)))), FunctionType((), TupleType(())),
        FunctionType((T, FunctionType((T,), T)), FunctionType((), T)), Value(3), Value(2.5), Value((2, N)), Value(True),
    ):  # fmt: skip
        function = build(lambda b, x: x, kind)
        again = parse_function(to_text(function))
        assert again.params[0].type == kind
        assert repr(again.params[0].type) == repr(kind)


def test_operators_of_the_registry_are_found():
    function = parse_function(HEAD + "  %a = softmax(%x)\n  %a\n}")
    verify(function)
    copy = pickle.loads(pickle.dumps(function))
    assert to_text(copy) == to_text(function)
    assert copy.body.bindings[0].value.op is function.body.bindings[0].value.op


def test_pieces_of_a_program_are_printed():
    function = parse_function(HEAD + "  %a = softmax(%x, axis=0)\n  %a\n}")
    binding = function.body.bindings[0]
    assert to_text(binding) == '%a: Tensor[(2, 3), "float32"] = softmax(%x, axis=0)'
    assert to_text(binding.value) == "softmax(%x, axis=0)"
    assert to_text(binding.var) == one_line(binding.var) == "%a"
    assert to_text(function.body).endswith("\n%a")
    assert one_line(Var("", T)) == "%0"
