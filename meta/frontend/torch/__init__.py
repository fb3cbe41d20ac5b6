"""PyTorch's programs and operators on meta.

    torch.compile(model, backend="meta")

compile_backend, explain    the backend of torch.compile, and what it makes of a model
twin                        the function of meta that runs an operator of a custom operator of PyTorch
graph                       graphs of ATen calls as programs
aten                        the table of ATen's operators
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.frontend.torch import aten as aten
    from meta.frontend.torch import graph as graph
    from meta.frontend.torch.dynamo.backend import compile_backend as compile_backend
    from meta.frontend.torch.dynamo.backend import explain as explain
    from meta.frontend.torch.dynamo.report import GraphReport as GraphReport
    from meta.frontend.torch.dynamo.report import Report as Report
    from meta.frontend.torch.twins import twin as twin
else:
    __getattr__, __dir__ = exports(__name__, {
        __name__: ("aten", "graph"),
        "meta.frontend.torch.dynamo.backend": ("compile_backend", "explain"),
        "meta.frontend.torch.dynamo.report": ("GraphReport", "Report"),
        "meta.frontend.torch.twins": ("twin",),
    })  # fmt: skip
