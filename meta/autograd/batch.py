"""`vmap`: a level whose tensors have one more axis in front, which the function does not see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import meta
from meta.autograd.batch_composed import composed
from meta.autograd.batching import planned
from meta.autograd.levels import Level, Lifted, call, check_in_place
from meta.dim import Dim
from meta.eager.seeds import apart
from meta.errors import ArgumentError, NotSupportedError
from meta.functional._axes import stacked, unstacked
from meta.ir.type import TupleType, Type, Value, tensor_type
from meta.op.grad.rule import as_tuple
from meta.op.registry import Op, as_type
from meta.schema._dsl import TensorLike
from meta.schema.annotations import checked
from meta.tree import Tree, flatten, leaves_of, with_leaves

Randomness = Literal["error", "same", "different"]


class Batched(Lifted):
    """A tensor of a level of `vmap`. value: the tensors of all calls, stacked along axis 0, or a tensor that they
    share."""

    __slots__ = ("is_shared",)

    def __init__(self, level: Level, value: Any, is_shared: bool = False) -> None:
        super().__init__(level, value)
        self.is_shared = is_shared
        if not is_shared:
            self.type = tensor_type(self.type.shape[1:], self.type.dtype, self.type.device)

    @property
    def is_constant(self) -> bool:
        return self.is_shared

    def item(self) -> bool | int | float:
        """The value of a tensor that all calls share."""
        return self._shared().item()

    def tolist(self) -> Any:
        """The values of a tensor that all calls share."""
        return self._shared().tolist()

    def __index__(self) -> int:
        return self._shared().__index__()

    def _shared(self) -> Any:
        if self.is_shared:
            return self.value
        raise NotSupportedError(
            "vmap",
            f"the value of {self!r} is needed, which differs from call to call",
            "operators",
            "use meta.where for a choice, or a loop over the elements",
        )


class BatchLevel(Level):
    """Computes all calls of a function at once."""

    name = "vmap"

    def __init__(self, size: Dim, randomness: Randomness) -> None:
        super().__init__()
        self.size = size
        self.randomness = randomness

    def constant(self, x: Any) -> Lifted:
        return Batched(self, x, is_shared=True)

    def stacked(self, x: Any) -> Any:
        """The tensors of all calls, stacked; `x` may be one that all calls share."""
        return x.value if self.owns(x) else self.run_around(_spread, self.values(x), self.size)

    def lowered(self, x: Any, axis: int = 0) -> list[Any]:
        value = self.stacked(x)
        return [meta.moveaxis(value, 0, axis) if axis else value]

    def raised(self, parts: list[Any], axis: int = 0) -> Any:
        value = parts[0]
        return Batched(self, self.run_around(meta.moveaxis, value, axis, 0) if axis else value)

    def pass_on(self, op: Op, args: tuple[Any, ...]) -> Any:
        if is_random(op):
            return self._random(op, args)
        return super().pass_on(op, args)

    def interpret(self, op: Op, args: tuple[Any, ...]) -> Any:
        check_in_place(self, op, args)
        if op.inplace:
            raise NotSupportedError(op.name, "it overwrites an argument that all calls share", "operators that do not",
                                    "call it outside of vmap")  # fmt: skip
        if is_random(op):
            return self._random(op, args)
        flags = tuple([self.owns(x) for x in leaves_of(args)])
        out, plan = planned(op, tuple(map(as_type, args)), flags, self.size)
        if isinstance(out, Value):
            return out.value
        if plan is not None:
            return self._lifted(plan.run(self.values(args), flags))
        with self.entered():
            result = composed(op, args, out)
        return self._one_by_one(op, args, out) if result is None else result

    def _lifted(self, result: Any) -> Any:
        return with_leaves(result, [Batched(self, y) for y in leaves_of(result)])

    def _one_by_one(self, op: Op, args: tuple[Any, ...], out: Type) -> Any:
        """The calls one after the other, their results stacked."""
        size = self.size
        if not isinstance(size, int):
            raise NotSupportedError(op.name, f"vmap calls it {size} times", "a static size of the batch",
                                    "trace with a static size here")  # fmt: skip
        types: tuple[Any, ...] = out.fields if isinstance(out, TupleType) else (out,)
        if any(not t.is_static for t in types) and op.resolve is not None:
            problem = "the shape of its result depends on values, which differ from call to call"
            raise NotSupportedError(op.name, problem, "shapes that are the same in all calls", "pass the size")
        if size == 0:
            rows: list[Any] = [meta.zeros((0, *t.shape), dtype=t.dtype, device=t.device) for t in types]
        else:
            rows = self._stacked_results(lambda *values: call(op, values), args, size)
        return self._lifted(tuple(rows) if isinstance(out, TupleType) else rows[0])

    def _stacked_results(self, function: Callable[..., Any], args: tuple[Any, ...], size: int) -> list[Any]:
        """The results of a function for each element of the batch, stacked."""
        slices = {id(leaf): unstacked(leaf.value) for leaf in leaves_of(args) if self.owns(leaf)}

        def one(i: int) -> tuple[Any, ...]:
            leaves = [slices[id(x)][i] if self.owns(x) else x for x in leaves_of(args)]
            return as_tuple(function(*with_leaves(args, leaves)))

        return [stacked(column) for column in zip(*map(one, range(size)), strict=True)]

    def interpret_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        if not isinstance(self.size, int) or not self.size:
            raise NotSupportedError(function.__name__, f"vmap calls it {self.size} times", "a static size of 1 or more")
        several: list[bool] = []

        def one(*values: Any) -> Any:
            result = function.apply(*values)
            several.append(isinstance(result, (list, tuple)))
            return result

        rows = self._stacked_results(one, args, self.size)
        return self._lifted(tuple(rows) if several[0] else rows[0])

    def _random(self, op: Op, args: tuple[Any, ...]) -> Any:
        """A call that draws random numbers from a key."""
        if self.randomness == "error":
            raise NotSupportedError(
                op.name,
                "it draws random numbers inside of vmap",
                "randomness='same' or 'different'",
                "pass one of them to vmap, or draw the numbers outside",
            )
        batched = any(map(self.owns, leaves_of(args)))
        if self.randomness == "same":
            if not batched:
                return call(op, args)
            return self._one_by_one(op, args, op.infer([as_type(arg) for arg in args]))
        names = op.schema.index
        if self.owns(args[names["key"]]):
            return self._one_by_one(op, args, op.infer([as_type(arg) for arg in args]))
        values = list(self.values(args))
        if "shape" in names:
            values[names["shape"]] = (self.size, *values[names["shape"]])
        else:
            for i in op.schema.tensor_positions:
                if i != names["key"] and not self.owns(args[i]):
                    values[i] = _spread(values[i], self.size)
        return self._lifted(call(op, values))


def _spread(x: Any, size: Dim) -> Any:
    """x repeated along a new axis 0."""
    return meta.broadcast_to(meta.expand_dims(x, 0), (size, *x.shape))


def is_random(op: Op) -> bool:
    """Whether an operator draws random numbers from a key."""
    return "key" in op.schema.names


# --- the public function ---------------------------------------------------------------------------------------------


@checked
def vmap(
    f: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, *, randomness: Randomness = "error"
) -> Callable[..., Any]:
    """The function that calls `f` for each element along an axis of its arguments, and stacks the results.

    f: takes and returns tensors, or nests of tuples, lists and dicts of them; it sees the tensors without that axis.
    in_dims: the axis of each argument, None for one that all calls share: a number for all arguments, or a tuple with a
        number, None or a nest for each. Keyword arguments have axis 0.
    out_dims: the axis of the stacked results: a number for all, or a nest in the structure of the result.
    randomness: operators that draw random numbers raise an error ("error"), draw the same in each call ("same"), or
        other numbers in each ("different").
    Operators run once where they take a further axis: elementwise ones, reductions, matrix products, convolutions and
    pooling, and most that move or normalise elements. Others run once for each element, and their results are stacked.
    Works on arrays and in traced functions, nested, and inside of or around `jvp` and `vjp`. Raises ArgumentError for
    axes that do not exist or differ in length, NotSupportedError where the value of a tensor, or a shape that depends
    on values, is needed, and for random numbers."""

    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((*args, kwargs), TensorLike)
        axes = _in_axes(in_dims, args, kwargs)
        size = _size(leaves, axes)
        level = BatchLevel(size, randomness)
        inputs = [
            level.constant(x) if axis is None else Batched(level, meta.moveaxis(x, axis, 0) if axis % x.ndim else x)
            for (_, x), axis in zip(leaves, axes, strict=True)
        ]
        *values, keywords = tree.build(iter(inputs))
        with level.entered():
            results, structure = _flattened_results(f(*values, **keywords))
            stacks = [level.stacked(y) for y in results]
        stacks = apart(stacks, [x for _, x in leaves])
        out = _per_leaf("out_dims", out_dims, structure)
        return structure.build(
            iter([y if not axis else meta.moveaxis(y, 0, axis) for y, axis in zip(stacks, out, strict=True)])
        )

    return mapped


def _in_axes(in_dims: Any, args: Sequence[Any], kwargs: Any) -> list[int | None]:
    """The axis of each tensor among the arguments, checked."""
    listed: list[Any] = [in_dims] * len(args)
    if isinstance(in_dims, (tuple, list)):
        listed = list(cast("Sequence[Any]", in_dims))
    if len(listed) != len(args):
        problem = f"in_dims has {len(listed)} items for {len(args)} arguments"
        raise ArgumentError("vmap", problem, "one for each argument", "None is for arguments that all calls share")
    out: list[int | None] = []
    for i, (axes, arg) in enumerate(zip((*listed, 0), (*args, kwargs), strict=True)):
        leaves, structure = flatten(arg, TensorLike)
        for (name, x), axis in zip(leaves, _per_leaf(f"in_dims[{i}]", axes, structure), strict=True):
            if axis is not None and not -x.ndim <= axis < x.ndim:
                place = f"argument {i}{'.' if name else ''}{name}"
                allowed = f"{-x.ndim} to {x.ndim - 1}" if x.ndim else "None, as it is 0-d"
                raise ArgumentError("vmap", f"axis {axis} of {place}, which has shape {x.shape}", allowed)
            out.append(axis)
    return out


def _per_leaf(what: str, axes: Any, structure: Tree) -> list[Any]:
    """An axis for each leaf of a structure: `axes` for all, or a nest of them in its form."""
    if axes is None or isinstance(axes, int):
        return [axes] * structure.count()
    parts: list[Any] | None = None
    if isinstance(axes, (tuple, list, dict)):
        parts = list(cast("Sequence[Any]", axes.values() if isinstance(axes, dict) else axes))
    if parts is None or structure.kind in ("leaf", "static") or len(parts) != len(structure.children):
        raise ArgumentError("vmap", f"{what} is {axes!r}", "a number, None, or a nest of them in the form of the value")
    pairs = zip(parts, structure.children, strict=True)
    return [axis for part, child in pairs for axis in _per_leaf(what, part, child)]


def _size(leaves: Sequence[tuple[str, Any]], axes: Sequence[int | None]) -> Dim:
    """The number of calls."""
    sizes = [x.shape[axis] for (_, x), axis in zip(leaves, axes, strict=True) if axis is not None]
    if not sizes:
        raise ArgumentError("vmap", "no argument has an axis to map", "at least one tensor", "set in_dims")
    for size in sizes:
        if size != sizes[0]:
            raise ArgumentError("vmap", f"the axes have lengths {sizes[0]} and {size}", "one length")
    return sizes[0]


def _flattened_results(result: Any) -> tuple[list[Any], Tree]:
    leaves, structure = flatten(result, TensorLike)
    for value in structure.statics():
        raise ArgumentError(
            "vmap", f"the function returns a {type(value).__name__}", "tensors, and tuples, lists and dicts of them"
        )
    return [x for _, x in leaves], structure
