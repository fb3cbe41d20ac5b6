"""Complex numbers and their parts, Fourier transforms. Of real tensors the conjugate is the tensor."""

from __future__ import annotations

from meta.frontend.torch.aten._row import Rows

ROWS: Rows = {}
