"""PyTorch's programs and operators on meta.

    torch.compile(model, backend="meta")
    model = meta.frontend.torch.from_exported(torch.export.export(module, args))

`compile_backend` and `explain` are the backend of torch.compile and its report, `from_exported` and `load` read
programs of torch.export and `.pt2` files, `examine` lists the operators of such a program, and `twin` registers the
function of meta for a custom operator of PyTorch.

api, errors                                 the public functions, and their errors
archive, schema, fields                     `.pt2` files
size_text, tree_text                        sizes, and nests of arguments, in `.pt2` files
fx                                          FX graphs of torch.export
exported, nodes                             programs and graphs as data, from either
graph, functions, control_flow, aliases     graphs of ATen calls as programs of meta
sizes                                       sizes of torch as sizes of meta
twins, library_twins                        custom operators with a function of meta, of users and of libraries
model                                       an exported program as a Model
aten, quantized                             the tables of ATen's operators and of quantised programs' operators
operators                                   operators of meta as operators of torch
dynamo                                      the backend of torch.compile
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.frontend.examination import Examination as Examination
    from meta.frontend.examination import OperatorUse as OperatorUse
    from meta.frontend.torch import aten as aten
    from meta.frontend.torch import graph as graph
    from meta.frontend.torch.api import examine as examine
    from meta.frontend.torch.api import from_exported as from_exported
    from meta.frontend.torch.api import load as load
    from meta.frontend.torch.dynamo.backend import compile_backend as compile_backend
    from meta.frontend.torch.dynamo.backend import explain as explain
    from meta.frontend.torch.dynamo.report import GraphReport as GraphReport
    from meta.frontend.torch.dynamo.report import Report as Report
    from meta.frontend.torch.errors import TorchProgramError as TorchProgramError
    from meta.frontend.torch.errors import UnsupportedError as UnsupportedError
    from meta.frontend.torch.model import ExportedModel as ExportedModel
    from meta.frontend.torch.twins import twin as twin
else:
    __getattr__, __dir__ = exports(__name__, {
        __name__: ("aten", "graph"),
        "meta.frontend.examination": ("Examination", "OperatorUse"),
        "meta.frontend.torch.api": ("examine", "from_exported", "load"),
        "meta.frontend.torch.dynamo.backend": ("compile_backend", "explain"),
        "meta.frontend.torch.dynamo.report": ("GraphReport", "Report"),
        "meta.frontend.torch.errors": ("TorchProgramError", "UnsupportedError"),
        "meta.frontend.torch.model": ("ExportedModel",),
        "meta.frontend.torch.twins": ("twin",),
    })  # fmt: skip
