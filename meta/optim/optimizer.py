"""The base class of optimizers: groups of parameters, and the state of each parameter as named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import meta
from meta import spellings, tracing
from meta.dtype import HALVES
from meta.eager.named_state import Unmatched, fitting_state
from meta.eager.ndarray import NDArray, move_in_place
from meta.errors import ArgumentError
from meta.modes import modes, no_grad, scoped, suspended
from meta.optim.checks import TorchNames, flag
from meta.optim.group import (
    Counters,
    Parameters,
    ParamGroup,
    checked,
    expanded,
    group_options,
    hyperparameter,
    listed_groups,
    named_arrays,
)
from meta.optim.number import StateNumber
from meta.optim.torch_state import planned
from meta.schema.annotations import explained
from meta.tracing.symbol import exact

_MASTER: Final = "master"


class Updated(NamedTuple):
    """A parameter in a step. x: what is updated, the parameter or its master weights.  dx: its gradient."""

    name: str
    x: NDArray
    dx: NDArray


class Optimizer(TorchNames):
    """Base class of optimizers.

    parameters: a Model, arrays, (name, array) pairs, or groups of them with hyperparameters of their own:
    `[{"params": model.body}, {"params": model.head.parameters(), "learning_rate": 0.01}]`. Frozen ones
    (`requires_grad` is False) are skipped until they require gradients.
    Hyperparameters are 0-d arrays of the optimizer's state, so that new values need no recompilation. `learning_rate`
    is the rate of all groups; `param_groups` has each group's hyperparameters.
    master_weights: parameters in bfloat16 or float16 are copies of float32 weights in the state, and those are updated.
    The state follows parameters that move to another device or dtype (`model.to(...)`).
    Raises ArgumentError for parameters that are computed, occur twice or are all frozen, and for hyperparameters that
    are unknown or out of range.

    A subclass lists the slots of its state in `slot_names` and defines `update_group`, which computes with
    `group.numbers["learning_rate"].array` and the like; `update` is enough for one without hyperparameters. A formula
    of operators takes fewer lines as a `FormulaOptimizer`.
    """

    flags: ClassVar[tuple[str, ...]] = ()
    """Hyperparameters that are True or False."""
    counts_updates: bool = False
    """Whether `update_group` gets the number of updates."""
    reads_whole_parameters: ClassVar[bool] = False
    """Whether updates read more of a parameter than one element, as its norm, so that it may not be divided."""

    if not TYPE_CHECKING:  # type checkers report unknown attributes

        def __getattr__(self, name: str) -> Any:
            return spellings.missing_member(self, "optimizer", name)

    def __init__(
        self, parameters: Parameters, learning_rate: float, *, master_weights: bool = False, **hyperparameters: Any
    ) -> None:
        values = expanded({"learning_rate": learning_rate, **hyperparameters})
        self._defaults = checked(values, self.flags)
        self.master_weights = flag("optimizer", "master_weights", master_weights)
        self.param_groups: list[ParamGroup] = []
        self.slots: dict[str, dict[str, NDArray]] = {}
        """Slot name ("velocity") -> parameter name -> array. Arrays of frozen parameters may be missing."""
        self._counters = Counters()
        self._types: dict[str, Any] = {}
        """Parameter name -> the type that its state was made for."""
        for group in listed_groups(parameters):
            self.add_param_group(group)
        if not self.param_groups:
            raise ArgumentError("optimizer", "there are no parameters", "at least one parameter")
        if not any(x.requires_grad for x in self.parameters):
            raise ArgumentError(
                "optimizer",
                f"none of the {len(self.named)} parameters requires gradients",
                "at least one array with requires_grad = True",
                "set it, or call model.train_mode() first",
            )

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Update further parameters: a dict of `params`, as for the constructor, and hyperparameters, by default the
        constructor's. Programs with a step of the optimizer are compiled again."""
        named = named_arrays(group, self.named)
        added = ParamGroup(named, group_options(self._defaults, group))
        self.check_group(added)
        if self.param_groups:
            tracing.invalidate()
        self.param_groups.append(added)
        tracked = {name: x for name, x in named if x.requires_grad}
        for name, x in tracked.items():
            self._fit_state(added, name, x)
        if self.counts_updates:
            self._counters.add({name: x.device for name, x in tracked.items()})

    def replace_parameters(self, replacements: Mapping[str, tuple[str, NDArray]]) -> None:
        """Update other arrays in the place of parameters: name -> new name and array. State under the new names is
        kept, what is missing is created. Programs with a step of the optimizer are compiled again."""
        for group in self.param_groups:
            group.named = [replacements.get(name, (name, x)) for name, x in group.named]
        self._counters.rename({name: new for name, (new, _) in replacements.items()})
        self._types = {}
        tracing.invalidate()
        for group in self.param_groups:
            for name, x in group.named:
                if x.requires_grad:
                    self._fit_state(group, name, x)

    @property
    def learning_rate(self) -> float:
        """The rate of all groups; a new value applies to each. Raises ArgumentError if the groups have several."""
        return self.common("learning_rate")

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self.assign("learning_rate", value)

    lr = learning_rate  # torch's name

    def common(self, name: str) -> float:
        """The value that a hyperparameter has in all groups. Raises ArgumentError if the groups have several."""
        values = [group[name] for group in self.param_groups]
        if len(set(values)) > 1:
            problem = f"{name} is {', '.join(map(str, values))} in the groups"
            raise ArgumentError("optimizer", problem, "one value", f'read param_groups[i]["{name}"]')
        return values[0]

    def assign(self, name: str, value: float) -> None:
        """Set a hyperparameter of all groups."""
        for group in self.param_groups:
            group[name] = value

    @property
    def named(self) -> list[tuple[str, NDArray]]:
        """The parameters with their names."""
        return [item for group in self.param_groups for item in group.named]

    @property
    def parameters(self) -> list[NDArray]:
        return [x for _, x in self.named]

    # --- state -------------------------------------------------------------------------------------------------------

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The optimizer's arrays and the parameters it updates, with names; each array once."""
        rates = self._numbers()
        yield from ((name, x.array) for name, x in rates.items() if _is_rate(name))
        yield from self.named
        yield from self._slot_arrays()
        yield from ((f"{name}.step", x) for name, x in self._counters.distinct())
        yield from ((name, x.array) for name, x in rates.items() if not _is_rate(name))

    def state_dict(self) -> dict[str, NDArray]:
        """The optimizer's arrays by name: learning rates ("learning_rate", "group1.learning_rate"), slots
        ("w.velocity") and numbers of updates ("w.step"). Parameters are saved with the model; other hyperparameters are
        arguments of the constructor."""
        rates = {name: x.array for name, x in self._numbers().items() if _is_rate(name)}
        return rates | dict(self._slot_arrays()) | {f"{n}.step": x for n, x in self._counters.arrays().items()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Copy values into the optimizer's arrays. Raises ArgumentError when names or types differ and leaves the
        optimizer unchanged.

        strict: with False, missing and unknown names are left alone. They are returned in any case."""
        loaded, unmatched = fitting_state(self.state_dict(), state, "the optimizer", strict)
        rates = {number: loaded[name].item() for name, number in self._numbers().items() if name in loaded}
        for number, rate in {n: hyperparameter("learning_rate", rate) for n, rate in rates.items()}.items():
            number.assign(rate)
        for name, x in self._slot_arrays():
            if name in loaded:
                x.update(loaded[name])
        counts = self._counters.arrays()
        self._counters.assign({name: int(loaded.get(f"{name}.step", x).item()) for name, x in counts.items()})
        return unmatched

    def load_torch_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict()` of torch's optimizer of the same kind returns: moments, numbers of updates
        and hyperparameters. Parameters correspond by their order in the groups. Raises ArgumentError for a state that
        does not fit and leaves the optimizer unchanged."""
        own, hyperparameters = planned(self.state_dict(), self.param_groups, state)
        self.load_state_dict(own)
        for group, numbers in zip(self.param_groups, hyperparameters, strict=True):
            for name, value in numbers.items():
                group[name] = value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters. set_to_none: with False, fill those that there are with zeros."""
        for x in self.parameters:
            x.grad = None if set_to_none or x.grad is None else meta.zeros_like(x.grad)

    def _numbers(self) -> dict[str, StateNumber]:
        """The hyperparameters; in groups after the first, names begin with the group's."""
        groups = enumerate(self.param_groups)
        return {f"group{i}.{n}" if i else n: number for i, group in groups for n, number in group.numbers.items()}

    def _slot_arrays(self) -> Iterator[tuple[str, NDArray]]:
        return ((f"{name}.{slot}", x) for slot, arrays in self.slots.items() for name, x in arrays.items())

    def _fit_state(self, group: ParamGroup, name: str, x: NDArray) -> None:
        """Create the missing state of a parameter, or move it to where the parameter is now."""
        before = self._types.get(name, x.type)
        with suspended(), no_grad():
            for number in group.numbers.values():
                number.move(x.device)
            self._fit_master(name, x)
            dtype = self._state_dtype(x.dtype)
            for slot in self.slots_of(group, x) or list(self.slots):
                arrays = self.slots.setdefault(slot, {})
                if slot == _MASTER:
                    continue
                if name not in arrays:
                    arrays[name] = self.initial_slot(slot, x, dtype)
                    continue
                follows = arrays[name].dtype == self._state_dtype(before.dtype)
                move_in_place(arrays[name], x.device, dtype if follows else None)
        self._types[name] = x.type

    def _fit_master(self, name: str, x: NDArray) -> None:
        masters = self.slots.get(_MASTER, {})
        if not self.master_weights or x.dtype not in HALVES:
            masters.pop(name, None)
        elif name not in masters:
            self.slots.setdefault(_MASTER, {})[name] = x.detach().cast("float32")
        else:
            move_in_place(masters[name], x.device)

    def _state_dtype(self, dtype: str) -> str:
        """The dtype of the state of parameters."""
        return "float32" if self.master_weights and dtype in HALVES else dtype

    # --- steps -------------------------------------------------------------------------------------------------------

    @explained
    def step(self) -> None:
        """Update every parameter that has a gradient, in place and without mixed precision."""
        with no_grad(), scoped(autocast=None) if modes.autocast is not None else nullcontext():
            parts = [(g, [(name, x, x.grad) for name, x in g.named if x.grad is not None]) for g in self.param_groups]
            for group, items in parts:
                for name, x, _ in items:
                    if self._types.get(name) is not x.type:
                        self._fit_state(group, name, x)
            if not self.counts_updates:
                for group, items in parts:
                    self._update_group(group, None, items)
                return
            self._counters.advance({name: x.device for _, items in parts for name, x, _ in items})
            for group, items in parts:
                for count, names in self._counters.shared(name for name, _, _ in items):
                    self._update_group(group, count, [item for item in items if item[0] in names])

    def _update_group(
        self, group: ParamGroup, count: StateNumber | None, items: Sequence[tuple[str, NDArray, Any]]
    ) -> None:
        if not items:
            return
        masters = self.slots.get(_MASTER, {})
        updated = [
            Updated(name, masters[name], dx.cast("float32")) if name in masters else Updated(name, x, exact(dx))
            for name, x, dx in items
        ]
        self.update_group(group, count, updated)
        for name, x, _ in items:
            if name in masters:
                x.update(masters[name].cast(x.dtype))

    def update_group(self, group: ParamGroup, count: StateNumber | None, updated: Sequence[Updated]) -> None:
        """Update parameters of one group, in place. count: their number of updates with this one."""
        del group, count
        for name, x, dx in updated:
            self.update(name, x, dx)

    def update(self, name: str, x: NDArray, dx: NDArray) -> None:
        """Update one parameter from its gradient, in place."""
        raise NotImplementedError

    def check_group(self, group: ParamGroup) -> None:
        """Raise ArgumentError for hyperparameters that do not go together."""

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        """The slots of the parameters of a group, arrays of their shapes."""
        del group
        return ()

    def slots_of(self, group: ParamGroup, x: NDArray) -> tuple[str, ...]:
        """The slots of one parameter, by default the slots of its group."""
        del x
        return self.slot_names(group)

    def initial_slot(self, slot: str, x: NDArray, dtype: str) -> NDArray:
        """The array of a slot before the first update of a parameter."""
        del slot
        return meta.zeros(x.shape, dtype, x.device)


def _is_rate(name: str) -> bool:
    return name.rpartition(".")[2] == "learning_rate"
