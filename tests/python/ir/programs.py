"""Operators that no dialect implements and random programs over them, for the tests of the IR."""

from random import Random

import numpy as np

from meta.dim import sym
from meta.dtype import to_numpy
from meta.errors import RegistryError, TypeInferenceError, did_you_mean
from meta.ir.builder import Builder, Module
from meta.ir.expr import Constant, FunctionExpr, GlobalVar, Span
from meta.ir.parser import parse_function
from meta.ir.printer import to_text
from meta.ir.type import FunctionType, TensorType, TupleType, tensor_type
from meta.op.registry import Op
from meta.schema import _dsl as kinds
from meta.schema._dsl import Arg, Schema


def _same(*args):
    tensors = sorted((a for a in args if isinstance(a, TensorType)), key=lambda t: -t.ndim)
    if any(t.dtype != tensors[0].dtype or t.shape not in ((), tensors[0].shape) for t in tensors):
        raise TypeInferenceError("add", f"{tensors[0]!r} and {tensors[1]!r} differ", "equal types")
    return tensors[0]


def _concat(xs, axis):
    shape = list(xs[0].shape)
    shape[axis] = sum((x.shape[axis] for x in xs[1:]), shape[axis])
    return xs[0].with_shape(tuple(shape))


def _op(name, infer, *args, **facts):
    return Op(name, "test", Schema(name, *args), infer, "", **facts)


x = Arg("x", kinds.Tensor)
OPS = {
    op.name: op
    for op in (
        _op("add", _same, Arg("x1", kinds.Scalar), Arg("x2", kinds.Scalar)),
        _op("softmax", lambda x, axis: x, x, Arg("axis", kinds.Int, -1)),
        _op("concat", _concat, Arg("xs", kinds.TensorList), Arg("axis", kinds.Int, 0)),
        _op("norm", lambda x, weight, bias, eps: x, x, Arg("weight", kinds.OptionalTensor, None),
            Arg("bias", kinds.OptionalTensor, None), Arg("eps", kinds.Float, 1e-5)),
        _op("reshape", lambda x, shape: x.with_shape(shape), x, Arg("shape", kinds.IntTuple), view=True),
        _op("halves", lambda x: TupleType((x, x)), x),
        _op("cast", lambda x, dtype: x.with_dtype(dtype), x, Arg("dtype", kinds.DType)),
        _op("full", lambda shape, value, dtype, device: tensor_type(shape, dtype, device), Arg("shape", kinds.IntTuple),
            Arg("value", kinds.Number), Arg("dtype", kinds.DType, "float32"), Arg("device", kinds.Device, "cpu")),
        _op("test", lambda x, mode: tensor_type((), "bool", x.device), x, Arg("mode", kinds.Str, "any")),
        _op("update", lambda x, dx: x, x, Arg("dx", kinds.Tensor)),
    )
}  # fmt: skip
T = tensor_type((2, 3))
HEAD = 'def main(%x: Tensor[(2, 3), "float32"]) -> Tensor[(2, 3), "float32"] {\n'
EXAMPLE = """\
def main(
  %x: Tensor[(2, 3), "float32"],
  %w: Tensor[(3,), "float32"],
) -> Tensor[(2, 3), "float32"] with {"mutates": {0: 0}} {  # a.py:3
  %0: Tensor[(2, 3), "float32"] = tvm.softmax(%x, axis=0)  # a.py:4
  %s: Tensor[(4, 3), "float32"] = concat([%0, %x])
  %1: Tensor[(2, 3), "float32"] = norm(%0, bias=%w, eps=0.5) with {"tag": 1}
  %2: Tensor[(), "bool"] = test(%1, mode="all")
  %3: Tensor[(2, 3), "float32"] = if %2 {  # a.py:7
    %4: Tensor[(2, 3), "float32"] = add(%1, const(0.1, "float32"))
    %4
  } else {
    %1
  }
  %loop = fn twice(%y: Tensor[(2, 3), "float32"]) -> Tensor[(2, 3), "float32"] {
    %5: Tensor[(2, 3), "float32"] = %loop(%y)
    %5
  }
  %6: Tensor[(2, 3), "float32"] = %loop(%3)
  %7: (Tensor[(2, 3), "float32"], Tensor[(1, 3), "float32"]) = (%6, $0)
  %8: Tensor[(2, 3), "float32"] = %7[0]
  %9: Tensor[(2, 3), "float32"] = @"the other"(%8)
  %9
}

def "the other"(%x: Tensor[(2, 3), "float32"]) -> Tensor[(2, 3), "float32"] {
  %x
}

constants {
  $0: Tensor[(1, 3), "float32"] = "AADAf83MzD3NzMw9"
}"""


def lookup(name):
    if name not in OPS:
        raise RegistryError("registry", f"no operator is called '{name}'", "", did_you_mean(name, OPS))
    return OPS[name]


def constant(data, dtype="float32", device="cpu"):
    array = np.array(data, dtype=to_numpy(dtype))
    return Constant(array, tensor_type(array.shape, dtype, device))


def build(make, *types, name="main", attrs=None) -> FunctionExpr:
    """The function that `make(builder, *params)` emits."""
    builder = Builder(span=Span("model.py", 1))
    with builder.function(name, [(f"p{i}", t) for i, t in enumerate(types)], attrs) as scope:
        scope.ret(make(builder, *scope.params))
    return scope.function


NAMES = ["", "", "x", "x", "x_1", "0", "7", "weight.0", "a b", "été", "1st", "_", "%"]
TYPES = [T, tensor_type((4,), "bfloat16"), tensor_type((), "int64"), tensor_type((sym("n"), sym("n") * 2 - 1)),
         tensor_type((0, 3), "uint8"), tensor_type(((sym("n") + 3) // 2,), "float64", "cuda:1")]  # fmt: skip
STRINGS = ["any", 'quo"te', "new\nline", "# a.py:3", "", "back\\slash", "é"]


class Program:
    """Emits random bindings over everything in scope; every program is well typed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.builder = Builder()

    def module(self) -> Module:
        module = Module()
        for name in ["helper", "odd name", "main"][self.random.randrange(3) :]:
            params = [(self.random.choice(NAMES), t) for t in self.random.choices(TYPES, k=self.random.randrange(1, 9))]
            attrs = self.random.choice([{}, {"mutates": {}}, {"notes": ("a", 1, 1.0, True, None, {"k": -2})}])
            others = [GlobalVar(n, module[n].type) for n in module.functions]
            with self.builder.function(name, params, attrs) as scope:
                self.block(scope, [*scope.params, *others], depth=0)
            module = module.with_function(name, scope.function)
        return module

    def block(self, scope, atoms, depth):
        for _ in range(self.random.randrange(2, 7)):
            self.builder.span = self.random.choice([None, Span("model.py", self.random.randrange(99))])
            atoms.append(self.binding(atoms, depth))
        tensors = [a for a in atoms if not isinstance(a, GlobalVar)]
        scope.ret(self.random.choice([tensors[-1], tensors[-2:], []]) if depth == 0 else tensors[0])

    def tensor(self, atoms):
        return self.random.choice([a for a in atoms if isinstance(a.type, TensorType)] + [self.constant()])

    def constant(self):
        dtype = self.random.choice(["float32", "float16", "bfloat16", "float64", "int8", "bool", "int64"])
        size = self.random.choice([(), (1,), (3,), (0,), (2, 2), (9,)])
        data = [self.random.choice([0, 1, -1, 0.1, 1e-7, 123.456, float("nan"), float("-inf"), -0.0]) for _ in range(9)]
        if dtype in ("int8", "bool", "int64"):
            data = [0, 1, 1, 0, 1, 0, 0, 1, 1]
        array = np.array(data, dtype=to_numpy(dtype))[: int(np.prod(size))].reshape(size)
        return Constant(array, tensor_type(size, dtype, self.random.choice(["cpu", "cuda"])))

    def binding(self, atoms, depth):
        call, choice, a = self.builder.call, self.random.choice, self.tensor(atoms)
        name = choice(NAMES)
        functions = [f for f in atoms if isinstance(f.type, FunctionType)]
        tuples = [t for t in atoms if isinstance(t.type, TupleType) and t.type.fields]
        makers = [
            lambda: call(OPS["add"], (a, choice([a, 1, -2.5, float("inf"), True])), name),
            lambda: call(OPS["add"], (0.5, a), name),
            lambda: call(OPS["softmax"], (a, choice([-1, 0, 12])), name, choice([None, "tvm"])),
            lambda: call(OPS["norm"], (a, choice([None, a]), choice([None, a]), choice([1e-5, 1.0])), name),
            lambda: call(OPS["concat"], ((a,), 0), name) if a.type.shape else call(OPS["halves"], (a,), name),
            lambda: call(OPS["reshape"], (a, choice([(), (3,), (2, sym("m") * sym("n"))])), name, attrs={"tag": 1}),
            lambda: call(OPS["halves"], (a,), name),
            lambda: call(OPS["cast"], (a, choice(["float16", "bool"])), name),
            lambda: call(OPS["full"], ((1, 2), choice([1, 1.0, True]), "float32", a.type.device), name),
            lambda: self.builder.tuple(self.random.choices(atoms, k=self.random.randrange(3)), name),
        ]
        if tuples:
            makers.append(lambda: self.builder.get_item(tuples[-1], len(tuples[-1].type.fields) - 1, name))
        makers += [lambda f=f: self.apply(f, atoms) for f in functions]
        if depth < 3:
            makers += [lambda: self.conditional(atoms, depth), lambda: self.closure(atoms, depth)]
        return choice(makers)()

    def apply(self, function, atoms):
        args = [next((a for a in reversed(atoms) if a.type == t), None) for t in function.type.params]
        if any(a is None for a in args):
            return self.builder.tuple([function])
        return self.builder.call_function(function, args)

    def conditional(self, atoms, depth):
        on = next(a for a in atoms if isinstance(a.type, TensorType))
        cond = self.builder.call(OPS["test"], (on, self.random.choice(STRINGS)))

        def branch():
            inner = [*atoms]
            for _ in range(self.random.randrange(3)):
                inner.append(self.binding(inner, depth + 1))
            return on

        return self.builder.if_(cond, branch, branch)

    def closure(self, atoms, depth):
        with self.builder.function(self.random.choice(["", "inner", "an inner"]), [("x", T)]) as scope:
            self.block(scope, [scope.params[0], *atoms], depth + 1)
        return self.builder.emit(scope.function, self.random.choice(NAMES))


def function(body):
    return parse_function(HEAD + body + "\n}", lookup)


def lines(f):
    return [line.strip() for line in to_text(f, spans=False).split("\n")[1:-1]]


NESTED = """
  %c = test(%x)
  %y = if %c {
    %a = softmax(%x)
    %b = softmax(%a)
    %b
  } else {
    %x
  }
  %f = fn(%u: Tensor[(2, 3), "float32"]) -> Tensor[(2, 3), "float32"] {
    %v = add(%u, %y)
    %w = %f(%v)
    %w
  }
  %z = %f(%y)
  %z"""
