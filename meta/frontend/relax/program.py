"""`convert`: a function of an IRModule as a program of meta."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import meta
from meta.dim import Dim, SymDim, names, sym
from meta.dtype import ALL
from meta.errors import ArgumentError, did_you_mean
from meta.frontend.reader import ConvertedProgram, errors_located
from meta.frontend.relax.convert import Converter, Functions, dtype_of
from meta.frontend.relax.operator_use import READER, operators
from meta.frontend.relax.sizes import RelaxError, Shape, UnsupportedError, dim_of, key, size_name, variable_name
from meta.frontend.relay.convert.call import constant
from meta.frontend.relay.convert.values import OpaqueError, describe, identifier, leaves
from meta.ir.builder import Module
from meta.ir.expr import Var
from meta.ir.type import TensorType, tensor_type
from meta.limits import MAX_DIMENSIONS
from meta.tracing import recording
from meta.tracing.symbol import Symbol

Arrays = Mapping[str, Any]
Shapes = Mapping[str, Sequence[Dim] | int]


@dataclass(frozen=True, slots=True, eq=False)
class RelaxProgram:
    """A function of a module, which a conversion begins with.

    module: an IRModule.  entry: the name of the function.  function: a function of Relax."""

    module: Any
    entry: str
    function: Any

    @property
    def names(self) -> list[str]:
        """The names of its parameters."""
        return [variable_name(p) for p in self.function.params]


def read(module: Any, entry: str) -> RelaxProgram:
    """The function of a module to convert. entry: its name; by default "main", or the only public function.

    Raises ArgumentError for something other than an IRModule and for an unknown name."""
    if type(module).__name__ != "IRModule" or not hasattr(module, "functions"):
        kind = f"{type(module).__module__}.{type(module).__name__}"
        raise ArgumentError("relax", f"the program is a {kind}", "a tvm.IRModule", "pass the module itself")
    functions = {str(g.name_hint): f for g, f in module.functions.items() if type(f).__name__ == "Function"}
    public = [name for name, f in functions.items() if f.attrs is not None and "global_symbol" in f.attrs]
    name = entry or ("main" if "main" in functions else public[0] if len(public) == 1 else "")
    if name not in functions:
        problem = f"there is no function @{entry}" if entry else f"{len(public)} functions are public and none is @main"
        listed = ", ".join(f"@{n}" for n in sorted(functions)) or "a function of Relax (the module has none)"
        raise ArgumentError("relax", problem, listed, did_you_mean(entry, functions) or "name one: entry=...")
    return RelaxProgram(module, name, functions[name])


def convert(program: RelaxProgram, params: Arrays, shapes: Shapes, functions: Functions) -> ConvertedProgram:
    """Convert a program.

    params: values of parameters, which become constants.  shapes: shapes of tensors and values of shapes and numbers
    among the parameters.  functions: what computes kernels and packed functions.
    Sizes that the program requires to be equal (R.match_cast, operands of operators) become one size.
    Raises UnsupportedError for what cannot be converted, all of it at once, RelaxError for invalid programs, and
    ArgumentError for params and shapes that do not fit."""
    for argument, mapping in (("params", params), ("shapes", shapes)):
        READER.check_names(argument, mapping, program.names, f"is not a parameter of @{program.entry}")
    return READER.converted(lambda tied: _converted(program, params, shapes, functions, tied))


def _converted(
    program: RelaxProgram, params: Arrays, shapes: Shapes, functions: Functions, tied: Mapping[Any, Dim]
) -> ConvertedProgram:
    converter = Converter(program.module, functions)
    try:
        with errors_located(RelaxError, UnsupportedError, "relax", lambda: converter.place):
            return _evaluated(program, params, _MainParameters(program, shapes, tied), converter)
    except RecursionError:
        problem = f"{converter.place or '@' + program.entry}: expressions nest deeper than Python's stack allows here"
        remedy = "bind the inner ones: tvm.relax.transform.Normalize()"
        raise UnsupportedError("relax", problem, "less than some hundreds of levels", remedy=remedy) from None


def _evaluated(program: RelaxProgram, params: Arrays, entry: _MainParameters, converter: Converter) -> ConvertedProgram:
    emission = converter.emission
    args: list[Any] = []
    for param in program.function.params:
        name = variable_name(param)
        converter.place = f"the parameter '{name}' of @{program.entry}"
        args.append(_bound(param, params[name]) if name in params else entry.argument(param))
    with recording(emission.builder), emission.builder.function("main", entry.variables) as scope:
        try:
            value = converter.function(program.entry, program.function, args, entry.sizes)
        except RelaxError:
            _check_supported(program, converter)  # later errors follow from a call without a value
            raise
        _check_supported(program, converter)
        _check_result(program, value)
        scope.ret(value.atom if isinstance(value, Symbol) else [emission.packed(field) for field in value])
    return ConvertedProgram(Module({"main": scope.function, **emission.functions}), tuple(entry.names))


def _check_supported(program: RelaxProgram, converter: Converter) -> None:
    uses = operators(program.module, program.entry, converter.functions)
    READER.check_supported(uses, converter.unsupported.values())


def _check_result(program: RelaxProgram, value: object) -> None:
    try:
        leaves(value)
    except OpaqueError as error:
        problem = f"the result of @{program.entry} holds {describe(error.value)}"
        raise UnsupportedError("relax", problem, "tensors and tuples of them") from None


def _bound(param: Any, value: Any) -> Symbol:
    """A parameter as a constant, checked against its declared type."""
    array = value.numpy() if hasattr(value, "numpy") else value
    symbol = constant(array)
    expected = dtype_of(param.ty) if type(param.ty).__name__ == "TensorType" else "no tensor"
    if expected not in ("", symbol.dtype):
        raise ArgumentError("relax", f"'{variable_name(param)}' is {symbol.type!r}", f"{param.ty}")
    return symbol


class _MainParameters:
    """The parameters of the function that becomes main.

    sizes: of its variables.  variables, names: the parameters of main, and what Relax calls them."""

    def __init__(self, program: RelaxProgram, shapes: Shapes, tied: Mapping[Any, Dim]) -> None:
        self.program = program
        self.shapes = shapes
        self.sizes: dict[int, Dim] = {}
        self.variables: list[Var] = []
        self.names: list[str] = []
        self._name_counts: Counter[str] = Counter()
        self._define_sizes(tied)

    def _define_sizes(self, tied: Mapping[Any, Dim]) -> None:
        """Give the variables in the types of the parameters their sizes: those that `shapes` fixes, or symbols."""
        sizes: dict[Any, Dim] = {}
        variables: list[Any] = []
        for param in self.program.function.params:
            shape = self.shapes.get(variable_name(param))
            if type(param.ty).__name__ == "PrimType" and shape is not None:
                sizes[key(param)] = shape  # type: ignore[assignment]
            for kind in _flat(param.ty):
                extents = _extents(kind)
                variables += [d for extent in extents for d in _variables(extent)]
                if isinstance(shape, Sequence) and len(shape) == len(extents):
                    sizes.update((key(d), n) for d, n in zip(extents, shape, strict=True) if _is_variable(d))
        for variable in variables:
            if key(variable) not in sizes:
                sizes[key(variable)] = size_name(variable, sizes)
        self.sizes = {variable: tied.get(size, size) for variable, size in sizes.items()}

    def argument(self, param: Any) -> Any:
        """The value of a parameter: symbols of new parameters of main for its tensors."""
        name, shape = variable_name(param), self.shapes.get(variable_name(param))
        return self._value(name, param.ty, shape, param)

    def _value(self, name: str, kind: Any, shape: Any, param: Any) -> Any:
        match type(kind).__name__:
            case "TensorType":
                return self._tensor(name, kind, shape)
            case "TupleType":
                return tuple(self._value(f"{name}.{i}", k, None, param) for i, k in enumerate(kind.fields))
            case "ShapeType":
                return self._shape(name, kind, shape)
            case "PrimType":
                return self._number(name, shape, param)
            case other:
                raise UnsupportedError("relax", f"the parameter '{name}' of @{self.program.entry} is of type {other}",
                                       "tensors, tuples, shapes and numbers")  # fmt: skip

    def _tensor(self, name: str, kind: Any, extents: Any) -> Symbol:
        dtype = dtype_of(kind)
        where = f"the parameter '{name}' of @{self.program.entry}"
        if dtype not in ALL:
            raise UnsupportedError(
                "relax", f"{where} has {f'dtype {dtype}' if dtype else 'no dtype'}", "a dtype of meta"
            )
        shape: tuple[Dim, ...]
        if extents is not None:
            if kind.ndim not in (-1, len(extents)):
                raise ArgumentError("relax", f"shape {tuple(extents)} for '{name}'", f"a shape for {kind}")
            shape = tuple(extents)
        elif _has_sizes(kind):
            shape = tuple(dim_of(d, self.sizes) for d in kind.shape.values)
        elif 0 <= kind.ndim <= MAX_DIMENSIONS:
            shape = tuple(sym(f"{identifier(name)}_{i}") for i in range(kind.ndim))
        else:
            raise UnsupportedError("relax", f"{where} has no known rank", remedy=f"pass it: shapes={{{name!r}: (...)}}")
        return self._variable(name, tensor_type(shape, dtype, meta.device("cpu")))

    def _variable(self, name: str, kind: TensorType) -> Symbol:
        unique = identifier(name)
        while self._name_counts[unique]:
            unique = f"{unique}_{self._name_counts[identifier(name)]}"
        self._name_counts[unique] += 1
        self._name_counts[identifier(name)] += unique != identifier(name)
        self.variables.append(Var(unique, kind))
        self.names.append(name)
        return Symbol(self.variables[-1])

    def _shape(self, name: str, kind: Any, shape: Any) -> Shape:
        if shape is not None:
            return Shape(shape)
        if kind.values is None:
            raise self._free(name, name)
        return Shape(self._size_of_tensor(name, dim_of(d, self.sizes)) for d in kind.values)

    def _number(self, name: str, number: object, param: object) -> Any:
        if number is not None:
            return number
        if key(param) not in self.sizes:
            raise self._free(name, name)
        return self._size_of_tensor(name, self.sizes[key(param)])

    def _size_of_tensor(self, name: str, size: Dim) -> Dim:
        """A size that is an argument: a tensor has it, so that it need not be passed."""
        tensors = [p for p in self.program.function.params if type(p.ty).__name__ != "ShapeType"]
        dims = [d for p in tensors for kind in _flat(p.ty) if _has_sizes(kind) for d in kind.shape.values]
        size_names = {n for d in dims if _is_variable(d) for n in names(self.sizes[key(d)])}
        if isinstance(size, SymDim) and not names(size) <= size_names:
            raise self._free(name, size)
        return size

    def _free(self, name: str, size: Any) -> UnsupportedError:
        """The error about a parameter whose value no tensor tells."""
        problem = f"the parameter '{name}' of @{self.program.entry} is the size {size}, which no tensor has"
        return UnsupportedError("relax", problem, remedy=f"pass its value: shapes={{{name!r}: ...}}")


def _flat(kind: Any) -> list[Any]:
    return [k for field in kind.fields for k in _flat(field)] if type(kind).__name__ == "TupleType" else [kind]


def _has_sizes(kind: Any) -> bool:
    return type(kind).__name__ == "TensorType" and kind.shape is not None and hasattr(kind.shape, "values")


def _extents(kind: Any) -> list[Any]:
    """The sizes in the type of a tensor or shape."""
    if _has_sizes(kind):
        return list(kind.shape.values)
    return list(kind.values or ()) if type(kind).__name__ == "ShapeType" else []


def _is_variable(expression: object) -> bool:
    return type(expression).__name__ == "Var"


def _variables(expression: object) -> list[Any]:
    """The variables of an integer expression."""
    if _is_variable(expression):
        return [expression]
    parts = [getattr(expression, name) for name in ("a", "b", "value") if hasattr(expression, name)]
    return [v for part in parts if not isinstance(part, int) for v in _variables(part)]
