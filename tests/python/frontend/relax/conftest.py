from __future__ import annotations

import pytest

from meta.op.registry import all_ops
from meta.op.user.definition import unregister


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """Operators of kernels leave the registry, which other tests go through."""
    yield
    for name in [op.name for op in all_ops() if op.namespace == "relax"]:
        unregister(name)
