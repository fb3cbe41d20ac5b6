"""A training step in one callable that runs eagerly or compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from meta import tracing
from meta.eager.ndarray import NDArray
from meta.model.model import Model
from meta.optim.optimizer import Optimizer


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


def with_optimizer(kind: type[Optimizer], *args: Any, **options: Any) -> Callable[..., TrainStep]:
    """`with_optimizer(meta.optim.AdamW, 1e-3, weight_decay=0.1)(model)` returns a training step: forward, backward and
    update in one callable.

    kind: the optimizer's class.  args, options: its arguments after the parameters.
    The function returned takes the arguments of TrainStep but the optimizer: `(model, loss=meta.cross_entropy)`."""

    def wrap(model: Any, loss: Callable[..., Any] | None = None, **settings: Any) -> TrainStep:
        return TrainStep(model, kind(model, *args, **options), loss, **settings)

    return wrap
