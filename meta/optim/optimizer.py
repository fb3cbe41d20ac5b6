"""The base class of optimizers, with its state as named arrays, and a training step that runs eagerly or compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, cast

import meta
from meta import tracing
from meta.autograd.api import no_grad
from meta.eager.ndarray import NDArray, array, asarray
from meta.eager.placement import move_in_place
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.modes import suspended


class Optimizer:
    """Base class of optimizers.

    parameters: a Model, arrays, or (name, array) pairs. Those that are frozen (`requires_grad` is False) are skipped
    until they require gradients. Raises ArgumentError if all are, and for computed arrays.
    learning_rate is a 0-d array of the optimizer's state, so a new value needs no recompilation.
    The state follows parameters that move to another device or dtype (`model.to(...)`).
    """

    def __init__(self, parameters: Model | Iterable[NDArray | tuple[str, NDArray]], learning_rate: float) -> None:
        self.named = _named(parameters)
        first = self.named[0][1]
        rate = hyperparameter("learning_rate", learning_rate)
        self._learning_rate = array(rate, dtype="float32", device=first.device)
        self._numbers: list[NDArray] = [self._learning_rate]
        """Hyperparameters as 0-d arrays, the learning rate first, which are where the parameters are."""
        self.slots: dict[str, dict[str, NDArray]] = {}
        """Slot name ("velocity") -> parameter name -> array. Arrays of frozen parameters may be missing."""
        self._types = {name: x.type for name, x in self.named if x.requires_grad}
        """Parameter name -> the type that its state was made for."""

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
        """The optimizer's arrays and the parameters it updates, with names."""
        yield "learning_rate", self._learning_rate
        yield from self.named
        for slot, arrays in self.slots.items():
            for name, x in arrays.items():
                yield f"{name}.{slot}", x

    def state_dict(self) -> dict[str, NDArray]:
        """The optimizer's arrays by name, without the parameters and the hyperparameters but the learning rate."""
        excluded = {id(x) for x in [*self.parameters, *self._numbers[1:]]}
        return {name: x for name, x in self.named_state() if id(x) not in excluded}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy values into the optimizer's arrays. Raises ArgumentError when names or types differ and leaves the
        optimizer unchanged."""
        arrays = self.state_dict()
        if set(state) != set(arrays):
            differing = sorted(set(state) ^ set(arrays))
            raise ArgumentError("load_state_dict", f"names differ: {differing}", f"{sorted(arrays)}")
        loaded = {name: asarray(state[name], device=x.device) for name, x in arrays.items()}
        for name, x in arrays.items():
            if loaded[name].type is not x.type:
                problem = f"'{name}' is {loaded[name].type!r}"
                raise ArgumentError("load_state_dict", problem, f"{x.type!r}, as in the optimizer")
        for name, x in arrays.items():
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
                    if self._types.get(name) is not x.type:
                        self._fit_state(name, x)
                    self.update(name, x, x.grad)

    def _fit_state(self, name: str, x: NDArray) -> None:
        """Create the missing state of a parameter, zeros of its type, or move it to where the parameter is now."""
        before = self._types.get(name, x.type)
        with suspended():
            for number in self._numbers:
                move_in_place(number, x.device)
            for arrays in self.slots.values():
                if name not in arrays:
                    arrays[name] = meta.zeros(x.shape, x.dtype, x.device)
                    continue
                follows = arrays[name].dtype == before.dtype
                move_in_place(arrays[name], x.device, x.dtype if follows else None)
        self._types[name] = x.type

    def update(self, name: str, x: NDArray, dx: NDArray) -> None:
        """Update one parameter from its gradient, in place."""
        raise NotImplementedError


def hyperparameter(name: str, value: Any) -> float:
    """A finite, nonnegative number as a float. Raises ArgumentError for any other value."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if 0.0 <= number < math.inf:
        return number
    raise ArgumentError("optimizer", f"{name} is {value!r:.60}", "a finite number, 0 or more")


def _named(parameters: Model | Iterable[NDArray | tuple[str, NDArray]]) -> list[tuple[str, NDArray]]:
    listed: Any = parameters.named_parameters() if isinstance(parameters, Model) else parameters
    if not isinstance(listed, Iterable) or isinstance(listed, NDArray):
        problem = f"the parameters are {type(listed).__name__}"
        raise ArgumentError("optimizer", problem, "a Model, arrays, or (name, array) pairs")
    items = cast("Iterable[Any]", listed)
    named: list[tuple[str, Any]] = [p if isinstance(p, tuple) else (f"parameter{i}", p) for i, p in enumerate(items)]
    for name, x in named:
        if not isinstance(x, NDArray):
            raise ArgumentError("optimizer", f"'{name}' is {type(x).__name__}", "arrays", "meta.array(...)")
        if not x.is_leaf:
            raise ArgumentError(
                "optimizer",
                f"'{name}' was computed from other arrays, so that it gets no .grad",
                "arrays that no operator computed",
                "pass those that it was computed from, or x.detach()",
            )
    if len({name for name, _ in named}) < len(named) or len({id(x) for _, x in named}) < len(named):
        names = ", ".join(name for name, _ in named)
        raise ArgumentError("optimizer", f"a name or an array occurs twice: {names}", "each parameter once")
    if not named:
        raise ArgumentError("optimizer", "there are no parameters", "at least one parameter")
    if not any(x.requires_grad for _, x in named):
        raise ArgumentError(
            "optimizer",
            f"none of the {len(named)} parameters requires gradients",
            "at least one array with requires_grad = True",
            "set it, or call model.train_mode() first",
        )
    return named


class TrainStep:
    """Forward, backward and update in one callable. It runs eagerly or compiles to one program.

    model: a Model or function. It returns the loss, or a tuple whose first item is the loss; the loss has one element.
    loss: called with the model's result and the arguments after the first: `loss(model(x), target)`.
    A call returns the result of `loss` or, without it, of the model. It leaves no `.grad` on the parameters.
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
        self.optimizer.zero_grad()
        detached = tuple(r.detach() for r in results)
        return detached if isinstance(result, tuple) else detached[0]

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The model's arrays, then the optimizer's, with the names they have there."""
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
