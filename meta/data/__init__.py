"""Batches for training: `meta.data.batches(arrays or dataset, batch, ...)`.

loader    the function: order, worker threads, state, progress bar
sources   what batches come from: arrays, datasets with items, iterables of batches
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.data.loader import Batches as Batches
    from meta.data.loader import batches as batches
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.data.loader": ("Batches", "batches",),
    })  # fmt: skip
