"""Writes to copies that NumPy would return as views raise an error while the array that they come from lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import NotSupportedError

PARTS: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x[0],
    "slice": lambda x: x[:, 1:],
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "transpose": lambda x: x.transpose((1, 0)),
    "swap_axis": lambda x: x.swap_axis(0, 1),
    "moveaxis": lambda x: x.moveaxis(0, 1),
    "broadcast_to": lambda x: x.broadcast_to((2, 2, 3)),
    "split": lambda x: x.split(2)[1],
    "of a part": lambda x: x.T.T[1],
    "of a view": lambda x: x.reshape((3, 2))[0],
    "of an alias": lambda x: x.detach()[0],
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape((6,)),
    "expand_dims": lambda x: x.expand_dims(0),
    "squeeze": lambda x: x.squeeze(),
    "detach": lambda x: x.detach(),
    "newaxis": lambda x: x[None],
}


def assign(x: Any) -> None:
    x[0] = 7.0


def add(x: Any) -> None:
    x += 1.0


WRITES: dict[str, Callable[[Any], None]] = {"setitem": assign, "add": add, "update": lambda x: x.update(x + 1.0)}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_refuses_writes(part: str, write: str) -> None:
    x = meta.zeros((2, 3))
    with pytest.raises(
        NotSupportedError,
        match=rf"\[{write}\] the array of shape .* is a copy of elements of another array, which the write would not "
        r"reach; expected writes to that array, or to a copy with a name; write x\[0, 1\] = value for x\[0\]\[1\] = ",
    ):
        WRITES[write](PARTS[part](x))
    assert not x.numpy().any()


@pytest.mark.parametrize("part", [p for p in PARTS if p != "split"])
@pytest.mark.parametrize("write", WRITES)
def test_a_program_refuses_writes_to_parts(part: str, write: str) -> None:
    def step(x: Any) -> Any:
        WRITES[write](PARTS[part](x))
        return x + 0.0

    with pytest.raises(NotSupportedError, match="is a copy of elements of another array"):
        meta.trace(step).ir(meta.zeros((2, 3)))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", WRITES)
def test_views_write_through(view: str, write: str) -> None:
    x = meta.zeros((2, 3))
    WRITES[write](VIEWS[view](x))
    assert x.numpy().any()


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_nothing_else_and_copies_are_writable(part: str) -> None:
    for x in (PARTS[part](meta.zeros((2, 3))), PARTS[part](kept := meta.zeros((2, 3))).copy()):
        add(x)
        assert (x.numpy() == 1).all()
        assign(x)
        assert (x[0].numpy() == 7).all()
    assert not kept.numpy().any()


def test_arrays_as_indices_copy_as_in_numpy() -> None:
    x = meta.zeros((3,))
    y = x[[0, 2]]
    y += 1.0
    assert (x.tolist(), y.tolist()) == ([0, 0, 0], [1, 1])


@pytest.mark.parametrize("traced", [False, True])
def test_in_place_operators_of_an_index(traced: bool) -> None:
    def step(x: Any) -> Any:
        x[0] += 1.0
        x[:, 1] *= 3.0
        x[-1, ::2] -= x[0, 1]
        return x + 0.0

    host = np.arange(6, dtype="float32").reshape(2, 3)
    x = meta.array(host)
    result = (meta.vm.compile(meta.trace(step)) if traced else step)(x)
    expected = step(host)
    assert x.tolist() == result.tolist() == expected.tolist()
