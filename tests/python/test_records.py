"""Records: what dataclasses of frozen instances do, but for the refusal of assignments."""

from __future__ import annotations

import copy
import pickle
from dataclasses import field, fields, replace

import pytest

from meta.records import record


@record
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list[str], compare=False)
    secret: int = field(default=0, repr=False)


@record(eq=False)
class Name:
    text: str


@record(order=True)
class Version:
    """A version."""

    major: int
    minor: int


@record
class Named(Point):
    name: str = ""

    def __hash__(self) -> int:
        return 7


def test_fields_equality_and_hashes() -> None:
    assert Point(1, 2) == Point(1, 2, ["a"])
    assert hash(Point(1, 2)) == hash(Point(1, 2))
    assert Point(1, 2) != Point(2, 1)
    assert replace(Point(1, 2), y=5) == Point(1, 5)
    assert [each.name for each in fields(Point)] == ["x", "y", "tags", "secret"]
    assert Name("a") != Name("a")
    assert len({Name("a"), Name("a")}) == 2
    assert Version(1, 2) < Version(1, 3) < Version(2, 0)
    assert hash(Named(1)) == 7


def test_texts_are_those_of_dataclasses() -> None:
    assert repr(Point(1)) == "Point(x=1, y=0, tags=[])"
    assert repr(Named(1, name="n")) == "Named(x=1, y=0, tags=[], name='n')"
    circle = Point(1)
    circle.tags.append(circle)  # pyright: ignore[reportArgumentType]
    assert repr(circle) == "Point(x=1, y=0, tags=[...])"


def test_instances_have_slots_and_are_copied() -> None:
    point = Point(1, 2, ["a"])
    with pytest.raises(AttributeError):
        point.z = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert copy.deepcopy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)
