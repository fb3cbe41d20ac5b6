"""Train the GPT of examples.gpt in several processes, each with its part of the batch:

    torchrun --nproc-per-node 2 examples/gpt_distributed.py --zero 2
    torchrun --nproc-per-node 4 examples/gpt_distributed.py --tensor-parallel 2

With `--checkpoint FOLDER` a checkpoint is written every `--every` steps, and the last one is loaded at the start, so
that training continues when torchrun restarts the processes after a failure (`--max-restarts`)."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

if not __package__:  # torchrun runs a file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import meta
from examples import common, gpt
from meta import distributed


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="training steps (default: 200)")
    parser.add_argument("--batch", type=int, default=32, help="pieces of text of a step, on all ranks (default: 32)")
    parser.add_argument("--rate", type=float, default=0.002, help="learning rate (default: 0.002)")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--length", type=int, default=64, help="letters of a piece (default: 64)")
    parser.add_argument("--zero", type=int, choices=[0, 1, 2, 3], default=0, help="stage of ZeRO (0, default: none)")
    parser.add_argument(
        "--tensor-parallel", type=int, default=1, metavar="N", help="processes that share the parameters (default: 1)"
    )
    parser.add_argument("--checkpoint", help="folder for checkpoints")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints (default: 100)")
    parser.add_argument("--device", default="cpu", help='"cpu" or "cuda"')
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


PLAN = {
    "layers.*.attention.project.*": distributed.shard(0, blocks=3),  # the heads of queries, keys and values
    "layers.*.attention.out.w": distributed.shard(1),
    "layers.*.first.*": distributed.shard(0),
    "layers.*.last.w": distributed.shard(1),
}
"""How `--tensor-parallel` shards the parameters."""


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Train; returns the loss of each whole batch, which up to rounding is the same on any number of processes."""
    options = parsed(argv)
    distributed.init()
    mesh = distributed.DeviceMesh({"dp": -1, "tp": options.tensor_parallel}, options.device)
    position, parts = mesh.rank("dp"), mesh.sizes["dp"]
    if options.batch % parts:
        raise SystemExit(f"--batch {options.batch} is not a multiple of {parts}, the parts of a batch")
    device = f"cuda({distributed.local_rank()})" if options.device == "cuda" else options.device
    meta.random.seed(options.seed)
    model = gpt.GPT(len(gpt.LETTERS), options.features, options.layers, options.length).to(device)
    optimizer = meta.optim.AdamW(model, options.rate)
    step = meta.optim.TrainStep(model, optimizer, loss=scores_loss)
    if options.tensor_parallel > 1:
        step = distributed.tensor_parallel(PLAN, mesh["tp"])(step)
    divide = distributed.zero(options.zero, mesh["dp"]) if options.zero else distributed.data_parallel(mesh["dp"])
    step = divide(step)
    first = last_step(options.checkpoint)
    if first:
        distributed.load(Path(options.checkpoint, str(first)), step)
    run = meta.vm.compile(step, device=device)
    pieces, following = gpt.data(options)
    losses: list[float] = []
    for number in common.progress(range(first, options.steps)):
        chosen = np.random.default_rng((options.seed, number)).integers(0, len(pieces), options.batch)
        own = np.split(chosen, parts)[position]
        loss = run(meta.array(pieces[own], device=device), meta.array(following[own], device=device))
        losses.append(distributed.all_reduce(loss, "mean").item())
        if options.checkpoint and (number + 1) % options.every == 0:
            before = last_step(options.checkpoint)
            distributed.save(Path(options.checkpoint, str(number + 1)), step)
            if distributed.rank() == 0 and before:
                shutil.rmtree(Path(options.checkpoint, str(before)))
    if distributed.rank() == 0 and losses:
        processes = distributed.world_size()
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f} after {len(losses)} steps on {processes} processes")
    distributed.shutdown()
    return losses


def last_step(folder: str | None) -> int:
    """The number of steps before the last checkpoint in a folder, 0 without one."""
    checkpoints = list(Path(folder).iterdir()) if folder and Path(folder).is_dir() else []
    return max((int(path.name) for path in checkpoints if path.name.isdigit() and distributed.exists(path)), default=0)


def scores_loss(scores: meta.NDArray, following: meta.NDArray) -> meta.NDArray:
    return meta.cross_entropy(scores.reshape((-1, len(gpt.LETTERS))), following.reshape((-1,)))


if __name__ == "__main__":
    main()
