"""The AutoCast pass: which operands it casts, which it leaves, and that results and types of programs are preserved."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import passes, tracing
from meta.errors import ArgumentError, RegistryError
from meta.interpreter.run import run
from meta.ir.analysis import op_counts
from meta.ir.expr import MUTATES, Call
from meta.ir.type import TensorType, tensor_type
from meta.ir.visitor import walk
from meta.op.precision import data_positions, target_dtype
from meta.op.registry import all_ops, get
from tests.python.passes.programs import parse_program, program
from tests.python.recorded import array, assert_equal, check_ir, execute

X = (2, 3)
F16, BF16, F32, F64 = "float16", "bfloat16", "float32", "float64"


def cast(module, dtype=BF16, overrides=None):
    """The program in mixed precision; its parameter and result types are unchanged."""
    after = passes.auto_cast(dtype, overrides)(module)
    check_ir(after)
    assert [p.type for p in after.main.params] == [p.type for p in module.main.params]
    assert after.main.body.type == module.main.body.type
    return after


def dtypes_of(module, op):
    """The result dtype of every call of an operator, in order."""
    calls = [b.value for b in walk(module.main) if isinstance(b.value, Call) and b.value.op_name == op]
    return [c.type.dtype if isinstance(c.type, TensorType) else c.type.fields[0].dtype for c in calls]


def casts(module):
    return op_counts(module.main).get("cast", 0)


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_applies_each_rule(dtype):
    after = cast(program(lambda x, w, b: meta.softmax(meta.relu(x @ w + b)), X, (3, 4), (4,)), dtype)
    assert dtypes_of(after, "matmul") == [dtype]  # always
    assert dtypes_of(after, "add") == dtypes_of(after, "relu") == [dtype]  # infer: the bias follows
    assert dtypes_of(after, "softmax") == [F32]  # never
    assert casts(after) == 4  # x, w, b and the operand of softmax


def test_infer_follows_the_largest_operand_and_on_ties_the_wider_dtype():
    x, h = tensor_type((8, 3)), tensor_type((3,), BF16)
    assert dtypes_of(cast(program(lambda x, h: x * h, x, h)), "multiply") == [F32]
    after = cast(program(lambda x, h: x * h, tensor_type((8, 3), BF16), tensor_type((8, 3))))
    assert dtypes_of(after, "multiply") == [F32]


def test_keep_leaves_operands_unchanged():
    after = cast(program(lambda x, w: ((x @ w) > 0.1, (x @ w).cast(F32), meta.cast_like(x, w)), X, (3, 3)))
    assert dtypes_of(after, "greater") == ["bool"]
    assert op_counts(after.main)["cast"] == 3  # x, w, and the user's own


RULES = {
    "always": ["matmul", "dense", "conv2d", "conv2d_dx", "conv2d_dw", "conv2d_transpose"],
    "never": ["exp", "log", "power", "softmax", "log_softmax", "erf", "sum", "mean", "cumsum", "prod", "rsqrt",
              "reciprocal", "layer_norm", "nll_loss", "cross_entropy", "mse_loss", "embedding_dx", "take_dx",
              "gather_dx", "sum_to", "adam", "sgd"],
    "infer": ["add", "multiply", "relu", "tanh", "sigmoid", "gelu", "max_pool2d", "avg_pool2d", "concatenate", "where",
              "reshape", "transpose", "batch_norm_train", "batch_norm_infer", "dropout", "embedding", "maximum"],
    "keep": ["cast", "cast_like", "device_copy", "stop_gradient", "equal", "less", "logical_and", "reshape_like"],
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_operators_have_expected_rules(rule):
    assert {name: get(name).amp for name in RULES[rule]} == dict.fromkeys(RULES[rule], rule)


def test_operator_and_its_gradient_share_a_rule():
    names = {op.name: op for op in all_ops()}
    accumulating = {"embedding_dx", "take_dx", "gather_dx", "gather_nd_dx", "max_dx", "min_dx"}
    for name, op in names.items():
        backward = names.get(f"{name}_dx")
        if backward is not None and backward.name not in accumulating:
            assert backward.amp == op.amp, name


def test_only_data_arguments_are_cast():
    assert data_positions(get("batch_norm_train")) == (0,)
    assert data_positions(get("batch_norm_infer")) == (0,)
    assert data_positions(get("sgd")) == data_positions(get("adam")) == (1,)
    assert data_positions(get("conv2d")) == (0, 1)
    low = tensor_type((2, 3, 4, 4), BF16)
    stats = tensor_type((3,))
    assert target_dtype(get("batch_norm_train"), (low, stats, stats, stats, stats, 0.1, 1e-5, 1), BF16, {}) is None
    sgd = get("sgd")
    for x, dx, expected in ((F32, BF16, F32), (BF16, BF16, None), (BF16, F32, BF16), (F64, BF16, F64)):
        types = (tensor_type(X, x), tensor_type(X, dx), tensor_type(X, x), 0.1, 0.0, 0.0)
        assert target_dtype(sgd, types, BF16, {}) == expected


# --- unchanged values ------------------------------------------------------------------------------------------------


def test_leaves_float64_and_integers_unchanged():
    after = cast(program(lambda x, y: (x @ y, x * 2.0), tensor_type(X, F64), tensor_type((3, 4), F64)))
    assert casts(after) == 0
    after = cast(program(lambda n, m: (n * m, meta.take(n, m, 0)), tensor_type(X, "int64"), tensor_type(X, "int32")))
    assert casts(after) == 0
    after = cast(program(lambda x, i: meta.embedding(x, i) @ x.transpose(), X, tensor_type((4,), "int64")))
    assert dtypes_of(after, "matmul") == [BF16]


def test_leaves_random_keys_unchanged():
    def f(x, w):
        return meta.dropout(x @ w, meta.random.next_key(), 0.5)

    record = tracing.record(f, (array(2, 3), array(3, 4)), {})
    after = cast(record.module)
    assert dtypes_of(after, "dropout") == [BF16]
    x, w = array(2, 3), array(3, 4)
    meta.random.seed(1)
    expected = execute(record, x, w)
    meta.random.seed(1)
    result = execute(record, x, w, module=after)
    assert_equal(result[0], expected[0], rtol=2e-2)
    assert_equal(result[1], expected[1])


def test_updated_state_keeps_its_type():
    w, v = array(3, 4, grad=True), meta.zeros((3, 4))

    def step(x):
        w.grad = None
        loss = (meta.relu(x @ w) ** 2.0).mean()
        loss.backward()
        with meta.no_grad():
            meta.sgd(w, w.grad, v, 0.1, 0.9, 0.0)
        return loss.detach()

    record = tracing.record(step, (array(2, 3),), {})
    after = cast(record.module)
    assert after.main.attrs[MUTATES] == record.main.attrs[MUTATES]
    assert dtypes_of(after, "sgd") == [F32]
    assert dtypes_of(after, "matmul") == [BF16, BF16]
    x = array(2, 3)
    inputs = x, *(s for _, s in record.state)
    assert_equal(list(run(after, *inputs)), list(run(record.module, *inputs)), rtol=5e-2)


def test_running_statistics_keep_their_type():
    mean, var = meta.zeros((4,)), meta.ones((4,))

    def f(x, w, g, b):
        return meta.batch_norm_train(meta.conv2d(x, w), mean, var, g, b)[0]

    record = tracing.record(f, tuple(array(*s) for s in [(2, 3, 5, 5), (4, 3, 2, 2), (4,), (4,)]), {})
    after = cast(record.module)
    assert dtypes_of(after, "batch_norm_train") == [BF16]
    assert casts(after) == 3  # x, w and the result


# --- casts -----------------------------------------------------------------------------------------------------------


def test_casts_each_value_once():
    after = cast(program(lambda x, w: (x @ w) + (meta.tanh(x) @ w) * meta.sum(x @ w), X, (3, 4)))
    weights = [b for b in walk(after.main) if isinstance(b.value, Call) and b.value.op_name == "cast"
               and b.value.args[0] is after.main.params[1]]  # fmt: skip
    assert len(weights) == 1


def test_emits_no_cancelling_casts():
    for module in (
        program(lambda x, w: meta.softmax(x @ w) @ meta.exp(x @ w).transpose(), X, (3, 4)),
        program(lambda x, w: (meta.exp((x @ w).cast(F32)) @ w.transpose()) @ w, X, (3, 4)),
    ):
        after = passes.simplify(cast(module))
        for binding in walk(after.main):
            call = binding.value
            if isinstance(call, Call) and call.op_name == "cast":
                source = next((b.value for b in after.main.body.bindings if b.var is call.args[0]), None)
                pair = isinstance(source, Call) and source.op_name == "cast"
                assert not pair


def test_does_not_narrow_widened_values():
    # exp widens the product; the second matmul takes the product itself
    after = cast(program(lambda x, w: (meta.exp(x @ w), (x @ w) @ w), X, (3, 3)))
    products = [b for b in walk(after.main) if isinstance(b.value, Call) and b.value.op_name == "matmul"]
    assert products[-1].value.args[0].type.dtype == BF16
    narrowed = [b.value for b in walk(after.main) if isinstance(b.value, Call) and b.value.op_name == "cast"
                and b.value.type.dtype == BF16]  # fmt: skip
    assert all(c.args[0] in after.main.params for c in narrowed)


def test_gradients_of_a_bias_add_what_the_products_read():
    """Then only the kernel that rounds the float32 gradient of the result reads it."""
    module = program(lambda dy, x, w: (dy @ w, meta.sum_to(dy, (4,)), dy.transpose() @ x), (3, 4), (3, 3), (4, 3))
    after = passes.standard()(cast(module))
    by_name = {b.var: b.value for b in walk(after.main)}
    (total,) = (call for call in by_name.values() if isinstance(call, Call) and call.op_name == "sum_to")
    widened = by_name[total.args[0]]
    assert (widened.args[0].type.dtype, total.type.dtype) == (BF16, F32)
    dy = array(3, 4)
    result = run(after, dy, array(3, 3), array(4, 3))[1]
    assert_equal(result, dy.cast(BF16).cast(F32).sum(0), rtol=1e-6)
    overridden = cast(module, overrides={"sum_to": "keep"})
    assert_equal(run(overridden, dy, array(3, 3), array(4, 3))[1], dy.sum(0), rtol=1e-6)


def test_casts_items_of_lists_and_tuples():
    def f(x, w):
        parts = meta.split(x @ w, 2, 1)
        return meta.concatenate([parts[0], x[:, :2], parts[1]], 1), parts

    after = cast(program(f, X, (3, 4)))
    assert dtypes_of(after, "split") == [BF16]
    assert dtypes_of(after, "concatenate") == [F32]  # the widest of the equally large parts


BRANCH = """
def main(%x: T, %w: Tensor[(3, 3), "float32"], %c: BOOL) -> T {{
  %a = matmul(%x, %w)
  %y = if %c {{
    %b = matmul(%a, %w)
    %b
  }} else {{
    {0}
  }}
  %z = matmul(%y, %w)
  %z
}}"""


def test_conditional_results_stay_low_if_both_branches_are():
    after = cast(parse_program(BRANCH.format("%a")))
    assert casts(after) == 3  # x, w and the result
    after = cast(parse_program(BRANCH.format("%d = exp(%a)\n    %d")))
    assert dtypes_of(after, "matmul") == [BF16] * 3
    x, w = array(*X), array(3, 3, seed=1) * 0.3
    for c in (True, False):
        before = parse_program(BRANCH.format("%d = exp(%a)\n    %d"))
        assert_equal(run(after, x, w, meta.array(c)), run(before, x, w, meta.array(c)), rtol=5e-2)


def test_closures_and_recursion_keep_their_types():
    module = parse_program("""
    def main(%x: T, %w: Tensor[(3, 3), "float32"]) -> T {
      %f = fn(%u: T) -> T {
        %s = sum(%u)
        %c = less(%s, 1.0)
        %r = if %c {
          %v = matmul(%u, %w)
          %a = add(%v, 1.0)
          %q = %f(%a)
          %q
        } else {
          %u
        }
        %r
      }
      %m = matmul(%x, %w)
      %y = %f(%m)
      %y
    }""")
    after = cast(module)
    x, w = array(*X) - 2.0, array(3, 3, seed=1) * 0.1
    assert_equal(run(after, x, w), run(module, x, w), rtol=5e-2)


# --- options ---------------------------------------------------------------------------------------------------------


def test_overrides_replace_rules():
    module = program(lambda x, w: meta.softmax(x @ w), X, (3, 4))
    assert dtypes_of(cast(module, overrides={"matmul": "never"}), "matmul") == [F32]
    assert dtypes_of(cast(module, overrides={"softmax": "infer"}), "softmax") == [BF16]
    assert casts(cast(module, overrides={"matmul": "keep"})) == 0
    assert dtypes_of(cast(module), "matmul") == [BF16]


def test_rejects_invalid_options():
    with pytest.raises(ArgumentError, match=r"\[auto_cast\] dtype is 'float64'; expected 'float16', 'bfloat16'"):
        passes.auto_cast("float64")
    with pytest.raises(RegistryError, match="did you mean 'matmul'"):
        passes.auto_cast(overrides={"matmull": "never"})
    with pytest.raises(ArgumentError, match=r"the rule of 'matmul' is 'newer'; .*did you mean 'never'"):
        passes.auto_cast(overrides={"matmul": "newer"})


def test_composes_with_auto_diff_in_either_order():
    module = program(lambda x, w: meta.tanh(x @ w).sum(), X, (3, 4))
    x, w, dy = array(*X), array(3, 4, seed=1), meta.ones(())
    exact = run(passes.auto_diff()(module), x, w, dy)
    for pipeline in ((passes.auto_cast(), passes.auto_diff()), (passes.auto_diff(), passes.auto_cast())):
        out = module
        for each in pipeline:
            out = check_ir(each(out))
        results = run(passes.standard()(out), x, w, dy)
        assert [y.dtype for y in results] == [F32] * 3
        assert_equal(list(results), list(exact), rtol=5e-2)
    assert np.isfinite(exact[0].item())


class Plain(meta.optim.Optimizer):
    """A user's optimizer, of operators: x <- x - rate * dx / (|dx| + eps)."""

    def update_group(self, group, count, updated):
        for _, x, dx in updated:
            x.update(x - group.numbers["learning_rate"].array.cast(F32) * dx / (meta.sqrt(meta.sum(dx * dx)) + 1e-12))


OPTIMIZERS = {
    "SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "AdamW": {}, "Adagrad": {}, "RMSprop": {"centered": True},
    "LAMB": {}, "LANS": {},
}  # fmt: skip


@pytest.mark.parametrize("name", [*OPTIMIZERS, "Plain"])
@pytest.mark.parametrize(
    "options", [{}, {"clip_norm": 1e-9}, {"scaler": True}, {"clip_value": 1e-6, "accumulate": 2}], ids=str
)
def test_updates_stay_in_float32(name, options):
    """Squares of gradients of 1e-5 are 0 in float16."""

    def step_and_batch():
        meta.random.seed(0)
        model = meta.nn.Linear(4, 3)
        kind = Plain if name == "Plain" else getattr(meta.optim, name)
        optimizer = kind(model, 0.1, **OPTIMIZERS.get(name, {}))
        settings = {**options, "scaler": meta.amp.GradScaler(scale=4.0)} if "scaler" in options else options
        step = meta.optim.TrainStep(lambda x: (model(x) * 1e-4).sum(), optimizer, **settings)
        return step, array(2, 4), model

    step, x, model = step_and_batch()
    low, _, same = step_and_batch()
    for _ in range(2):
        with meta.amp.autocast(F16):
            step(x)
        record = low.record(x)
        execute(record, x, module=cast(record.module, F16))
    for (n, expected), (_, actual) in zip(step.named_state(), low.named_state(), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual.detach().numpy(), expected.detach().numpy(), rtol=2e-3, atol=1e-12, err_msg=n)
    assert np.abs(model.w.detach().numpy() - same.w.detach().numpy()).max() < 1e-3
