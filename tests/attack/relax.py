"""Mutated modules of Relax. The outcome may only be a program that verifies, or an error of the reader, within bounded
time and memory.

A mutation rebuilds a module without TVM's type inference, so that operands, attributes, types and sizes need not fit:
calls with other operands, operators and result types, variables out of their scope, functions that call themselves,
kernels with other signatures, absurd sizes, nests of hundreds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from meta.backend.tvm import adapter
from meta.errors import ArgumentError, MetaError
from meta.frontend.relax import RelaxError, examine, from_relax
from meta.ir.verifier import verify
from meta.passes.standard import standard
from tests.attack.files import bounded, wrong_error
from tests.python.frontend.relax.cases import cases
from tests.python.frontend.relax.test_from_relax import PROGRAM, parsed
from tests.python.frontend.relax.test_from_relax_ops import module_of

_SIZES = (-1, 0, 1, 2, 3, 7, 2**31, 2**62, 2**63 - 1)
_DTYPES = ("float32", "int64", "bool", "float8_e4m3fn", "int4", "bfloat16", "float32x4", "")
_NAMES = ("", "axis", "NCHW", "x" * 3000, "é", "a.b", "\0")
_DEPTH = 500
"""Of nests: TVM's own visitors, which the constructors of functions run, need a larger stack for thousands."""
_ENTRIES = ("",) * 9 + ("chosen",)
_REFUSALS = (TypeError, ValueError, AttributeError, LookupError, RuntimeError)
"""What TVM raises for nodes that it does not represent."""
_CASES_IN_MODULE = 4


_VALUES = """
@I.ir_module
class Module:
    @R.function(private=True)
    def joined(pair: R.Tuple(R.Tensor(("n", 2), "float32"), R.Tensor(("n",), "float32")), to: R.Shape(["n", 2]),
               k: R.Prim("int64")) -> R.Tensor(("n", 2), "float32"):
        n = T.int64()
        a = pair[0]
        b = R.reshape(pair[1], R.shape([n, 1]))
        c = R.broadcast_to(b, to)
        d = R.add(a, c)
        return d

    @R.function
    def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(ndim=1, dtype="float32"), flag: R.Tensor((), "bool")):
        n = T.int64()
        m = T.int64()
        cls = Module
        z = R.match_cast(y, R.Tensor((n,), "float32"))
        s = R.shape_of(x)
        t = R.match_cast(s, R.Shape([n, m]))
        pair = (x, z)
        if flag:
            u = cls.joined(pair, R.shape([n, 2]), R.prim_value(3))
            v = R.nn.softmax(u, axis=-1)
            w = (v, (z, v))
        else:
            u2 = R.exp(x)
            w = (u2, (z, x))
        parts = R.split(x, 2, axis=1)
        o = R.concat((parts[0], parts[1], w[1][1]), axis=1)
        q = R.call_pure_packed("elsewhere", o, ty_args=R.Tensor((n, 4), "float32"))
        return (q, w)
"""


@cache
def modules() -> list[Any]:
    """Modules with kernels, functions and all kinds of values, and modules of some operators each."""
    rows = [case for case in cases() if case.expected is None]
    random.Random(0).shuffle(rows)
    chunks = [rows[i : i + _CASES_IN_MODULE] for i in range(0, len(rows), _CASES_IN_MODULE)]
    return [parsed(PROGRAM), parsed(_VALUES)] * (len(chunks) // 4) + [module_of(chunk) for chunk in chunks]


@cache
def operators() -> list[str]:
    """The operators of Relax."""
    adapter.load()
    import tvm

    return sorted(name for name in tvm.ir.Op.list_op_names() if str(name).startswith("relax."))


def case(seed: int, index: int) -> str:
    """One mutated module."""
    rng = random.Random(f"relax/{seed}/{index}")
    changed = Mutator(rng.choice(modules()), rng).module()
    return bounded(lambda: _read(changed, rng))


def _read(module: Any, rng: random.Random) -> str:
    try:
        if rng.random() < 0.1:
            examine(module)
        program = from_relax(module, entry=rng.choice(_ENTRIES), functions={"elsewhere": lambda x: x})
        verify(program)
        if rng.random() < 0.1:
            verify(standard()(program))
    except ArgumentError as error:  # about `entry`, which the module may not have
        return "" if "function" in error.problem else str(error)
    except MetaError as error:
        return wrong_error(error, RelaxError)
    return ""


class Mutator:
    """Rebuilds a module with one to four changes, at nodes that are drawn beforehand."""

    def __init__(self, original: Any, rng: random.Random) -> None:
        import tvm

        self.ir, self.relax, self.tirx = tvm.ir, tvm.relax, adapter.tirx
        self.original = original
        self.rng = rng
        self.seen: list[Any] = []
        self.count = 0
        self.chosen: frozenset[int] = frozenset()
        self.renamed: dict[int, Any] = {}

    def module(self) -> Any:
        self._functions()  # counts the nodes, and collects replacements for others
        self.chosen = frozenset(self.rng.randrange(self.count) for _ in range(self.rng.choice((1, 1, 2, 4))))
        self.count = 0
        return self.ir.IRModule(self._functions(), attrs=None)

    def _functions(self) -> dict[Any, Any]:
        return {name: self.function(f) for name, f in self.original.functions.items()}

    def function(self, node: Any) -> Any:
        if type(node).__name__ != "Function":
            self.seen.append(node)
            return self.changed(node, self.kernel)
        params = [self.changed(param, self.parameter) for param in node.params]
        body = self.expression(node.body)
        return self.changed(self._function(params, body, node), lambda f: self.whole(f, params, body))

    def _function(self, params: Sequence[Any], body: Any, like: Any) -> Any:
        return self.relax.Function(list(params), body, like.ret_ty, like.is_pure, like.attrs)

    def changed(self, node: Any, change: Callable[[Any], Any]) -> Any:
        """A node; for a drawn one the result of `change`, if TVM can represent that."""
        self.count += 1
        if self.count - 1 in self.chosen:
            with suppress(*_REFUSALS):
                return change(node)
        return node

    # --- expressions -------------------------------------------------------------------------------------------------

    def expression(self, node: Any) -> Any:
        rebuild = getattr(self, f"_{type(node).__name__}", None)
        rebuilt = node
        if rebuild is not None:
            with suppress(*_REFUSALS):  # TVM cannot represent a field of a value other than a tuple
                rebuilt = rebuild(node)
        if not self.chosen:
            self.seen.append(node)
        return self.changed(rebuilt, self.other)

    def _Var(self, node: Any) -> Any:
        return self.renamed.get(hash(node), node)

    def _SeqExpr(self, node: Any) -> Any:
        blocks = [type(b)(self.bindings([self.binding(each) for each in b.bindings])) for b in node.blocks]
        return self.relax.SeqExpr(blocks, self.expression(node.body))

    def _Call(self, node: Any) -> Any:
        args = [self.expression(arg) for arg in node.args]
        return self.relax.Call(node.op, args, node.attrs, list(node.ty_args))

    def _Tuple(self, node: Any) -> Any:
        return self.relax.Tuple([self.expression(field) for field in node.fields])

    def _TupleGetItem(self, node: Any) -> Any:
        return self.relax.TupleGetItem(self.expression(node.tuple_value), node.index)

    def _If(self, node: Any) -> Any:
        branches = self.expression(node.true_branch), self.expression(node.false_branch)
        return self.relax.If(self.expression(node.cond), *branches)

    def binding(self, node: Any) -> Any:
        value = self.expression(node.value)
        if type(node).__name__ == "MatchCast":
            return self.relax.MatchCast(node.var, value, self.changed(node.ty, lambda _: self.type()))
        return self.relax.VarBinding(node.var, value)

    def bindings(self, nodes: list[Any]) -> list[Any]:
        return self.changed(nodes, self.rearranged)

    def rearranged(self, nodes: list[Any]) -> list[Any]:
        i, j = self.rng.randrange(len(nodes)), self.rng.randrange(len(nodes))
        match self.rng.randrange(4):
            case 0:
                return nodes[:i] + nodes[i + 1 :]
            case 1:
                return [*nodes[:i], nodes[j], *nodes[i:]]
            case 2:
                return nodes[::-1]
            case _:
                cast = self.relax.MatchCast(nodes[i].var, nodes[j].var, self.type())
                return [*nodes[:i], cast, *nodes[i:]]

    # --- changes -----------------------------------------------------------------------------------------------------

    def other(self, node: Any) -> Any:
        match type(node).__name__:
            case "Call" if self.rng.random() < 0.9:
                return self.call(node)
            case "ShapeExpr" if self.rng.random() < 0.8:
                values = list(node.values)
                values[self.rng.randrange(len(values))] = self.size()
                return self.relax.ShapeExpr(values[: self.rng.choice((1, len(values), len(values)))])
            case "TupleGetItem" if self.rng.random() < 0.5:
                return self.relax.TupleGetItem(node.tuple_value, self.rng.choice((0, 1, 9, 2**31 - 1)))
            case _:
                return self.anything()

    def call(self, node: Any) -> Any:
        op, args, attrs, types = node.op, list(node.args), node.attrs, list(node.ty_args)
        i = self.rng.randrange(len(args)) if args else 0
        match self.rng.randrange(8):
            case 0 if args:
                del args[i]
            case 1 if args:
                args.insert(i, args[self.rng.randrange(len(args))])
            case 2:
                self.rng.shuffle(args)
            case 3:
                op = self.ir.Op.get(self.rng.choice(operators()))
            case 4:
                attrs = self.rng.choice([None, *(n.attrs for n in self.seen if type(n).__name__ == "Call")])
            case 5:
                types = self.rng.choice(([], [self.type()], [self.type(), self.type()]))
            case 6:
                op = self.rng.choice([*self.original.functions, self.relax.ExternFunc("os.system"), *args])
            case _:
                args[i : i + 1] = [self.anything()]
        return self.relax.Call(op, args, attrs, types)

    def parameter(self, node: Any) -> Any:
        self.renamed[hash(node)] = self.relax.Var(self.rng.choice((node.name, "x", "é", "a.b")), self.type())
        return self.renamed[hash(node)]

    def whole(self, node: Any, params: list[Any], body: Any) -> Any:
        match self.rng.randrange(4):
            case 0:
                return self._function(params[1:], body, node)
            case 1:
                return self._function([*params, params[0]], body, node)
            case 2:
                calls = [self.relax.Call(name, params) for name in self.original.functions]
                return self._function(params, self.rng.choice(calls), node)
            case _:
                return self._function(params, self.anything(), node)

    def kernel(self, node: Any) -> Any:
        params = list(node.params)
        match self.rng.randrange(4):
            case 0:
                params = params[1:]
            case 1:
                params = params[::-1]
            case 2:
                params = [*params, params[0]]
            case _:
                return self.rng.choice([f for f in self.original.functions.values() if f is not node])
        return self.tirx.PrimFunc(params, node.body).with_attrs(dict(node.attrs))

    # --- what takes the place of others ------------------------------------------------------------------------------

    def anything(self) -> Any:
        make = self.rng.choice((
            lambda: self.rng.choice(self.seen), lambda: self.rng.choice(self.seen), lambda: self.rng.choice(self.seen),
            lambda: self.relax.ShapeExpr([self.size() for _ in range(self.rng.choice((0, 1, 2, 70)))]),
            lambda: self.relax.Tuple([]), lambda: self.relax.Tuple([self.rng.choice(self.seen)] * 3),
            lambda: self.relax.Var("unbound", self.type()), lambda: self.relax.ExternFunc("os.system"),
            lambda: self.ir.IntImm("int64", self.rng.choice(_SIZES)),
            lambda: self.ir.FloatImm("float32", self.rng.choice((0.0, float("nan"), float("inf"), 1e38))),
            lambda: self.ir.StringImm(self.rng.choice(_NAMES)), lambda: self.rng.choice(list(self.original.functions)),
            lambda: self.ir.Op.get(self.rng.choice(operators())), self.nest,
            lambda: self.relax.const(self.rng.choice((0, 1, True, 2.5)), self.rng.choice(("int64", "float32", "bool"))),
        ))  # fmt: skip
        return make()

    def nest(self) -> Any:
        """A node inside of hundreds."""
        node = self.rng.choice(self.seen)
        wrap = self.rng.choice((
            lambda inner: self.relax.Tuple([inner]), lambda inner: self.relax.TupleGetItem(inner, 0),
            lambda inner: self.relax.Call("relax.nn.relu", [inner]),
        ))  # fmt: skip
        for _ in range(self.rng.choice((3, 90, _DEPTH))):
            node = wrap(node)
        return node

    def size(self) -> Any:
        n = self.tirx.Var("n", "int64")
        return self.rng.choice((
            *(self.ir.IntImm("int64", size) for size in _SIZES),
            n, n * n - 5, n // 3, n % 4, self.tirx.max(n, 3), self.tirx.FloorDiv(n, self.ir.IntImm("int64", 0)),
        ))  # fmt: skip

    def type(self) -> Any:
        shape = [self.size() for _ in range(self.rng.choice((0, 1, 2, 3, 70)))]
        make = self.rng.choice((
            lambda: self.relax.TensorType(shape, self.rng.choice(_DTYPES)),
            lambda: self.relax.TensorType(shape, "float32"), lambda: self.relax.TensorType(None, None),
            lambda: self.relax.TensorType(None, "float32", ndim=self.rng.choice((-1, 0, 2, 1000))),
            lambda: self.relax.ShapeType(shape), lambda: self.relax.ShapeType(None, 2), self.relax.AnyType,
            lambda: self.relax.TupleType([self.relax.TensorType(shape, "int64")] * 3),
            lambda: self.relax.FuncType([], self.relax.AnyType()), lambda: self.ir.PrimType("int64"),
        ))  # fmt: skip
        return make()
