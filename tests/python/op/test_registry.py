"""Every operator is complete: gradient entry, sample row, documentation, kernels, and a gradient that can run."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import meta
from meta._generated.table import ALIASES, FAMILIES
from meta.eager.ndarray import NDArray
from meta.op.dispatch import implementations
from meta.op.grad.rule import gradient_rule
from meta.op.registry import Op, all_ops
from meta.op.registry import get as get_op
from tests.python.op.samples import samples

OPS = tuple(all_ops())
ROOT = Path(meta.__file__).parent


@cache
def entries() -> dict[str, object]:
    """The entries of derivatives.yaml."""
    return import_module("scripts.src_codegen.gradients").entries()


def for_each_op(function: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])(function)  # type: ignore[arg-type]


@for_each_op
def test_has_a_gradient_entry(op: Op) -> None:
    assert op.name in entries()


@pytest.mark.parametrize("op", [op for op in OPS if op.recorded_as], ids=repr)
def test_is_recorded_as_an_operator_of_the_same_arguments(op: Op) -> None:
    recorded = get_op(op.recorded_as)
    assert recorded.schema.args == op.schema.args
    assert len(recorded.outputs) > 1


@for_each_op
def test_has_a_sample(op: Op) -> None:
    rows = [row for row in samples() if row.op == op.name]
    assert rows, f"no row for {op.name} in tests/python/op/samples/{op.family}.py"


@for_each_op
def test_is_documented(op: Op) -> None:
    assert op.doc.strip().endswith((".", ".)")), f"{op.name}: a sentence"
    for arg in op.schema.args:
        assert arg.doc.strip(), f"{op.name}.{arg.name}"
    docstring = " ".join((getattr(meta, op.name).__doc__ or "").split())
    assert " ".join(op.doc.split())[:60] in docstring


@for_each_op
def test_has_a_reference_and_a_tvm_or_library_implementation(op: Op) -> None:
    if op.view or op.name in value_ops():
        return
    dialects = {i.dialect.name for i in implementations(op)}
    assert {"reference", "torch" if op.no_compute else "tvm"} <= dialects, f"{op.name} has {sorted(dialects)}"


@cache
def value_ops() -> frozenset[str]:
    """Operators whose result follows from types, and those that copy between devices."""
    from meta.op.codegen.functions import VALUE_OPS

    return frozenset({*VALUE_OPS, "device_copy"})


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_aliases_name_the_same_function_and_method(alias: str, name: str) -> None:
    assert get_op(alias) is get_op(name)
    assert getattr(meta, alias) is getattr(meta, name)
    assert getattr(NDArray, alias, None) is getattr(NDArray, name, None)
    assert alias in dir(meta)


def test_an_alias_runs_is_explained_and_recorded_as_its_operator() -> None:
    x = meta.array([[1.0, 3.0], [2.0, 0.0]], requires_grad=True)
    assert x.amax(0, keepdims=True).tolist() == [[2.0, 3.0]]
    meta.amax(x).backward()
    assert x.grad.tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert meta.explain("amax", x).op == "max"
    assert " = max(" in str(meta.trace(lambda x: x.amax()).ir(x))


@cache
def operators_called(op: str) -> frozenset[str]:
    """The operators that the gradient of `op` calls, directly or in functions of meta/op/grad that it names."""
    path = ROOT / f"_generated/gradients/{FAMILIES.get(op)}.py"
    generated = path.read_text(encoding="utf-8") if path.exists() else ""
    function = re.search(rf"\ndef _{re.escape(op)}\(.*?(?=\ndef |\nadd_rules)", generated, re.DOTALL)
    return called_in(function[0]) if function else frozenset()


def called_in(source: str) -> frozenset[str]:
    names = set(re.findall(r"\bmeta\.(\w+)\(", source))
    for family, function in re.findall(r"\bgrad_(\w+?)\.(\w+)\(", source):
        names |= called_by(family, function)
    return frozenset(names)


@cache
def called_by(family: str, function: str) -> frozenset[str]:
    import inspect

    module = import_module(f"meta.op.grad.{family}")
    source = inspect.getsource(getattr(module, function))
    names = set(re.findall(r"\bmeta\.(\w+)\(", source))
    for other in re.findall(r"(?<![\w.])(\w+)\(", source):
        target = getattr(module, other, None)
        if other != function and inspect.isfunction(target) and target.__module__.startswith("meta.op.grad"):
            names |= called_by(target.__module__.rsplit(".", 1)[-1], other)
    return frozenset(names)


@for_each_op
def test_gradients_of_every_order_have_kernels(op: Op) -> None:
    """Each operator that the gradient calls, directly or in its own gradients, is registered and enabled."""
    names = {o.name for o in OPS}
    pending, visited = [op.name], set[str]()
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        assert name in names, f"the gradients of {op.name} call {name}, which is not an operator"
        pending.extend(operators_called(name))
    for name in sorted(visited):
        member = get_op(name)
        if member.view or name in value_ops():
            continue
        assert any(not i.dialect.unavailable() for i in implementations(member)), f"nothing implements {name}"


@for_each_op
def test_the_gradient_rule_matches_the_declaration(op: Op) -> None:
    rule = gradient_rule(op.name)
    if rule is None:
        return
    count = len(op.schema.args)
    assert all(index < count and op.schema.args[index].is_tensor for index in rule.differentiable)
    assert rule.outputs == (None if op.outputs == ("*",) else max(1, len(op.outputs)))


_INTERRUPTED = """
import importlib
from meta.op import registry
imported = []
def interrupted(name):
    if len(imported) == 4:
        imported.append(name)
        importlib.import_module(name)  # declares operators, and is then interrupted
        import sys; del sys.modules[name]
        raise KeyboardInterrupt
    imported.append(name)
    return importlib.import_module(name)
registry.import_module = interrupted
try:
    registry.get("softmax")
except KeyboardInterrupt:
    registry.import_module = importlib.import_module
import meta
print(registry.get("softmax").name, registry.get("sum").name, meta.sum(meta.array([1.0, 2.0])).item())
"""


def test_operators_load_after_an_interrupt() -> None:
    completed = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.stdout == "softmax sum 3.0\n", completed.stderr
