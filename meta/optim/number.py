"""Numbers of an optimizer: inputs of programs, known on the host."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.device import Device
from meta.dtype import accumulation_dtype
from meta.eager.gradient_graph import version_of
from meta.eager.ndarray import NDArray, array, move_in_place
from meta.modes import modes, suspended
from meta.schema._dsl import TensorLike


class StateNumber:
    """A 0-d array, `float64` or `int64`. The host keeps its value, so that reading it waits for no device unless a
    program has written it."""

    __slots__ = ("_expected", "_host_value", "array")

    def __init__(self, value: float, dtype: str, device: Device) -> None:
        with suspended():
            self.array = array(value, dtype=dtype, device=device)
        self._host_value: tuple[int, float] = (version_of(self.array), value)
        self._expected = self._host_value

    @property
    def value(self) -> float:
        """The number. Raises TraceError in a trace that uses it."""
        return self.array.item() if modes.trace is not None else self.host_value()

    def host_value(self) -> float:
        """The number before the trace in progress, if any."""
        present = version_of(self.array)
        if self._host_value[0] != present:
            value = self._expected[1]
            if self._expected[0] != present:
                with suspended():
                    value = self.array.item()
            self._host_value = present, value
        return self._host_value[1]

    def expect(self, value: float) -> None:
        """The number that the next write to the array gives it, so that the host need not read it."""
        self._expected = version_of(self.array) + 1, value

    @property
    def operand(self) -> Any:
        """The operand of formulas: the number, or in a trace the array."""
        return self.value if modes.trace is None else self.array

    def assign(self, value: Any) -> None:
        """Set it to a number or the value of a 0-d tensor."""
        x = self.array
        if isinstance(value, TensorLike):
            write(x, value)
            return
        x.update(array(value, dtype=x.dtype, device=x.device))
        if modes.trace is None:
            self._host_value = version_of(x), value

    def move(self, device: Device) -> None:
        if self.array.device is not device:
            with suspended():
                move_in_place(self.array, device)


def as_array(value: Any, device: Device) -> NDArray:
    """The result of a formula as a 0-d float64 array, in a trace as a symbol."""
    return array(value, dtype="float64", device=device) if isinstance(value, (int, float)) else value


def where(condition: Any, x: object, y: object) -> Any:
    """One of two numbers, where the condition is a tensor as a 0-d float64 one."""
    if isinstance(condition, bool):
        return x if condition else y
    return meta.where(condition, as_array(x, condition.device), as_array(y, condition.device))


class Scalars:
    """Numbers as 0-d arrays of the dtypes that parameters are updated in, each made once."""

    def __init__(self, **values: Any) -> None:
        self._values = values
        self._arrays: dict[tuple[str, str, Device], Any] = {}

    def __call__(self, x: NDArray, *names: str) -> list[Any]:
        """The numbers for the update of `x`, see `widened`."""
        dtype = accumulation_dtype(x.dtype)
        return [self._scalar(name, dtype, x.device) for name in names]

    def _scalar(self, name: str, dtype: str, device: Device) -> Any:
        key = (name, dtype, device)
        if key not in self._arrays:
            value = self._values[name]
            number = isinstance(value, (int, float))
            self._arrays[key] = array(value, dtype=dtype, device=device) if number else value.cast(dtype)
        return self._arrays[key]


def widened(x: Tensor) -> Any:
    """`x` in the dtype that its update is computed in: float32 for halves."""
    dtype = accumulation_dtype(x.dtype)
    return x if x.dtype == dtype else x.cast(dtype)


def write(x: NDArray, value: Any) -> None:
    """Overwrite `x` with a value, rounded to its dtype."""
    x.update(value if value.dtype == x.dtype else value.cast(x.dtype))
