"""Sizes that are solved for, where inputs have them only in expressions."""

from __future__ import annotations

import pytest

from meta.dim import sym
from meta.ir.type import linear, solve


def test_linear_sizes_have_a_coefficient_and_a_rest() -> None:
    h, w = sym("h"), sym("w")
    assert linear(2 * h + 1, "h") == (2, 1)
    assert linear(h * w + 3 * h - w // 2, "h") == (w + 3, -(w // 2))
    assert linear(w, "h") is None  # without h
    assert linear(h * h, "h") is None
    assert linear(h // 2 + h, "h") is None
    assert linear(h + w // h, "h") is None


def test_equations_are_solved_for_their_only_unknown_size() -> None:
    h, w = sym("h"), sym("w")
    assert solve(2 * h + 1, 7, {}) == ("h", 3)
    assert solve(h * w - w, 8, {"w": 4}) == ("h", 3)
    assert solve(3 - h, 1, {}) == ("h", 2)
    assert solve(h * w, 8, {}) is None
    assert solve(h * w, 8, {"w": 0}) is None
    assert solve(h, 8, {"h": 8}) is None
    for total in (6, -1):  # odd, and less than 0
        with pytest.raises(ArithmeticError, match=rf"1 \+ 2\*h is never {total}"):
            solve(2 * h + 1, total, {})
