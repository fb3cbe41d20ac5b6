"""Device tests compare with float32 references, so convolutions must not use TF32."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from meta.backend.cudnn import settings


@pytest.fixture(autouse=True)
def exact_float32() -> Iterator[None]:
    settings.allow_tf32(False)
    torch = sys.modules.get("torch")
    before = torch.backends.cudnn.allow_tf32 if torch else True
    if torch:
        torch.backends.cudnn.allow_tf32 = False
    yield
    settings.allow_tf32(None)
    if torch:
        torch.backends.cudnn.allow_tf32 = before
