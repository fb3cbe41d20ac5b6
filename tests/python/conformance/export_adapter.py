"""meta's reader of torch.export programs for a judge that exports models and compares results with torch.

`import_and_run(program, inputs)` imports the program, compiles it, and runs it on the tensors among the user's inputs.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils import _pytree as pytree

import meta

stage = "?"
seconds: dict[str, float] = {}
_models: dict[int, tuple[Any, Any, Any]] = {}


def import_and_run(program: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The flat outputs of a program. A program that is run again is neither imported nor compiled again."""
    if id(program) not in _models:
        model = _timed("import", lambda: meta.frontend.torch.from_exported(program))
        _models[id(program)] = program, model, meta.vm.compile(model)
    _, _, executor = _models[id(program)]
    args, kwargs = _arguments(program, inputs)
    _timed("compile", lambda: executor.program(*args, **kwargs))
    result = _timed("run", lambda: executor(*args, **kwargs))
    leaves = [x for x in pytree.tree_leaves(result) if isinstance(x, meta.NDArray)]
    return [torch.from_dlpack(x.detach()) for x in leaves]


def _arguments(program: Any, inputs: list[torch.Tensor]) -> tuple[Any, Any]:
    """The arguments of the example call with other tensors in it."""
    flat, spec = pytree.tree_flatten(program.example_inputs)
    rest = iter(inputs)
    values = [meta.from_dlpack(next(rest).contiguous()) if isinstance(x, torch.Tensor) else x for x in flat]
    return pytree.tree_unflatten(values, spec)


def _timed(name: str, function: Any) -> Any:
    global stage
    stage, start = name, time.perf_counter()
    result = function()
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
    return result
