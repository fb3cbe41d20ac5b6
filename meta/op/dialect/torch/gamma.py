"""The gamma function's relatives by ATen: the one whose kernel has vector instructions."""

from __future__ import annotations

from meta.op.dialect.torch import vectorised

vectorised({"lgamma": "lgamma"})
