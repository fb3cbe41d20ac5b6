"""Special functions (torch.special)."""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.torch.aten._row import Rows, direct, into

ROWS: Rows = {
    "digamma": "digamma", "erfinv": "erfinv", "i0": "i0", "igamma": "igamma", "igammac": "igammac", "lgamma": "lgamma",
    "mvlgamma": "mvlgamma", "special_digamma": "digamma", "special_entr": "entr", "special_erfc": "erfc",
    "special_erfcx": "erfcx", "special_erfinv": "erfinv", "special_gammainc": "igamma", "special_gammaincc": "igammac",
    "special_gammaln": "lgamma", "special_i0": "i0", "special_i0e": "i0e", "special_i1": "i1", "special_i1e": "i1e",
    "special_log_ndtr": "log_ndtr", "special_logit": "logit", "special_multigammaln": "mvlgamma",
    "special_ndtr": "ndtr", "special_ndtri": "ndtri", "special_psi": "digamma", "special_round": "round",
    "special_xlog1py": "xlog1py", "special_xlogy": "xlogy",
    "special_zeta": direct("zeta", self="x1", other="x2"),
    "special_erf": "erf", "special_exp2": "exp2", "special_expm1": "expm1",
    "special_log1p": "log1p",
}  # fmt: skip


@into(ROWS, "polygamma", "special_polygamma")
def polygamma(n: Any, self: Any) -> Any:
    """Overloads put the order first or, as a method, last."""
    return meta.polygamma(n, self) if isinstance(n, int) else meta.polygamma(self, n)
