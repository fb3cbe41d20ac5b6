"""Imported Relay programs: modules, models, errors; attributes honoured or refused; composites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, NotSupportedError
from meta.frontend import relay
from meta.frontend.relay import ast
from meta.frontend.relay.convert.call import converter, converters
from meta.frontend.relay.convert.program import convert
from meta.frontend.relay.convert.type_mapping import convert_type
from meta.frontend.relay.ops.one_to_one import OPERATORS
from meta.frontend.relay.source import read
from meta.interpreter.run import run
from meta.ir.analysis import op_counts
from meta.ir.parser import parse
from meta.op.registry import get
from scripts.relay_operators import operator_table

HEADER = '#[version = "0.0.5"]\n'
NETWORK = (
    HEADER
    + """
def @main(%data: Tensor[(4, 2, 6, 6), float32], %conv.weight: Tensor[(3, 2, 3, 3), float32],
          %bn_gamma: Tensor[(3), float32], %bn_beta: Tensor[(3), float32], %bn_mean: Tensor[(3), float32],
          %bn_var: Tensor[(3), float32], %fc_weight: Tensor[(5, 3), float32], %fc_bias: Tensor[(5), float32])
    -> Tensor[(4, 5), float32] {
  %0 = nn.conv2d(%data, %conv.weight, padding=[1, 1, 1, 1], channels=3, kernel_size=[3, 3]);
  %1 = nn.batch_norm(%0, %bn_gamma, %bn_beta, %bn_mean, %bn_var);
  %2 = nn.relu(%1.0);
  %3 = nn.global_avg_pool2d(%2);
  %4 = nn.batch_flatten(%3);
  %5 = nn.dropout(%4, rate=0.5f);
  %6 = nn.dense(%5.0, %fc_weight, units=5);
  nn.bias_add(%6, %fc_bias, axis=-1)
}
"""
)
RNG = np.random.RandomState(3)
PARAMS = {
    "conv.weight": RNG.randn(3, 2, 3, 3).astype("float32"),
    "bn_gamma": np.ones(3, "float32"),
    "bn_beta": np.zeros(3, "float32"),
    "bn_mean": RNG.randn(3).astype("float32"),
    "bn_var": np.full(3, 2, "float32"),
    "fc_weight": RNG.randn(5, 3).astype("float32"),
    "fc_bias": RNG.randn(5).astype("float32"),
}
DATA = RNG.randn(4, 2, 6, 6).astype("float32")


def program(body: str, params: str = "%x: Tensor[(2, 3, 8, 8), float32]") -> str:
    return f"{HEADER}def @main({params}) {{\n  {body}\n}}\n"


# --- modules ---------------------------------------------------------------------------------------------------------


def test_parameters_become_constants() -> None:
    module = relay.from_relay(NETWORK, PARAMS)
    assert [p.name for p in module.main.params] == ["data"]
    open_module = relay.from_relay(NETWORK)
    assert [p.name for p in open_module.main.params] == ["data", *PARAMS]
    with meta.with_dialect(["reference"]):
        bound, free = run(module, DATA), run(open_module, DATA, *PARAMS.values())
    np.testing.assert_allclose(bound.numpy(), free.numpy(), rtol=1e-6)


def test_operators_remember_their_lines() -> None:
    text = str(relay.from_relay(NETWORK))
    assert "conv2d(%data, %conv.weight, padding=(1, 1, 1, 1))  # <relay>:7" in text


def test_shapes_may_be_given() -> None:
    module = relay.from_relay(NETWORK, PARAMS, shapes={"data": (1, 2, 10, 10)})
    assert module.main.body.type == meta.ir.type.tensor_type((1, 5))
    with pytest.raises(ArgumentError, match="shape"):
        relay.from_relay(NETWORK, PARAMS, shapes={"data": (1, 2)})
    with pytest.raises(ArgumentError, match="did you mean 'data'"):
        relay.from_relay(NETWORK, PARAMS, shapes={"date": (1, 2, 10, 10)})


def test_params_are_checked() -> None:
    with pytest.raises(ArgumentError, match=r"'fc_bais', which is not a parameter of @main.*did you mean 'fc_bias'"):
        relay.from_relay(NETWORK, {"fc_bais": PARAMS["fc_bias"]})
    with pytest.raises(ArgumentError, match=r"'fc_bias' is Tensor\[\(3,\)"):
        relay.from_relay(NETWORK, {"fc_bias": np.ones(3, "float32")})


def test_the_result_has_the_type_that_the_program_says() -> None:
    with pytest.raises(relay.RelayError, match="@main declares the result"):
        relay.from_relay(NETWORK.replace("-> Tensor[(4, 5)", "-> Tensor[(5, 4)"))


def test_a_path_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "net.relay"
    path.write_text(NETWORK)
    assert "net.relay:7" in str(relay.from_relay(path))


def test_the_pass_is_timed_and_verified() -> None:
    with meta.passes.PassContext(verify=True) as context:
        module = relay.FromRelay(PARAMS)(NETWORK)
    assert [p.name for p in module.main.params] == ["data"]
    assert "from_relay" in context.report()


# --- models ----------------------------------------------------------------------------------------------------------


def test_a_model_trains_on_the_vm() -> None:
    model = relay.load(NETWORK, PARAMS)
    assert model.inputs == ("data",)
    assert sorted(n for n, _ in model.named_parameters()) == [
        "bn_beta",
        "bn_gamma",
        "conv.weight",
        "fc_bias",
        "fc_weight",
    ]
    optimizer = meta.optim.SGD(model.parameters(), learning_rate=0.1)
    x, target = meta.array(DATA), meta.array(np.array([0, 1, 2, 3], "int64"))

    @meta.trace
    def step(x: meta.NDArray, target: meta.NDArray) -> meta.NDArray:
        optimizer.zero_grad()
        loss = meta.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    compiled = meta.vm.compile(step)
    losses = [float(compiled(x, target).numpy()) for _ in range(20)]
    assert losses[-1] < losses[0] - 0.2
    assert not np.allclose(model.state_dict()["bn_mean"].numpy(), PARAMS["bn_mean"])
    assert np.allclose(PARAMS["bn_var"], 2)  # the arrays that were given are the caller's


def test_batch_normalisation_follows_the_mode() -> None:
    model = relay.load(NETWORK, PARAMS)
    module = relay.from_relay(NETWORK, PARAMS)
    with meta.with_dialect(["reference"]):
        expected = run(module, DATA).numpy()
        trained = model(meta.array(DATA)).detach().numpy()
        assert not np.allclose(trained, expected)
        model = relay.load(NETWORK, PARAMS, momentum=0.0)
        np.testing.assert_allclose(model(meta.array(DATA)).detach().numpy(), expected, rtol=1e-5)
        model = relay.load(NETWORK, PARAMS).infer_mode()
        np.testing.assert_allclose(model(meta.array(DATA)).numpy(), expected, rtol=1e-5)
        with pytest.raises(ArgumentError, match="2 inputs; expected 1: data"):
            model(meta.array(DATA), meta.array(DATA))


# --- errors ----------------------------------------------------------------------------------------------------------

UNKNOWN = """
  %0 = nn.mystery(%x);
  %1 = exp(%0);
  %2 = vision.mystery(%1);
  nn.mystery(%2)"""


def test_all_operators_that_are_missing_come_in_one_error() -> None:
    with pytest.raises(relay.UnsupportedError) as error:
        relay.from_relay(program(UNKNOWN))
    assert error.value.operators == {"nn.mystery": 2, "vision.mystery": 1}
    text = "2 operators are not supported: nn.mystery (2 times: lines 4, 7), vision.mystery (once: line 6)"
    assert text in str(error.value)
    assert isinstance(error.value, NotSupportedError)


def test_examine_lists_operators() -> None:
    uses = {use.name: use for use in relay.examine(program(UNKNOWN))}
    assert sorted(uses) == ["exp", "nn.mystery", "vision.mystery"]
    assert uses["exp"].supported
    assert uses["exp"].lines == (5,)
    assert not uses["nn.mystery"].supported
    assert uses["nn.mystery"].count == 2


PROBLEMS = """
  %0 = nn.mystery(%x);
  %1 = exp(%0);
  %2 = take(%x, 0, axis=0, mode="raise");
  %3 = cast(%2, dtype="float8_e4m3");
  %4 = cast(%x, dtype="float8_e5m2");
  (%1, %3, %4)"""


def test_everything_that_is_not_supported_comes_at_once() -> None:
    source = program(PROBLEMS, "%x: Tensor[(2), float32], %q: Tensor[(2), custom[posites]32]")
    report = relay.examine(source)
    assert not report.supported
    assert [use.name for use in report.missing] == ["nn.mystery"]
    parts = ("custom[posites]32", "line 6, column 8: take: mode is 'raise'", "line 8, column 8: the dtype float8_e5m2")
    assert all(part in problem for part, problem in zip(parts, report.problems, strict=True))
    with pytest.raises(relay.UnsupportedError, match=r"1 operator is not supported: nn\.mystery") as error:
        relay.from_relay(source)
    assert error.value.problems == report.problems
    assert all(problem in str(error.value) for problem in report.problems)


def test_calls_that_are_not_supported_come_in_one_error() -> None:
    body = '\n  %0 = take(%x, 0, axis=0, mode="raise");\n  %1 = cast(%x, dtype="float8_e5m2");\n  (%0, %1)'
    with pytest.raises(relay.UnsupportedError, match="2 calls or parameters are not supported") as error:
        relay.from_relay(program(body))
    assert len(error.value.problems) == 2
    assert relay.examine(program(body)).problems == error.value.problems


def test_the_error_of_very_many_problems_shows_the_first_ones() -> None:
    with pytest.raises(relay.UnsupportedError, match="300 calls or parameters are not supported") as error:
        relay.from_relay("free_var %x: Tensor[(10), float32];" + "free_var %q;" * 300 + "nn.relu(%x)")
    assert len(error.value.problems) == 300
    assert str(error.value).count("free_var") + str(error.value).count("column") <= 110
    assert "and 200 more: the error's `problems`" in str(error.value)


def test_examine_reports_invalid_programs() -> None:
    (problem,) = relay.examine(program("add(%x, %y)", "%x: Tensor[(2), float32], %y: Tensor[(3), float32]")).problems
    assert "broadcast" in problem


def test_mistakes_have_their_place() -> None:
    with pytest.raises(relay.RelayError, match=r"line 3, column 3: add: .*do not broadcast|line 3, column 3: add"):
        relay.from_relay(program("add(%x, %y)", "%x: Tensor[(2), float32], %y: Tensor[(3), float32]"))
    with pytest.raises(relay.RelayError, match="no function @main"):
        relay.from_relay(f"{HEADER}def @f(%x: float32) {{ %x }}")


# --- attributes ------------------------------------------------------------------------------------------------------

REFUSED = {
    "nn.conv2d(%x, %x, kernel_size=[3, 3])": r"kernel_size \(3, 3\)",
    "nn.conv2d(%x, %x, channels=7)": "channels is 7",
    'nn.conv2d(%x, %x, data_layout="NCHW3x")': "NCHW3x",
    "nn.dense(%x, %x, units=9)": "units is 9",
    'take(%x, 0, axis=0, mode="raise")': "mode is 'raise'",
    'nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]], pad_mode="circular")': "pad_mode is 'circular'",
    "nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [-1, 1], [1, 1]])": "widths from 0",
    'nn.relu(%x, colour="red")': "unknown attribute colour='red'",
    "exp(%x, axis=1)": "unknown attribute axis=1",
    'image.resize2d(%x, size=[4, 4], roi=[0f, 0f, 1f, 1f])': "no region of interest",
    'image.resize2d(%x, size=[4, 4], method="lanczos")': "method is 'lanczos'",
    'image.resize2d(%x, size=[4, 4], cubic_exclude=1)': "cubic_exclude is 1",
    'nn.space_to_depth(%x, block_size=2, layout="CHWN")': "layout is 'CHWN'",
    'strided_slice(%x, begin=[0], end=[1], strides=[1], slice_mode="all")': "slice_mode is 'all'",
    "reshape(%x, newshape=[-5])": "newshape is",
    'nn.dense(%x, %x, out_dtype="int8")': "out_dtype int8",
    'cast(%x, dtype="float8_e4m3")': "the dtype float8_e4m3",
    "full(%x, shape=[2])": "expected one number",
    'layout_transform(%x, src_layout="NCHW", dst_layout="NCHW2c")': "blocks of 2 in an axis C of size 3",
    "split(%x, indices_or_sections=99999999, axis=2)": "at most 65536",
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSED)
def test_attributes_that_mean_something_else_are_refused(body: str) -> None:
    with pytest.raises(relay.UnsupportedError, match=REFUSED[body]) as error:
        relay.from_relay(program(body))
    assert "line 3, column 3" in str(error.value)


def test_attributes_that_say_nothing_are_taken() -> None:
    body = 'nn.conv2d(%x, %x, out_layout="", out_dtype="", auto_scheduler_rewritten_layout="", kernel_size=None)'
    relay.from_relay(program(body))


def test_shapes_are_followed_through_the_program() -> None:
    body = """%0 = shape_of(%x, dtype="int64");
  %1 = take(%0, 0);
  %2 = multiply(%1, 3i64);
  %3 = (%2, -1i64);
  %4 = stack(%3);
  dyn.reshape(%x, %4, newshape=[])"""  # the shapes become numbers, and their arithmetic is dead
    module = relay.from_relay(program(body))
    assert module.main.body.type == meta.ir.type.tensor_type((6, 64))
    assert op_counts(module.main) == {"reshape": 1}


def test_open_sizes_are_symbolic_and_tied_where_they_meet() -> None:
    params = "%x: Tensor[(?, ?), float32], %y: Tensor[(?, 4), float32]"
    module = relay.from_relay(program("add(%x, %y)", params))
    x, y = (p.type for p in module.main.params)
    assert x == y
    assert not x.is_static  # type: ignore[union-attr]
    value = np.ones((3, 4), "float32")
    with meta.with_dialect(["reference"]):
        assert run(module, value, value).shape == (3, 4)
        with pytest.raises(ArgumentError):
            run(module, value, value[:2])
        body = '%0 = shape_of(%x); %1 = ones(shape=[4], dtype="float32"); dyn.broadcast_to(%1, %0, shape=[])'
        module = relay.from_relay(program(body, "%x: Tensor[(?, 4), float32]"))
        assert run(module, value).shape == (3, 4)
        shape = run(relay.from_relay(program("shape_of(%x)", params)), value, value)
        np.testing.assert_array_equal(shape.numpy(), np.array([3, 4], "int32"))
    with pytest.raises(relay.RelayError, match="line 3, column 3: add"):
        relay.from_relay(program("add(%x, %y)", "%x: Tensor[(?, 3), float32], %y: Tensor[(?, 4), float32]"))


# --- composites ------------------------------------------------------------------------------------------------------

GELU = {
    "%0 = multiply(%x, 0.707107f); %1 = erf(%0); %2 = multiply(%1, 0.5f); %3 = add(0.5f, %2); multiply(%x, %3)": "none",
    "%0 = divide(%x, 1.41421f); %1 = erf(%0); %2 = add(%1, 1f); %3 = multiply(%x, %2); multiply(%3, 0.5f)": "none",
    "%0 = multiply(%x, 0.5f); %1 = divide(%x, 1.41421f); %2 = erf(%1); %3 = add(1f, %2); multiply(%0, %3)": "none",
    "%0 = power(%x, 3f); %1 = multiply(%0, 0.044715f); %2 = add(%x, %1); %3 = multiply(%2, 0.797885f); %4 = tanh(%3); "
    "%5 = add(%4, 1f); %6 = multiply(0.5f, %x); multiply(%6, %5)": "tanh",
    "%0 = multiply(%x, %x); %1 = multiply(%0, 0.044715f); %2 = add(%1, 1f); %3 = multiply(%x, 0.797885f); "
    "%4 = multiply(%3, %2); %5 = tanh(%4); %6 = add(%5, 1f); %7 = multiply(%x, %6); divide(%7, 2f)": "tanh",
}  # fmt: skip


@pytest.mark.parametrize("body", GELU)
def test_gelu_is_recognised(body: str) -> None:
    main = relay.from_relay(program(body)).main
    assert op_counts(main) == {"gelu": 1}
    assert main.body.bindings[0].value.args[1] == GELU[body]  # type: ignore[union-attr]


def test_what_is_almost_gelu_is_not() -> None:
    body = "%0 = divide(%x, 1.5f); %1 = erf(%0); %2 = add(%1, 1f); %3 = multiply(%x, %2); multiply(%3, 0.5f)"
    assert "gelu" not in op_counts(relay.from_relay(program(body)).main)


PRODUCTS = {
    "%0 = nn.dense(%a, %b); nn.bias_add(%0, %c, axis=-1)": {"dense": 1},
    "%0 = nn.dense(%a, %b); add(%c, %0)": {"dense": 1},
    "%0 = nn.dense(%a, %b); %1 = add(%0, %c); add(%1, %0)": {"dense": 1, "add": 2},
    "%0 = transpose(%b, axes=[1, 0]); nn.dense(%0, %a)": {"matmul": 1},
    "%0 = transpose(%a, axes=[1, 0]); %1 = transpose(%0, axes=[1, 0]); nn.dense(%1, %b)": {"dense": 1},
    "%0 = transpose(%b, axes=None); nn.matmul(%a, %0)": {"matmul": 1},
    "%1 = reshape(%d, newshape=[-1, 5]); %2 = nn.dense(%1, %b); %3 = reshape(%2, newshape=[2, 2, 3]); "
    "nn.bias_add(%3, %c, axis=-1)": {"dense": 1},
    "%0 = nn.dense(%a, %b); %1 = reshape(%0, newshape=[1, 4, 3]); add(%1, %c)": {"dense": 1, "reshape": 1},
    "%0 = reshape(%d, newshape=[1, 2, 2, 5]); %1 = transpose(%0, axes=[0, 1, 3, 2]); "
    "%2 = reshape(%1, newshape=[2, 5, 2]); nn.batch_matmul(%d, %2)": {"matmul": 1},
    "%0 = transpose(%a, axes=[1, 0]); %1 = transpose(%b, axes=[1, 0]); %2 = nn.dense(%a, %b); %3 = nn.matmul(%0, %2); "
    "nn.dense(%3, %3)": {"dense": 2, "matmul": 1},
}  # fmt: skip


@pytest.mark.parametrize("body", PRODUCTS)
def test_products_are_put_together(body: str) -> None:
    first = "(4, 3)" if "nn.dense(%0, %a)" in body else "(4, 5)"
    params = f"%a: Tensor[{first}, float32], %b: Tensor[(3, 5), float32], %c: Tensor[(3), float32], "
    params += "%d: Tensor[(2, 2, 5), float32]"
    source = program(body, params)
    module = relay.from_relay(source)
    assert op_counts(module.main) == PRODUCTS[body]
    plain = convert(read(source)).module
    inputs = [RNG.randn(*p.type.shape).astype("float32") for p in module.main.params]  # type: ignore[union-attr]
    with meta.with_dialect(["reference"]):
        actual, expected = run(module, *inputs), run(plain, *inputs)
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_table_of_one_operator_each_names_operators_without_attributes() -> None:
    for name, operator in OPERATORS.items():
        assert converters.find(name) is not None
        assert [arg.is_tensor for arg in get(operator).schema.args] in ([True], [True, True]), name
    assert converters.find("nn.no_such_operator") is None


def test_an_operator_has_one_converter() -> None:
    with pytest.raises(AssertionError, match="tanh"):
        converter("tanh")(lambda call: call.args[0])


def test_the_page_lists_what_is_supported() -> None:
    page = Path(__file__).resolve().parents[5] / "docs" / "from-relay.md"
    table = page.read_text(encoding="utf-8").split("<!-- supported -->")[1].split("<!-- /supported -->")[0]
    assert table.strip() == operator_table(), "python -m scripts.relay_operators writes it"


def test_sizes_that_no_operand_has_reach_fused_kernels() -> None:
    body = "%0 = nn.relu(%x); %1 = broadcast_to_like(%0, %y); sum(%1, axis=[1])"
    module = relay.from_relay(program(body, "%x: Tensor[(3), float32], %y: Tensor[(?, 3), float32]"))
    actual = meta.vm.compile(module)(meta.array([1.0, 2.0, -3.0]), meta.ones((4, 3)))
    np.testing.assert_array_equal(actual.numpy(), np.full(4, 3, "float32"))


@pytest.mark.parametrize("name", ["n", "a b", "1n", "True", "device", "ñ", 'q"', "\ud800", ""])
def test_names_of_sizes_read_back(name: str) -> None:
    """JSON may call a size anything."""
    kind = convert_type(ast.TensorType((name, None, 3), "float32"), ast.NOWHERE, "2x.y")
    text = f"def main(%x: {kind!r}) -> {kind!r} {{ %x }}"
    assert parse(text).main.params[0].type == kind
    assert kind != convert_type(ast.TensorType((name + "_", None, 3), "float32"), ast.NOWHERE, "2x.y")
