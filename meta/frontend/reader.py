"""The skeleton of a reader: what all readers do alike with a program of another system.

Each reader has its own functions that list the operators of a program and convert it. The rest is here: everything that
is not supported is refused at once, a program is examined by converting it, and converted programs are finished in one
way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from meta.device import CPU, Device
from meta.device import device as parse_device
from meta.dim import Dim, find, unify
from meta.errors import ArgumentError, MetaError, NotSupportedError, did_you_mean
from meta.frontend.examination import (
    Examination,
    OperatorUse,
    UnsupportedProgramError,
    missing_operators,
    problem_text,
)
from meta.ir.builder import Module
from meta.ir.verifier import verify_once
from meta.passes.composites import composites
from meta.passes.place import place

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class ConvertedProgram:
    """module: its "main" takes the tensors of `inputs`, in order.  inputs: names that the other system gave them."""

    module: Module
    inputs: tuple[str, ...]

    def finished(self, device: Device | str) -> ConvertedProgram:
        """The program with composites, on a device, checked."""
        module = composites(self.module)
        module = module if parse_device(device) is CPU else place(device)(module)
        verify_once(module)
        return ConvertedProgram(module, self.inputs)


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a format.

    subject: the format, as errors name it.
    error: about programs that are invalid.  unsupported: about programs with something that meta lacks.
    others: besides operators, what of a program may not be supported: "calls".
    remedy: for operators that are not supported.  others_remedy: for the others."""

    subject: str
    error: type[MetaError]
    unsupported: type[UnsupportedProgramError]
    others: str
    remedy: str
    others_remedy: str = ""

    def check_supported(self, uses: Iterable[OperatorUse], errors: Iterable[UnsupportedProgramError]) -> None:
        """Raise an error about everything in a program that is not supported.

        uses: of its operators.  errors: met on the way; those about operators are repeated by `uses`."""
        others = [error for error in errors if not error.operators]
        problems = [problem for error in others for problem in error.problems]
        missing = [use for use in uses if not use.supported]
        if missing:
            raise self.unsupported(
                self.subject, missing_operators(missing), remedy=self.remedy, problems=problems,
                operators={use.name: use.count for use in missing}, location=missing[0].location,
            )  # fmt: skip
        if len(others) == 1:
            raise others[0]
        if others:
            problem = f"{len(others)} {self.others} are not supported"
            raise self.unsupported(self.subject, problem, remedy=self.others_remedy, problems=problems)

    def examination(self, source: str, uses: Sequence[OperatorUse], convert: Callable[[], object]) -> Examination:
        """What is found in the program called `source`: its operators, and what else `convert` refuses."""
        return Examination(source, tuple(uses), self._problems(convert))

    def _problems(self, convert: Callable[[], object]) -> tuple[str, ...]:
        try:
            convert()
        except self.unsupported as error:
            return error.problems
        except self.error as error:
            return (problem_text(error),)
        return ()

    def converted(self, convert: Callable[[Mapping[Any, Dim]], T]) -> T:
        """A program, in which open sizes are one size where the operators require them to be equal.

        convert: makes the program, given the size that each of some open sizes is equal to."""
        try:
            return convert({})
        except self.unsupported:
            raise
        except self.error:
            tied = self._tied_sizes(lambda: convert({}))
            if not tied:
                raise
        return convert(tied)

    def _tied_sizes(self, convert: Callable[[], object]) -> dict[Any, Dim]:
        """The open sizes that must be equal to another size for a program to be valid, with that size.

        An open size says less than the operators require. Empty if no equalities make the program valid."""
        with unify() as parent:
            try:
                convert()
            except self.error:
                return {}
            return {size: find(size, parent) for size in parent}

    def check_names(self, argument: str, given: Iterable[str], names: Sequence[str], what: str) -> None:
        """Raise ArgumentError for a name in an argument that is not one of `names`.

        what: how the name is related to the program, as "is not a parameter of @main"."""
        for name in given:
            if name not in names:
                problem, allowed = f"{argument} has '{name}', which {what}", f"one of {', '.join(names)}"
                raise ArgumentError(self.subject, problem, allowed, did_you_mean(name, names))


@contextmanager
def errors_located(
    error_type: type[MetaError], unsupported: type[MetaError], subject: str, place: Callable[[], str]
) -> Generator[None, None, None]:
    """Raise errors of meta inside as errors of a reader, with a place: `unsupported` for what is not supported,
    `error_type` for everything else. Errors of the reader and errors about arguments (ArgumentError) stay as they are.

    place: where the reader is when the error is raised, in words; "" for an unknown place."""
    try:
        yield
    except (error_type, ArgumentError):
        raise
    except MetaError as error:
        kind = unsupported if isinstance(error, NotSupportedError) else error_type
        where = f"{place()}: " if place() else ""
        problem = error.problem if error.subject in ("", subject) else f"[{error.subject}] {error.problem}"
        raise kind(subject, where + problem, error.expected, remedy=error.remedy) from error
