"""Types and pickled IR."""

import pickle

from meta.dim import sym
from meta.ir.expr import Var
from meta.ir.parser import parse_function
from meta.ir.printer import one_line, to_text
from meta.ir.type import FunctionType, TupleType, Value, tensor_type
from meta.ir.verifier import verify
from tests.python.ir.programs import HEAD, T, build

N, M = sym("n"), sym("m")


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
