"""Records: what dataclasses of frozen instances do, but for the refusal of assignments."""

from __future__ import annotations

import copy
import pickle
from dataclasses import field, fields, replace
from inspect import signature
from typing import ClassVar

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


@record
class Version:
    """A version."""

    parts: ClassVar[int] = 2
    major: int
    minor: int


@record
class Named(Point):
    name: str = ""

    def __hash__(self) -> int:
        return 7


@record
class Box:
    """A box."""

    area: int = field(init=False)
    sides: tuple[int, int]
    marks: list[int] = field(init=False, default_factory=list[int])
    kind: str = field(init=False, default="box")
    unit: str = field(kw_only=True)
    color: str = field(kw_only=True, default="red", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "area", self.sides[0] * self.sides[1])


def test_keywords_and_fields_that_no_argument_sets() -> None:
    box = Box((2, 3), unit="m")
    assert (box.area, box.marks, box.kind, box.unit, box.color) == (6, [], "box", "m", "red")
    assert box == Box((2, 3), unit="m", color="blue") != Box((2, 3), unit="cm")
    assert replace(box, sides=(1, 1)).area == 1
    with pytest.raises(TypeError, match="takes 2 positional arguments"):
        Box((2, 3), "m")  # pyright: ignore[reportCallIssue]


def test_signatures_equal_the_signatures_of_dataclasses() -> None:
    expected = "(x: 'int', y: 'int' = 0, tags: 'list[str]' = <factory>, secret: 'int' = 0) -> 'None'"
    assert str(signature(Point)).replace("-> None", "-> 'None'") == expected
    assert Point.__init__.__qualname__ == "Point.__init__"
    assert Point.__init__.__module__ == __name__


def test_methods_of_a_class_and_of_one_derived_from_it() -> None:
    class Derived(Name):
        pass

    assert Derived("a").text == "a"
    assert Derived("a") != Name("a")
    assert Version.__doc__ == "A version."
    assert Name.__doc__ == "Name"


def test_fields_equality_and_hashes() -> None:
    assert Point(1, 2) == Point(1, 2, ["a"])
    assert hash(Point(1, 2)) == hash(Point(1, 2))
    assert Point(1, 2) != Point(2, 1)
    assert replace(Point(1, 2), y=5) == Point(1, 5)
    assert [each.name for each in fields(Point)] == ["x", "y", "tags", "secret"]
    assert Name("a") != Name("a")
    assert len({Name("a"), Name("a")}) == 2
    assert [each.name for each in fields(Version)] == ["major", "minor"]
    assert hash(Named(1)) == 7


def test_texts_equal_the_texts_of_dataclasses() -> None:
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
