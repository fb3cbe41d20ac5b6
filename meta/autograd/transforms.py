"""Derivatives of functions: `jvp`, `vjp`, `jacobian`, `hessian`, `hvp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta.autograd.batch import vmap
from meta.autograd.forward import Dual, ForwardLevel
from meta.autograd.levels import is_tensor
from meta.autograd.reverse import GradientSource, ReverseLevel, Slot, Tracked, pull_back
from meta.eager.seeds import apart, ones_of, zeros_of
from meta.errors import ArgumentError, GradientError, TypeInferenceError
from meta.modes import GradMode, modes
from meta.schema._dsl import TensorLike
from meta.schema.annotations import checked
from meta.tracing.symbol import Symbol
from meta.tree import Tree, flatten, is_tuple

Pullback = Callable[..., tuple[Any, ...]]
Leaves = list[tuple[str, Any]]


@checked
def jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """`f(*primals)`, and its derivative along `tangents`: the product of the Jacobian with them, in forward mode.

    f: takes and returns tensors, or nests of tuples, lists and dicts of them.
    primals, tangents: tuples of the same structure; a single tensor is taken for a tuple of one. The tangent of a
        tensor has its shape, dtype and device; None is a tangent of zeros. Integer tensors have the tangent None.
    The second result has the structure of the first, with zeros where no derivative flows (integer results too).
    Works on arrays and in traced functions, and inside of other transformations. The cost is about twice the cost of
    `f`, whatever the number of results.
    Raises ArgumentError for tangents of another structure, TypeInferenceError for one of another type, GradientError
    where an operator has no derivative."""
    primals, tangents = _arguments(primals), _arguments(tangents)
    leaves, tree = flatten(primals, TensorLike)
    tangent_leaves, other = flatten(tangents, (TensorLike, type(None)))
    if len(tangent_leaves) != len(leaves) or not _same_places(tree, other):
        problem = f"{len(tangent_leaves)} tangents for {len(leaves)} tensors, or nested otherwise"
        raise ArgumentError("jvp", problem, "a tangent for each tensor of the primals", "pass None for zeros")
    level = ForwardLevel()
    inputs: list[Any] = []
    for (name, x), (_, tangent) in zip(leaves, tangent_leaves, strict=True):
        _check_type("jvp", f"the tangent of argument {name}", x, tangent)
        inputs.append(Dual(level, x, tangent))
    with level.entered():
        results, structure = _results("jvp", f(*tree.build(iter(inputs))))
        values = [level.value_of_result(y) for y in results]
        tangents_out = [level.tangent(y) for y in results]
    around = [x for _, x in (*leaves, *tangent_leaves)]
    outgoing = [zeros_of(y) if t is None else t for y, t in zip(values, tangents_out, strict=True)]
    return structure.build(iter(apart(values, around))), structure.build(iter(apart(outgoing, around)))


@checked
def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Pullback]:
    """`f(*primals)`, and the function that multiplies its Jacobian by gradients of the results, in reverse mode.

    f: as for `jvp`.  primals: tensors, or nests of them.
    The second result takes gradients in the structure of the first result (None for zeros), each of the type of its
    tensor, and returns a tuple with a gradient for each of `primals`, in their structure: zeros for a tensor that the
    results do not depend on, None for integers. It may be called several times and differentiated.
    Works on arrays and in traced functions, and inside of other transformations.
    Raises GradientError where an operator has no gradient; the second result raises ArgumentError and
    TypeInferenceError for gradients that do not fit."""
    leaves, tree = flatten(tuple(primals), TensorLike)
    if modes.trace is not None and modes.transform is None:
        return _traced_vjp(f, leaves, tree)
    level = ReverseLevel()
    floating = [i for i, (_, x) in enumerate(leaves) if dtypes.is_inexact(x.dtype)]
    sources = {i: Slot(GradientSource()) for i in floating}
    inputs = [Tracked(level, x, sources.get(i)) for i, (_, x) in enumerate(leaves)]
    with level.entered():
        modes.grad_enabled = True
        results, structure = _results("vjp", f(*tree.build(iter(inputs))))
        values = [level.value_of_result(y) for y in results]
        slots = [y.slot if level.owns(y) else None for y in results]
    values = apart(values, [x for _, x in leaves])
    types = [y.type for y in values]

    def pullback(dys: Any) -> tuple[Any, ...]:
        gradients = _gradients_of(dys, types, structure)
        pairs = [(s, dy) for s, dy in zip(slots, gradients, strict=True) if s is not None and dy is not None]
        arrived = apart(pull_back(pairs, list(sources.values())), gradients)
        return _in_structure(tree, leaves, dict(zip(sources, arrived, strict=True)))

    return structure.build(iter(values)), pullback


def _traced_vjp(f: Callable[..., Any], leaves: Leaves, tree: Tree) -> tuple[Any, Pullback]:
    """vjp in a traced function outside of other transformations: by the gradients of the trace, which go through
    conditionals and loops."""
    trace, recorded = modes.trace, modes.grad_enabled
    with GradMode(True):
        inputs = [Symbol(meta.reshape(x, x.shape).atom) for _, x in leaves]  # which the function may write
        sources = {i: Symbol(x.atom) for i, x in enumerate(inputs) if dtypes.is_inexact(x.dtype)}
        results, structure = _results("vjp", f(*tree.build(iter(inputs))))
        ends = [Symbol(trace.attached(y)) for y in results]  # which later writes do not reach
    types = [y.type for y in results]

    def pullback(dys: Any) -> tuple[Any, ...]:
        gradients = _gradients_of(dys, types, structure)
        pairs = [
            (y, dy) for y, dy in zip(ends, gradients, strict=True) if dy is not None and dtypes.is_inexact(y.dtype)
        ]
        arrived: Sequence[Any] = (None,) * len(sources)
        if pairs:
            ys, seeds = zip(*pairs, strict=True)
            options: dict[str, bool] = {"retain_graph": True, "create_graph": modes.grad_enabled, "allow_unused": True}
            arrived = modes.trace.grad(ys, list(sources.values()), seeds, **options)
        return _in_structure(tree, leaves, dict(zip(sources, arrived, strict=True)))

    outside = [(meta.reshape(y, y.shape) if recorded else y.stop_gradient()).snapshot() for y in ends]
    return structure.build(iter(outside)), pullback


@checked
def jacobian(f: Callable[..., Any], primals: Any, *, mode: Literal["reverse", "forward"] = "reverse") -> Any:
    """The Jacobian of `f` at `primals`: for each result and each argument a tensor whose shape is the result's followed
    by the argument's.

    f: as for `jvp`.  primals: a tensor, or a tuple of arguments, nests included; floating tensors.
    The result has the structure of f's result, with the structure of `primals` in place of each tensor.
    mode: "reverse" computes it by rows, one gradient for each element of the results; "forward" by columns, one
        derivative for each element of the arguments. Choose the smaller number. The rows (columns) are computed at
        once, by `vmap`, and take so many times the memory of one.
    Raises ArgumentError for another mode and for an argument that is not floating."""
    leaves, tree = flatten(primals, TensorLike)
    if not leaves:
        raise ArgumentError("jacobian", f"primals are {type(primals).__name__} without tensors", "floating tensors")
    for name, x in leaves:
        if not dtypes.is_float(x.dtype):
            problem = f"argument {name or 0} has dtype {x.dtype}"
            raise ArgumentError("jacobian", problem, "floating dtypes", "pass it by a closure: lambda x: f(x, indices)")

    def flat(*values: Any) -> Any:
        return f(*_arguments(tree.build(iter(values))))

    rows = _by_rows if mode == "reverse" else _by_columns
    parts, structure = rows(flat, [x for _, x in leaves])
    return structure.build(tree.build(iter(row)) for row in parts)


def _by_rows(f: Callable[..., Any], xs: Sequence[Any]) -> tuple[list[list[Any]], Tree]:
    """For each result of f its derivatives with respect to each of xs, by reverse mode."""
    out, pullback = vjp(f, *xs)
    results, structure = _results("jacobian", out)
    rows: list[list[Any]] = []
    for i, (y, basis) in enumerate(zip(results, map(_basis, results), strict=True)):
        if not dtypes.is_float(y.dtype):
            raise GradientError(
                "jacobian", f"result {i} has dtype {y.dtype}", "floating dtypes", "return it by a closure"
            )

        def row(dy: Any, i: int = i) -> tuple[Any, ...]:
            return pullback(structure.build(dy if j == i else None for j in range(len(results))))

        parts = vmap(row)(basis)
        rows.append([meta.reshape(g, (*y.shape, *x.shape)) for g, x in zip(parts, xs, strict=True)])
    return rows, structure


def _by_columns(f: Callable[..., Any], xs: Sequence[Any]) -> tuple[list[list[Any]], Tree]:
    """For each result of f its derivatives with respect to each of xs, by forward mode."""
    structures: list[Tree] = []
    columns: list[list[Any]] = []
    for i, x in enumerate(xs):

        def column(tangent: Any, i: int = i) -> list[Any]:
            tangent_leaves = tuple(tangent if j == i else None for j in range(len(xs)))
            results, structure = _results("jacobian", jvp(f, tuple(xs), tangent_leaves)[1])
            structures.append(structure)
            return results

        parts = vmap(column, out_dims=-1)(_basis(x))
        columns.append([meta.reshape(t, (*t.shape[:-1], *x.shape)) for t in parts])
    return [list(row) for row in zip(*columns, strict=True)], structures[0]


def _basis(x: Any) -> Any:
    """The tensors of the type of x with a single 1, stacked."""
    return meta.reshape(meta.eye(x.size, None, x.dtype, x.device), (x.size, *x.shape))


@checked
def hessian(f: Callable[..., Any], primals: Any) -> Any:
    """The second derivatives of `f`, which returns a scalar, at `primals`: for each pair of arguments a tensor whose
    shape is the first's followed by the second's. Forward mode over reverse mode.

    primals: a tensor, or a tuple of arguments. A tuple gives a tuple of tuples (nests likewise).
    Raises ArgumentError unless f returns one floating tensor of one element."""
    return jacobian(lambda *args: _gradient(f, args, primals), primals, mode="forward")


@checked
def hvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """`f(*primals)`, a scalar, and the product of its Hessian with `tangents`, of the structure of `primals`: forward
    mode over reverse mode, at about four times the cost of `f`. Arguments and errors are the same as for `jvp` and
    `hessian`.
    """
    (value, _), (_, products) = jvp(lambda *args: _value_and_gradient(f, args, primals), primals, tangents)
    return value, products


def _gradient(f: Callable[..., Any], args: tuple[Any, ...], primals: Any) -> Any:
    return _value_and_gradient(f, args, primals)[1]


def _value_and_gradient(f: Callable[..., Any], args: tuple[Any, ...], primals: Any) -> tuple[Any, Any]:
    """The scalar that f returns, and its gradient in the structure of `primals`."""
    out, pullback = vjp(f, *args)
    if not is_tensor(out) or out.size != 1 or not dtypes.is_float(out.dtype):
        text = repr(out.type) if is_tensor(out) else f"a {type(out).__name__}"
        raise ArgumentError("hessian", f"f returns {text}", "one floating tensor of one element", "sum it: y.sum()")
    gradients = pullback(ones_of(out))
    return out, gradients if isinstance(primals, tuple) else gradients[0]


# --- arguments and results -------------------------------------------------------------------------------------------


def _arguments(primals: Any) -> tuple[Any, ...]:
    """The arguments of a call: a tuple as it is, anything else as the only one."""
    return primals if is_tuple(primals) else (primals,)


def _same_places(a: Tree, b: Tree) -> bool:
    """Whether two nests have their leaves at the same places; plain values do not matter, and tuples equal lists."""
    kinds = ["sequence" if t.kind in ("tuple", "list", "namedtuple") else t.kind for t in (a, b)]
    same = kinds[0] == kinds[1] and (a.keys, len(a.children)) == (b.keys, len(b.children))
    return same and all(map(_same_places, a.children, b.children))


def _results(where: str, result: Any) -> tuple[list[Any], Tree]:
    """The tensors that a transformed function returned. Raises ArgumentError for other leaves than those."""
    leaves, structure = flatten(result, TensorLike)
    for value in structure.statics():
        raise ArgumentError(
            where, f"the function returns a {type(value).__name__}", "tensors, and tuples, lists and dicts of them"
        )
    return [x for _, x in leaves], structure


def _check_type(where: str, what: str, x: Any, tensor: Any) -> None:
    """Raise unless a tangent or gradient has the type of its tensor, or is None."""
    if tensor is None:
        return
    if not dtypes.is_inexact(x.dtype):
        raise ArgumentError(where, f"{what}, of dtype {x.dtype}, is not None", "None for integers and booleans")
    if tensor.type is not x.type:
        raise TypeInferenceError(
            where, f"{what} is {tensor.type!r}", f"the tensor's own type: {x.type!r}", "reshape, cast or move it"
        )


def _gradients_of(dys: Any, types: Sequence[Any], structure: Tree) -> list[Any]:
    """The gradients for the results of a function, None for zeros."""
    leaves, tree = flatten(dys, (TensorLike, type(None)))
    if len(leaves) != len(types) or not _same_places(structure, tree):
        problem = f"{len(leaves)} gradients for {len(types)} results, or nested otherwise"
        raise ArgumentError("vjp", problem, "the structure of the results", "pass None for zeros")
    for i, ((_, dy), kind) in enumerate(zip(leaves, types, strict=True)):
        if dy is not None and dy.type is not kind:
            raise TypeInferenceError(
                "vjp", f"the gradient of result {i} is {dy.type!r}", f"the result's own type: {kind!r}",
                "reshape, cast or move it",
            )  # fmt: skip
    return [dy for _, dy in leaves]


def _in_structure(tree: Tree, leaves: Leaves, arrived: dict[int, Any]) -> tuple[Any, ...]:
    """The gradients of floating arguments, zeros where none arrived, in the structure of the arguments."""
    gradients = (
        None if i not in arrived else zeros_of(x) if arrived[i] is None else arrived[i]
        for i, (_, x) in enumerate(leaves)
    )
    return tree.build(gradients)
