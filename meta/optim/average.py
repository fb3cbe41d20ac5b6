"""Averages of weights over training steps, for evaluation."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from meta._generated.methods import Tensor
from meta.eager.named_state import Unmatched, fitting_state
from meta.eager.ndarray import NDArray, move_in_place
from meta.model.model import Model
from meta.modes import no_grad, suspended
from meta.optim.checks import below_one
from meta.optim.number import Scalars, StateNumber, where, widened, write
from meta.schema.annotations import CheckedArguments


class WeightAverage(CheckedArguments):
    """Base class of averages of a model's parameters. `update` is called after each step, eagerly or traced;
    `TrainStep(average=...)` calls it. The first call copies the parameters. Buffers are not averaged.

        ema = meta.optim.EMA(model, decay=0.999)
        step = meta.vm.compile(meta.optim.TrainStep(model, optimizer, loss, average=ema))
        ...
        with ema.applied():  # the model has the averages
            evaluate(model)
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        named = list(model.named_parameters())
        self.averages = {name: x.detach().copy() for name, x in named}
        """Parameter -> the average."""
        self._count = StateNumber(0, "int64", named[0][1].device)

    def share(self, count: Any) -> Any:
        """The share of the parameters in the average after `count` updates before this one."""
        raise NotImplementedError

    def update(self) -> None:
        """Take the present parameters into the averages."""
        with no_grad():
            self._follow()
            count: Any = self._count.operand
            scalars = Scalars(share=self.share(count.cast("float64") if isinstance(count, Tensor) else count))
            for name, x in self.model.named_parameters():
                average = self.averages[name]
                (share,) = scalars(x, "share")
                old = widened(average)
                write(average, old + share * (widened(x.detach()) - old))
            self._count.assign(count + 1)

    @contextmanager
    def applied(self) -> Generator[None, None, None]:
        """Inside the block, the model has the averages, also in compiled programs; then its parameters again. Call it
        between steps."""
        self._follow()
        kept = {name: x.detach().copy() for name, x in self.model.named_parameters()}
        self.copy_to_model()
        try:
            yield
        finally:
            self._write(kept)

    def copy_to_model(self) -> None:
        """Overwrite the model's parameters with the averages."""
        self._write(self.averages)

    def _write(self, values: Mapping[str, NDArray]) -> None:
        with no_grad():
            for name, x in self.model.named_parameters():
                x.update(values[name])

    def _follow(self) -> None:
        """Move the averages to where the parameters are now."""
        with suspended():
            for name, x in self.model.named_parameters():
                move_in_place(self.averages[name], x.device, x.dtype)
                self._count.move(x.device)

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The number of updates and the averages, with names."""
        yield "count", self._count.array
        yield from self.averages.items()

    def state_dict(self) -> dict[str, NDArray]:
        """The arrays by name."""
        return dict(self.named_state())

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Copy values into the averages. Raises ArgumentError when names or types differ and leaves all unchanged."""
        arrays = self.state_dict()
        loaded, unmatched = fitting_state(arrays, state, "the average", strict)
        for name, x in loaded.items():
            arrays[name].update(x)
        return unmatched


class EMA(WeightAverage):
    """a <- decay * a + (1 - decay) * x, from the first x (torch's AveragedModel with get_ema_multi_avg_fn)."""

    def __init__(self, model: Model, decay: float = 0.999) -> None:
        self.decay = below_one("EMA", "decay", decay)
        super().__init__(model)

    def share(self, count: Any) -> Any:
        return where(count == 0, 1.0, 1 - self.decay)


class SWA(WeightAverage):
    """The mean of all x, stochastic weight averaging (P. Izmailov et al., 2018; torch's AveragedModel)."""

    def share(self, count: Any) -> Any:
        return (count + 1) ** -1.0
