"""Operators of meta as operators of torch, under the public name `meta.torch`.

    meta.torch.register("rms_norm", "mypkg::swish")
    torch.ops.meta.rms_norm(x, w)
    torch.ops.mypkg.swish(x)

An operator's schema becomes torch's schema, and its type function the kernel on fake tensors. Its gradient rule and its
batching rule run on torch's tensors, where each operator that they call is one of torch's operators again: so torch
traces, exports, batches and differentiates them like its own, and no operator needs a second one for its gradient. In
an eager backward pass, which nothing observes, the gradient rule runs meta's kernels, without torch's dispatcher.

A call crosses from torch to meta and back once: `kernels` wraps the memory of torch's tensors as arrays, by the
exchange of DLPack in C, and calls the public function of the operator, which finds its runner by the types of the
arrays.

schemas                 schemas and arguments in either form
sizes                   symbolic sizes in either form, and type functions on them
kernels                 kernels on memory
strided                 kernels on operands that are parts of other memory
traced                  functions of meta on torch's tensors
derivatives             gradients and vmap
autograd                kernels that record calls, and forward mode
hooks                   types of results, mixed precision
registration            `register`
providing               `provide`
package                 the text of a package for users of torch

Nothing here is imported, and torch neither, before the first use of `meta.torch.register`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.frontend.torch.operators.providing import Provider as Provider
    from meta.frontend.torch.operators.providing import provide as provide
    from meta.frontend.torch.operators.registration import NAMESPACE as NAMESPACE
    from meta.frontend.torch.operators.registration import RESERVED as RESERVED
    from meta.frontend.torch.operators.registration import register as register
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.frontend.torch.operators.providing": ("Provider", "provide"),
        "meta.frontend.torch.operators.registration": ("NAMESPACE", "RESERVED", "register"),
    })  # fmt: skip
