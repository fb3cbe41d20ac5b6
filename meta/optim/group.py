"""Groups of parameters, each with hyperparameters that are inputs of programs, and how often parameters were updated,
counted by programs."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MethodType
from typing import Any, Final, TypeAlias, cast

from meta import tracing
from meta.device import Device
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, did_you_mean, value_text
from meta.model.model import Model
from meta.modes import modes
from meta.optim.checks import below_one, flag, nonnegative, nonpositive, own_name
from meta.optim.number import StateNumber
from meta.schema.annotations import CheckedArguments

Parameters: TypeAlias = "Model | Iterable[NDArray | tuple[str, NDArray] | Mapping[str, Any]]"
"""A Model, arrays, (name, array) pairs, or groups: dicts of `params`, one of the former, and hyperparameters."""

_TUPLES: Final[Mapping[str, tuple[str, ...]]] = {"betas": ("beta1", "beta2")}
"""Names of several hyperparameters together."""
_BELOW_ONE: Final = ("beta1", "beta2", "alpha")
"""Decay factors of running means."""
_NEGATIVE: Final = ("beta2_decay",)
"""Exponents, 0 or less."""


class ParamGroup(CheckedArguments):
    """Parameters with the same hyperparameters.

    group["learning_rate"] and the like are numbers, and `params` the parameters. A number that is set reaches compiled
    programs without compilation: they take it as an input, a 0-d float64 array. Torch's names (`lr`, `betas`) are
    accepted. Flags (`nesterov`) cannot be changed.
    """

    __slots__ = ("flags", "named", "numbers", "unscheduled_rate")

    def __init__(self, named: Sequence[tuple[str, NDArray]], hyperparameters: Mapping[str, Any]) -> None:
        device = named[0][1].device
        self.named = list(named)
        self.numbers = {
            n: StateNumber(value, "float64", device) for n, value in hyperparameters.items() if not _is_flag(value)
        }
        """Hyperparameter -> its value where the parameters are."""
        self.flags = {name: value for name, value in hyperparameters.items() if _is_flag(value)}
        self.unscheduled_rate: float | None = None
        """The learning rate before schedules changed it."""

    def base_rate(self) -> float:
        """The learning rate that a new schedule starts from: the rate that was set last, other than by a schedule."""
        rate = self["learning_rate"] if self.unscheduled_rate is None else self.unscheduled_rate
        self.unscheduled_rate = rate
        return rate

    def keys(self) -> tuple[str, ...]:
        return ("params", *self.numbers, *self.flags)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __getitem__(self, name: str) -> Any:
        if name == "params":
            return [x for _, x in self.named]
        if name == "betas" and "beta1" in self.numbers:
            return self["beta1"], self["beta2"]
        if name in self.flags:
            return self.flags[name]
        return float(self._number(name).value)

    def __setitem__(self, name: str, value: object) -> None:
        if name in self.flags or name == "params":
            problem = f"'{name}' of a group is set"
            raise ArgumentError("optimizer", problem, "one of " + ", ".join(self.numbers), "build another optimizer")
        for each, number in expanded({name: value}, self.numbers).items():
            self._number(each).assign(hyperparameter(each, number))
            if each == "learning_rate":
                self.unscheduled_rate = None

    def _number(self, name: str) -> StateNumber:
        number = self.numbers.get(own_name(name, self.numbers))
        if number is None:
            raise _unknown([name], self.keys())
        return number

    def __repr__(self) -> str:
        values = {"params": [name for name, _ in self.named], **{n: self[n] for n in self.numbers}, **self.flags}
        return f"ParamGroup({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def hyperparameter(name: str, value: object) -> float:
    """A finite number as a float, 0 or more, for a decay factor below 1, and for some exponents 0 or less. Raises
    ArgumentError for other values."""
    if name in _NEGATIVE:
        return nonpositive("optimizer", name, value)
    check = below_one if name in _BELOW_ONE else nonnegative
    return check("optimizer", name, value)


def expanded(options: Mapping[str, Any], allowed: Container[str] = ("learning_rate",)) -> dict[str, Any]:
    """Hyperparameters by their names here, which are in `allowed`. Raises ArgumentError for a pair that is none, and
    for a name and its synonym together."""
    out: dict[str, Any] = {}
    for name, value in options.items():
        names = _TUPLES.get(name) or (own_name(name, allowed),)
        values: Any = (value,) if len(names) == 1 else value
        if not isinstance(values, Sequence) or len(cast("Sequence[Any]", values)) != len(names):
            raise ArgumentError("optimizer", f"{name} is {value_text(value)}", f"the pair {', '.join(names)}")
        for each, item in zip(names, cast("Sequence[Any]", values), strict=True):
            if each in out:
                raise ArgumentError("optimizer", f"a group has '{each}' twice", f"one of {each}, {name}")
            out[each] = item
    return out


def group_options(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a group, those that it lacks from the defaults. Raises ArgumentError for unknown names."""
    values = expanded({name: value for name, value in options.items() if name != "params"}, defaults)
    unknown = [name for name in values if name not in defaults]
    if unknown:
        raise _unknown(unknown, ("params", *defaults))
    return {**defaults, **checked(values, [name for name in values if _is_flag(defaults[name])])}


def checked(options: Mapping[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """Hyperparameters after their checks. flags: those that are True or False."""
    return {n: flag("optimizer", n, x) if n in flags else hyperparameter(n, x) for n, x in options.items()}


def listed_groups(parameters: object) -> list[Mapping[str, Any]]:
    """The groups of an optimizer's parameters, one unless they are dicts."""
    if isinstance(parameters, Model):
        return [{"params": parameters}]
    items = _listed(parameters)
    if not any(isinstance(item, Mapping) for item in items):
        return [{"params": items}]
    for item in items:
        if not isinstance(item, Mapping):
            problem = f"a {type(item).__name__} is among groups of parameters"
            raise ArgumentError("optimizer", problem, "dicts only", 'put it into a group: {"params": [x]}')
    return items


def _listed(parameters: object) -> list[Any]:
    if not isinstance(parameters, Iterable) or isinstance(parameters, (NDArray, Mapping)):
        problem = f"the parameters are {type(parameters).__name__}"  # pyright: ignore[reportUnknownArgumentType]
        remedy = "pass a list: [x]" if isinstance(parameters, NDArray) else ""
        remedy = "call it: model.parameters()" if isinstance(parameters, MethodType) else remedy
        raise ArgumentError("optimizer", problem, "a Model, arrays, (name, array) pairs, or a list of groups", remedy)
    return list(cast("Iterable[Any]", parameters))


def named_arrays(group: object, before: Sequence[tuple[str, NDArray]]) -> list[tuple[str, NDArray]]:
    """The parameters of a group with names. before: the named parameters of the groups before it.

    Raises ArgumentError for anything but arrays that no operator computed, and for those that occur twice."""
    added = _named(_params(group), len(before))
    others = {id(x): name for name, x in before}
    for name, x in added:
        _check_leaf(name, x)
        if id(x) in others:
            raise ArgumentError(
                "optimizer", f"'{name}' is in two groups, there as '{others[id(x)]}'", "each array once"
            )
    together = [*before, *added]
    if len({name for name, _ in together}) < len(together) or len({id(x) for _, x in added}) < len(added):
        names = ", ".join(name for name, _ in together)
        raise ArgumentError("optimizer", f"a name or an array occurs twice: {names}", "each parameter once")
    if not added:
        raise ArgumentError("optimizer", "there are no parameters", "at least one parameter")
    return added


def _params(group: object) -> Any:
    if not isinstance(group, Mapping):
        raise ArgumentError("optimizer", f"a group is {type(group).__name__}", 'a dict with "params"')
    options = cast("Mapping[str, Any]", group)
    if "params" not in options:
        raise ArgumentError("optimizer", f"a group has {sorted(map(str, options))}", 'a dict with "params"')
    return options["params"]


def _named(params: object, count: int) -> list[tuple[str, Any]]:
    """Parameters with names: `parameter3` for those without, after `count` others."""
    if isinstance(params, Model):
        return list(params.named_parameters())
    items = _listed([params] if isinstance(params, NDArray) else params)
    return [p if isinstance(p, tuple) else (f"parameter{count + i}", p) for i, p in enumerate(items)]


def _check_leaf(name: str, x: object) -> None:
    if not isinstance(x, NDArray):
        raise ArgumentError("optimizer", f"'{name}' is {type(x).__name__}", "arrays", "meta.array(...)")
    if not x.is_leaf:
        raise ArgumentError(
            "optimizer",
            f"'{name}' was computed from other arrays, so that it gets no .grad",
            "arrays that no operator computed",
            "pass those that it was computed from, or x.detach()",
        )


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _unknown(names: Sequence[str], options: Iterable[str]) -> ArgumentError:
    allowed = list(options)
    problem = f"a group has no {', '.join(map(repr, names))}"
    return ArgumentError("optimizer", problem, ", ".join(allowed), did_you_mean(names[0], allowed))


class Counter:
    """The number of updates that some parameters had, all of them the same.

    was_traced: whether a program may count it.  trace: the trace that counted it last."""

    __slots__ = ("count", "names", "trace", "was_traced")

    def __init__(self, value: int, device: Device, names: set[str]) -> None:
        self.count = StateNumber(value, "int64", device)
        self.names = names
        self.was_traced = False
        self.trace: Any = lambda: None

    def advance(self) -> None:
        if modes.trace is not None:
            self.was_traced = True
            self.trace = weakref.ref(modes.trace)
        self.count.assign(self.count.operand + 1)

    def without(self, names: set[str], device: Device) -> Counter:
        """Take `names` out, which differ from now on; their counter, with the present number.

        Programs that count both by this counter are stale."""
        self.names -= names
        other = Counter(int(self.count.host_value()), device, names)
        if modes.trace is not None and self.trace() is modes.trace:
            other.count.array.update(self.count.array)
        if self.was_traced:
            tracing.invalidate()
        return other


class Counters:
    """The counters of an optimizer: parameters that were always updated together share one."""

    def __init__(self) -> None:
        self._all: list[Counter] = []

    def add(self, devices: Mapping[str, Device]) -> None:
        """Count parameters from 0. devices: name -> where the parameter is."""
        for device, names in _by_device(devices, devices):
            if device is not None:
                self._all.append(Counter(0, device, names))

    def advance(self, active: Mapping[str, Device]) -> None:
        """Count an update of parameters. active: name -> where the parameter is."""
        counted = {name for counter in self._all for name in counter.names}
        self.add({name: device for name, device in active.items() if name not in counted})
        for counter in list(self._all):
            head, *others = sorted(_by_device(counter.names, active), key=lambda part: part[0] is None)
            self._all += [counter.without(names, device or counter.count.array.device) for device, names in others]
            if head[0] is not None:
                counter.count.move(head[0])
        for counter in self._all:
            if counter.names & active.keys():
                counter.advance()

    def rename(self, names: Mapping[str, str]) -> None:
        """Give parameters other names: old -> new."""
        for counter in self._all:
            counter.names = {names.get(name, name) for name in counter.names}

    def shared(self, names: Iterable[str]) -> Iterator[tuple[StateNumber, set[str]]]:
        """The numbers of updates of parameters, each with the names that have it."""
        name_set = set(names)
        return ((c.count, c.names & name_set) for c in self._all if c.names & name_set)

    def arrays(self) -> dict[str, NDArray]:
        """Parameter -> its number of updates; shared arrays occur for each of their parameters."""
        return {name: counter.count.array for counter in self._all for name in sorted(counter.names)}

    def distinct(self) -> Iterator[tuple[str, NDArray]]:
        """Each array once, with the name of one of its parameters."""
        return ((min(counter.names), counter.count.array) for counter in self._all)

    def assign(self, values: Mapping[str, int]) -> None:
        """Set the numbers. Parameters that share a counter and have different ones are separated."""
        for counter in list(self._all):
            parts: dict[int, set[str]] = {}
            for name in counter.names:
                parts.setdefault(values[name], set()).add(name)
            (first, _), *others = parts.items()
            for value, names in others:
                separate = counter.without(names, counter.count.array.device)
                separate.count.assign(value)
                self._all.append(separate)
            counter.count.assign(first)


def _by_device(names: Any, devices: Mapping[str, Device]) -> list[tuple[Device | None, set[str]]]:
    """The names by the device of each, None for those without one."""
    parts: dict[Device | None, set[str]] = {}
    for name in names:
        parts.setdefault(devices.get(name), set()).add(name)
    return list(parts.items())
