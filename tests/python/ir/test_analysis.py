"""Last uses, call graphs and counts, on programs small enough to check by hand."""

from meta.ir.analysis import Contents, call_graph, contents, dying, last_uses, op_counts, reachable
from meta.ir.parser import parse, parse_function
from meta.ir.type import TupleType, leaf_types
from tests.python.ir.programs import EXAMPLE, HEAD, OPS, T, build, lookup

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


def test_contents_name_operators_functions_and_devices():
    text = 'def a() -> () { %x = @b() () } def b(%x: Tensor[(2, 3), "float32", "cuda"]) -> () { %y = softmax(%x) () }'
    module = parse(text.replace("@b()", "softmax(%p)").replace("a()", 'a(%p: Tensor[(2, 3), "float32"])'), lookup)
    assert contents(module) == Contents(frozenset({"softmax"}), frozenset({"cpu", "cuda"}))
    assert contents(module) is contents(module)
    calls = parse("def a() -> () { %x = @b() () } def b() -> () { () }", lookup)
    assert contents(calls) == Contents(frozenset({""}), frozenset())


def test_contents_name_closures_and_conditionals():
    closure = parse("def a() -> () { %f = fn() -> () { () } () }", lookup)
    assert contents(closure).has("fn")
    assert not contents(closure).has("", "if")
    assert contents(parse(EXAMPLE, lookup)).has("if")
