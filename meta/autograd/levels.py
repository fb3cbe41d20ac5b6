"""Levels: transformations of functions that interpret operator calls.

`jvp`, `vjp` and `vmap` run a function inside a level. Its arguments are `Lifted`: tensors of the enclosing level with
something more, such as a tangent. Operator calls of the thread go to the innermost level (`modes.emit`), which computes
with the tensors of the enclosing level: tensors of another level, symbols of a trace, or arrays. Levels therefore nest
in any order, on arrays as in traced functions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from sys import getrefcount
from typing import Any

import meta
from meta.autograd.writes import captured_operands, placed, write, written_without_grad
from meta.eager.assignment import setitem
from meta.eager.bases import TypedTensor
from meta.eager.call import invoke, state
from meta.eager.indexing import Index
from meta.eager.inplace import fitted
from meta.errors import ArgumentError, GradientError, NotSupportedError, TypeInferenceError
from meta.modes import modes, scopes
from meta.op.registry import Op
from meta.parts import TEMPORARY, check_whole, is_part
from meta.schema._dsl import TensorLike
from meta.tree import Tree, flatten, is_sequence, leaves_of, with_leaves


class Lifted(TypedTensor):
    """A tensor inside of a level, with the methods and operators of an array. value: the tensor of the enclosing level.

    A write in place replaces `value` and what the level keeps with it."""

    __slots__ = ("depth", "level", "value")

    def __init__(self, level: Level, value: Any) -> None:
        self.level = level
        self.value = value
        self.type = value.type
        self.origin = self.aliases = None
        self.depth = level.depth
        """The number of branches and loops of the level that it was computed in."""

    @property
    def scope(self) -> str:
        """The transformation that this tensor is inside of."""
        return self.level.name

    # --- gradients of the tape ---------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether the value belongs to a graph of the tape or trace around."""
        return self.value.requires_grad

    @requires_grad.setter
    def requires_grad(self, required: bool) -> None:
        del required
        raise self._no_tape("requires_grad")

    @property
    def grad(self) -> None:
        """None: gradients inside of a level are results of `meta.autograd.vjp`."""
        return

    def backward(self, *_: object, **__: object) -> None:
        """Not available: use `meta.autograd.vjp` inside of a transformed function."""
        raise self._no_tape("backward")

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Not available inside of a transformed function."""
        del hook
        raise self._no_tape("register_hook")

    def _no_tape(self, what: str) -> GradientError:
        problem = f"{what} is used on a tensor inside of {self.level.name}"
        return GradientError(what, problem, "arrays, outside of it", "use meta.autograd.vjp inside of the function")

    # --- values ------------------------------------------------------------------------------------------------------

    @property
    def is_constant(self) -> bool:
        """Whether the transformation knows no more of this tensor than its value."""
        raise NotImplementedError

    @property
    def concrete(self) -> Any:
        """The array that a constant is; otherwise this tensor."""
        return self.level.unwrapped(self)

    def become(self, other: Lifted) -> None:
        """Take over what another tensor of the level is."""
        self.value = other.value
        for name in type(self).__slots__:
            setattr(self, name, getattr(other, name))

    def update(self, value: Any) -> None:
        """Overwrite the values, in place, with a tensor of the same type."""
        check_whole("update", self)
        if value.type is not self.type:
            raise TypeInferenceError(
                "update", f"the value is {value.type!r}", f"the tensor's own type: {self.type!r}", "reshape or cast it"
            )
        write("update", self, meta.copy(value))

    def _in_place(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        """This tensor, after `function(self, other)` replaced its value: what `+=` and the like do."""
        if is_part(self):
            if getrefcount(self) > TEMPORARY:
                check_whole(function.__name__, self)
            return function(self, other)
        write(function.__name__, self, fitted(function.__name__, self, function(self, other)))
        return self

    def __setitem__(self, index: Index, value: Any) -> None:
        """Overwrite a part of the values in place."""
        check_whole("setitem", self)
        write("setitem", self, setitem(self, index, value))

    def item(self) -> bool | int | float:
        """The value of a tensor with one element, as a Python number, through which no derivative flows."""
        return self.value.item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers, through which no derivative flows."""
        return self.value.tolist()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        return self.value.__index__()

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def numpy(self, *, copy: bool = False) -> Any:
        """The values of a constant as a NumPy array."""
        return self._memory().numpy(copy=copy)

    def __array__(self, *args: Any, **options: Any) -> Any:
        return self._memory().__array__(*args, **options)

    def __dlpack__(self, **options: Any) -> Any:
        return self._memory().__dlpack__(**options)

    def _memory(self) -> Any:
        if self.is_constant:
            return self.value
        raise NotSupportedError(
            "numpy",
            f"the memory of a tensor inside of {self.level.name} is needed",
            "operators of meta",
            "compute it outside of the transformed function",
        )

    __hash__ = object.__hash__  # `==` is an operator, identity stays hashable

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.level.name}: {self.type!r}>"


class Level:
    """A transformation in progress. name: of the public function, for errors.

    `interpret` computes an operator call that reads one of its tensors, in the modes of the enclosing level."""

    name = "transform"

    def __init__(self) -> None:
        self._around: tuple[Any, ...] = (None, None, True)
        """`emit`, `transform` and `grad_enabled` of the enclosing level."""
        self.depth = 0
        """The number of branches and loops that are being traced inside of the level."""

    @contextmanager
    def entered(self) -> Generator[None, None, None]:
        """Inside the block, operator calls of this thread go to this level."""
        before = modes.emit, modes.transform, modes.grad_enabled
        around, self._around = self._around, before
        scopes.change(1)
        modes.emit, modes.transform = self.emit, self
        try:
            yield
        finally:
            self._around = around
            modes.emit, modes.transform, modes.grad_enabled = before
            scopes.change(-1)

    def run_around(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)` in the modes of the enclosing level, while this level is entered."""
        before = modes.emit, modes.transform, modes.autocast, modes.grad_enabled
        emit, transform, recorded = self._around
        # Autocast was applied to the operands before they reached this level.
        modes.emit, modes.transform, modes.autocast = emit, transform, None
        modes.grad_enabled = recorded and before[3]
        try:
            return function(*args)
        finally:
            modes.emit, modes.transform, modes.autocast, modes.grad_enabled = before

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        """An operator call on normalised arguments."""
        leaves = [self.unwrapped(leaf) for leaf in leaves_of(args)]
        run = self.interpret if any(map(self.owns, leaves)) else self.pass_on
        return placed(self, op, args, self.run_around(run, op, with_leaves(args, leaves)))

    def pass_on(self, op: Op, args: tuple[Any, ...]) -> Any:
        """A call that reads no tensor of this level."""
        return call(op, args)

    def owns(self, x: Any) -> bool:
        """Whether `x` is a tensor of this level, and no constant."""
        return self.has(x) and not x.is_constant

    def has(self, x: Any) -> bool:
        """Whether `x` is a tensor of this level."""
        return isinstance(x, Lifted) and x.level is self

    def unwrapped(self, x: Any) -> Any:
        """A constant of this level as the tensor of the enclosing level that it is; others as they are."""
        return x.value if self.has(x) and x.is_constant else x

    def inside(self, x: Any) -> Any:
        """`x` as a tensor of this level."""
        return x if self.has(x) else self.constant(x)

    def constant(self, x: Any) -> Lifted:
        """A tensor of the enclosing level as a constant of this level."""
        raise NotImplementedError

    @property
    def keeps_history(self) -> bool:
        """Whether derivatives are recorded now."""
        return modes.grad_enabled

    def written_without_grad(self, old: Any, new: Any) -> Any:
        """A tensor with the values of `new` for `old`, which is written under `no_grad`."""
        return written_without_grad(old, new)

    def write_captured(self, op: str, x: Any, write: Callable[..., Any], *operands: Any) -> Any:
        """`write(x, *operands)`, a write to a tensor from outside of this level, in the enclosing level."""
        return self.run_around(write, x, *captured_operands(self, op, x, operands))

    def values(self, args: Any) -> Any:
        """The arguments with each tensor of this level replaced by its tensor of the enclosing level."""
        if is_sequence(args):
            return tuple([self.values(arg) for arg in args])
        return args.value if self.has(args) else args

    def value_of_result(self, y: Any) -> Any:
        """The tensor of the enclosing level that a result of the function is; a copy of a captured one."""
        return y.value if self.has(y) else self.run_around(meta.copy, y)

    def interpret(self, op: Op, args: tuple[Any, ...]) -> Any:
        """A call that reads a tensor of this level."""
        raise NotImplementedError

    def apply(self, function: Any, args: tuple[Any, ...]) -> Any:
        """`function.apply(*args)` of an autograd.Function."""
        args = tuple(map(self.unwrapped, args))
        if any(map(self.owns, args)):
            result = self.run_around(self.interpret_function, function, args)
        else:
            result = self.run_around(function.apply, *args)
        return with_leaves(result, [self.inside(y) for y in leaves_of(result)])

    # --- conditionals and loops of a traced function, whose operands are tensors of the enclosing level ---------------

    def lowered(self, x: Any, axis: int = 0) -> list[Any]:
        """The tensors of the enclosing level that make up `x`, with an element for each step along `axis`."""
        del x, axis
        raise NotSupportedError(
            self.name,
            "the function contains a conditional or a loop, in a traced function and inside of another transformation",
            "jvp and vmap there, or vjp outside of other transformations",
            "take its gradient outside of the other transformation, or call it on arrays",
        )

    def raised(self, parts: list[Any], axis: int = 0) -> Any:
        """The inverse of `lowered`."""
        raise NotImplementedError

    def cond(self, predicate: Any, then: Any, otherwise: Any, operands: tuple[Any, ...]) -> Any:
        """`meta.cond`."""
        forms: list[Tree] = []

        def branch(function: Callable[..., Any]) -> Callable[[], Any]:
            return lambda: self._lowered_results(forms, function, *operands)

        if self.owns(predicate):
            predicate.item()  # raises
        out = self.run_around(meta.cond, self.values(predicate), branch(then), branch(otherwise))
        if forms[0] != forms[1]:
            raise ArgumentError("cond", "the branches return other structures", "one structure")
        return forms[0].build(map(self.raised, out))

    def while_loop(self, condition: Any, body: Any, carry: Any) -> Any:
        """`meta.while_loop` without a bound."""
        leaves, tree = flatten(carry, TensorLike)
        start = [self.run_around(self.lowered, x) for _, x in leaves]

        def holds(parts: Any) -> Any:
            with self.entered():
                flag = condition(tree.build(map(self.raised, parts)))
                return flag.item() if self.owns(flag) else self.values(flag)

        def step(parts: Any) -> Any:
            return self._lowered_results([], body, tree.build(map(self.raised, parts)))

        return tree.build(map(self.raised, self.run_around(meta.while_loop, holds, step, start)))

    def scan(self, step: Any, carry: Any, xs: Any, length: Any, reverse: bool) -> Any:
        """`meta.scan`."""
        leaves, tree = flatten(carry, TensorLike)
        elements, rows = flatten(xs, TensorLike)
        start = [self.run_around(self.lowered, x) for _, x in leaves]
        stacks = [self.run_around(self.lowered, x, 1) for _, x in elements]
        forms: list[Tree] = []

        def one(parts: Any, items: Any) -> Any:
            new = self._lowered_results(
                forms, step, tree.build(map(self.raised, parts)), rows.build(map(self.raised, items or ()))
            )
            return new[: len(leaves)], new[len(leaves) :]

        options: dict[str, Any] = {"length": length, "reverse": reverse}
        out, ys = self.run_around(lambda: meta.scan(one, start, stacks or None, **options))
        raised = [*map(self.raised, out), *(self.raised(y, 1) for y in ys)]
        return forms[0].build(iter(raised))

    def _lowered_results(self, forms: list[Tree], function: Callable[..., Any], *args: Any) -> list[list[Any]]:
        """The results of a function inside of this level, lowered; their structure is appended to `forms`."""
        with self.entered():
            self.depth += 1
            try:
                result = function(*args)
            finally:
                self.depth -= 1
        leaves, tree = flatten(result, TensorLike)
        forms.append(tree)
        return [self.lowered(x) for _, x in leaves]

    def interpret_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        """A call of an autograd.Function that reads a tensor of this level."""
        raise NotImplementedError


def call(op: Op, args: Any) -> Any:
    """An operator on arguments in schema order."""
    return invoke(state(op), *args)


def check_in_place(level: Level, op: Op, args: tuple[Any, ...]) -> None:
    """Raise NotSupportedError if an operator would overwrite a tensor of a level."""
    for name in op.inplace.values():
        if level.owns(args[op.schema.index[name]]):
            raise NotSupportedError(
                op.name,
                f"it overwrites '{name}', a tensor inside of {level.name}",
                "operators that return new tensors",
                "call it outside of the transformed function",
            )


def is_tensor(value: Any) -> bool:
    """Whether a leaf of a nest is a tensor."""
    return isinstance(value, TensorLike)


def is_tensor_list(arg: Any) -> bool:
    """Whether an argument is a list of tensors."""
    items: Any = arg
    return isinstance(arg, tuple) and bool(items) and is_tensor(items[0])
