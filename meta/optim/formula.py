"""Optimizers that are formulas of elementwise operators, which compiled steps fuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.optim.group import ParamGroup
from meta.optim.number import Scalars, StateNumber, widened, write
from meta.optim.optimizer import Optimizer, Updated

State = Mapping[str, Any]
"""Slot -> the state of a parameter."""


class Numbers:
    """The numbers of a formula as 0-d arrays of the dtype that a parameter is updated in: `n.eps`."""

    __slots__ = ("_scalars", "_x")

    def __init__(self, scalars: Scalars, x: NDArray) -> None:
        self._scalars, self._x = scalars, x

    def __getattr__(self, name: str) -> Any:
        return self._scalars(self._x, name)[0]


class FormulaOptimizer(Optimizer):
    """Base class of optimizers that are a formula of operators for one parameter.

        class Lion(FormulaOptimizer):
            def slot_names(self, group):
                return ("m",)

            def formula(self, x, g, state, n):
                sign = meta.sign(n.beta1 * state["m"] + n.rest1 * g)
                return n.shrink * x - n.learning_rate * sign, {"m": n.beta2 * state["m"] + n.rest2 * g}

    A subclass defines `slot_names` and `formula` and, for numbers besides the hyperparameters, `numbers`. Everything
    is computed in float32 for parameters in bfloat16 and float16.
    """

    flags: ClassVar[tuple[str, ...]] = ()

    def numbers(self, group: ParamGroup, values: Mapping[str, Any], count: Any) -> Mapping[str, Any]:
        """The numbers that `formula` reads, computed in float64: from the hyperparameters and the number of updates
        with this one (None unless `counts_updates`), which are Python's or, in a trace, 0-d float64 tensors.

        By default the hyperparameters and, where they exist, rest1 = 1 - beta1, rest2 = 1 - beta2, and shrink = 1 -
        learning_rate * weight_decay."""
        del group, count
        rests = {f"rest{name[4:]}": 1 - value for name, value in values.items() if name in ("beta1", "beta2")}
        shrink = 1 - values["learning_rate"] * values.get("weight_decay", 0.0)
        return {**values, **rests, "shrink": shrink}

    def formula(self, x: Tensor, g: Tensor, state: State, n: Any) -> tuple[Any, State]:
        """The parameter and its state after an update. x: the parameter.  g: its gradient.  n: the numbers."""
        raise NotImplementedError

    def update_group(self, group: ParamGroup, count: StateNumber | None, updated: Sequence[Updated]) -> None:
        scalars = Scalars(**self.numbers_of(group, count))
        for name, x, dx in updated:
            slots = {slot: self.slots[slot][name] for slot in self.slots_of(group, x)}
            state = {slot: widened(value) for slot, value in slots.items()}
            new, changed = self.formula(widened(x), widened(dx), state, Numbers(scalars, x))
            for slot, value in changed.items():
                write(slots[slot], value)
            write(x, new)

    def numbers_of(self, group: ParamGroup, count: StateNumber | None) -> Mapping[str, Any]:
        """`numbers` of a group."""
        values = {name: number.operand for name, number in group.numbers.items()}
        updates: Any = None if count is None else count.operand
        return self.numbers(group, values, updates.cast("float64") if isinstance(updates, Tensor) else updates)
