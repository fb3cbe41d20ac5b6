"""Small PyTorch models, exported or compiled, against eager torch:
`python -m tests.python.conformance.torch_sample export --out results.json`.

export: `torch.export` and `from_exported`, with a symbolic batch, run with two batch sizes.
compile: `torch.compile(backend="meta")`, forward and one training step: outputs, loss and every gradient.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

RTOL, ATOL = 1e-3, 1e-4


class Layers(nn.Module):
    """Layers one after the other, with one parameter of forward."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Attention(nn.Module):
    """An encoder layer over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embedding(tokens)).mean(1))


def _image(batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, 8, 8)


def _tokens(batch: int) -> torch.Tensor:
    return torch.randint(0, 32, (batch, 6))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "mlp": (lambda: Layers(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)),
            lambda n: torch.randn(n, 6)),
    "convolutions": (lambda: Layers(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                                           nn.Flatten(), nn.Linear(64, 5)), _image),
    "attention": (Attention, _tokens),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("judge", choices=("export", "compile"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    judge = exported if options.judge == "export" else compiled
    verdicts: dict[str, tuple[str, str]] = {}
    for name, (make, inputs) in MODELS.items():
        torch.manual_seed(0)
        try:
            problem = judge(make(), inputs)
            verdicts[name] = ("wrong", problem) if problem else ("passed", "")
        except Exception as error:  # noqa: BLE001  # whatever a reader raises is a verdict
            verdicts[name] = ("error", f"{type(error).__name__}: {error}".split("\n")[0][:200])
    models = {name: {"verdict": verdict, "why": reason} for name, (verdict, reason) in verdicts.items()}
    totals = Counter(verdict for verdict, _ in verdicts.values())
    options.out.write_text(json.dumps({"totals": totals, "models": models}, indent=1))
    return 0


def exported(model: nn.Module, inputs: Callable[[int], torch.Tensor]) -> str:
    """How a program differs from the model; "" if it does not."""
    from tests.python.conformance import export_adapter

    model = model.eval()
    program = torch.export.export(model, (inputs(2),), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    for batch in (2, 5):
        x = inputs(batch)
        with torch.no_grad():
            expected = model(x)
        (actual,) = export_adapter.import_and_run(program, [x])
        problem = _difference(f"batch {batch}", expected, torch.as_tensor(actual))
        if problem:
            return problem
    return ""


def compiled(model: nn.Module, inputs: Callable[[int], torch.Tensor]) -> str:
    """How a compiled model differs from the model, in its outputs and in the gradients of a step."""
    from meta.frontend.torch import compile_backend

    reference, x = copy.deepcopy(model), inputs(4)
    run = torch.compile(model, backend=compile_backend)
    for each in (reference, run):
        each(x).square().mean().backward()
    pairs = zip(reference.named_parameters(), model.parameters(), strict=True)
    for (name, expected), actual in pairs:
        problem = _difference(f"gradient of {name}", expected.grad, actual.grad)
        if problem:
            return problem
    reference.eval(), model.eval()
    with torch.no_grad():
        return _difference("output", reference(x), run(x))


def _difference(subject: str, expected: Any, actual: Any) -> str:
    if actual is None or expected.shape != actual.shape or expected.dtype != actual.dtype:
        return f"{subject}: {None if actual is None else (actual.dtype, tuple(actual.shape))}"
    if not torch.allclose(actual, expected, rtol=RTOL, atol=ATOL, equal_nan=True):
        return f"{subject} is off by {(actual - expected).abs().max():.1e}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
