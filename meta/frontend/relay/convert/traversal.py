"""Walks over the expressions of a Relay program, without Python's stack: programs are deeper than it."""

from __future__ import annotations

from collections.abc import Iterator

from meta.frontend.relay import ast


def nodes(root: ast.Expr) -> Iterator[ast.Expr]:
    """Every expression inside `root`, and `root`, each once."""
    seen: set[ast.Expr] = set()
    stack: list[ast.Expr] = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack.extend(reversed(children(node)))


def mentions(root: ast.RelayFunction, var: ast.Var) -> bool:
    """Whether a function reads `var`."""
    return any(node is var for node in nodes(root))


def children(node: ast.Expr) -> tuple[ast.Expr, ...]:
    """The expressions directly inside a node, including branches and bodies."""
    match node:
        case ast.Let():
            return (node.value, node.body)
        case ast.If():
            return (node.condition, node.then, node.otherwise)
        case ast.RelayFunction():
            return (node.body,)
        case ast.Match():
            return (node.value, *(body for _, body in node.clauses))
        case ast.Call():
            return (node.callee, *node.args)
        case _:
            return operands(node)


def operands(node: ast.Expr) -> tuple[ast.Expr, ...]:
    """The expressions that are evaluated before a node is."""
    match node:
        case ast.Call():
            return node.args if isinstance(node.callee, ast.OpRef) else (node.callee, *node.args)
        case ast.Tuple():
            return node.fields
        case ast.TupleGetItem():
            return (node.value,)
        case ast.If():
            return (node.condition,)
        case ast.Match():
            return (node.value,)
        case ast.RefCreate():
            return (node.value,)
        case ast.RefRead():
            return (node.ref,)
        case ast.RefWrite():
            return (node.ref, node.value)
        case _:
            return ()
