"""Programs for the tests of passes: traced, parsed from text, and random."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import numpy as np

import meta
from meta import tracing
from meta.interpreter.run import run
from meta.ir.builder import Builder, Module
from meta.ir.expr import Call, Constant, GlobalVar
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.type import TensorType, tensor_type
from meta.op.registry import get
from meta.passes.rewriting import rewrite
from tests.python.recorded import assert_equal, check_ir


def program(function, *types) -> Module:
    """The program of a Python function. types: shapes (float32) or tensor types."""
    kinds = [t if isinstance(t, TensorType) else tensor_type(t) for t in types]
    return tracing.record(function, tuple(kinds), {}).module


def parse_program(text: str) -> Module:
    """Parse a program in which T is the type of float32 tensors of shape (2, 3) and BOOL that of conditions."""
    for name, kind in (("T", 'Tensor[(2, 3), "float32"]'), ("BOOL", 'Tensor[(), "bool"]')):
        text = re.sub(rf"\b{name}\b", kind, text)
    return parse(text, get)


def lines(module: Module, name: str = "main") -> list[str]:
    """The bindings and the result of a function, without types."""
    out: list[str] = []
    for line in to_text(module[name], spans=False).split("\n")[1:-1]:
        head, equals, value = line.strip().partition(" = ")
        out.append(f"{head.split(':')[0]} = {value}" if equals else line.strip())
    return out


def with_named_dialect(module: Module, dialect: str) -> Module:
    """The module with `dialect` set on every operator call that runs a kernel."""

    def name(binding, _):
        call = binding.value
        named = isinstance(call, Call) and call.callee is None and not call.op.view and call.dialect is None
        return replace(call, dialect=dialect) if named else None

    return Module({n: rewrite(f, name) for n, f in module.functions.items()})


def inputs(module: Module, seed: int = 0) -> list[meta.NDArray]:
    """An array for every parameter of main."""
    rng = np.random.default_rng(seed)
    out = []
    for p in module.main.params:
        assert isinstance(p.type, TensorType)
        data = rng.standard_normal(p.type.shape) * 2
        out.append(meta.array(data.astype("float32")).cast(p.type.dtype))
    return out


def check_same_results(before: Module, after: Module, rtol: float = 1e-5, seeds: int = 2) -> Module:
    """`after`, after a check that its text survives a round trip and that its results are those of `before` (on the
    reference dialect, which needs no compilation)."""
    check_ir(after)
    with meta.with_dialect("reference"):
        for seed in range(seeds):
            arrays = inputs(before, seed)
            assert_equal(run(after, *arrays), run(before, *arrays), rtol)
    return after


class RandomProgram:
    """Well-typed programs over float32 tensors of shape (2, 3), with conditionals, closures, helper functions, tuples,
    casts, constants and creation operators; everything is differentiable almost everywhere."""

    T = tensor_type((2, 3))
    UNARY = ("tanh", "relu", "negative", "sigmoid", "softmax", "exp", "square", "copy", "stop_gradient")
    BINARY = ("add", "subtract", "multiply", "maximum", "minimum")

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.builder = Builder()
        self.module = Module()

    def make(self) -> Module:
        for name in ["helper", "main"]:
            with self.builder.function(name, [(f"p{i}", self.T) for i in range(3)]) as scope:
                values = [*scope.params]
                for _ in range(self.random.randrange(4, 12)):
                    values.append(self.binding(values, 0))
                scope.ret([values[-1], self.random.choice(values)] if name == "main" else values[-1])
            self.module = self.module.with_function(name, scope.function)
        return self.module

    def op(self, name, *args):
        op = get(name)
        return self.builder.call(op, op.schema.bind(name, args, {}))

    def binding(self, values, depth):
        choice = self.random.choice
        x, y = choice(values), choice(values)
        makers = [
            lambda: self.op(choice(self.UNARY), x),
            lambda: self.op(choice(self.BINARY), x, choice([y, 0.0, 1.0, 0.5])),
            lambda: self.op(choice(self.BINARY), x, self.op(choice(["zeros", "ones"]), (2, 3))),
            lambda: self.op("add", x, self.constant()),
            lambda: self.op("multiply", self.op("broadcast_to", self.op("tanh", self.constant()), (2, 3)), x),
            lambda: self.op("cast", self.op("cast", x, choice(["float64", "bfloat16"])), "float32"),
            lambda: self.op("reshape", self.op("reshape", x, (6,)), (2, 3)),
            lambda: self.op("transpose", self.op("transpose", x, None), (1, 0)),
            lambda: self.op("matmul", self.op("matmul", x, self.op("transpose", y, None)), choice(values)),
            lambda: self.op("add", self.op("sum_to", x, (3,)), y),
            lambda: self.builder.get_item(self.builder.tuple([x, y, x]), choice([0, 1, 2])),
            lambda: self.split(x),
        ]
        if depth < 2:
            makers += [lambda: self.conditional(x, values, depth), lambda: self.closure(x, values, depth)]
        if "helper" in self.module:
            helper = GlobalVar("helper", self.module["helper"].type)
            makers.append(lambda: self.builder.call_function(helper, (x, y, x)))
        return choice(makers)()

    def constant(self):
        data = np.array(self.random.choice([[[0.5, -1.0, 2.0]], [[1.0]], 0.0, 1.0]), "float32")
        return Constant(data, tensor_type(data.shape))

    def split(self, x):
        parts = self.op("split", x, 3, 1)
        first, last = self.builder.get_item(parts, 0), self.builder.get_item(parts, 2)
        return self.op("concatenate", (last, first, first), 1)

    def branch(self, values, depth):
        inner = [*values]
        for _ in range(self.random.randrange(3)):
            inner.append(self.binding(inner, depth + 1))
        return inner[-1]

    def conditional(self, x, values, depth):
        cond = self.op("greater", self.op("sum", x), self.random.choice([0.0, -1.0]))
        if self.random.random() < 0.3:
            cond = Constant(np.array(self.random.random() < 0.5), tensor_type((), "bool"))
        if self.random.random() < 0.5:
            return self.builder.if_(cond, lambda: self.branch(values, depth), lambda: self.branch(values, depth))
        pair = self.builder.if_(
            cond, lambda: [self.branch(values, depth), x], lambda: [x, self.branch(values, depth)]
        )  # fmt: skip
        return self.op("add", self.builder.get_item(pair, 0), self.builder.get_item(pair, 1))

    def closure(self, x, values, depth):
        with self.builder.function("inner", [("u", self.T)]) as scope:
            scope.ret(self.branch([*values, scope.params[0]], depth))
        closure = self.builder.emit(scope.function, "f")
        return self.builder.call_function(closure, (x,))


def random_module(seed: int) -> Module:
    """A random program with small values."""
    return RandomProgram(seed).make()
