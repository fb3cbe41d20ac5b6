"""The code that registers an operator in a file, with the imports and definitions of that file that it uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_REGISTERS = ("compute", "declare")


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration of an operator in a file. node: a function definition or an expression.
    call: the call that registers it.  by: the name of the function that is called."""

    node: ast.FunctionDef | ast.expr
    call: ast.Call
    by: str


def registered(source: str, name: str) -> Registered | None:
    """The function or expression that a module registers for operator `name`: below a decorator, in a table, or as the
    second argument of a call; None if there is none."""
    return next((each for key, each in _registrations(source) if key == name), None)


def _registrations(source: str) -> Iterator[tuple[object, Registered]]:
    """Everything that a module registers, with the operator's name."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            calls = [d for d in node.decorator_list if isinstance(d, ast.Call)]
            yield from ((_first_value(call), Registered(node, call, _callee(call))) for call in calls)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            tables = [arg for arg in call.args if isinstance(arg, ast.Dict)]
            items = [item for table in tables for item in zip(table.keys, table.values, strict=True)]
            yield _first_value(call), Registered(call.args[-1] if call.args else call, call, _callee(call))
            yield from ((_constant(key), Registered(value, call, _callee(call))) for key, value in items)


def _first_value(call: ast.Call) -> object:
    """The first argument of a call, None if it is not a constant."""
    return _constant(call.args[0]) if call.args else None


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _callee(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def support(source: str, roots: Sequence[ast.AST]) -> tuple[list[str], list[str]]:
    """The imports and the definitions of a module that `roots` use, directly or through other definitions."""
    body = ast.parse(source).body
    used: set[str] = set()
    pending = [name for root in roots for name in _loaded(_plain(root))]
    defined = {name: node for node in body for name in _bound(node)}
    own = {root.name for root in roots if isinstance(root, ast.FunctionDef)}
    while pending:
        name = pending.pop()
        if name in used or name in own or name not in defined:
            continue
        used.add(name)
        if not isinstance(defined[name], (ast.Import, ast.ImportFrom)):
            pending += _loaded(_plain(defined[name]))
    imports: list[str] = []
    definitions: list[str] = []
    for node in body:
        names = [name for name in _bound(node) if name in used]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports += [_import(node, name) for name in names]
        elif names:
            definitions.append(ast.unparse(_plain(node)))
    return imports, definitions


def function_text(node: ast.FunctionDef, name: str) -> str:
    """A function's source under another name, without the decorators that register it."""
    plain = _plain(node)
    assert isinstance(plain, ast.FunctionDef)
    plain.name = name
    return ast.unparse(plain)


def _plain(node: ast.AST) -> ast.AST:
    """Code; a function without the decorators that register it."""
    if isinstance(node, ast.FunctionDef):
        node.decorator_list = [
            d for d in node.decorator_list if not (isinstance(d, ast.Call) and _callee(d) in _REGISTERS)
        ]
    return node


def _loaded(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement of a module binds."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _import(node: ast.Import | ast.ImportFrom, name: str) -> str:
    """The import of one name."""
    alias = next(a for a in node.names if name == (a.asname or a.name))
    return ast.unparse(
        ast.ImportFrom(node.module, [alias], node.level) if isinstance(node, ast.ImportFrom) else ast.Import([alias])
    )
