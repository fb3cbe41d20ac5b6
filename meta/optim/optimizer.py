"""What optimizers share: their state as named arrays, and a training step that runs eagerly or as one program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, cast

from meta import tracing
from meta.autograd.api import no_grad
from meta.eager.ndarray import NDArray, array, asarray
from meta.errors import ArgumentError
from meta.model.model import Model


class Optimizer:
    """Base of optimizers.

    parameters: a Model, arrays, or (name, array) pairs. Arrays that do not require gradients are refused.
    learning_rate is a 0-d array of the optimizer's state, so changing it recompiles nothing.
    """

    def __init__(self, parameters: Model | Iterable[NDArray | tuple[str, NDArray]], learning_rate: float) -> None:
        self.named = _named(parameters)
        first = self.named[0][1]
        rate = hyperparameter("learning_rate", learning_rate)
        self._learning_rate = array(rate, dtype="float32", device=first.device)
        self.slots: dict[str, dict[str, NDArray]] = {}
        """Slot name ("velocity") -> parameter name -> array."""

    @property
    def learning_rate(self) -> float:
        return float(self._learning_rate.item())

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        rate = hyperparameter("learning_rate", value)
        self._learning_rate.update(array(rate, dtype="float32", device=self._learning_rate.device))

    @property
    def parameters(self) -> list[NDArray]:
        return [x for _, x in self.named]

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The arrays of the optimizer and of the parameters it updates, with names."""
        yield "learning_rate", self._learning_rate
        yield from self.named
        for slot, arrays in self.slots.items():
            for name, x in arrays.items():
                yield f"{name}.{slot}", x

    def state_dict(self) -> dict[str, NDArray]:
        """The optimizer's own arrays by name (not the parameters)."""
        mine = {id(x) for x in self.parameters}
        return {name: x for name, x in self.named_state() if id(x) not in mine}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy values into the optimizer's arrays. Raises ArgumentError, before anything is written, unless the names
        are exactly its own and the values fit."""
        mine = self.state_dict()
        if set(state) != set(mine):
            raise ArgumentError("load_state_dict", f"names differ: {sorted(set(state) ^ set(mine))}", f"{sorted(mine)}")
        loaded = {name: asarray(state[name], device=x.device) for name, x in mine.items()}
        for name, x in mine.items():
            if loaded[name].type is not x.type:
                wrong = f"'{name}' is {loaded[name].type!r}"
                raise ArgumentError("load_state_dict", wrong, f"{x.type!r}, as in the optimizer")
        for name, x in mine.items():
            x.update(loaded[name])

    def zero_grad(self) -> None:
        """Drop the gradients of all parameters."""
        for x in self.parameters:
            x.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient, in place."""
        with no_grad():
            for name, x in self.named:
                if x.grad is not None:
                    self.update(name, x, x.grad)

    def update(self, name: str, x: NDArray, dx: NDArray) -> None:
        """Update one parameter from its gradient, in place."""
        raise NotImplementedError


def hyperparameter(name: str, value: Any) -> float:
    """A finite number that is not negative, as a float; raises ArgumentError for anything else."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if 0.0 <= number < math.inf:
        return number
    raise ArgumentError("optimizer", f"{name} is {value!r:.60}", "a finite number, 0 or more")


def _named(parameters: Model | Iterable[NDArray | tuple[str, NDArray]]) -> list[tuple[str, NDArray]]:
    given: Any = parameters.named_parameters() if isinstance(parameters, Model) else parameters
    if not isinstance(given, Iterable) or isinstance(given, NDArray):
        wrong = f"the parameters are {type(given).__name__}"
        raise ArgumentError("optimizer", wrong, "a Model, arrays, or (name, array) pairs")
    listed = cast("Iterable[Any]", given)
    named: list[tuple[str, Any]] = [p if isinstance(p, tuple) else (f"parameter{i}", p) for i, p in enumerate(listed)]
    for name, x in named:
        if not isinstance(x, NDArray):
            raise ArgumentError("optimizer", f"'{name}' is {type(x).__name__}", "arrays", "meta.array(...)")
        if not x.requires_grad:
            raise ArgumentError(
                "optimizer",
                f"'{name}' does not require gradients",
                "arrays with requires_grad = True",
                "call model.train_mode() first",
            )
    if len({name for name, _ in named}) < len(named) or len({id(x) for _, x in named}) < len(named):
        names = ", ".join(name for name, _ in named)
        raise ArgumentError("optimizer", f"a name or an array occurs twice: {names}", "each of them once")
    if not named:
        raise ArgumentError("optimizer", "there are no parameters", "at least one")
    return named


class TrainStep:
    """Forward, backward and update as one callable that runs eagerly, and compiles to one program.

    model: a Model (or function). Its result is the loss, or a tuple that starts with it; the loss has one element.
    loss: applied to the model's result and to the arguments after the first: `loss(model(x), target)`.
    A call returns what the model (or loss) returned.
    """

    def __init__(self, model: Callable[..., Any], optimizer: Optimizer, loss: Callable[..., Any] | None = None) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loss = loss

    def __call__(self, *args: Any) -> Any:
        result: Any = self.model(*args) if self.loss is None else self.loss(self.model(args[0]), *args[1:])
        results = cast("tuple[Any, ...]", result) if isinstance(result, tuple) else (result,)
        self.optimizer.zero_grad()
        results[0].backward()
        self.optimizer.step()
        detached = tuple(r.detach() for r in results)
        return detached if isinstance(result, tuple) else detached[0]

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The model's arrays under its own names, then the optimizer's."""
        seen: set[int] = set()
        named = self.model.named_state() if isinstance(self.model, Model) else iter(())
        for name, x in [*named, *self.optimizer.named_state()]:
            if id(x) not in seen:
                seen.add(id(x))
                yield name, x

    def record(self, *args: Any) -> tracing.Record:
        """The program of one step."""
        return tracing.record(self.__call__, args, {}, {id(x): name for name, x in self.named_state()})

    def ir(self, *args: Any) -> str:
        """The text of the program of one step."""
        return str(self.record(*args).module)
