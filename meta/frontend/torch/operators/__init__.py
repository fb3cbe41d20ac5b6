"""Operators of meta as operators of torch: `meta.torch.register`.

    meta.torch.register("rms_norm", "mypkg::swish")
    torch.ops.meta.rms_norm(x, w)
    torch.ops.mypkg.swish(x)

An operator's schema becomes torch's schema, its type function the kernel on fake tensors, and its gradient rule and
batching rule run on torch's tensors, where each operator that they call is again one of torch's operators: so torch
traces, exports and differentiates them like its own.

schemas                 schemas and arguments in either form
sizes                   symbolic sizes in either form
kernels                 kernels on memory
traced                  functions of meta on torch's tensors
derivatives             gradients and vmap
hooks                   types of results, mixed precision
registration            `register`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.frontend.torch.operators import derivatives as derivatives
    from meta.frontend.torch.operators import hooks as hooks
    from meta.frontend.torch.operators import kernels as kernels
    from meta.frontend.torch.operators import registration as registration
    from meta.frontend.torch.operators import schemas as schemas
    from meta.frontend.torch.operators.registration import NAMESPACE as NAMESPACE
    from meta.frontend.torch.operators.registration import RESERVED as RESERVED
    from meta.frontend.torch.operators.registration import register as register
else:
    __getattr__, __dir__ = exports(__name__, {
        __name__: ("derivatives", "hooks", "kernels", "registration", "schemas"),
        "meta.frontend.torch.operators.registration": ("NAMESPACE", "RESERVED", "register"),
    })  # fmt: skip
