"""PyTorch's operators as calls of meta: the table of ATen's names (see meta.frontend.torch.aten)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import submodules

if TYPE_CHECKING:
    from meta.frontend.torch import aten as aten
else:
    __getattr__, __dir__ = submodules(__name__)
