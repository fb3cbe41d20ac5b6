"""Special functions by ATen: the one whose kernel takes less time than TVM's."""

from __future__ import annotations

from meta.op.dialect.torch import vectorised

vectorised({"erfinv": "erfinv"})
