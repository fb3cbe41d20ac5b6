"""Liveness, memory and call graphs, on programs small enough to count by hand."""

import pytest

from meta.errors import TypeInferenceError
from meta.ir.analysis import (
    MemoryEstimate,
    Storage,
    call_graph,
    dying,
    estimate_memory,
    last_uses,
    leaf_types,
    op_counts,
    reachable,
    visit_live,
)
from meta.ir.dim import sym
from meta.ir.expr import GlobalVar
from meta.ir.parser import parse, parse_function
from meta.ir.type import TupleType, tensor_type
from tests.python.ir.programs import EXAMPLE, HEAD, OPS, T, build, lookup

BYTES = 24
CHAIN = "%a = softmax(%x)\n %b = softmax(%a)\n %c = add(%a, %b)\n %d = softmax(%c)\n %unused = softmax(%d)\n %d"


def function(body):
    return parse_function(HEAD + body + "\n}", lookup)


def named(variables):
    return sorted(v.name for v in variables)


def test_last_uses_and_what_dies():
    f = function(CHAIN)
    assert {v.name: i for v, i in last_uses(f).items()} == {"x": 0, "a": 2, "b": 2, "c": 3, "d": 5}
    assert [named(d) for d in dying(f)] == [[], [], ["a", "b"], ["c"], ["unused"]]


def test_a_branch_reads_for_the_conditional_around_it():
    f = function("%a = softmax(%x)\n %c = test(%x)\n %y = if %c { %b = softmax(%a)\n %b } else { %x }\n %y")
    assert {v.name: i for v, i in last_uses(f).items()} == {"x": 2, "a": 2, "c": 2, "y": 3}
    live = {}
    visit_live(f, lambda binding, after: live.update({binding.var.name: named(after)}))
    assert live == {"a": ["x"], "c": ["a", "x"], "b": [], "y": []}


def test_memory_of_a_chain():
    # At most a, b and c live at once: a and b are read while c is written.
    assert estimate_memory(function(CHAIN)) == MemoryEstimate(BYTES, 0, 3 * BYTES, BYTES)
    assert estimate_memory(function(CHAIN)).peak == 4 * BYTES
    long = "%a0 = softmax(%x)\n" + "".join(f"%a{i} = softmax(%a{i - 1})\n" for i in range(1, 50)) + "%a49"
    assert estimate_memory(function(long)).locals == 2 * BYTES


def test_views_tuples_and_overwriting_calls_take_no_memory():
    views = "%a = softmax(%x)\n %b = reshape(%a, (6,))\n %t = (%a, %b)\n %c = %t[0]\n %c"
    assert estimate_memory(function(views)) == MemoryEstimate(BYTES, 0, BYTES, BYTES)
    inplace = '%a = softmax(%x)\n %b = update(%a, %x) with {"inplace": {0: 0}}\n %b'
    assert estimate_memory(function(inplace)).locals == BYTES
    assert estimate_memory(function(inplace.replace('with {"inplace": {0: 0}}', ""))).locals == 2 * BYTES


def test_a_field_that_nobody_reads_dies():
    f = function("%t = halves(%x)\n %a = %t[0]\n %b = softmax(%a)\n %c = softmax(%b)\n %c")
    assert estimate_memory(f) == MemoryEstimate(BYTES, 0, 2 * BYTES, BYTES)
    both = function("%t = halves(%x)\n %a = %t[0]\n %b = softmax(%a)\n %c = %t[1]\n %d = add(%b, %c)\n %d")
    assert estimate_memory(both).locals == 3 * BYTES


def test_only_one_branch_runs_at_a_time():
    branch = "{ %a = softmax(%x)\n %b = add(%a, %a)\n %b }"
    f = function(f"%c = test(%x)\n %y = if %c {branch} else {branch.replace('%a', '%e').replace('%b', '%f')}\n %y")
    # Within a branch: both of its tensors and the condition's byte is free again; around it: either result.
    assert estimate_memory(f) == MemoryEstimate(BYTES, 0, 2 * BYTES + 1, 2 * BYTES)


def test_constants_count_once():
    f = function('%a = add(%x, const([1.0, 2.0], "float32"))\n %x'.replace("const([1.0, 2.0]", "const(1.0"))
    assert estimate_memory(f).constants == 4


def test_parameters_that_are_tuples_and_sizes_that_are_symbolic():
    pair = TupleType((T, tensor_type((), "int8")))
    assert estimate_memory(build(lambda b, p: b.get_item(p, 0), pair)) == MemoryEstimate(BYTES + 1, 0, 0, 0)
    with pytest.raises(TypeInferenceError, match="the size 4\\*n is symbolic"):
        estimate_memory(build(lambda b, p: p, tensor_type((sym("n"),))))


def test_closures_hold_what_they_capture():
    f = function('%a = softmax(%x)\n %f = fn() -> Tensor[(2, 3), "float32"] { %a }\n %b = softmax(%x)\n'
                 " %c = softmax(%b)\n %d = %f()\n %e = add(%c, %d)\n %e")  # fmt: skip
    storage = Storage(f)
    a, closure, *_, d, _ = (b.var for b in f.body.bindings)
    assert storage.buffers(closure) == storage.buffers(a)
    assert storage.buffers(a) < storage.buffers(d)
    assert estimate_memory(f).locals == 4 * BYTES


def test_parameters_of_closures_and_functions_of_the_module_are_buffers_of_their_own():
    f = function(
        '%f = fn(%u: Tensor[(2, 3), "float32"]) -> Tensor[(2, 3), "float32"] { %v = reshape(%u, (2, 3)) %v }\n'
        " %a = %f(%x)\n %a"
    )
    storage = Storage(f)
    closure = f.body.bindings[0].value
    (buffer,) = storage.buffers(closure.params[0])
    assert buffer.kind == "parameter"
    assert storage.buffers(closure.body.bindings[0].var) == {buffer}
    assert storage.buffers(GlobalVar("g", closure.type)) == frozenset()


def test_leaves_of_a_type():
    assert leaf_types(TupleType((T, TupleType(()), TupleType((T, T))))) == (T, T, T)


def test_call_graph():
    text = "def a() -> () { %x = @b() () } def b() -> () { %f = fn() -> () { %y = @a() %y } () } def c() -> () { () }"
    module = parse(text, lookup)
    assert call_graph(module) == {"a": {"b"}, "b": {"a"}, "c": set()}
    assert reachable(module, "a") == {"a", "b"}
    assert reachable(parse(EXAMPLE, lookup)) == {"main", "the other"}


def test_operators_are_counted():
    counts = op_counts(parse(EXAMPLE, lookup).main)
    assert counts == {"add": 1, "concat": 1, "norm": 1, "test": 1, "tvm.softmax": 1}
    assert op_counts(build(lambda b, x: b.call(OPS["softmax"], (x, 0)), T)) == {"softmax": 1}
