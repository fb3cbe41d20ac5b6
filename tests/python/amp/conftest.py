"""Tests of casts run on the reference dialect, which builds no kernels; casts do not depend on the dialect."""

from collections.abc import Iterator

import pytest

import meta


@pytest.fixture(autouse=True)
def reference_dialect() -> Iterator[None]:
    with meta.with_dialect("reference"):
        yield
