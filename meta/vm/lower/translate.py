"""Our IR as a Relax module: TE computes become PrimFuncs that `call_tir` calls, library kernels packed functions that
`call_dps_packed` calls, views `reshape`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from meta.backend.memory.numpy_arrays import as_pairs
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.kernel import ComputeCall, compute_key, identifier
from meta.backend.tvm.shape_generic import spec
from meta.backend.tvm.spec import KernelSpec, SizeSpec, TensorSpec
from meta.backend.tvm.target import knobs_of
from meta.dim import Dim, SymDim, compute
from meta.errors import IRError, NotSupportedError
from meta.ir.analysis import is_open, open_sizes, size_names
from meta.ir.builder import Module
from meta.ir.expr import Atom, Block, Call, Constant, Expr, FunctionExpr, GlobalVar, If, Span, Tuple, TupleGetItem, Var
from meta.ir.printer import to_array
from meta.ir.type import FunctionType, TensorType, TupleType, Type, stored
from meta.ir.visitor import use_counts, walk
from meta.op.registry import Op
from meta.passes.tail_loops import LOOP
from meta.tracing.loop_op import LoopOp
from meta.tree import leaves_of
from meta.vm.lower.calls import CHECK_FUNCTION, LOOP_FUNCTION, Calls, function_name, loop_of
from meta.vm.lower.choose import Choice, Choices, Source, packed_name
from meta.vm.lower.recompute import TAKERS, recomputed

_OP_PATTERN = {"opaque": 8, "softmax": 8}
"""Relax's numbers for patterns that its own analysis of loops must not decide."""
ELEMENTWISE: Final = "meta.elementwise"
"""Of kernels that fuse with the product before them, which Relax takes for broadcasts where an axis has the size 1."""
_REDUCTION: Final = 3
"""Relax's number for reductions that fuse with the elementwise operators before them, which have more elements than
those after. On the CPU only reductions of such operators have it; kernels of others can fuse with those after."""


def _variable_name(name: str) -> str:
    """The name of a Relax variable. An operand keeps its name in kernels of CUDA, where TVM drops leading underscores:
    `_0.weight`, a parameter of torch's, would start with a digit."""
    return f"p{name}" if name.lstrip("_")[:1].isdigit() else name


def _token_type() -> Any:
    """The type of tokens."""
    return tvm.TensorType((), "bool")


def _unsized(kind: TensorType) -> Any:
    """The Relax type of tensors of this rank and dtype."""
    kind = stored(kind)
    return tvm.TensorType(dtype=kind.dtype, ndim=kind.ndim)


class RelaxTypes:
    """Types in one Relax function, in which the name of a symbolic size is one variable.

    hidden: sizes that only the body of the function knows, which its signature cannot name."""

    def __init__(self, hidden: frozenset[str] = frozenset()) -> None:
        self._variables: dict[str, Any] = {}
        self._hidden = hidden

    def dim(self, value: Dim) -> Any:
        """An `int`, or the TVM expression of a symbolic size."""
        if isinstance(value, int):
            return value
        tirx = tvm.tirx
        return compute(value, self._variable, lambda number: tvm.IntImm("int64", number), tirx.floordiv, tirx.min)

    def shape(self, dims: tuple[Dim, ...]) -> list[Any]:
        return [self.dim(d) for d in dims]

    def result_type(self, kind: Type) -> Any:
        """The Relax type of what the function returns."""
        if isinstance(kind, TupleType):
            return tvm.TupleType([self.result_type(field) for field in kind.fields])
        if isinstance(kind, TensorType) and not self._hidden.isdisjoint(size_names(kind)):
            return _unsized(kind)
        return self.type(kind)

    def type(self, kind: Type) -> Any:
        """The Relax type; raises NotSupportedError for functions and values without a run-time form."""
        match kind:
            case TensorType():
                kind = stored(kind)
                return tvm.TensorType(self.shape(kind.shape), kind.dtype)
            case TupleType():
                return tvm.TupleType([self.type(field) for field in kind.fields])
            case FunctionType():
                raise NotSupportedError(
                    "vm",
                    f"a function of type {kind!r} is passed as a value",
                    "functions that are called where they are defined",
                    "inline it",
                )
            case _:
                raise NotSupportedError("vm", f"{kind!r} has no run-time form", "tensors and tuples of them")

    def _variable(self, name: str) -> Any:
        return self._variables.setdefault(name, tvm.Var(name, "int64"))


@dataclass(frozen=True, slots=True)
class Lowered:
    """A Relax module. ops: the operator behind each PrimFunc and packed function, by name.  lines: the user's lines of
    its calls.  specs: what each PrimFunc was computed from, see `prim_func`."""

    module: Any
    ops: Mapping[str, str]
    lines: Mapping[str, Mapping[Span, None]]
    specs: Mapping[str, tuple[KernelSpec, bool]]


def lower(source: Source) -> Lowered:
    """Lower a program. Raises NotSupportedError for what Relax cannot hold."""
    return Lowering(source.module, source.choices, source.calls).run()


@dataclass(slots=True)
class Scope:
    """A Relax function under construction."""

    types: RelaxTypes
    values: dict[Var, Any] = field(default_factory=dict[Var, Any])
    bindings: list[Any] = field(default_factory=list[Any])


class Lowering:
    """The Relax module of one program; `run` builds it. A subclass may put other Relax in place of calls."""

    def __init__(self, module: Module, choices: Choices, calls: Calls) -> None:
        self.module = module
        self.calls = calls
        self.choices = choices
        # Tensors that kernels compute anew; on the CPU there are none.
        on_gpu = choices.device.kind == "cuda"
        self.recipes = recomputed(module, choices) if on_gpu else {}
        self.feeding = set[Atom]() if on_gpu else set(_feeding(module))
        self.builder = tvm.BlockBuilder()
        self.globals: dict[str, Any] = {}
        self.kernels: dict[Any, Any] = {}
        self.ops: dict[str, str] = {}
        self.lines: dict[str, dict[Span, None]] = {}
        self.specs: dict[str, tuple[KernelSpec, bool]] = {}
        self.pending: list[tuple[Any, FunctionExpr]] = []

    def run(self) -> Lowered:
        for name, function in self.module.functions.items():
            self.declare(name, function)
        while self.pending:
            target, function = self.pending.pop()
            self.builder.update_func(target, self.function(target.name_hint, function))
        return Lowered(self.normalized(), self.ops, self.lines, self.specs)

    def normalized(self) -> Any:
        """The module that was built, in Relax's normal form."""
        return tvm.relax_transform.Normalize()(self.builder.get())

    def declare(self, name: str, function: FunctionExpr) -> Any:
        """The Relax GlobalVar of a function; its body follows later, because functions may call each other."""
        types = self.types(function)
        params = [tvm.RelaxVar(_variable_name(p.name) or "p", types.type(p.type)) for p in function.params]
        params += self.token_params(name)
        empty = tvm.RelaxFunction.create_empty(params, types.result_type(function.body.type))
        # The builder takes functions that look alike for one; the name tells declarations apart.
        target = self.builder.add_func(empty.with_attr("global_symbol", name), name)
        self.globals[name] = target
        self.pending.append((target, function))
        return target

    def types(self, function: FunctionExpr) -> RelaxTypes:
        return RelaxTypes(open_sizes(function) if self.choices.open else frozenset())

    def token_params(self, name: str) -> list[Any]:
        return [tvm.RelaxVar("token", _token_type())] if name in self.calls.checked else []

    def function(self, name: str, function: FunctionExpr) -> Any:
        scope = Scope(self.types(function))
        for p in function.params:
            scope.values[p] = tvm.RelaxVar(_variable_name(p.name) or "p", scope.types.type(p.type))
        body = self.sequence(scope, function.body)
        params = [*(scope.values[p] for p in function.params), *self.token_params(name)]
        relax = tvm.RelaxFunction(params, body, scope.types.result_type(function.body.type))
        # Passes remove functions without a symbol when the program does not call them, and their unused parameters.
        visible = name == "main" or name in self.calls.steps or name in self.calls.checked
        return relax.with_attr("global_symbol", name) if visible else relax

    def block(self, scope: Scope, block: Block) -> Any:
        for binding in block.bindings:
            value = self.value(scope, binding.value)
            if not isinstance(value, tvm.RelaxVar):
                value = self.bind(scope, binding.var.name, binding.var.type, value)
            scope.values[binding.var] = value
        if isinstance(block.result, Tuple):
            return self.bind(scope, "result", block.result.type, self.value(scope, block.result))
        return self.atom(scope, block.result)

    def bind(self, scope: Scope, name: str, kind: Type, value: Any) -> Any:
        return self.bind_as(scope, name, scope.types.type(kind), value)

    def bind_as(self, scope: Scope, name: str, kind: Any, value: Any) -> Any:
        var = tvm.RelaxVar(_variable_name(name) or f"v{len(scope.bindings)}", kind)
        scope.bindings.append(tvm.VarBinding(var, value))
        return var

    def atom(self, scope: Scope, atom: Atom) -> Any:
        match atom:
            case Var():
                return scope.values[atom]
            case Constant():
                return self.bind(scope, "const", atom.type, self.constant(atom))
            case GlobalVar():
                return self.globals[atom.name]

    def constant(self, constant: Constant) -> Any:
        kind, array = stored(constant.type), to_array(constant.value)
        return tvm.relax_const(array if kind is constant.type else as_pairs(array), kind.dtype)

    def value(self, scope: Scope, value: Expr) -> Any:
        match value:
            case Call():
                return self.call(scope, value)
            case Tuple():
                return tvm.RelaxTuple([self.atom(scope, f) for f in value.fields])
            case TupleGetItem():
                return tvm.RelaxTupleGetItem(self.atom(scope, value.value), value.index)
            case If():
                return self.conditional(scope, value)
            case FunctionExpr():
                raise IRError("vm", "a closure is left", remedy="lift closures before lowering")

    def conditional(self, scope: Scope, value: If) -> Any:
        blocks = (value.then, value.orelse)
        branches = [self.sequence(Scope(scope.types, dict(scope.values)), block) for block in blocks]
        return tvm.RelaxIf(self.atom(scope, value.cond), *branches)

    def sequence(self, scope: Scope, block: Block) -> Any:
        result = self.block(scope, block)
        return tvm.SeqExpr([tvm.BindingBlock(scope.bindings)], result)

    def call(self, scope: Scope, call: Call) -> Any:
        if isinstance(call.op, (Var, GlobalVar)):
            return self.function_call(scope, call, call.op)
        if isinstance(call.op, LoopOp):
            return self.loop(scope, call, call.op)
        if call.op.view:
            return self.view(scope, call)
        if is_open(call):
            return self.open(scope, call)
        choice = self.choices.of(call)
        sizes = _sizes(choice)
        operands = [
            scope.types.dim(leaf) if isinstance(leaf, SymDim) else self.operand(scope, leaf, choice)
            for i, arg in enumerate(call.args)
            for leaf in ((arg,) if i in sizes else _tensors((arg,)))
        ]
        outs = [scope.types.type(t) for t in choice.info.destinations()]
        args = tvm.RelaxTuple(operands)
        if choice.compiled:
            kernel = self.tir(choice, sizes, not self.feeding.isdisjoint(_tensors(call.args)))
            self.name(kernel.name_hint, choice.implementation.name, call)
            result = tvm.call_tir(kernel, args, outs)
        else:
            self.name(packed_name(choice), choice.implementation.name, call)
            result = tvm.call_dps_packed(packed_name(choice), args, outs)
        return self.tupled(scope, call.type, result)

    def name(self, function: str, operator: str, call: Call) -> None:
        """Enter the operator and the line of a call of a PrimFunc or packed function."""
        self.ops[function] = operator
        if call.span is not None:
            self.lines.setdefault(function, {})[call.span] = None

    def tupled(self, scope: Scope, kind: Type, result: Any) -> Any:
        """The result of a call, which is no tuple to Relax if it has one field."""
        if not isinstance(kind, TupleType) or len(kind.fields) != 1:
            return result
        return tvm.RelaxTuple([self.bind(scope, "field", kind.fields[0], result)])

    def function_call(self, scope: Scope, call: Call, function: Var | GlobalVar) -> Any:
        args = [self.atom(scope, a) for a in call.args]
        name = tvm.StringImm(function.name)
        if LOOP in call.attrs:
            kind = scope.types.result_type(call.type)
            return tvm.call_pure_packed(tvm.ExternFunc(LOOP_FUNCTION), name, *args, ty_args=[kind])
        if function.name in self.calls.checked:
            token = tvm.call_pure_packed(tvm.ExternFunc(CHECK_FUNCTION), name, ty_args=[_token_type()])
            args.append(self.bind_as(scope, "token", _token_type(), token))
        return tvm.RelaxCall(self.atom(scope, function), args)

    def loop(self, scope: Scope, call: Call, op: LoopOp) -> Any:
        """A loop: a function in Python that repeats a step and writes to the results."""
        name = loop_of(op, call).function_name
        self.name(name, op.name, call)
        outs = [scope.types.type(t) for t in op.result.fields]
        result = tvm.call_dps_packed(name, tvm.RelaxTuple([self.atom(scope, a) for a in call.args[1:]]), outs)
        return self.tupled(scope, op.result, result)

    def operand(self, scope: Scope, atom: Any, choice: Choice) -> Any:
        call = self.recipes.get(atom) if self.recipes and choice.compiled and choice.info.op.pattern in TAKERS else None
        return self.atom(scope, atom) if call is None else self.bind(scope, "", call.type, self.call(scope, call))

    def open(self, scope: Scope, call: Call) -> Any:
        """An open call: a match_cast binds the variables of its sizes to the sizes of the result."""
        assert isinstance(call.type, TensorType)
        tensors = [self.atom(scope, a) for a in _tensors(call.args)]
        name = function_name(call)
        self.name(name, call.op_name, call)
        eager = tvm.call_pure_packed(tvm.ExternFunc(name), *tensors, ty_args=[_unsized(call.type)])
        result = self.bind_as(scope, "", _unsized(call.type), eager)
        kind = scope.types.type(call.type)
        out = tvm.RelaxVar(f"v{len(scope.bindings)}", kind)
        scope.bindings.append(tvm.MatchCast(out, result, kind))
        return out

    def view(self, scope: Scope, call: Call) -> Any:
        source = self.atom(scope, call.args[0])
        kind = call.type
        if not isinstance(kind, TensorType) or kind == call.args[0].type:
            return source
        kind = stored(kind)
        if kind.size == 0:  # in a reshape, a size of 0 means "as before" to Relax
            return tvm.call_tir(self.empty(kind), tvm.RelaxTuple([]), [scope.types.type(kind)])
        return tvm.relax.op.reshape(source, tvm.ShapeExpr(scope.types.shape(kind.shape)))

    def empty(self, kind: TensorType) -> Any:
        """A PrimFunc that makes a tensor without elements."""
        shape = [tvm.IntImm("int64", int(d)) for d in kind.shape]

        def zero(*_: Any) -> Any:
            return tvm.tirx.const(0, kind.dtype)

        tensor = tvm.te.compute(shape, zero, "empty")
        target = self.builder.add_func(tvm.create_prim_func([tensor]).without_attr("global_symbol"), "empty")
        self.ops[target.name_hint] = "reshape"
        return target

    def tir(self, choice: Choice, sizes: frozenset[int], is_fed: bool) -> Any:
        """The compiled kernel of a call, which takes the sizes at the positions `sizes` as arguments. is_fed: whether
        it can fuse with the call before it."""
        numbers = dict.fromkeys(sizes, SizeSpec())
        kernel_spec = spec(choice.implementation.payload, choice.info, symbolic=False, numbers=numbers)
        return self.kernel(kernel_spec, choice, is_fed)

    def kernel(self, kernel_spec: KernelSpec, choice: Choice, is_fed: bool) -> Any:
        """The GlobalVar of the PrimFunc: one for equal calls."""
        is_fed = kernel_spec.pattern == "reduce" and (is_fed or choice.info.device.kind == "cuda")
        # In their text 1 is not True, and -0.0 not 0.0.
        numbers = repr([arg for arg in leaves_of(kernel_spec.args) if isinstance(arg, (int, float, complex))])
        key = (kernel_spec, id(kernel_spec.compute), numbers, is_fed)
        target = self.kernels.get(key)
        if target is None:
            with knobs_of(lambda: compute_key(kernel_spec)):
                func = prim_func(kernel_spec, is_fed)
            target = self.kernels[key] = self.builder.add_func(func, identifier(kernel_spec.name))
            self.specs[target.name_hint] = kernel_spec, is_fed
        return target


def prim_func(kernel_spec: KernelSpec, is_fed: bool) -> Any:
    """The PrimFunc of a kernel as Relax calls and fuses it. is_fed: whether it can fuse with the call before it."""
    call = ComputeCall(kernel_spec)
    with call.errors():
        results = kernel_spec.compute(*call.arguments, **call.options)
    func = call.function(results).function.without_attr("global_symbol")
    takes_sizes = any(isinstance(arg, SizeSpec) for arg in kernel_spec.args)
    pattern = _OP_PATTERN["opaque"] if takes_sizes else _REDUCTION if is_fed else _OP_PATTERN.get(kernel_spec.pattern)
    if pattern is None:
        return func.with_attr(ELEMENTWISE, True) if _is_elementwise(kernel_spec) else func
    return func.with_attr("op_pattern", pattern)


def _is_elementwise(kernel_spec: KernelSpec) -> bool:
    """Whether some operand has the shape of the result, whose elements are computed from its elements one by one."""
    shapes = [arg.shape for arg in kernel_spec.args if isinstance(arg, TensorSpec)]
    return kernel_spec.pattern in ("elemwise", "broadcast") and kernel_spec.outs[0].shape in shapes


def _feeding(module: Module) -> Iterator[Var]:
    """The results of elementwise operators that have one reader."""
    for function in module.functions.values():
        uses = use_counts(function)
        for var, value in ((b.var, b.value) for b in walk(function)):
            if isinstance(value, Call) and isinstance(value.op, Op) and value.op.pattern in ("elemwise", "broadcast"):
                yield from (var,) if uses[var] == 1 else ()


def _sizes(choice: Choice) -> frozenset[int]:
    """The positions of the symbolic sizes that a kernel reads as numbers."""
    lifted = choice.implementation.payload.lift if choice.compiled else ()
    names = choice.info.op.schema.names
    return frozenset(i for i, a in enumerate(choice.info.args) if isinstance(a, SymDim) and names[i] in lifted)


def _tensors(args: tuple[Any, ...]) -> list[Atom]:
    return [leaf for leaf in leaves_of(args) if isinstance(leaf, (Var, Constant))]
