"""Random keys of a program: parameters that every call fills with fresh keys of their generators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import meta
from meta.backend.memory import allocation, numpy_arrays
from meta.device import Device
from meta.device import device as parse_device
from meta.eager.ndarray import NDArray
from meta.errors import TraceError
from meta.ir.expr import Constant, Var
from meta.ir.type import tensor_type
from meta.records import mutable, record
from meta.tracing.symbol import Symbol

_KEY = "key"


@mutable
class Draws:
    """The random keys that a program, or one step of a loop, takes from one generator: a parameter with the first one,
    and the number of keys that a call draws. generator: a meta.random.Generator, None for the default one."""

    generator: Any
    var: Var
    count: int = 0


def is_key(param: Var) -> bool:
    """Whether a parameter of a program holds a random key."""
    return param.name.partition(":")[0] == _KEY


@record
class Body:
    """The body of a loop that is traced. where: the function that errors name.  steps: their number, None where it is
    not known before the program runs.  draws: by generator and device, those of one step."""

    where: str
    steps: int | None
    draws: dict[Any, Draws] = field(default_factory=dict[Any, Draws])

    @property
    def params(self) -> tuple[Var, ...]:
        """The parameters of the body that have a step's first keys."""
        return tuple(draws.var for draws in self.draws.values())


class RandomKeys:
    """The keys of a trace. params: the trace's parameters, to which those of keys are added."""

    def __init__(self, params: set[Var]) -> None:
        self.draws: dict[int, Draws] = {}
        self.bodies: list[Body] = []
        self._params = params

    def key(self, device: Device | str, generator: Any, count: int) -> Symbol:
        """A key for a random operator: the first key of the program, or of a step, with an offset; `count` offsets are
        reserved.

        Raises TraceError in a loop whose number of steps is not known."""
        import numpy as np

        target = parse_device(device)
        draws = self._of_step(self.bodies[-1], generator, target) if self.bodies else self._of_program(generator)
        first = Symbol(draws.var)
        placed = first if first.device == target else meta.device_copy(first, target)
        key = _offset(placed, np.array([0, draws.count], np.int64), target)
        draws.count += count
        return key

    def stacks(self, body: Body, reverse: bool) -> list[Symbol]:
        """The first keys of all steps of a loop, stacked in the order of its elements, for each parameter of the body.
        Steps that run one after the other take one key after the other, as in eager code."""
        import numpy as np

        steps = range(body.steps or 0)
        order: Sequence[int] = steps[::-1] if reverse else steps
        out: list[Symbol] = []
        for draws in body.draws.values():
            kind: Any = draws.var.type
            device: Device = kind.device
            first = self.key(device, draws.generator, len(steps) * draws.count)
            offsets = np.zeros((len(order), 2), np.int64)
            offsets[:, 1] = draws.count * np.array(order, np.int64)
            out.append(_offset(first, offsets, device))
        return out

    def _of_program(self, generator: Any) -> Draws:
        draws = self.draws.get(id(generator))
        if draws is None:
            name = f"{_KEY}:{len(self.draws)}" if generator is not None else _KEY
            draws = self.draws[id(generator)] = Draws(generator, Var(name, tensor_type((2,), "int64")))
            self._params.add(draws.var)
        return draws

    def _of_step(self, body: Body, generator: Any, device: Device) -> Draws:
        if body.steps is None:
            raise TraceError(
                body.where,
                "random numbers are drawn in a loop whose number of steps is not known before it runs",
                "loops with a fixed number of steps, for each of which a key is reserved",
                "pass max_steps=..., or give scan a length that is not symbolic",
            )
        draws = body.draws.get((id(generator), device))
        if draws is None:
            draws = body.draws[id(generator), device] = Draws(generator, Var(_KEY, tensor_type((2,), "int64", device)))
            self._params.add(draws.var)
        return draws


def _offset(key: Symbol, offset: Any, device: Device) -> Symbol:
    """A key moved by an offset: int64 of shape (2,), or (n, 2) for a stack of keys."""
    constant = _constant(offset, device)
    moved: Symbol = meta.add(key, Symbol(Constant(constant, constant.type)))  # type: ignore[arg-type]
    return moved


def _constant(host: Any, on: Device) -> NDArray:
    """An array on a device, created outside of the trace."""
    kind = tensor_type(host.shape, str(host.dtype), on)
    data = allocation.empty(host.shape, str(host.dtype), on)
    allocation.copy_into(numpy_arrays.from_numpy(host), data)
    return NDArray(data, kind)
