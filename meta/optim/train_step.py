"""A training step in one callable that runs eagerly or compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol, cast

import meta
from meta import tracing
from meta._generated.methods import Tensor
from meta.dtype import accumulation_dtype
from meta.eager.named_state import Unmatched, fitting_state, without_gradients
from meta.eager.ndarray import NDArray, array, move_in_place, with_arrays
from meta.errors import ArgumentError, GradientError, MetaError
from meta.model.closures import models_around
from meta.model.model import Model
from meta.modes import modes, no_grad, suspended
from meta.optim.average import WeightAverage
from meta.optim.checks import whole
from meta.optim.clip import clip_grad_norm, clip_grad_value, grad_norm
from meta.optim.number import StateNumber
from meta.optim.optimizer import Optimizer
from meta.optim.schedule import Schedule
from meta.random.generator import default_generator
from meta.schema._dsl import TensorLike
from meta.schema.annotations import CheckedArguments, checked, refuse_signature
from meta.tree import flatten

_RANDOM: Final = "random.state"
"""The name of the random generator's state among the arrays of a step."""


class Scaler(Protocol):
    """A meta.amp.GradScaler, which scales the loss and skips steps whose gradients overflow."""

    def scale(self, loss: Tensor) -> Any: ...
    def unscale(self, optimizer: object) -> Any: ...
    def step(self, optimizer: object) -> Any: ...
    def named_state(self) -> Iterator[tuple[str, NDArray]]: ...


class StepExchange(Protocol):
    """The communication of a training step's processes; see meta.distributed."""

    def before_call(self, args: tuple[Any, ...]) -> None:
        """Called first, with the arguments of the step."""

    def parameters(self) -> AbstractContextManager[None]:
        """Entered around the forward pass."""
        ...

    def after_backward(self) -> None:
        """Called after every backward pass."""

    def before_update(self, named: Iterable[tuple[str, NDArray]], last: object) -> None:
        """Replace the gradients of parameters before an update. last: a 0-d bool tensor in programs that accumulate
        gradients, whether this call updates; else True."""

    def after_update(self) -> None:
        """Called after every update."""

    def groups(self, name: str) -> tuple[tuple[str, int], ...]:
        """Name and number of the ranks among which the gradient of a parameter is divided, for norms over all of them:
        the name is that in the optimizer. One for each group."""
        ...

    def rewrite(self, record: tracing.Record) -> tracing.Record:
        """Called with the program of a step: the program to run instead."""
        ...

    def placements(self, step: TrainStep) -> list[tuple[str, ...]]:
        """A table of where the arrays of a step's state are, with a heading."""
        ...


class TrainStep(CheckedArguments):
    """Forward, backward and update in one callable. It runs eagerly or compiles to one program.

    model: a Model, or a function, which has the state of the models that it uses. It returns the loss, a tensor of one
        element, or a tuple whose first item is the loss. The other items are tensors, plain values, and nests of them.
    loss: called with the model's result and the arguments after the first: `loss(model(x), target)`.
    accumulate: update with the mean of the gradients of this many calls, at the last of them. For a loss that is a mean
        over a batch, that is the update of one call with the batches of all of them. A program computes the update in
        every call, and keeps it in the last one.
    clip_norm, clip_value: bounds for `clip_grad_norm` and `clip_grad_value` before each update.
    schedule: steps after each update.
    scaler: a GradScaler that scales the loss; it skips updates whose gradients overflow.
    average: an EMA or SWA of the weights, updated after each update.
    grad_norm: a call returns a pair: its result, and the norm of all gradients before they are clipped, a 0-d tensor.
        With `accumulate` it is the norm of the mean so far.
    exchange: what other processes take part in; `meta.distributed.data_parallel`, `zero` and `tensor_parallel` set it.
    A call returns the result of `loss` or, without it, of the model. It leaves no `.grad` on the parameters. Arguments
    may also be arrays of NumPy and torch.
    Raises ArgumentError for settings out of range and a schedule of another optimizer, and in calls for other results.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        optimizer: Optimizer,
        loss: Callable[..., Any] | None = None,
        *,
        accumulate: int = 1,
        clip_norm: object = None,
        clip_value: float | None = None,
        schedule: Schedule | None = None,
        scaler: Scaler | None = None,
        average: WeightAverage | None = None,
        grad_norm: bool = False,
    ) -> None:
        if schedule is not None and schedule.optimizer is not optimizer:
            raise ArgumentError("TrainStep", "the schedule is of another optimizer", "one of the step's optimizer")
        if schedule is not None and schedule.takes_metric:
            problem = f"the schedule is {type(schedule).__name__}, which takes a metric"
            remedy = "call schedule.step(validation_loss) after each epoch"
            raise ArgumentError("TrainStep", problem, "a schedule of the number of steps", remedy)
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        self.clip_norm = clip_norm
        self.clip_value = clip_value
        self.schedule = schedule
        self.scaler = scaler
        self.average = average
        self.grad_norm = grad_norm
        self.exchange: StepExchange | None = None
        self.accumulate = whole("TrainStep", "accumulate", accumulate)
        self._calls = StateNumber(0, "int64", optimizer.parameters[0].device)
        """Calls since the last update."""
        self._sums: dict[str, NDArray] = {}
        """Parameter name -> the mean of the gradients since the last update, as far as it is known."""
        self.renew_sums()

    def renew_sums(self) -> None:
        """Forget the gradients that were accumulated, after the optimizer got other parameters."""
        self._sums.clear()
        if self.accumulate > 1:
            for name, x in self.optimizer.named:
                if x.requires_grad:
                    self._sum(name, x)

    def __setattr__(self, name: str, value: object) -> None:
        """Settings are parts of traced programs; a new value invalidates these programs."""
        if name in self.__dict__ and self.__dict__[name] is not value:
            tracing.invalidate()
        object.__setattr__(self, name, value)

    def __call__(self, *args: object) -> Any:
        if self.loss is not None and not args:
            raise ArgumentError("TrainStep", "0 arguments", "the model's input, then the other arguments of the loss")
        if modes.trace is None:
            args = with_arrays(args, self.optimizer.parameters[0].device)
        if self.exchange is not None:
            self.exchange.before_call(args)
        with nullcontext() if self.exchange is None else self.exchange.parameters():
            result: Any = self.model(*args) if self.loss is None else self._loss(self.model(args[0]), *args[1:])
        loss = self._loss_of(result)
        self._check_mode(loss)
        self.optimizer.zero_grad()
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.exchange is not None:
            self.exchange.after_backward()
        if self.accumulate == 1:
            if self.exchange is not None:
                self.exchange.before_update(self.optimizer.named, True)
            norm = self._update()
        else:
            norm = self._accumulate()
        self.optimizer.zero_grad()
        if self.grad_norm:
            result = result, norm
        leaves, tree = flatten(result, TensorLike)
        return tree.build(iter([x.detach() for _, x in leaves]))

    def _loss(self, *args: object) -> Any:
        loss = cast("Callable[..., Any]", self.loss)
        try:
            return loss(*args)
        except TypeError as error:
            if not isinstance(error, MetaError):
                refuse_signature("TrainStep", "loss", loss, args, "the model's result, then the step's other arguments")
            raise

    def _loss_of(self, result: object) -> Any:
        """The loss in the result of the model or of `loss`."""
        results = cast("tuple[Any, ...]", result) if isinstance(result, tuple) else (result,)
        if results and isinstance(results[0], TensorLike):
            return results[0]
        name = "the model" if self.loss is None else "'loss'"
        kinds = [type(each).__name__ for each in results]
        is_tuple = results is result
        raise ArgumentError(
            "TrainStep",
            f"{name} returns a tuple of {kinds}" if is_tuple else f"{name} returns a {kinds[0]}",
            "the loss, or a tuple whose first item is the loss, which is a tensor of one element",
            "return loss, ... with the other results after the loss" if is_tuple else "return its loss",
        )

    def _check_mode(self, loss: Any) -> None:
        """Raise GradientError for a loss without gradients because the model is in infer mode."""
        if loss.requires_grad:
            return
        trained = [vars(model)["training"] for _, model in self._models()]
        if trained and not any(trained):
            raise GradientError(
                "TrainStep", "the model is in infer mode, in which nothing is recorded for gradients",
                "a model in train mode", "call model.train_mode() before the step",
            )  # fmt: skip

    def _update(self) -> Any:
        """Update the parameters. Returns the norm of the gradients, if it is wanted."""
        clips = self.clip_norm is not None or self.clip_value is not None
        if self.scaler is not None and (clips or self.grad_norm):
            self.scaler.unscale(self.optimizer)
        norm = None
        if self.grad_norm and (self.clip_norm is None or self.clip_value is not None):
            norm = self._norm()
        if self.clip_value is not None:
            clip_grad_value(self.optimizer, self.clip_value)
        if self.clip_norm is not None:
            clipped = clip_grad_norm(self.optimizer, self.clip_norm, group=self._gradient_groups())
            norm = clipped if norm is None else norm
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
        else:
            self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        if self.exchange is not None:
            self.exchange.after_update()
        if self.average is not None:
            self.average.update()
        return norm

    def _norm(self) -> Any:
        return grad_norm(self.optimizer, group=self._gradient_groups())

    def _gradient_groups(self) -> Callable[[NDArray], Sequence[tuple[str, int]]] | None:
        """The groups among which the gradient of each parameter is divided."""
        exchange = self.exchange
        if exchange is None:
            return None
        names = {id(x): name for name, x in self.optimizer.named}
        return lambda x: exchange.groups(names[id(x)])

    def _accumulate(self) -> Any:
        """Add up gradients, and update at the last call. Returns the norm of their mean, if it is wanted."""
        norms: list[Any] = []

        def update() -> None:
            norms.append(self._update())

        with no_grad():
            self._calls.move(self.optimizer.parameters[0].device)
            calls = self._calls.operand + 1
            last = calls == self.accumulate
            totals: dict[str, Any] = {}
            for name, x in self.optimizer.named:
                if x.grad is not None:
                    mean = self._sum(name, x)
                    totals[name] = mean + x.grad.cast(mean.dtype) * (1 / self.accumulate)
                    x.grad = totals[name].cast(x.dtype)
            if self.exchange is not None and (modes.trace is not None or last):
                self.exchange.before_update(self.optimizer.named, last if modes.trace is not None else True)
            if modes.trace is not None:
                modes.trace.write_where(last, update)
                for name, total in totals.items():
                    self._sums[name].update(meta.where(last, meta.zeros_like(total), total))
                self._calls.assign(meta.where(last, meta.zeros_like(calls), calls))
                return norms[0]
            norm = self._update() if last else self._norm() if self.grad_norm else None
            for name, total in totals.items():
                self._sums[name].update(meta.zeros_like(total) if last else total)
            self._calls.assign(0 if last else calls)
            return norm

    def _sum(self, name: str, x: NDArray) -> NDArray:
        """The array in which the gradients of a parameter are added up, where the parameter is."""
        dtype = accumulation_dtype(x.dtype)
        with suspended(), no_grad():
            if name not in self._sums:
                self._sums[name] = meta.zeros(x.shape, dtype, x.device)
            move_in_place(self._sums[name], x.device, dtype)
        return self._sums[name]

    # --- state -------------------------------------------------------------------------------------------------------

    def _own_state(self) -> Iterator[tuple[str, NDArray]]:
        if self.accumulate > 1:
            yield "calls", self._calls.array
            yield from ((f"{name}.accumulated", x) for name, x in self._sums.items())

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The arrays of the model, the optimizer, the schedule and the scaler, with the names they have there."""
        seen: set[int] = set()
        model_state = self.model.named_state() if isinstance(self.model, Model) else iter(())
        used = ((f"{prefix}.{n}", x) for prefix, model in self._models() for n, x in model.named_state())
        extra = [(f"{prefix}.{n}", x) for prefix, part in self._helpers() for n, x in part.named_state()]
        for name, x in [*model_state, *self.optimizer.named_state(), *extra, *self._own_state(), *used]:
            if id(x) not in seen:
                seen.add(id(x))
                yield name, x

    def _helpers(self) -> list[tuple[str, Schedule | Scaler | WeightAverage]]:
        """What has a state besides the models and the optimizer, with names."""
        helpers = (("schedule", self.schedule), ("scaler", self.scaler), ("average", self.average))
        return [(name, helper) for name, helper in helpers if helper is not None]

    def _models(self) -> list[tuple[str, Model]]:
        """The models that the step uses, with names that tell them apart; "" for `model` itself."""
        own = [("", self.model)] if isinstance(self.model, Model) else models_around(self.model)
        known = {id(model) for _, model in own}
        return own + [(name, model) for name, model in models_around(self.loss) if id(model) not in known]

    def _weights(self) -> dict[str, NDArray]:
        """The arrays of the models, and the optimizer's parameters outside of them. In a function, parameters have the
        optimizer's names, and other arrays those in their model."""
        weights = dict(self.model.named_state()) if isinstance(self.model, Model) else {}
        known = {id(x) for x in weights.values()}
        weights |= {name: x for name, x in self.optimizer.named if id(x) not in known}
        known = {id(x) for x in weights.values()}
        models = self._models()
        for prefix, model in models:
            for name, x in model.named_state():
                if id(x) not in known:
                    known.add(id(x))
                    weights[name if len(models) == 1 else f"{prefix}.{name}"] = x
        return weights

    def state_dict(self) -> dict[str, NDArray]:
        """Everything that a later run needs to go on, by name: `model.w`, `optimizer.w.m`, `schedule.count`,
        `scaler.factor`, with `accumulate` the gradients so far, and the seed and offset of the generator of
        `meta.random` (`random.state`). Its arrays share the memory of the step and require no gradients."""
        random = array(list(default_generator.state), dtype="int64")
        return {**without_gradients(self.state_arrays().items()), _RANDOM: random}

    def state_arrays(self) -> dict[str, NDArray]:
        """The arrays of the step's state, by their names in `state_dict`."""
        parts: list[tuple[str, Any]] = [("model", self._weights()), ("optimizer", self.optimizer.state_dict())]
        parts += [(name, dict(helper.named_state())) for name, helper in self._helpers()]
        parts.append(("step", dict(self._own_state())))
        return {f"{prefix}.{name}": x for prefix, arrays in parts for name, x in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Copy the values of `state_dict`. Raises ArgumentError when names or types differ and leaves all unchanged.

        strict: with False, missing and unknown names are left alone. They are returned in any case."""
        arrays = self.state_arrays()
        loaded, unmatched = fitting_state(self.state_dict(), state, "the training step", strict)

        def part(prefix: str) -> dict[str, NDArray]:
            return {n.removeprefix(f"{prefix}."): x for n, x in loaded.items() if n.startswith(f"{prefix}.")}

        self.optimizer.load_state_dict(part("optimizer"), strict)
        if self.schedule is not None:
            self.schedule.load_state_dict(part("schedule"), strict)
        with no_grad():
            for name, x in loaded.items():
                if name.startswith(("model.", "scaler.", "average.", "step.")):
                    arrays[name].update(x)
        if _RANDOM in loaded:
            seed, offset = loaded[_RANDOM].tolist()
            default_generator.load_state_dict({"seed": seed, "offset": offset})
        return unmatched

    # --- programs ----------------------------------------------------------------------------------------------------

    def record(self, *args: object) -> tracing.Record:
        """The program of one step."""
        record = tracing.record(self.__call__, args, {}, {id(x): name for name, x in self.named_state()})
        return record if self.exchange is None else self.exchange.rewrite(record)

    def placements(self) -> list[tuple[str, ...]]:
        """A table of where the parameters and the state of a step of several processes are, for `explain`: a heading,
        and a row of each array. Empty for a step of one process."""
        return [] if self.exchange is None else self.exchange.placements(self)

    def ir(self, *args: object) -> str:
        """The text of the program of one step."""
        return str(self.record(*args).module)


@checked
def with_optimizer(kind: type[Optimizer], *args: Any, **options: Any) -> Callable[..., TrainStep]:
    """`with_optimizer(meta.optim.AdamW, 1e-3, weight_decay=0.1)(model)` returns a training step: forward, backward and
    update in one callable.

    kind: the optimizer's class.  args, options: its arguments after the parameters.
    The function returned takes the arguments of TrainStep but the optimizer: `(model, loss=meta.cross_entropy)`."""

    def wrap(model: Any, loss: Callable[..., Any] | None = None, **settings: Any) -> TrainStep:
        return TrainStep(model, kind(model, *args, **options), loss, **settings)

    return wrap
