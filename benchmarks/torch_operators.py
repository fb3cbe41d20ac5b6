"""`python -m benchmarks.torch_operators [--backend NAME] [--seconds N]`: meta's operators as torch's, on the CPU.

Medians of processor time. Models: a training step of a Llama-like and a ConvNeXt-like model whose layers call
`torch.ops.meta`, compiled without graph breaks, against the same model of torch's own functions compiled by the same
backend. Calls: beyond a custom operator of torch that only allocates its result, and meta's own call. Registering: all
operators, in a new process."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import meta
from benchmarks.timing import Row, medians

ops = torch.ops.meta
STEP_LIMIT, CALL_LIMIT, REGISTERING_LIMIT = 1.1, 1.5, 2.0


class Own:
    """The layers of the models as meta's operators."""

    linear = staticmethod(lambda x, w: ops.dense(x, w))
    rms_norm = staticmethod(lambda x, w: ops.rms_norm(x, w, [-1], 1e-6))
    layer_norm = staticmethod(lambda x, w, b: ops.layer_norm(x, w, b, [-1], 1e-6))
    gelu, silu = staticmethod(lambda x: ops.gelu(x)), staticmethod(lambda x: ops.silu(x))
    attention = staticmethod(lambda q, k, v: ops.attention_with_lse(q, k, v, True)[0])
    conv = staticmethod(lambda x, w, step, pad, groups: ops.conv2d(x, w, [step] * 2, [pad] * 2, [1, 1], groups))
    loss = staticmethod(lambda x, target: ops.cross_entropy(x, target))


class Torch:
    """The layers as torch's functions."""

    linear = staticmethod(F.linear)
    rms_norm = staticmethod(lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6))
    layer_norm = staticmethod(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-6))
    gelu, silu = staticmethod(F.gelu), staticmethod(F.silu)
    attention = staticmethod(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    conv = staticmethod(lambda x, w, step, pad, groups: F.conv2d(x, w, None, step, pad, 1, groups))
    loss = staticmethod(F.cross_entropy)


class Llama(nn.Module):
    """A decoder with rotary positions and gated feed-forward layers."""

    def __init__(self, f: Any, features: int = 256, heads: int = 4, hidden: int = 688, layers: int = 4) -> None:
        super().__init__()
        self.f, self.heads = f, heads
        shapes = [(features, features)] * 4 + [(hidden, features)] * 2 + [(features, hidden)]
        self.embedding = nn.Parameter(torch.randn(1000, features) * 0.02)
        self.matrices = nn.ParameterList(nn.Parameter(torch.randn(s) * 0.02) for _ in range(layers) for s in shapes)
        self.norms = nn.ParameterList(nn.Parameter(torch.ones(features)) for _ in range(2 * layers + 1))

    def forward(self, tokens: Tensor) -> Tensor:
        f, x = self.f, self.embedding[tokens]
        batch, length, features = x.shape
        angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(features // self.heads // 2) * 2 / features)
        cos, sin = angles.cos(), angles.sin()

        def split(y: Tensor) -> Tensor:
            return y.view(batch, length, self.heads, -1).transpose(1, 2)

        def rotated(y: Tensor) -> Tensor:
            a, b = y.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        for i in range(len(self.norms) // 2):
            q, k, v, o, gate, up, down = self.matrices[7 * i : 7 * i + 7]
            h = f.rms_norm(x, self.norms[2 * i])
            heads = rotated(split(f.linear(h, q))), rotated(split(f.linear(h, k))), split(f.linear(h, v))
            x = x + f.linear(f.attention(*heads).transpose(1, 2).reshape(x.shape), o)
            h = f.rms_norm(x, self.norms[2 * i + 1])
            x = x + f.linear(f.silu(f.linear(h, gate)) * f.linear(h, up), down)
        return f.linear(f.rms_norm(x, self.norms[-1]), self.embedding).flatten(0, 1)

    @staticmethod
    def inputs() -> tuple[Tensor, Tensor]:
        tokens = torch.randint(0, 1000, (2, 129))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()


class ConvNext(nn.Module):
    """Depthwise convolutions, layer norm over channels and two dense layers, with residual connections."""

    def __init__(self, f: Any, widths: tuple[int, ...] = (32, 64), blocks: int = 2) -> None:
        super().__init__()
        self.f, self.blocks = f, blocks
        self.patches = nn.ParameterList()
        self.parts = nn.ParameterList()
        before = 3
        for width in widths:
            self.patches.append(torch.randn(width, before, 2, 2) * 0.1)
            shapes = [(width, 1, 7, 7), (width,), (width,), (4 * width, width), (width, 4 * width)]
            self.parts.extend(torch.randn(shape) * 0.1 for _ in range(blocks) for shape in shapes)
            before = width
        self.head = nn.Parameter(torch.randn(10, before) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        f = self.f
        for stage, patch in enumerate(self.patches):
            x = f.conv(x, patch, 2, 0, 1)
            for block in range(stage * self.blocks, (stage + 1) * self.blocks):
                depthwise, scale, shift, wide, narrow = self.parts[5 * block : 5 * block + 5]
                h = f.conv(x, depthwise, 1, 3, x.shape[1]).permute(0, 2, 3, 1)
                h = f.layer_norm(h, scale, shift)
                h = f.linear(f.gelu(f.linear(h, wide)), narrow)
                x = x + h.permute(0, 3, 1, 2)
        return f.linear(x.mean((2, 3)), self.head)

    @staticmethod
    def inputs() -> tuple[Tensor, Tensor]:
        return torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))


MODELS: dict[str, Any] = {"Llama-like": Llama, "ConvNeXt-like": ConvNext}


def step_of(build: Any, f: Any, backend: str) -> tuple[Callable[[], Any], nn.Module]:
    """A training step without its optimizer, compiled, and its model."""
    torch.manual_seed(0)
    model = build(f)
    inputs, target = build.inputs()
    run = torch.compile(lambda x, y: f.loss(model(x), y), backend=backend, fullgraph=True)

    def step() -> Any:
        model.zero_grad(set_to_none=True)
        loss = run(inputs, target)
        loss.backward()
        return loss

    return step, model


def models(seconds: float, backend: str = "inductor") -> Iterator[Row]:
    for name, build in MODELS.items():
        torch._dynamo.reset()
        (own, model), (theirs, reference) = step_of(build, Own, backend), step_of(build, Torch, backend)
        torch.testing.assert_close(own(), theirs(), rtol=1e-4, atol=1e-5)
        for p, q in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-4)
        times = medians(own, theirs, seconds=seconds, clock=time.process_time)
        yield Row(f"step of a {name} model, {backend}", *(1e3 * t for t in times), "ms", STEP_LIMIT)


@torch.library.custom_op("benchmark::allocate", mutates_args=())
def allocate(x: Tensor, scale: Tensor, eps: float = 1e-5) -> Tensor:
    """Stands for what torch takes to call any custom operator."""
    return torch.empty_like(x)


def _saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _allocated(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return *map(torch.empty_like, ctx.saved_tensors), None


allocate.register_autograd(_allocated, setup_context=_saved)


def calls(seconds: float) -> Iterator[Row]:
    """Of rms_norm of four rows of eight elements."""
    x, w, dy = torch.randn(4, 8), torch.ones(8), torch.randn(4, 8)
    arrays = [meta.array(t.numpy()) for t in (x, w, dy)]

    def recorded(function: Any, *tensors: Tensor) -> Callable[[], Any]:
        xs = [t.clone().requires_grad_() for t in tensors]
        return lambda: torch.autograd.grad(function(*xs), xs, dy)

    def own(x: Any, w: Any, dy: Any) -> Callable[[], Any]:
        x.requires_grad = w.requires_grad = True
        return lambda: meta.rms_norm(x, w).backward(dy)

    plain = (lambda: ops.rms_norm(x, w)), (lambda: allocate(x, w)), (lambda: meta.rms_norm(*arrays[:2]))
    operator, bare, eager = medians(*plain, seconds=seconds, clock=time.process_time)
    yield Row("a call, beyond torch's and meta's own", 1e6 * (operator - bare - eager), None, "us", CALL_LIMIT)
    steps = recorded(ops.rms_norm, x, w), recorded(Torch.rms_norm, x, w)
    times = medians(*steps, recorded(allocate, x, w), own(*arrays), seconds=seconds, clock=time.process_time)
    yield Row("rms_norm forward and backward, to torch's own", 1e6 * times[0], 1e6 * times[1], "us", 1.0)
    excess = 1e6 * (times[0] - times[2] - times[3])
    yield Row("rms_norm forward and backward, beyond torch's and meta's own", excess, None, "us", CALL_LIMIT)


def registering() -> Row:
    code = (
        "import torch, meta; import time as t; s = t.process_time(); meta.torch.register(); print(t.process_time() - s)"
    )
    seconds = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    return Row("registering all operators", seconds, None, "s", REGISTERING_LIMIT)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_operators")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    rows = [registering()]
    meta.torch.register()
    for row in (*rows, *calls(options.seconds / 2), *models(options.seconds, options.backend)):
        against = "" if row.reference is None else f" against {row.reference:.2f}, {row.measured:.2f}"
        print(f"{row.name}: {row.value:.2f} {row.unit}{against} (limit {row.limit})")


if __name__ == "__main__":
    main()
