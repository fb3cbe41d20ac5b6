"""Operators: declarations, gradients, dialects and the dispatch between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import submodules

if TYPE_CHECKING:
    from meta.op import data_dependent as data_dependent
    from meta.op import declare as declare
    from meta.op import dialect as dialect
    from meta.op import dispatch as dispatch
    from meta.op import grad as grad
    from meta.op import precision as precision
    from meta.op import registry as registry
    from meta.op import rules as rules
    from meta.op import windows as windows
    from meta.op import work as work
else:
    __getattr__, __dir__ = submodules(__name__)
