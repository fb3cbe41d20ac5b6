"""Special functions under the names that torch.special and SciPy give them. Each is a function of `meta`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import meta
from meta.lazy import missing

if TYPE_CHECKING:
    from meta._generated.functions import digamma as digamma
    from meta._generated.functions import digamma as psi
    from meta._generated.functions import entr as entr
    from meta._generated.functions import erf as erf
    from meta._generated.functions import erfc as erfc
    from meta._generated.functions import erfcx as erfcx
    from meta._generated.functions import erfinv as erfinv
    from meta._generated.functions import exp2 as exp2
    from meta._generated.functions import expm1 as expm1
    from meta._generated.functions import i0 as i0
    from meta._generated.functions import i0e as i0e
    from meta._generated.functions import i1 as i1
    from meta._generated.functions import i1e as i1e
    from meta._generated.functions import igamma as gammainc
    from meta._generated.functions import igammac as gammaincc
    from meta._generated.functions import lgamma as gammaln
    from meta._generated.functions import log1p as log1p
    from meta._generated.functions import log_ndtr as log_ndtr
    from meta._generated.functions import log_softmax as log_softmax
    from meta._generated.functions import logit as logit
    from meta._generated.functions import logsumexp as logsumexp
    from meta._generated.functions import ndtr as ndtr
    from meta._generated.functions import ndtri as ndtri
    from meta._generated.functions import polygamma as polygamma
    from meta._generated.functions import round as round  # noqa: A004
    from meta._generated.functions import sigmoid as expit
    from meta._generated.functions import sinc as sinc
    from meta._generated.functions import softmax as softmax
    from meta._generated.functions import xlog1py as xlog1py
    from meta._generated.functions import xlogy as xlogy
    from meta._generated.functions import zeta as zeta
    from meta.functional.elementwise import mvlgamma as multigammaln

_OTHER_NAMES = {
    "expit": "sigmoid", "gammainc": "igamma", "gammaincc": "igammac", "gammaln": "lgamma", "multigammaln": "mvlgamma",
    "psi": "digamma",
}  # fmt: skip
__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
    "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri",
    "polygamma", "psi", "round", "sinc", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip


def _get(name: str) -> Any:
    if name not in __all__:
        return missing(__name__, name)
    return getattr(meta, _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:
    # Hidden from type checkers, which then report names that do not exist.
    __getattr__ = _get
