"""The context of passes: printing, timing, verification, disabled passes, bisection."""

from __future__ import annotations

import io
import threading

import pytest

import meta
from meta import passes
from meta.errors import ArgumentError, IRError
from meta.ir.builder import Module
from meta.ir.expr import Block, Call
from meta.op.registry import get
from meta.passes.manager import Pass, context, function_pass
from meta.passes.rewriting import by_op, rewrite_pass
from tests.python.passes.programs import inputs, lines, program
from tests.python.recorded import assert_equal

X = (2, 3)


def sample() -> Module:
    return program(lambda x: (x - 0) * 1 - meta.negative(-x) + meta.relu(x * 1.0), X)


def test_report_has_a_line_per_pass():
    with passes.PassContext() as now:
        passes.standard()(sample())
    names = {
        "inline_calls",
        "outline_loops",
        "drop_stop_gradient",
        "simplify",
        "fold_const",
        "expand_losses",
        "expand_norms",
        "expand_quantized",
        "integer_products",
        "fold_batch_norm",
        "fuse_epilogues",
        "lift_views",
        "join_gradients",
        "join_updates",
        "narrow_gathers",
        "fuse_concatenations",
        "separate_biases",
        "split_joins",
        "widen_sums",
        "align_products",
        "channels_last",
        "cse",
        "dce",
    }
    assert set(now.seconds) == names
    assert all(s >= 0 for s in now.seconds.values())
    assert [line.split()[2] for line in now.report().split("\n")] == sorted(now.seconds, key=lambda n: -now.seconds[n])


def test_passes_print_their_results():
    out = io.StringIO()
    with passes.PassContext(print_after=["dce"], file=out):
        after = passes.standard()(sample())
    assert out.getvalue() == f"# after dce\n{after}\n"
    out = io.StringIO()
    with passes.PassContext(print_after="all", file=out):
        passes.standard()(sample())
    assert out.getvalue().count("# after ") == len(passes.standard().passes)


def test_printing_goes_to_the_standard_output_by_default(capsys):
    with passes.PassContext(print_after=["cse"]):
        passes.cse(sample())
    assert capsys.readouterr().out.startswith("# after cse\ndef main(")


def test_disabled_passes_do_nothing():
    before = sample()
    with passes.PassContext(disabled=["simplify", "cse"]) as now:
        after = passes.standard()(before)
    assert lines(after) == lines(before)
    assert "simplify" not in now.seconds


@pytest.mark.parametrize("option", ["disabled", "print_after"])
def test_rejects_unknown_names(option):
    with pytest.raises(ArgumentError, match=r"no pass is called 'simplfy'; expected one of .*; did you mean 'simp"):
        passes.PassContext(**{option: ["simplfy"]})


def test_verify_finds_a_pass_that_breaks_the_ir():
    @function_pass("breaks")
    def breaks(function):
        """Keep the results only."""
        from dataclasses import replace

        return replace(function, body=Block((), function.body.result))

    breaks(sample())
    with passes.PassContext(verify=True), pytest.raises(IRError, match="is read but not bound"):
        breaks(sample())


def test_contexts_nest_and_are_local_to_a_thread():
    with passes.PassContext(disabled=["cse"]) as outer:
        with passes.PassContext() as inner:
            assert context() is inner
        assert context() is outer
        seen = []
        thread = threading.Thread(target=lambda: seen.append(context().disabled))
        thread.start()
        thread.join()
        assert seen == [()]
    assert context().disabled == ()


def test_stop_after_limits_rewrites():
    with passes.PassContext(stop_after=0) as now:
        untouched = passes.simplify(sample())
    assert lines(untouched) == lines(sample())
    assert now.rewrites == 0
    with passes.PassContext() as now:
        passes.simplify(sample())
    total = now.rewrites
    assert total == 4
    for limit in range(total + 2):
        with passes.PassContext(stop_after=limit) as now:
            passes.simplify(sample())
        assert now.rewrites == min(limit, total)


def wrong_exp(binding, scope):
    return scope.call_expr(get("tanh"), binding.value.args)


def test_bisect_names_the_wrong_rewrite():
    bad = rewrite_pass("fast_math", "exp is not tanh.", by_op({"exp": wrong_exp}))
    program_ = program(lambda x: meta.exp(meta.relu(x * 1.0) - 0.0) * 1.0, X)
    x = inputs(program_)[0]
    from meta.interpreter.run import run

    with meta.with_dialect("reference"):
        expected = run(program_, x)

        def good(module: Module) -> bool:
            try:
                assert_equal(run(module, x), expected)
            except AssertionError:
                return False
            return True

        pipeline = passes.Pipeline((passes.simplify, bad, passes.dce))
        culprit = passes.bisect(pipeline, program_, good)
        assert culprit is not None
        assert culprit.startswith("fast_math: %")
        assert "exp(" in culprit.split("->")[0]
        assert "tanh(" in culprit.split("->")[1]
        assert passes.bisect(passes.standard(), program_, good) is None
        always = Pass("always_wrong", lambda module: program(lambda x: x, X))
        with pytest.raises(ArgumentError, match="wrong without any rewrite"):
            passes.bisect(always, program_, good)


def test_passes_without_changes_return_their_module():
    completed = passes.standard()(sample())
    assert passes.standard()(completed) is completed


def test_function_passes_see_every_function():
    names = []

    @function_pass("names")
    def collect(function):
        """Only looks."""
        names.append(function.name)
        return function

    module = sample().with_function("other", sample().main)
    assert collect(module) is module
    assert len(names) == 2
    assert collect.doc == "Only looks."
    assert isinstance(sample().main.body.bindings[0].value, Call)


def test_a_pass_runs_only_where_the_operators_that_it_looks_for_are_called():
    seen = []

    def collect(module):
        seen.append(module)
        return module

    module = sample()
    for looks_for, device in (
        (("softmax",), ""), (("relu",), "cuda"), ((), "cuda"), (("",), ""),
        (("softmax", "relu"), "cpu"), (("relu",), ""), ((), ""),
    ):  # fmt: skip
        Pass("collect", collect, "", looks_for, device)(module)
    assert len(seen) == 3
