"""Optimizers that are formulas of elementwise operators, which compiled steps fuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from meta._generated.methods import Tensor
from meta.optim.group import ParamGroup
from meta.optim.number import Scalars, StateNumber, widened, write
from meta.optim.optimizer import Optimizer, Updated

State = Mapping[str, Any]
"""Slot -> the state of a parameter."""


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
        with this one (None unless `counts_updates`), which are Python's or, in a trace, 0-d tensors.

        By default the hyperparameters and, where they exist, rest1 = 1 - beta1, rest2 = 1 - beta2, and shrink = 1 -
        learning_rate * weight_decay."""
        del group, count
        rests = {f"rest{name[4:]}": 1 - value for name, value in values.items() if name in ("beta1", "beta2")}
        shrink = 1 - values["learning_rate"] * values.get("weight_decay", 0.0)
        return {**values, **rests, "shrink": shrink}

    def formula(self, x: Tensor, g: Tensor, state: State, n: Any) -> tuple[Any, State]:
        """The parameter and its state after an update. x: the parameter.  g: its gradient.  n: the numbers, as 0-d
        arrays of the dtype that the parameter is updated in: `n.eps`."""
        raise NotImplementedError

    def update_group(self, group: ParamGroup, count: StateNumber | None, updated: Sequence[Updated]) -> None:
        numbers = self.numbers(group, self.values_of(group), None if count is None else count.operand)
        scalars = Scalars(**numbers)
        for name, x, dx in updated:
            slots = {slot: self.slots[slot][name] for slot in self.slots_of(group, x)}
            state = {slot: widened(value) for slot, value in slots.items()}
            n = SimpleNamespace(**dict(zip(numbers, scalars(x, *numbers), strict=True)))
            new, changed = self.formula(widened(x), widened(dx), state, n)
            for slot, value in changed.items():
                write(slots[slot], value)
            write(x, new)

    @staticmethod
    def values_of(group: ParamGroup) -> dict[str, Any]:
        """The hyperparameters of a group as operands of formulas."""
        return {name: number.operand for name, number in group.numbers.items()}
