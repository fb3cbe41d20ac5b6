"""Fixtures of tests of operators and dialects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import meta


@pytest.fixture
def mine() -> Iterator[Any]:
    """A dialect before tvm, removed after the test."""
    with meta.register_dialect("mine", plevel=20) as dialect:
        yield dialect
