"""Casts do not depend on who computes; the reference dialect has nothing to build."""

from collections.abc import Iterator

import pytest

import meta


@pytest.fixture(autouse=True)
def on_the_reference_dialect() -> Iterator[None]:
    with meta.with_dialect("reference"):
        yield
