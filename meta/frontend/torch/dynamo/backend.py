"""The backend of `torch.compile`: AOTAutograd's graphs as programs of meta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._guards import TracingContext
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from meta.frontend.torch import aten
from meta.frontend.torch.dynamo.call import compile_graph
from meta.frontend.torch.dynamo.options import Options, read_options
from meta.frontend.torch.dynamo.partition import partition_of
from meta.frontend.torch.dynamo.report import GraphReport, Report
from meta.frontend.torch.dynamo.roles import Passed
from meta.passes.expand_losses import LEAST_ELEMENTS

_reports: list[list[GraphReport]] = []
"""The lists of the `explain` calls in progress."""


def compile_backend(
    module: GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend "meta" of `torch.compile`, for inference and training.

        model = torch.compile(model, backend="meta")                                       # by its name, or
        model = torch.compile(model, backend=meta.frontend.torch.compile_backend, options={"fuse": False})

    Each graph that Dynamo captures becomes a program for the forward pass, and, where gradients are recorded, one for
    the backward pass. Sizes that Dynamo finds to vary are symbolic in both. Tensors are shared, not copied. Torch runs
    inside of the programs what meta lacks, and every operator that draws random numbers, so that torch.manual_seed
    gives the numbers of eager calls (see `explain`).

    options: see `meta.frontend.torch.dynamo.options.Options`.  mode: None, or one of torch's modes;
        "max-autotune-no-cudagraphs" turns `graphs` off.
    Raises ArgumentError for unknown options."""
    settings = read_options(mode, options)
    reports = list(_reports)
    passed = Passed()
    compiler = aot_autograd(
        fw_compiler=_compiler("forward", settings, reports, passed),
        bw_compiler=_compiler("backward", settings, reports, passed),
        inference_compiler=_compiler("inference", settings, reports, passed),
        decompositions=decompositions(),
        keep_inference_input_mutations=True,  # programs write them
        partition_fn=partition_of(settings.partition),
    )
    with functorch_config.patch(donated_buffer=False):
        return compiler(module, inputs)


def _compiler(kind: str, options: Options, reports: Sequence[list[GraphReport]], passed: Passed) -> Callable[..., Any]:
    """A compiler of graphs of a kind."""

    def compile_one(module: GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        if kind != "backward":
            passed.clear()
            passed.stable.update(_parameter_names(module))
        with _disable_current_modes():
            run, report = compile_graph(module, kind, options, passed)
        for each in reports:
            each.append(report)
        run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd passes one list to such a function
        return run

    return compile_one


def _parameter_names(module: GraphModule) -> list[str]:
    """The placeholders of a forward graph that Dynamo knows as parameters and buffers of modules."""
    context = TracingContext.try_get()
    facts = context.fw_metadata if context is not None else None
    if facts is not None:
        # Programs leave what they read, so that `backward(retain_graph=True)` may follow.
        setattr(facts, "bw_donated_idxs", [])  # noqa: B010  # torch reads it
    placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    return [placeholders[i] for i in facts.static_input_indices if i < len(placeholders)] if facts is not None else []


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions into core ATen operators, of what the table of ATen's operators lacks; and on GPUs of
    operators between others that are computed in one pass over memory."""
    ops = torch.ops.aten
    rows = get_decompositions([ops._log_softmax, ops._log_softmax_backward_data])
    elements = get_decompositions([ops.tanh_backward, ops.sigmoid_backward])
    return {
        **aten.without_rows(core_aten_decompositions()),
        **{op: _on_gpu(function, LEAST_ELEMENTS) for op, function in rows.items()},
        **{op: _on_gpu(function, 0) for op, function in elements.items()},
    }


def _on_gpu(decomposition: Callable[..., Any], least: int) -> Callable[..., Any]:
    """A decomposition where the first argument is on a GPU, and has so many elements."""

    def decompose(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.device.type != "cuda" or not isinstance(x.numel(), int) or x.numel() < least:
            return NotImplemented
        return decomposition(x, *args, **kwargs)

    return decompose


def explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """A model under `torch.compile(model, backend="meta")`: its graphs, and the operators in them that torch runs.

    args, kwargs: of a call of the model, which is run once, with its gradients where it records any: buffers change as
        in any call, `.grad` does not."""
    graphs: list[GraphReport] = []
    _reports.append(graphs)
    try:
        result = torch.compile(model, backend=_fresh_backend())(*args, **kwargs)
        differentiable = [x for x in tree_leaves(result) if getattr(x, "requires_grad", False)]
        if differentiable:
            leaves = _leaves(differentiable)
            torch.autograd.grad(differentiable, leaves, [torch.ones_like(x) for x in differentiable], allow_unused=True)
    finally:
        _reports.remove(graphs)
    return Report(tuple(graphs))


def _fresh_backend() -> Callable[..., Any]:
    """A new backend, for which Dynamo has compiled nothing yet."""
    return lambda module, inputs: compile_backend(module, inputs)


def _leaves(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that get gradients of the results: also those that the model reads from elsewhere."""
    nodes = [torch.autograd.graph.get_gradient_edge(x).node for x in results]
    leaves: list[torch.Tensor] = []
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf: Any = getattr(node, "variable", None)  # of a node that accumulates gradients
        leaves += [leaf] if leaf is not None else []
        nodes += [following for following, _ in node.next_functions if following is not None]
    return leaves
