"""A training run that torchrun starts again: `restarted.py FOLDER`. On the first try rank 1 ends while it saves a
checkpoint. Rank 0 writes the losses."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import meta
from meta import distributed, nn, optim

STEPS, FAULT = 5, 3


def training_step() -> Any:
    meta.random.seed(0)
    model = nn.Linear(3, 2).to(dtype="float64")
    return optim.TrainStep(model, optim.AdamW(model, 0.1), loss=meta.cross_entropy)


def batch(number: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(number)
    return generator.standard_normal((4, 3)), generator.integers(0, 2, 4)


def main(folder: Path) -> None:
    import torch.distributed.checkpoint as dist_checkpoint

    distributed.init(timeout=30)
    step, checkpoint = distributed.zero(2)(training_step()), folder / "checkpoint"
    first = 0
    if distributed.exists(checkpoint):
        distributed.load(checkpoint, step)
        first = int(step.optimizer.state_dict()["w.shard.step"].item())
    for number in range(first, STEPS):
        loss = step(*map(meta.array, distributed.batch_part(*batch(number))))
        mean = distributed.all_reduce(loss, "mean").item()
        if distributed.rank() == 0:
            with (folder / "losses.txt").open("a") as file:
                file.write(json.dumps([os.environ["TORCHELASTIC_RESTART_COUNT"], number, mean]) + "\n")
        if number == FAULT and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and distributed.rank() == 1:
            dist_checkpoint.save = lambda *_, **__: os._exit(1)
        distributed.save(checkpoint, step)
    distributed.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
