"""TVM's lowering of scheduled functions, followed by the expansion of random bits."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.te import philox

_NAME: Final = "meta"


@cache
def pipeline() -> str:
    """The name of TVM's pipeline with `philox.expand` at its end, registered with TVM on first use."""
    tvm.register_tir_pipeline(_NAME, _pipeline)
    return _NAME


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finalize_host, finalize_device = tvm.get_tir_pipeline("default")
    return lower, lambda: _with_expansion(finalize_host()), lambda: _with_expansion(finalize_device())


def _with_expansion(finalize: Any) -> Any:
    def run(module: Any, _context: Any) -> Any:
        module = finalize(module)
        return tvm.IRModule({name: philox.expand(f) for name, f in module.functions.items()}, attrs=module.attrs)

    return tvm.module_pass(run, opt_level=0, name="meta.ExpandRandomBits")
