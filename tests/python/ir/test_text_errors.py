"""Errors about text that cannot be read: the place, the problem, the expectation."""

from random import Random

import pytest

from meta.errors import IRError, MetaError
from meta.ir.parser import parse, parse_function
from meta.limits import MAX_DEPTH
from tests.python.ir.programs import EXAMPLE, HEAD, lookup


def inside(body):
    """A function of `%x` with this body."""
    return HEAD + body + "\n}"


def nested(depth):
    return (
        HEAD + '%c: Tensor[(), "bool"] = test(%x)\n' + "%1 = if %c {\n" * depth + "%x } else { %x }\n" * depth + "%x }"
    )


ERRORS = {
    "unknown operator": (
        inside("  %0 = sofmax(%x)\n  %0"),
        "text:2:8: .*no operator is called 'sofmax'; did you mean 'softmax'",
    ),
    "unknown dialect operator": (inside("  %0 = tvm.sofmax(%x)\n  %0"), "text:2:8: .*'sofmax'; did you mean 'softmax'"),
    "unknown argument": (
        inside("  %0 = softmax(%x, axes=1)\n  %0"),
        "text:2:20: softmax has no argument 'axes'; expected .*'axis'",
    ),
    "argument twice": (inside("  %0 = softmax(%x, x=%x)\n  %0"), "text:2:20: argument 'x' is given twice"),
    "too many": (inside("  %0 = softmax(%x, 1, 2)\n  %0"), "text:2:23: more than 2 arguments"),
    "missing": (inside("  %0 = softmax(axis=1)\n  %0"), "text:2:8: argument 'x' is missing"),
    "wrong kind": (
        inside('  %0 = softmax(%x, axis="a")\n  %0'),
        "text:2:20: .*argument 'axis' is str 'a'; expected an int",
    ),
    "tensor as an attribute": (
        inside("  %0 = softmax(%x, %x)\n  %0"),
        "text:2:20: argument 'axis' of softmax is a variable; expected an int",
    ),
    "list as a tensor": (
        inside("  %0 = softmax([%x])\n  %0"),
        "text:2:16: .*argument 'x' is tuple .*; expected a tensor",
    ),
    "unknown variable": (inside("  %0 = softmax(%y)\n  %0"), "text:2:16: %y is not defined here"),
    "misspelt variable": (
        inside("  %input = softmax(%x)\n  %inptu"),
        "%inptu is not defined here; did you mean '%input'",
    ),
    "unknown function": (inside("  %0 = @g(%x)\n  %0"), "text:2:8: @g is not defined here"),
    "unknown constant": (inside("  %0 = softmax($3)\n  %0"), r"\$3 is not defined here"),
    "bound twice": (inside("  %a = softmax(%x)\n  %a = softmax(%x)\n  %a"), "text:3:3: %a is bound twice"),
    "alias": (inside("  %a = %x\n  %a"), r"text:3:3: found '%a'; expected '\(' or '\['"),
    "no result": (HEAD + "  %0 = softmax(%x)\n}", "text:3:1: found '}'; expected a binding or the result of the block"),
    "no end": (HEAD + "  %0 = softmax(%x)\n  %0", "text:3:5: found the end of the text; expected '}'"),
    "no comma": (HEAD + "  %0 = softmax(%x axis=1)\n %0 }", r"text:2:19: found 'axis'; expected ',' or '\)'"),
    "character": (HEAD + "  %0 = softmax(%x) ?\n %0 }", "text:2:20: unexpected character '\\?'"),
    "string": (HEAD + '  %0 = test(%x, mode="\\q")\n %0 }', "text:2:22: bad string"),
    "wrong result type": (
        inside('  %0 = cast(%x, "int8")\n  %0'),
        r"the body returns Tensor\[\(2, 3\), \"int8\"\]; expected .*, as declared",
    ),
    "wrong field type": (
        inside('  %0 = (%x,)\n  %1: Tensor[(), "int8"] = %0[0]\n  %1'),
        "text:3:3: the value is a .*; expected .*, as declared",
    ),
    "wrong closure type": (
        inside("  %f: () = fn() -> () { () }\n  %x"),
        r"text:2:3: the value is a fn\(\) -> \(\); expected \(\), as declared",
    ),
    "no such field": (inside("  %0 = (%x,)\n  %1 = %0[1]\n  %1"), "text:3:3: .*there is no field 1"),
    "float field": (inside("  %0 = (%x,)\n  %1 = %0[1.5]\n  %1"), "the index of a field is not an int"),
    "branches": (
        HEAD + "  %c = test(%x)\n %0 = if %c { %x } else { %c }\n %x }",
        "text:3:25: this branch returns .*; expected .*, as the first branch returns",
    ),
    "type rule": (
        inside('  %a = cast(%x, "int8")\n  %0 = add(%x, %a)\n  %0'),
        "text:3:8: .*differ; expected equal",
    ),
    "dtype": ('def main(%x: Tensor[(), "flot32"]) -> () { () }', "text:1:25: .*'flot32' is not a dtype.*did you mean"),
    "device": ('def main(%x: Tensor[(), "int8", "gpu"]) -> () { () }', "'gpu' is not a device"),
    "shape": ('def main(%x: Tensor[(-1,), "int8"]) -> () { () }', "text:1:21: not a shape"),
    "division": ('def main(%x: Tensor[(((n)//(0)),), "int8"]) -> () { () }', "division by zero"),
    "product": ('def main(%x: Tensor[((n + 1)*(m + 1),), "int8"]) -> () { () }', "a product of sums"),
    "arithmetic": ('def main(%x: Tensor[(n + "a",), "int8"]) -> () { () }', "arithmetic on a value that is not a size"),
    "minus": (inside('  %0 = softmax(%x, axis=-"a")\n  %0'), "'-' before a value that is not a number"),
    "digits": (
        HEAD + f"  %0 = softmax(%x, axis={'9' * 5000})\n  %0\n}}",
        "5000 characters; expected at most 400",
    ),
    "type": ("def main(%x: int) -> () { () }", "text:1:14: found 'int'; expected a type .*"),
    "top level": ("%x = 3", "text:1:1: found '%x'; expected 'def' or 'constants'"),
    "function twice": ("def a() -> () { () } def a() -> () { () }", "the function 'a' is defined twice"),
    "base64": ('constants { $0: Tensor[(), "int8"] = "?" }', "text:1:38: the data is not base64"),
    "data size": (
        'constants { $0: Tensor[(2,), "int8"] = "AAAA" }',
        r'text:1:40: the data has 3 bytes; expected 2, the size of a Tensor\[\(2,\), "int8"\]',
    ),
    "constant twice": (
        'constants { $0: Tensor[(1,), "int8"] = "AA==" $0: Tensor[(1,), "int8"] = "AA==" }',
        "defined twice",
    ),
    "constant range": (
        inside('  %0 = softmax(const(300, "int8"))\n  %0'),
        "text:2:16: the values do not make a",
    ),
    "constant kind": (inside('  %0 = softmax(const("a", "int8"))\n  %0'), "a constant of values that are not numbers"),
    "facts": ("def main() -> () with 3 { () }", "the attributes are not a dictionary"),
    "deep blocks": (nested(2000), f"nesting deeper than {MAX_DEPTH}"),
    "deep values": (inside("  %0 = reshape(%x, shape=" + "(" * 9000 + ")" * 9000 + ")\n  %0"), "nesting deeper"),
    "deep types": ("def main(%x: " + "(" * 9000, "nesting deeper"),
    "deep functions": ("def main(%x: " + "fn() -> " * 9000, "nesting deeper"),
    "deep attributes": ("def main() -> () with " + "{1: " * 9000, "nesting deeper"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_place_and_what_was_expected(name):
    text, pattern = ERRORS[name]
    with pytest.raises(IRError, match=pattern) as caught:
        parse(text, lookup)
    assert __file__ in str(caught.value)
    assert len(str(caught.value)) < 700


def test_an_error_shows_the_line_with_a_caret():
    with pytest.raises(IRError) as caught:
        parse(inside("  %0 = sofmax(%x)\n  %0"), lookup)
    assert str(caught.value).split("\n")[1:] == ["    %0 = sofmax(%x)", "         ^"]


def test_random_damage_gives_an_error_of_ours_or_a_program():
    refused = 0
    for seed in range(300):
        rng = Random(seed)
        position = rng.randrange(len(EXAMPLE))
        damage = rng.choice(["", "(", "}", "%", '"', ":", "0", "fn", "if", "\n", EXAMPLE[position:] or " "])
        try:
            parse(EXAMPLE[:position] + damage + EXAMPLE[position + rng.randrange(4) :], lookup)
        except MetaError:
            refused += 1
    assert refused > 200


def test_exactly_one_function_where_one_is_asked_for():
    with pytest.raises(IRError, match="the text has 2 functions"):
        parse_function("def a() -> () { () } def b() -> () { () }", lookup)
