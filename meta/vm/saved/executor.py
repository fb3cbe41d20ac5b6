"""Programs loaded from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meta.device import Device
from meta.eager.move import with_arrays
from meta.eager.named_state import Unmatched, fitting_state
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, GradientError, MetaError
from meta.modes import modes
from meta.random.generator import Generator
from meta.tree import Tree
from meta.vm import report
from meta.vm.arguments import check_call, flatten_call, refuse_writes
from meta.vm.gradient import without_gradient
from meta.vm.program import Program
from meta.vm.runner import Runner


class LoadedExecutor:
    """A program from a file: call it as the executor that was saved. See `meta.vm.load`.

    state: the arrays that it reads or writes in place besides its arguments, by name: parameters, buffers, the state of
        an optimizer.  generators: the random generators that it draws from, other than the default one.
    It is compiled for the types that it was saved with. Gradients through a call are not available; a training step
    with `backward` inside is."""

    def __init__(
        self, name: str, device: Device, programs: Sequence[tuple[Tree, Program]], state: Mapping[str, NDArray],
        generators: Sequence[Generator],
    ) -> None:  # fmt: skip
        self.name = name
        self.device = device
        self.state = dict(state)
        self.generators = tuple(generators)
        self._programs = tuple(programs)
        self._runs: dict[Any, Runner] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Raises ArgumentError, before anything is written, for arguments that none of the saved
        programs fits."""
        max_runs = 256  # Combinations of types that are found without a search.
        if not kwargs:
            try:
                run = self._runs.get(tuple([x._type for x in args]))
            except AttributeError:
                run = None
            if run is not None:
                return run(args)
        converted: list[NDArray] = []
        program, inputs = self._fitting(args, kwargs, converted)
        if converted:
            refuse_writes(program.record, inputs, converted)
        run = _refusing_gradients(program)
        plain = not kwargs and not converted and program.tracked is None and len(args) == len(inputs)
        if plain and all(isinstance(x, NDArray) for x in args) and len(self._runs) < max_runs:
            self._runs[tuple([x.type for x in args])] = run
        return run(inputs)

    def memory(self, *args: Any, **kwargs: Any) -> report.MemoryReport:
        """Bytes that a call with these arguments needs; nothing is run."""
        return report.memory(*self._fitting(args, kwargs, []))

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The arrays of the state, with names."""
        yield from self.state.items()

    def state_dict(self) -> dict[str, NDArray]:
        """The arrays of the state by name; not copies."""
        return dict(self.state)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Copy values into the state. Raises ArgumentError for missing, unknown or misshapen entries, before any array
        is written. strict: as in `Model.load_state_dict`."""
        values, unmatched = fitting_state(self.state, state, "the program", strict)
        for name, value in values.items():
            self.state[name].detach().update(value)
        return unmatched

    def _fitting(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], converted: list[NDArray]
    ) -> tuple[Program, list[NDArray]]:
        """The program for a call, and its inputs."""
        args, kwargs = with_arrays((args, kwargs), self.device, converted)
        refusal: MetaError | None = None
        for arguments, program in self._programs:
            key, inputs = flatten_call(program.record.signature, args, kwargs)
            if (arguments, repr(arguments)) != key[:2]:
                continue
            try:
                check_call(program.record, inputs, checks=program.checks)
            except ArgumentError as error:
                refusal = error
                continue
            if program.is_current(inputs):
                return program, inputs
        if len(self._programs) == 1 and refusal is not None:
            raise refusal
        saved = "; ".join(f"({_types(program)})" for _, program in self._programs)
        raise ArgumentError(
            "vm", f"{self.name} was not saved for these arguments", f"one of {saved}"[:500],
            "save it after a call with such arguments",
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"<LoadedExecutor {self.name}, {len(self._programs)} programs, {len(self.state)} arrays on {self.device}>"
        )


def _types(program: Program) -> str:
    pairs = zip(program.record.inputs, program.record.main.params, strict=False)
    return ", ".join(f"{name}: {p.type!r}" for name, p in pairs)


def _refusing_gradients(program: Program) -> Runner:
    """The call, whose results refuse `backward` if an input requires gradients."""
    plain = program.run
    if program.tracked is not None:
        return plain
    refused = GradientError(
        "vm", "a program from a file has no gradient", "programs with backward inside, or an executor",
        "compile it from its source, or save the whole step",
    )  # fmt: skip

    def run(inputs: Sequence[NDArray]) -> Any:
        if modes.grad_enabled and any(x._node is not None for x in inputs):
            return without_gradient(plain, inputs, refused)
        return plain(inputs)

    return run
