"""Schedules: learning rates as functions of the number of steps, in Python or in the program of a step."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import meta
from meta.device import Device
from meta.eager.named_state import Unmatched, fitting_state
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, TraceError, value_text
from meta.modes import modes
from meta.optim.checks import TorchNames, nonnegative, positive, whole
from meta.optim.group import hyperparameter
from meta.optim.number import StateNumber, where
from meta.optim.optimizer import Optimizer
from meta.schema.annotations import CheckedArguments

if TYPE_CHECKING:
    from meta._generated.methods import Tensor


class Schedule(TorchNames, CheckedArguments):
    """Base class of schedules. `step` is called after each step of the optimizer, or each epoch, eagerly or inside a
    traced step; it sets the learning rate of each group from the number of calls and the rate that the group had at
    first. No call compiles anything: rates are inputs of programs.

    A subclass defines `rate`. A program computes it if it can be traced. If it needs the number itself, for `if` or
    the `math` module, Python computes it before each call of the program, which takes it as an input.
    Rates that the user sets between calls are replaced at the next one.
    """

    takes_metric: ClassVar[bool] = False
    """Whether `step` takes a number, such as a loss."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        device = optimizer.parameters[0].device
        bases = [group.base_rate() for group in optimizer.param_groups]
        self._count = StateNumber(0, "int64", device)
        self._bases = [StateNumber(base, "float64", device) for base in bases]
        self._next: list[StateNumber] = []
        """The rates after the next step, for programs that cannot compute them."""
        self._trace: Callable[[], object] = lambda: None
        self.apply(0)

    @property
    def count(self) -> int:
        """The number of steps so far; reading it waits for the device if a program has counted."""
        return int(self._count.value)

    def step(self) -> None:
        """Count a step, and set the learning rates."""
        self.count_step()
        count = self._count.operand
        self.apply(int(count) if isinstance(count, (int, float)) else count.cast("float64"))

    def count_step(self) -> None:
        """Count a step, where the optimizer is now."""
        for number in (*self.numbers().values(), *self._next):
            number.move(self._device)
        self._count.assign(self._count.operand + 1)

    @property
    def _device(self) -> Device:
        return self.optimizer.param_groups[0].numbers["learning_rate"].array.device

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group."""
        return [group["learning_rate"] for group in self.optimizer.param_groups]

    def apply(self, count: object) -> None:
        """Set the hyperparameters for a number of steps, in a trace a 0-d float64 tensor."""
        for group, rate in zip(self.optimizer.param_groups, self._group_rates(count), strict=False):
            group.numbers["learning_rate"].assign(rate)

    def _group_rates(self, count: object) -> list[Any]:
        """The rate of each group."""
        if modes.trace is None:
            rates = [self.group_rate(count, base.host_value(), i) for i, base in enumerate(self._bases)]
            return [hyperparameter("learning_rate", x.item() if isinstance(x, NDArray) else x) for x in rates]
        try:
            return [self.group_rate(count, base.array, i) for i, base in enumerate(self._bases)]
        except TraceError:
            return self._host_rates(modes.trace)

    def _host_rates(self, trace: Any) -> list[Any]:
        """The rates as inputs of a program, which Python computes before each call."""
        if self._trace() is trace:
            problem = "a schedule whose rate Python computes is stepped twice in a traced function"
            raise TraceError(
                type(self).__name__, problem, "one step in each call", "step it outside, or trace its rate"
            )
        if not self._next:
            self._next = [StateNumber(0.0, "float64", self._device) for _ in self._bases]
        self._trace = weakref.ref(trace)
        trace.before.append(partial(self._prepare, always_counts=not trace.is_conditional))
        return [number.array for number in self._next]

    def _prepare(self, always_counts: bool) -> None:
        """Compute the rates that the next call of a program sets. always_counts: whether it sets them in any case, so
        that the host knows the count without waiting for the device."""
        count = int(self._count.host_value()) + 1
        for number, rate in zip(self._next, self._group_rates(count), strict=True):
            number.assign(rate)
        if always_counts:
            self._count.expect(count)

    def group_rate(self, count: object, base: object, group: int) -> Any:
        """The rate of a group, by default the same function for all."""
        del group
        return self.rate(count, base)

    def rate(self, count: object, base: object) -> Any:
        """The learning rate after `count` steps. base: the rate at first. Both are numbers, in a trace 0-d float64
        tensors."""
        raise NotImplementedError

    def numbers(self) -> dict[str, StateNumber]:
        """The state by name: the number of steps, and the rates at first."""
        return {"count": self._count, **{f"group{i}.base" if i else "base": x for i, x in enumerate(self._bases)}}

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The arrays of the state, with names."""
        return ((name, number.array) for name, number in self.numbers().items())

    def state_dict(self) -> dict[str, NDArray]:
        """The arrays of the schedule by name."""
        return dict(self.named_state())

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Copy values into the schedule's arrays, and set the learning rates. Raises ArgumentError when names or types
        differ and leaves the schedule unchanged. strict: as in `Optimizer.load_state_dict`."""
        loaded, unmatched = fitting_state(self.state_dict(), state, "the schedule", strict)
        for name, number in self.numbers().items():
            if name in loaded:
                number.assign(loaded[name].item())
        self.apply(self.count)
        return unmatched


class StepLR(Schedule):
    """base * gamma ** (count // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size = whole("StepLR", "step_size", step_size)
        self.gamma = positive("StepLR", "gamma", gamma)
        super().__init__(optimizer)

    def rate(self, count: Any, base: Any) -> Any:
        return base * self.gamma ** (count // self.step_size)


class MultiStepLR(Schedule):
    """base * gamma ** n, where n is how many milestones are at most count."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones = increasing("MultiStepLR", milestones)
        self.gamma = positive("MultiStepLR", "gamma", gamma)
        super().__init__(optimizer)

    def rate(self, count: Any, base: Any) -> Any:
        return base * self.gamma ** sum(where(count >= milestone, 1.0, 0.0) for milestone in self.milestones)


class ExponentialLR(Schedule):
    """base * gamma ** count."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = positive("ExponentialLR", "gamma", gamma)
        super().__init__(optimizer)

    def rate(self, count: Any, base: Any) -> Any:
        return base * self.gamma**count


class CosineAnnealingLR(Schedule):
    """minimum + (base - minimum) * (1 + cos(pi * count / steps)) / 2 (I. Loshchilov and F. Hutter, 2017). After `steps`
    steps the rate rises again."""

    def __init__(self, optimizer: Optimizer, steps: int, minimum: float = 0.0) -> None:
        self.steps = whole("CosineAnnealingLR", "steps", steps)
        self.minimum = nonnegative("CosineAnnealingLR", "minimum", minimum)
        super().__init__(optimizer)

    def rate(self, count: Any, base: Any) -> Any:
        return self.minimum + (base - self.minimum) * (1 + cos(count * (math.pi / self.steps))) / 2


class CosineAnnealingWarmRestarts(Schedule):
    """CosineAnnealingLR over `steps` steps, again and again from the base rate, each time over `growth` times as many
    steps (I. Loshchilov and F. Hutter, 2017)."""

    def __init__(self, optimizer: Optimizer, steps: int, growth: int = 1, minimum: float = 0.0) -> None:
        self.steps = whole("CosineAnnealingWarmRestarts", "steps", steps)
        self.growth = whole("CosineAnnealingWarmRestarts", "growth", growth)
        self.minimum = nonnegative("CosineAnnealingWarmRestarts", "minimum", minimum)
        super().__init__(optimizer)

    def rate(self, count: Any, base: Any) -> Any:
        length = self.steps
        if self.growth == 1:
            count = count % length
        else:
            count = int(count)  # so that Python computes the rate, see Schedule
            while count >= length:
                count, length = count - length, length * self.growth
        return self.minimum + (base - self.minimum) * (1 + cos(count * (math.pi / length))) / 2


class LinearLR(Schedule):
    """base * (start + (end - start) * min(count, steps) / steps): a warm-up, by default from a third of the rate."""

    def __init__(self, optimizer: Optimizer, start: float = 1 / 3, end: float = 1.0, steps: int = 5) -> None:
        self.start = nonnegative("LinearLR", "start", start)
        self.end = nonnegative("LinearLR", "end", end)
        self.steps = whole("LinearLR", "steps", steps)
        super().__init__(optimizer)

    def rate(self, count: Any, base: object) -> Any:
        share = where(count < self.steps, count / self.steps, 1.0)
        return base * (self.start + (self.end - self.start) * share)


class LambdaLR(Schedule):
    """base * function(count). functions: one for all groups, or a list with one for each.

    A function is any Python function of an int. Inside a traced step it runs before each call of the program."""

    def __init__(self, optimizer: Optimizer, functions: Callable[[Any], Any] | Sequence[Callable[[Any], Any]]) -> None:
        listed = [functions] * len(optimizer.param_groups) if callable(functions) else list(functions)
        if len(listed) != len(optimizer.param_groups):
            problem = f"{len(listed)} functions for {len(optimizer.param_groups)} groups"
            raise ArgumentError("LambdaLR", problem, "a function, or a list with a function for each group")
        self.functions = listed
        super().__init__(optimizer)

    def group_rate(self, count: Any, base: Any, group: int) -> Any:
        return base * self.functions[group](int(count))


class SequentialLR(Schedule):
    """Schedules one after the other: the i-th from the count milestones[i - 1] on, each counting from 0."""

    def __init__(self, optimizer: Optimizer, schedules: Sequence[Schedule], milestones: Sequence[int]) -> None:
        self.schedules = parts("SequentialLR", schedules, optimizer)
        self.milestones = increasing("SequentialLR", milestones)
        if len(self.milestones) != len(self.schedules) - 1:
            problem = f"{len(self.schedules)} schedules and {len(self.milestones)} milestones"
            raise ArgumentError("SequentialLR", problem, "a milestone between each two schedules")
        super().__init__(optimizer)

    def group_rate(self, count: Any, base: Any, group: int) -> Any:
        rate = self.schedules[0].group_rate(count, base, group)
        for start, schedule in zip(self.milestones, self.schedules[1:], strict=True):
            if not isinstance(count, int) or count >= start:  # not all of them in a program: some have a range
                rate = where(count >= start, schedule.group_rate(count - start, base, group), rate)
        return rate


class ChainedScheduler(Schedule):
    """Schedules at the same time: each has the rate of the one before it as its base."""

    def __init__(self, schedules: Sequence[Schedule], optimizer: Optimizer | None = None) -> None:
        self.schedules = parts("ChainedScheduler", schedules, optimizer)
        super().__init__(self.schedules[0].optimizer)

    def group_rate(self, count: object, base: object, group: int) -> Any:
        for schedule in self.schedules:
            base = schedule.group_rate(count, base, group)
        return base


def cos(x: Tensor | float) -> Any:
    return math.cos(x) if isinstance(x, (int, float)) else meta.cos(x)


def increasing(subject: str, milestones: Sequence[int]) -> list[int]:
    """Increasing ints, 1 or more. Raises ArgumentError for other values."""
    values = [whole(subject, "a milestone", value) for value in milestones]
    if values != sorted(set(values)):
        raise ArgumentError(subject, f"milestones is {values}", "a list of increasing ints")
    return values


def parts(subject: str, schedules: object, optimizer: Optimizer | None) -> list[Schedule]:
    """The schedules that another one is made of. Raises ArgumentError unless all are of one optimizer, by default the
    first one's."""
    listed = list(cast("Sequence[Any]", schedules)) if isinstance(schedules, Sequence) else []
    if not listed or not all(isinstance(each, Schedule) for each in listed):
        raise ArgumentError(
            subject, f"the schedules are {value_text(cast('object', schedules))}", "a list of schedules"
        )
    expected = listed[0].optimizer if optimizer is None else optimizer
    if any(each.optimizer is not expected for each in listed):
        raise ArgumentError(subject, "schedules of several optimizers", "schedules of one optimizer")
    return listed
