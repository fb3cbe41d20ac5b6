"""The contents of a program of another system, before it is converted: the result of every frontend's `examine`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meta.errors import MetaError, NotSupportedError

_FILE_AND_LINE = re.compile(r"\.\w+:\d+$")
_SHOWN = 5
"""Places of an operator that a text lists."""


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """The uses of one operator in a program.

    name: in the terms of the program's format.  supported: whether a use can be converted.
    places: of the uses, in the order of the program: numbers of lines in text, names of nodes in graphs, or
        `file:line` of the code that a graph was made from.
    reason: why it is not supported, "" where the operator as such is missing.
    """

    name: str
    supported: bool
    places: tuple[int | str, ...]
    reason: str = ""

    @property
    def count(self) -> int:
        return len(self.places)

    @property
    def lines(self) -> tuple[int, ...]:
        """The places that are numbers of lines."""
        return tuple(place for place in self.places if isinstance(place, int))

    @property
    def location(self) -> str | None:
        """The place of the first use, None unless it is `file:line`."""
        first = str(self.places[0]) if self.places else ""
        return first if _FILE_AND_LINE.search(first) else None

    def where(self, most: int = _SHOWN) -> str:
        """`lines 4, 9, 12`, `node conv1` or `model.py:4`; at most `most` places."""
        if not self.places:
            return ""
        listed = ", ".join(map(_place, self.places[:most])) + (", ..." if self.count > most else "")
        if any(isinstance(place, str) and _FILE_AND_LINE.search(place) for place in self.places):
            return listed
        word = "line" if isinstance(self.places[0], int) else "node"
        return f"{_plural(word, self.count)} {listed}"


@dataclass(frozen=True, slots=True)
class Examination:
    """The operators of a program and whether all of it can be converted. Iterates over `operators`; as a text it is a
    report.

    source: the name of the program.  operators: by name.
    problems: what else prevents a conversion, such as a dtype: texts that name the place.
    """

    source: str
    operators: tuple[OperatorUse, ...]
    problems: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[OperatorUse]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    @property
    def missing(self) -> tuple[OperatorUse, ...]:
        """The operators that are not supported."""
        return tuple(use for use in self.operators if not use.supported)

    @property
    def supported(self) -> bool:
        """Whether every operator is supported and nothing else prevents the conversion."""
        return not self.missing and not self.problems

    def __str__(self) -> str:
        uses = sum(use.count for use in self.operators)
        missing, others = self.missing, len(self.problems)
        refused = [f"{len(missing)} not supported"] if missing else []
        refused += [f"{others} other {_plural('problem', others)}"] if others else []
        counts = f"{len(self)} {_plural('operator', len(self))}, {uses} {_plural('use', uses)}"
        lines = [f"{self.source}: {counts}; {', '.join(refused) or 'all supported'}"]
        width = max((len(use.name) for use in self.operators), default=0)
        for use in (*missing, *(use for use in self.operators if use.supported)):
            reason = f": {use.reason}" if use.reason else ""
            mark = "ok     " if use.supported else "MISSING"
            lines.append(f"  {mark}  {use.name:{width}}  {use.count:5}  {use.where()}{reason}".rstrip())
        lines += [f"  PROBLEM  {problem}" for problem in self.problems]
        return "\n".join(lines)


def _place(place: int | str) -> str:
    """A place; of a path the file."""
    return place.rsplit("/", 1)[-1] if isinstance(place, str) and _FILE_AND_LINE.search(place) else str(place)


def operator_uses(
    places: Mapping[str, Iterable[int | str]], supported: Iterable[str], reasons: Mapping[str, str] | None = None
) -> tuple[OperatorUse, ...]:
    """The uses of operators, by name.

    places: of the uses of each operator.  supported: the operators that can be converted.  reasons: why others cannot,
    where that is more than that the operator is missing."""
    converted, why = frozenset(supported), reasons or {}
    return tuple(OperatorUse(name, name in converted, tuple(where), why.get(name, ""))
                 for name, where in sorted(places.items()))  # fmt: skip


_MOST_PROBLEMS: Final = 100


def problem_lines(problems: Sequence[str]) -> str:
    """The details of an error about several problems: a line for each, of very many the first ones."""
    lines = [f"    {problem}" for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"    and {len(problems) - _MOST_PROBLEMS} more: the error's `problems`")
    return "\n".join(lines)


class UnsupportedProgramError(NotSupportedError):
    """A program that can be read but not converted: the base of each reader's error for such programs.

    operators: the operators that are not supported, with the number of their uses.
    problems: what else cannot be converted, each with its place."""

    def __init__(
        self, subject: str, problem: str, expected: str = "", remedy: str = "", *,
        operators: Mapping[str, int] | None = None, problems: Sequence[str] = (), location: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(subject, problem, expected, remedy, details=problem_lines(problems), location=location)
        self.operators: Mapping[str, int] = operators or {}
        self.problems = tuple(problems) if problems or self.operators else (problem_text(self),)


def problem_text(error: MetaError) -> str:
    """An error as a problem of a program: without the format, which is known."""
    return error.summary.removeprefix(f"[{error.subject}] ")


def missing_operators(missing: Iterable[OperatorUse]) -> str:
    """The problem of an error about operators that are not supported, all of them:
    `1 operator is not supported: nn.foo (3 times: lines 4, 9, 12)`."""
    uses = tuple(missing)
    verb = "operators are" if len(uses) > 1 else "operator is"
    return f"{len(uses)} {verb} not supported: " + ", ".join(map(_summary, uses))


def _summary(use: OperatorUse) -> str:
    times = "once" if use.count == 1 else f"{use.count} times"
    reason = f"; {use.reason}" if use.reason else ""
    return f"{use.name} ({times}: {use.where()}{reason})"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
