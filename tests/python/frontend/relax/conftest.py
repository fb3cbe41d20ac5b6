from __future__ import annotations

import pytest

from meta.definition.removal import unregister
from meta.op.registry import all_ops


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """Operators of kernels leave the registry, which other tests go through."""
    yield
    for name in [op.name for op in all_ops() if op.namespace == "relax"]:
        unregister(name)
