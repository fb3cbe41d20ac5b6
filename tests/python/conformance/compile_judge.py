"""Models of torchvision, timm and transformers under torch.compile(backend="meta"), against eager torch.

    python -m tests.python.conformance.compile_judge --models FOLDER [--only REGEX] [--resume]

FOLDER has export_models.py, which defines `MODELS`, by name, and `build(name, train) -> (module, args, kwargs)`.
Each model runs in a forked process of its own, under a time limit: forward in eval mode, then one training step, whose
loss is the mean square of all floating results. Compared are every result, the loss, every gradient and every buffer.
A value passes within 1e-4 of the largest one, or of 1, plus 1e-3 of its own; where torch's own rounding is larger, with
three times the error that eager torch has of a step in float64, unless that is above 1e-2 of the largest value.

Batch norm over two numbers magnifies rounding by chance: errors of two sound computations differ by 10 times either
way. A step that fails is therefore compared with the largest error of eager torch in `_DRAWS` steps, of which all but
one start from parameters and arguments moved by one unit in the last place; it must then also agree in float64, and the
verdict says so. Verdicts are written as they come: passed, wrong, error, timeout or crash; each with the calls that
torch runs inside of the programs.
"""

from __future__ import annotations

import argparse
import collections
import copy
import importlib.util
import json
import math
import os
import re
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

Verdict = dict[str, Any]
Values = dict[str, torch.Tensor]

_DRAWS = 9
"""Steps of eager torch in float32, whose errors show how far rounding goes."""


def judge(build: Callable[..., Any], name: str) -> Verdict:
    """The verdict on one model."""
    from meta.frontend.torch.dynamo import backend

    torch._dynamo.config.allow_rnn = True
    start = time.time()
    graphs: list[Any] = []
    backend._reports.append(graphs)
    problem, notes = "", list[str]()
    for train in (False, True):
        torch._dynamo.reset()
        module, args, kwargs = build(name, train)
        other = copy.deepcopy(module)
        expected = _step(module, module, args, kwargs, train)
        call = torch.compile(other, backend=backend.compile_backend)
        got = _step(call, other, args, kwargs, train)
        if problem:
            continue
        problem = _difference([expected], got, lambda: _exact(build, name, train), 1e-2)  # noqa: B023
        if not problem:
            continue
        draws = [expected, *(_moved(build, name, train, seed) for seed in range(1, _DRAWS))]
        if not _difference(draws, got, lambda: _exact(build, name, train), math.inf):  # noqa: B023
            torch._dynamo.reset()
            exact = _exact(build, name, train, lambda m: torch.compile(m, backend=backend.compile_backend))
            if not _difference([_exact(build, name, train)], exact, dict, 0.0):
                problem, notes = "", [f"{problem}; equal in float64"]
    fallbacks: collections.Counter[str] = collections.Counter(f.operator for graph in graphs for f in graph.fallbacks)
    whole = [graph.by_torch for graph in graphs if graph.by_torch]
    return {
        "verdict": "wrong" if problem else "passed", "why": problem or "; ".join(notes),
        "s": round(time.time() - start, 1),
        "graphs": len(graphs), "operators": sum(graph.operators for graph in graphs), "by_torch": whole,
        "fallbacks": dict(sorted(fallbacks.items())),
    }  # fmt: skip


def _step(call: Any, module: Any, args: Any, kwargs: Any, train: bool) -> Values:
    """Results of one call; of a training step loss, gradients and buffers as well."""
    torch.manual_seed(1)
    with torch.set_grad_enabled(train):
        results = [x for x in pytree.tree_leaves(_plain(call(*args, **kwargs))) if isinstance(x, torch.Tensor)]
    values = {f"result {i}": x.detach() for i, x in enumerate(results)}
    if not train:
        return values
    parts = [x.square().mean() for x in results if x.is_floating_point() and x.requires_grad]
    loss = torch.stack(parts).sum()
    loss.backward()
    values["loss"] = loss.detach()
    values |= {f"gradient of {n}": p.grad for n, p in module.named_parameters() if p.grad is not None}
    return values | {f"buffer {n}": b for n, b in module.named_buffers()}


def _plain(value: Any) -> Any:
    """The outputs of transformers as tuples."""
    return value.to_tuple() if hasattr(value, "to_tuple") else value


def _exact(
    build: Callable[..., Any], name: str, train: bool, wrap: Callable[[Any], Any] = lambda module: module
) -> Values:
    """The same in float64. wrap: makes what is called of the module."""
    module, args, kwargs = build(name, train)
    args, kwargs = pytree.tree_map(lambda x: x.double() if _is_float(x) else x, (args, kwargs))
    module = module.double()
    return _step(wrap(module), module, args, kwargs, train)


def _moved(build: Callable[..., Any], name: str, train: bool, seed: int) -> Values:
    """A step of eager torch from parameters and arguments that are moved by one unit in the last place, up or down."""
    module, args, kwargs = build(name, train)
    generator = torch.Generator().manual_seed(seed)

    def moved(x: torch.Tensor) -> torch.Tensor:
        up = torch.rand(x.shape, generator=generator) < 0.5
        return torch.nextafter(x, torch.where(up, math.inf, -math.inf).to(x.dtype))

    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(moved(parameter))
    args, kwargs = pytree.tree_map(lambda x: moved(x) if _is_float(x) else x, (args, kwargs))
    return _step(module, module, args, kwargs, train)


def _is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _is_rounding(got: torch.Tensor, draws: Sequence[torch.Tensor], exact: torch.Tensor, largest: float) -> bool:
    """Whether the error of a value is that of float32. Where numbers are drawn in float64, those are others.

    draws: values of eager torch.  largest: their largest error that counts as rounding, as a share of the largest
    value."""
    own, limit = max((x - exact).abs().max().item() for x in draws), largest * exact.abs().max().item()
    return own <= limit and (got - exact).abs().max().item() <= 3 * own


def _difference(draws: Sequence[Values], got: Values, exact: Callable[[], Values], rounding: float) -> str:
    """How values differ from the first of several draws, "" if they do not. exact: the values in float64, {} where
    there are none.  rounding: see `_is_rounding`."""
    truth: Values = {}
    expected = draws[0]
    if expected.keys() != got.keys():
        return f"values of {sorted(expected.keys() ^ got.keys())[:3]}"
    for name, e in expected.items():
        g = got[name]
        if e.shape != g.shape or e.dtype != g.dtype:
            return f"{name}: {g.dtype} {list(g.shape)} for {e.dtype} {list(e.shape)}"
        finite = e[e.isfinite()]
        largest = finite.abs().max().item() if finite.numel() else 0.0
        if not torch.allclose(g, e, rtol=1e-3, atol=1e-4 * max(1.0, largest), equal_nan=True):
            truth = truth or exact()
            inputs = [values[name] for values in draws]
            if name in truth and _is_float(e) and _is_rounding(g, inputs, truth[name], rounding):
                continue
            return f"{name}: off by {(g.double() - e.double()).abs().max():.3g}, values up to {largest:.3g}"
    return ""


def in_child(function: Callable[[], Verdict], seconds: float) -> Verdict:
    """The result of a function in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.setpgid(0, 0)
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  # it is the verdict
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = re.sub(r"\s+", " ", str(error))[:400]
            why = f"{type(error).__name__}: {text} @ {Path(place.filename).name}:{place.lineno}"
            result = {"verdict": "error", "why": why}
        with os.fdopen(write, "w") as stream:
            stream.write(json.dumps(result))
        os._exit(0)
    os.close(write)
    data, end = b"", time.monotonic() + seconds
    try:
        while select.select([read], [], [], max(0.0, end - time.monotonic()))[0]:
            chunk = os.read(read, 1 << 16)
            if not chunk:
                return json.loads(data) if data else {"verdict": "crash", "why": "the process ended"}
            data += chunk
        os.killpg(child, signal.SIGKILL)
        return {"verdict": "timeout", "why": f"more than {seconds:.0f} s"}
    finally:
        os.close(read)
        os.waitpid(child, 0)


def load(path: Path) -> Any:
    """The module of a file."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(name: str, verdict: Verdict) -> str:
    fallbacks = ", ".join(f"{op} x {n}" for op, n in verdict.get("fallbacks", {}).items())
    notes = "; ".join(filter(None, [verdict["why"][:200], fallbacks and f"by torch: {fallbacks}",
                                    *verdict.get("by_torch", ())]))  # fmt: skip
    return f"{name:20} {verdict['verdict']:8} {verdict.get('s', ''):>6} {notes}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("compile_results.json"))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args(arguments)
    models = load(args.models.resolve() / "export_models.py")
    path = Path(f"{args.out}l")
    done: dict[str, Verdict] = {}
    if args.resume and path.exists():
        done = dict(json.loads(text) for text in path.read_text().splitlines())
    with path.open("a" if args.resume else "w") as log:
        for name in models.MODELS:
            if name in done or not re.search(args.only, name):
                continue
            done[name] = in_child(lambda name=name: judge(models.build, name), args.seconds)
            log.write(json.dumps([name, done[name]]) + "\n")
            log.flush()
            sys.stdout.write(line(name, done[name]))
            sys.stdout.flush()
    counts = collections.Counter(verdict["verdict"] for verdict in done.values())
    args.out.write_text(json.dumps({"totals": counts, "models": done}, indent=0))
    compiled_whole = sum(
        verdict["verdict"] == "passed" and not verdict["fallbacks"] and not verdict["by_torch"]
        for verdict in done.values()
    )
    sys.stdout.write(f"{len(done)} models: {dict(counts)}; {compiled_whole} passed without a call of torch\n")
    return 0 if set(counts) <= {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main())
