"""When a recorded program does not hold any more: a model changed, or one of its lists and dicts did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from operator import is_
from typing import Any, cast

Held = tuple[Any, tuple[Any, ...]]
"""A list or dict of a model, and what it held while a program was traced through the model."""


def held(container: Any) -> Held:
    """A list, or the keys and values of a dict, as they are now."""
    values = container.values() if isinstance(container, dict) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return cast("Held", (container, (*container, *values)))


def changed(containers: Sequence[Held]) -> bool:
    """Whether one of them holds other objects now."""
    for container, then in containers:
        now = held(container)[1]
        if len(now) != len(then) or not all(map(is_, now, then)):
            return True
    return False


_revisions = count(1)
_revision = [0]


def revision() -> int:
    """A number that changes with every change of a model (an attribute replaced, train or infer mode): records from
    before are stale."""
    return _revision[0]


def invalidate() -> None:
    """Make every record stale."""
    _revision[0] = next(_revisions)
