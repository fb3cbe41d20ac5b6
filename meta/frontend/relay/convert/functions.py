"""Functions of Relay programs and calls of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meta.dim import Dim
from meta.frontend.relay import ast
from meta.frontend.relay.convert.branches import Branches
from meta.frontend.relay.convert.emission import Emission
from meta.frontend.relay.convert.traversal import nodes
from meta.frontend.relay.convert.type_mapping import convert_type, match_types, value_type
from meta.frontend.relay.convert.values import (
    Data,
    Frame,
    ReferenceCell,
    RelayClosure,
    Value,
    ValueChoice,
    check_tensors,
    describe,
    identifier,
    is_tensors,
)
from meta.frontend.relay.errors import RelayError, UnsupportedError, located
from meta.ir.expr import Binding, Block, FunctionExpr, GlobalVar, Tuple, Var
from meta.ir.type import FunctionType, Type
from meta.tree import leaves_of

Evaluate = Callable[[ast.Expr, Frame], Value]


class Functions:
    """Calls functions: inlined, or emitted as functions of the program where they call themselves on tensors.

    evaluate: evaluates the body of a function in a frame.
    """

    def __init__(self, program: ast.RelayProgram, emission: Emission, branches: Branches, evaluate: Evaluate) -> None:
        self.program = program
        self.emission = emission
        self.branches = branches
        self.evaluate = evaluate
        self._closures: dict[str, RelayClosure] = {}
        self._recursive: frozenset[str] | None = None
        self._emitted: dict[tuple[str, tuple[Type, ...]], GlobalVar] = {}

    def named(self, node: ast.GlobalVar) -> RelayClosure:
        """The function of the module that a node names."""
        if node.name not in self._closures:
            function = self.program.functions.get(node.name)
            if function is None:
                raise RelayError("relay", located(node.place, f"there is no function @{node.name}"))
            self._closures[node.name] = RelayClosure(function, None, node.name, node.name in self.recursive)
        return self._closures[node.name]

    @property
    def recursive(self) -> frozenset[str]:
        """The functions of the module that call themselves, directly or through others."""
        if self._recursive is None:
            self._recursive = _recursive_functions(self.program)
        return self._recursive

    def call(self, closure: RelayClosure, args: tuple[Value, ...], place: ast.Place) -> Value:
        """The result of a function for these arguments."""
        function = closure.function
        if len(args) != len(function.params):
            problem = f"{describe(closure)} has {len(args)} arguments"
            raise RelayError("relay", located(place, problem), str(len(function.params)))
        if closure.recursive and all(map(is_tensors, args)):
            return self._call_emitted(closure, args, place)
        if closure.recursive and any(isinstance(a, RelayClosure) for a in args) and not any(map(_has_data, args)):
            return self._call_emitted(closure, args, place)
        frame = Frame(closure.frame)
        frame.values.update(zip(function.params, args, strict=True))
        return self.evaluate(function.body, frame)

    def _call_emitted(self, closure: RelayClosure, args: tuple[Value, ...], place: ast.Place) -> Value:
        """Call a recursive function: the program has one function for each combination of argument types and of
        functions among the arguments."""
        if self.branches.speculating:
            problem = f"{describe(closure)} calls itself, in a branch that returns no tensors"
            raise UnsupportedError("relay", located(place, problem), "branches that return tensors")
        tensors = tuple(a for a in args if is_tensors(a))
        types = tuple(map(value_type, tensors))
        result = _result_type(closure, args, place)
        is_global = closure.frame is None and len(tensors) == len(args)
        callee = self._global(closure, types, result) if is_global else self._local(closure, args, types, result)
        atoms = [self.emission.packed(a) for a in tensors]
        return self.emission.unpacked(self.emission.builder.call_function(callee, atoms))

    def _global(self, closure: RelayClosure, types: tuple[Type, ...], result: Type) -> GlobalVar:
        """The module's function for calls of `closure` with arguments of these types."""
        key = (closure.name, types)
        if key not in self._emitted:
            functions = self.emission.functions
            name, count = closure.name, 0
            while name in functions or name == "main":
                count += 1
                name = f"{closure.name}_{count}"
            self._emitted[key] = GlobalVar(name, FunctionType(types, result))
            functions[name] = FunctionExpr((), Block((), Tuple(())))  # reserves the name until the body is complete
            with self.emission.module_function():
                functions[name] = self._body(closure, dict(enumerate(types)), (), name)
        return self._emitted[key]

    def _local(self, closure: RelayClosure, args: tuple[Value, ...], types: tuple[Type, ...], result: Type) -> Var:
        """The local function emitted for `closure`; variables captured by it or by functions among its arguments are
        free in it."""
        fixed = tuple((i, a) for i, a in enumerate(args) if not is_tensors(a))
        ids = tuple((i, id(a.function), id(a.frame)) if isinstance(a, RelayClosure) else (i, a) for i, a in fixed)
        key = (id(closure.function), id(closure.frame), types, ids)
        emitted = self.emission.closure(key)
        if emitted is not None:
            return emitted
        var = Var(closure.name or "function", FunctionType(types, result))
        self.emission.add_closure(key, var)
        positions = [i for i, a in enumerate(args) if is_tensors(a)]
        body = self._body(closure, dict(zip(positions, types, strict=True)), fixed, closure.name)
        return self.emission.builder.bind(Binding(var, body))

    def _body(
        self, closure: RelayClosure, types: Mapping[int, Type], fixed: tuple[tuple[int, Value], ...], name: str
    ) -> FunctionExpr:
        """The function for parameters of these types and for these values of the others, by position."""
        function = closure.function
        params = [Var(identifier(function.params[i].name), kind) for i, kind in types.items()]
        frame = Frame(closure.frame)
        frame.values.update((function.params[i], value) for i, value in fixed)
        with self.emission.scope(), self.emission.builder.function(name, params) as scope:
            for position, var in zip(types, params, strict=True):
                frame.values[function.params[position]] = self.emission.unpacked(var)
            value = self.branches.forced(self.evaluate(function.body, frame), function.place)
            check_tensors(value, function.place, f"the result of {describe(closure)}")
            scope.ret(self.emission.packed(value))
        return scope.function


def _result_type(closure: RelayClosure, args: tuple[Value, ...], place: ast.Place) -> Type:
    """The declared result type of a recursive function, for arguments of these types."""
    bound: dict[str, Dim | Type] = {}
    for param, arg in zip(closure.function.params, args, strict=True):
        if is_tensors(arg):
            match_types(param.type, value_type(arg), bound)
    return convert_type(closure.function.result, place, f"result of {describe(closure)}", bound)


def _has_data(value: Value) -> bool:
    return any(isinstance(leaf, (Data, ValueChoice, ReferenceCell, ast.ConstructorRef)) for leaf in leaves_of(value))


def _recursive_functions(program: ast.RelayProgram) -> frozenset[str]:
    calls = {
        name: {n.name for n in nodes(function) if isinstance(n, ast.GlobalVar) and n.name in program.functions}
        for name, function in program.functions.items()
    }
    return frozenset(name for name in calls if name in _reachable(calls, name))


def _reachable(calls: Mapping[str, set[str]], start: str) -> set[str]:
    """The functions that `start` calls, directly or through others."""
    reached: set[str] = set()
    stack = list(calls[start])
    while stack:
        name = stack.pop()
        if name not in reached:
            reached.add(name)
            stack.extend(calls[name])
    return reached
