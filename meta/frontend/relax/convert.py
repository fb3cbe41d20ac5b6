"""Conversion of Relax functions: their bindings are evaluated on symbols, which emits meta IR.

Operators on tensors are emitted to the program being built. Tuples, shapes, numbers and calls of other functions of the
module are evaluated during conversion and leave no trace; conditionals on tensors remain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import meta
from meta.dim import Dim, SymDim, same_dim
from meta.dtype import ALL
from meta.errors import MetaError, NotSupportedError
from meta.frontend.relax.kernels import call_kernel
from meta.frontend.relax.ops._table import table
from meta.frontend.relax.sizes import Float, RelaxError, Shape, Sizes, UnsupportedError, dim_of, key, variable_name
from meta.frontend.relay import ast
from meta.frontend.relay.convert.branches import Branches
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.convert.emission import Emission
from meta.frontend.relay.convert.values import UNCONVERTED, describe
from meta.ir.expr import Constant, Span
from meta.ir.type import TensorType, tensor_type
from meta.limits import MAX_EVALUATED
from meta.tracing.symbol import Symbol
from meta.tree import leaves_of

PREFIX = "relax."
MAX_CALLS = 80
"""Nesting of calls and branches."""
KERNEL_CALLS = frozenset({"call_tir", "call_tir_with_grad"})
PACKED_CALLS = frozenset({"call_dps_packed", "call_pure_packed"})

Functions = Mapping[str, Callable[..., Any]]
"""The name of a PrimFunc or of a packed function -> a function of meta's tensors that computes it."""

# What rows raise for operands that an operator never takes: a tuple for a tensor, a list that is too short.
_MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_NOWHERE = ast.Place(0, 0)
_FUNCTIONS = ("Function", "PrimFunc", "GlobalVar", "ExternFunc")


@dataclass(slots=True, eq=False)
class FunctionFrame:
    """One call of a function: its values and sizes by variable. place: of the binding that is evaluated, in words."""

    name: str
    values: dict[int, Any] = field(default_factory=dict[int, Any])
    sizes: dict[int, Dim] = field(default_factory=dict[int, Dim])
    place: str = ""

    def copy(self) -> FunctionFrame:
        """A frame for a branch, whose values are not seen outside of it."""
        return FunctionFrame(self.name, dict(self.values), dict(self.sizes), self.place)


class Converter:
    """Converts the functions of one module.

    functions: what computes kernels and packed functions, in place of them.  emission: the program being built.
    unsupported: the errors of calls that cannot be converted; the evaluation goes on without their values.
    place: of the parameter or the binding that is evaluated, in words."""

    def __init__(self, module: Any, functions: Functions) -> None:
        self.module = module
        self.functions = functions
        self.emission = Emission()
        self.branches = Branches(self.emission)
        self.unsupported: dict[str, UnsupportedError] = {}
        self.place = ""
        self.steps = 0
        self.running: list[str] = []

    def function(self, name: str, function: Any, args: Sequence[Any], sizes: Sizes | None = None) -> Any:
        """The value of a function for these arguments. sizes: of its variables that the arguments do not tell."""
        if name in self.running or len(self.running) >= MAX_CALLS:
            problem = f"@{name} calls itself" if name in self.running else f"calls nest deeper than {MAX_CALLS}"
            raise UnsupportedError("relax", problem, "functions that a finite number of calls inlines")
        if len(args) != len(function.params):
            raise RelaxError("relax", f"@{name} is called with {len(args)} arguments", f"{len(function.params)}")
        frame = FunctionFrame(name, sizes=dict(sizes or {}))
        for param, value in zip(function.params, args, strict=True):
            self.match(param.ty, value, frame, f"the argument '{variable_name(param)}' of @{name}")
            self.define(param, value, frame)
        self.running.append(name)
        try:
            return self.value(function.body, frame)
        finally:
            self.running.pop()

    # --- expressions -------------------------------------------------------------------------------------------------

    def value(self, expression: Any, frame: FunctionFrame) -> Any:
        kind = type(expression).__name__
        evaluate = _EXPRESSIONS.get(kind)
        if evaluate is not None:
            return evaluate(self, expression, frame)
        if kind in _FUNCTIONS:
            return expression
        try:
            return dim_of(expression, frame.sizes)
        except KeyError as error:
            raise RelaxError("relax", f"{frame.place}: the size {expression} is not known ({error})") from None

    def sequence(self, node: Any, frame: FunctionFrame) -> Any:
        for block in node.blocks:
            for binding in block.bindings:
                self.bind(binding, frame)
        return self.value(node.body, frame)

    def bind(self, binding: Any, frame: FunctionFrame) -> None:
        self.steps += 1
        frame.place = self.place = f"@{frame.name}, binding '{variable_name(binding.var)}'"
        if self.steps > MAX_EVALUATED:
            raise UnsupportedError("relax", f"{frame.place}: more than {MAX_EVALUATED} bindings are evaluated")
        self.emission.builder.span = span_of(binding)
        value = self.value(binding.value, frame)
        if type(binding).__name__ == "MatchCast":
            self.match(binding.ty, value, frame, frame.place)
        self.define(binding.var, value, frame)

    def define(self, variable: Any, value: Any, frame: FunctionFrame) -> None:
        frame.values[key(variable)] = value
        if isinstance(value, (int, SymDim)) and not isinstance(value, bool):
            frame.sizes[key(variable)] = value

    def variable(self, node: Any, frame: FunctionFrame) -> Any:
        try:
            return frame.values[key(node)] if key(node) in frame.values else frame.sizes[key(node)]
        except KeyError:
            problem = f"{frame.place or '@' + frame.name}: '{variable_name(node)}' has no value"
            raise RelaxError("relax", problem, "bindings in the order of their uses") from None

    def item(self, node: Any, frame: FunctionFrame) -> Any:
        value, index = self.value(node.tuple_value, frame), int(node.index)
        if value is UNCONVERTED:
            return value
        if not isinstance(value, tuple) or not 0 <= index < len(value):
            raise RelaxError("relax", f"{frame.place}: field {index} of {describe(value)}", "a field of a tuple")
        return value[index]

    def conditional(self, node: Any, frame: FunctionFrame) -> Any:
        condition = self.value(node.cond, frame)
        if condition is UNCONVERTED:
            return condition

        def branch(body: object) -> Callable[[], Any]:
            return lambda: self.value(body, frame.copy())

        return self.branches.select(condition, branch(node.true_branch), branch(node.false_branch), _NOWHERE)

    # --- types -------------------------------------------------------------------------------------------------------

    def match(self, kind: Any, value: Any, frame: FunctionFrame, where: str) -> None:
        """Give the variables of a type their sizes. Raises RelaxError for a value that does not fit it."""
        name = type(kind).__name__
        if value is UNCONVERTED or name == "AnyType":
            return
        if name == "TupleType" and isinstance(value, tuple):
            if len(kind.fields) != len(value):
                raise RelaxError("relax", f"{where} is {describe(value)}", f"{len(kind.fields)} fields")
            for inner, each in zip(kind.fields, value, strict=True):
                self.match(inner, each, frame, where)
        elif name == "TensorType" and isinstance(value, Symbol):
            if dtype_of(kind) not in ("", value.dtype) or kind.ndim not in (-1, value.ndim):
                raise RelaxError("relax", f"{where} is {value.type!r}", f"{kind}")
            self.match_sizes(getattr(kind.shape, "values", None), value.shape, frame, where)
        elif name == "ShapeType" and isinstance(value, Shape):
            self.match_sizes(kind.values, value, frame, where)
        elif name not in ("PrimType", "FuncType"):
            raise RelaxError("relax", f"{where} is {describe(value)}", f"{kind}")

    def match_sizes(self, expected: Any, shape: Sequence[Dim], frame: FunctionFrame, where: str) -> None:
        if expected is None:
            return
        if len(expected) != len(shape):
            raise RelaxError("relax", f"{where} has {len(shape)} sizes", f"{len(expected)}")
        pairs = list(zip(expected, shape, strict=True))
        for expression, size in pairs:
            if type(expression).__name__ == "Var":
                frame.sizes.setdefault(key(expression), size)
        for expression, size in pairs:
            try:
                value = dim_of(expression, frame.sizes)
            except (KeyError, UnsupportedError):
                continue  # an expression of sizes that are not known yet says nothing that can be checked
            if not same_dim(value, size):
                raise RelaxError("relax", f"{where}: a size is {size}", f"{expression} = {value}")

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, node: Any, frame: FunctionFrame) -> Any:
        args = [self.value(arg, frame) for arg in node.args]
        kind = type(node.op).__name__
        if kind != "Op":
            callee = self.value(node.op, frame)
            if type(callee).__name__ == "GlobalVar":
                return self.global_call(callee, args, frame)
            return self.guarded(str(getattr(callee, "global_symbol", kind)), self.packed, node, callee, args, frame)
        name = str(node.op.name).removeprefix(PREFIX)
        if name in KERNEL_CALLS:
            return self.guarded(name, self.kernel, node, args[0], args[1:], frame)
        if name in PACKED_CALLS:
            return self.guarded(name, self.packed, node, args[0], args[1:], frame)
        return self.guarded(name, self.operator, node, name, args, frame)

    def guarded(
        self, name: str, convert: Callable[..., Any], node: Any, what: object, args: Any, frame: FunctionFrame
    ) -> Any:
        """A call whose operands have values. One that is not supported is listed in `unsupported`."""
        if any(leaf is UNCONVERTED for leaf in leaves_of(tuple(args))):
            return UNCONVERTED
        place = frame.place or f"@{frame.name}"
        try:
            return convert(node, what, args, frame)
        except MetaError as error:
            kind = UnsupportedError if isinstance(error, NotSupportedError) else RelaxError
            subject = f"[{error.subject}] " if error.subject not in ("", "relax", name) else ""
            operators = getattr(error, "operators", None)
            problem = error.problem if operators else f"{name}: {subject}{error.problem}"
            located = kind("relax", f"{place}: {problem}", error.expected, remedy=error.remedy, location=self.line())
            if not isinstance(located, UnsupportedError):
                raise located from error
            located.operators = operators or {}
            self.unsupported.setdefault(located.problem, located)
            return UNCONVERTED
        except _MISFITS as error:
            problem = f"{place}: {name}: its operands do not fit together ({type(error).__name__}: {error})"
            raise RelaxError("relax", problem[:500], "operands that Relax accepts") from error

    def line(self) -> str | None:
        """The line of the binding that is evaluated, None where the module does not tell."""
        span = self.emission.builder.span
        return str(span) if span else None

    def operator(self, node: Any, name: str, args: list[Any], _: FunctionFrame) -> Any:
        row = table.find(name)
        if row is None:
            raise UnsupportedError("relax", f"the operator {name} is not supported", operators={name: 1})
        call = OpCall(name, tuple(args), attributes(node.attrs), _NOWHERE, self.emission.builder)
        result = row(call)
        call.check_all_read()
        return result

    def global_call(self, target: Any, args: list[Any], frame: FunctionFrame) -> Any:
        name = str(target.name_hint)
        function = self.module.functions.get(target)
        if type(function).__name__ == "Function":
            place = frame.place
            result = self.function(name, function, args)
            frame.place = place
            return result
        what = "no function of the module" if function is None else "a kernel"
        raise RelaxError(
            "relax", f"{frame.place}: @{name} is called, which is {what}", "a function; kernels are called by call_tir"
        )

    def kernel(self, node: Any, target: Any, args: list[Any], frame: FunctionFrame) -> Any:
        """A call of a PrimFunc, or of the function that is given for it."""
        name, function = str(getattr(target, "name_hint", target)), None
        if type(target).__name__ == "GlobalVar":
            function = self.module.functions.get(target)
        operands = list(args[0]) if args and isinstance(args[0], tuple) else list(args[:1])
        operands += [size for shape in args[1:] for size in shape]
        if name in self.functions:
            return self.functions[name](*operands)
        if type(function).__name__ != "PrimFunc":
            raise UnsupportedError("relax", f"call_tir of @{name}, which is not a PrimFunc of the module", "a PrimFunc")
        return call_kernel(name, function, operands, self.results(node.ty_args, frame))

    def packed(self, node: Any, target: Any, args: list[Any], _: FunctionFrame) -> Any:
        """A call of a function of another library, which must be given."""
        name = str(getattr(target, "global_symbol", target))
        if name not in self.functions:
            raise UnsupportedError("relax", f"the packed function {name} is not known",
                                   remedy=f"pass what computes it: functions={{{name!r}: ...}}",
                                   operators={name: 1})  # fmt: skip
        is_dps = str(getattr(node.op, "name", "")) == "relax.call_dps_packed"
        return self.functions[name](*(args[0] if is_dps and isinstance(args[0], tuple) else args))

    def results(self, kinds: Any, frame: FunctionFrame) -> list[TensorType]:
        """The types of the results of a kernel."""
        flat: list[Any] = []
        for kind in kinds:
            flat += list(kind.fields) if type(kind).__name__ == "TupleType" else [kind]
        return [tensor_type_of(kind, frame.sizes) for kind in flat]


def dtype_of(kind: Any) -> str:
    """The dtype of a tensor type of Relax, "" where it is unknown."""
    dtype = getattr(kind.dtype, "dtype", kind.dtype)
    return "" if dtype is None else str(dtype)


def tensor_type_of(kind: Any, sizes: Sizes) -> TensorType:
    """A tensor type of Relax with known sizes. Raises UnsupportedError for what meta lacks or for an unknown shape."""
    if type(kind).__name__ != "TensorType" or kind.shape is None or not hasattr(kind.shape, "values"):
        raise UnsupportedError("relax", f"the type {kind}", "a tensor of known rank and sizes")
    dtype = dtype_of(kind)
    if dtype not in ALL:
        raise UnsupportedError("relax", f"the dtype {dtype or 'is unknown'} of {kind}", "a dtype of meta")
    return tensor_type(tuple(dim_of(d, sizes) for d in kind.shape.values), dtype, meta.device("cpu"))


def span_of(node: Any) -> Span | None:
    """Where a node of Relax was written, None where it does not say."""
    span = getattr(node, "span", None)
    source = getattr(getattr(span, "source_name", None), "name", "")
    return Span(str(source), int(span.line)) if span is not None and source else None


def _constant(_: Converter, node: Any, frame: FunctionFrame) -> Any:
    dtype = str(getattr(node.value, "dtype", type(node.value).__name__))
    if dtype not in ALL:
        raise UnsupportedError("relax", f"{frame.place}: a constant of dtype {dtype}", "a dtype of meta")
    shape = tuple(int(d) for d in node.value.shape)
    value = meta.from_dlpack(node.value, copy=True) if dtype == "bfloat16" else np.from_dlpack(node.value)
    return Symbol(Constant(value, tensor_type(shape, dtype, meta.device("cpu"))))


def _shape(_: Converter, node: Any, frame: FunctionFrame) -> Any:
    try:
        return Shape(dim_of(d, frame.sizes) for d in node.values)
    except KeyError:
        raise RelaxError("relax", f"{frame.place}: a size of {node} is not known", "sizes of the inputs") from None


def _int(_: Converter, node: Any, __: FunctionFrame) -> Any:
    return bool(node.value) if str(node.ty.dtype) == "bool" else int(node.value)


_EXPRESSIONS: Mapping[str, Callable[[Converter, Any, FunctionFrame], Any]] = {
    "Call": Converter.call,
    "DataflowVar": Converter.variable,
    "DataTypeImm": lambda _, node, __: str(node.value),
    "FloatImm": lambda _, node, __: Float(node.value, str(node.ty.dtype)),
    "GenericConst": _constant,
    "If": Converter.conditional,
    "IntImm": _int,
    "SeqExpr": Converter.sequence,
    "ShapeExpr": _shape,
    "StringImm": lambda _, node, __: str(node.value),
    "Tuple": lambda self, node, frame: tuple(self.value(each, frame) for each in node.fields),
    "TupleGetItem": Converter.item,
    "Var": Converter.variable,
}


def attributes(attrs: Any) -> dict[str, Any]:
    """The attributes of a call as values of Python; types as names, "" for void."""
    if attrs is None:
        return {}
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    names = [f.name for f in info.fields] if info is not None and info.fields else list(attrs.keys())
    return {name: plain(getattr(attrs, name)) for name in names}


def plain(value: Any) -> Any:
    """An attribute of TVM as a value of Python."""
    kind = type(value).__name__
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if kind in ("IntImm", "FloatImm", "StringImm"):
        return value.value
    if kind in ("Array", "List", "list", "tuple"):
        return tuple(map(plain, value))
    if kind == "PrimType" or kind in ("dtype", "DataType"):
        text = str(getattr(value, "dtype", value))
        return "" if text in ("void", "handle") else text
    return str(value) if isinstance(value, str) else value
