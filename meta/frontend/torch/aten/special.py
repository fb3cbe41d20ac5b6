"""Special functions (torch.special)."""

from __future__ import annotations

from meta.frontend.torch.aten._row import Rows

ROWS: Rows = {
    "special_erf": "erf", "special_exp2": "exp2", "special_expit": "sigmoid", "special_expm1": "expm1",
    "special_log1p": "log1p", "special_logsumexp": "logsumexp",
}  # fmt: skip
