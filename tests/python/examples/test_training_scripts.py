"""A character GPT and a convolutional network, written as users of torch write them, next to torch's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import meta
from meta import nn

TEXT = "import os\n\ndef f(x):\n    return x + 1\n" * 40
LETTERS = sorted(set(TEXT))
CONTEXT, WIDTH, HEADS, STEPS = 16, 16, 2, 24


class Block(meta.Model):
    def build(self) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, h: Any) -> Any:
        n, t, _ = h.shape
        qkv = self.qkv(self.norm1(h)).reshape((n, t, 3, HEADS, -1)).transpose((2, 0, 3, 1, 4))
        a = meta.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        h = h + self.proj(a.transpose((0, 2, 1, 3)).reshape(h.shape))
        return h + self.down(meta.gelu(self.up(self.norm2(h))))


class GPT(meta.Model):
    def build(self) -> None:
        self.tokens, self.positions = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS), bias=False)

    def forward(self, x: Any) -> Any:
        h = self.tokens(x) + self.positions(meta.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class TorchBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.proj = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, h: Any) -> Any:
        n, t, _ = h.shape
        q, k, v = self.qkv(self.norm1(h)).reshape(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.proj(a.transpose(1, 2).reshape(h.shape))
        return h + self.down(F.gelu(self.up(self.norm2(h))))


class TorchGPT(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(len(LETTERS), WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList(TorchBlock() for _ in range(2))
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, len(LETTERS), bias=False)

    def forward(self, x: Any) -> Any:
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def warm_up_then_cosine(step: int) -> float:
    if step < 5:
        return (step + 1) / 5
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - 5) / (STEPS - 5)))


def pieces() -> torch.utils.data.TensorDataset:
    numbers = np.array([LETTERS.index(c) for c in TEXT])
    starts = np.random.default_rng(0).integers(0, len(numbers) - CONTEXT - 1, 8 * STEPS)
    both = torch.from_numpy(numbers[starts[:, None] + np.arange(CONTEXT + 1)])
    return torch.utils.data.TensorDataset(both[:, :-1].contiguous(), both[:, 1:].contiguous())


def groups(model: Any) -> list[dict[str, Any]]:
    decayed = [x for x in model.parameters() if x.ndim > 1]
    others = [x for x in model.parameters() if x.ndim <= 1]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def torch_gpt_losses(model: TorchGPT) -> tuple[list[float], list[float]]:
    optimizer = torch.optim.AdamW(groups(model), lr=1e-2, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_then_cosine)
    losses: list[float] = []
    norms: list[float] = []
    for x, y in torch.utils.data.DataLoader(pieces(), batch_size=8):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, norms


def test_a_character_gpt(tmp_path: Path) -> None:
    """AdamW with groups, a warm-up in Python, clipping, torch's DataLoader, resumed in the middle of the epoch."""
    torch.manual_seed(0)
    twin = TorchGPT()
    start = {name: x.clone() for name, x in twin.state_dict().items()}
    expected, expected_norms = torch_gpt_losses(twin)

    def build() -> tuple[GPT, Any, Any]:
        model = GPT()
        model.load_torch_state_dict(start)
        optimizer = meta.optim.AdamW(groups(model), lr=1e-2, betas=(0.9, 0.95))
        schedule = meta.optim.LambdaLR(optimizer, lr_lambda=warm_up_then_cosine)
        loss = lambda out, y: meta.cross_entropy(out.reshape((-1, out.shape[-1])), y.reshape((-1,)))  # noqa: E731
        step = meta.optim.TrainStep(model, optimizer, loss, schedule=schedule, clip_norm=1.0, grad_norm=True)
        loader = meta.data.batches(torch.utils.data.DataLoader(pieces(), batch_size=8))
        return model, meta.vm.compile(step), loader

    losses: list[float] = []
    norms: list[float] = []
    _, step, loader = build()
    for x, y in loader:
        loss, norm = step(x, y)
        losses.append(loss.item())
        norms.append(norm.item())
        if len(losses) == STEPS // 2:
            meta.save(tmp_path / "run.safetensors", {"step": step, "loader": loader})
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(norms, expected_norms, rtol=1e-3)
    assert losses[-1] < 0.8 * losses[0]
    model, step, loader = build()
    meta.load(tmp_path / "run.safetensors", {"step": step, "loader": loader})
    assert [step(x, y)[0].item() for x, y in loader] == losses[STEPS // 2 :]
    for name, x in model.torch_state_dict().items():
        np.testing.assert_allclose(x.numpy(), twin.state_dict()[name].numpy(), rtol=1e-2, atol=1e-3)


class Residual(meta.Model):
    def build(self, a: int, b: int, stride: int) -> None:
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.short = nn.Conv2d(a, b, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        return meta.relu(self.bn2(self.conv2(meta.relu(self.bn1(self.conv1(x))))) + self.short(x))


class TorchResidual(torch.nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(a, b, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(b)
        self.conv2, self.bn2 = torch.nn.Conv2d(b, b, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(b)
        self.short = torch.nn.Conv2d(a, b, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + self.short(x))


def network(kinds: Any, residual: Any) -> Any:
    return kinds.Sequential(
        residual(1, 4, 1), residual(4, 8, 2), kinds.AdaptiveAvgPool2d(1), kinds.Flatten(), kinds.Linear(8, 3)
    )


def test_a_convolutional_network() -> None:
    """SGD, a warm-up and a cosine, a dataset with a smaller last batch, evaluation between epochs, an average."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 42)
    images = (rng.normal(size=(42, 1, 8, 8)) + labels[:, None, None, None]).astype("float32")
    torch.manual_seed(0)
    twin = network(torch.nn, TorchResidual)
    model = network(nn, Residual)
    model.load_torch_state_dict(twin.state_dict())
    theirs, optimizers = torch.optim, []
    for kinds, net in ((theirs, twin), (meta.optim, model)):
        optimizer: Any = kinds.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
        schedules: Any = kinds.lr_scheduler if kinds is theirs else kinds
        warm_up = schedules.LinearLR(optimizer, start_factor=0.1, total_iters=4)
        cosine = schedules.CosineAnnealingLR(optimizer, T_max=8, eta_min=0.001)
        optimizers.append((optimizer, schedules.SequentialLR(optimizer, [warm_up, cosine], milestones=[4])))
    ((their_optimizer, their_schedule), (optimizer, schedule)) = optimizers
    average = meta.optim.EMA(model, decay=0.5)
    step = meta.vm.compile(
        meta.optim.TrainStep(model, optimizer, nn.CrossEntropyLoss(), schedule=schedule, average=average)
    )
    predict = meta.vm.compile(model)
    loader = meta.data.batches((images, labels), 16)
    for _ in range(3):
        for x, y in loader:
            loss = F.cross_entropy(twin(torch.from_dlpack(x)), torch.from_dlpack(y))
            their_optimizer.zero_grad()
            loss.backward()
            their_optimizer.step()
            their_schedule.step()
            assert math.isclose(step(x, y).item(), loss.item(), rel_tol=1e-3)
        assert math.isclose(schedule.get_last_lr()[0], their_schedule.get_last_lr()[0], rel_tol=1e-9)
        model.infer_mode()
        twin.eval()
        with torch.no_grad():
            np.testing.assert_allclose(
                predict(images).numpy(), twin(torch.from_numpy(images)).numpy(), rtol=2e-2, atol=2e-3
            )
        model.train_mode()
        twin.train()
    with average.applied():
        assert np.isfinite(predict(images).detach().numpy()).all()
