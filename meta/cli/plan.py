"""`python -m meta plan MODULE:FUNCTION --ranks 8 64 [--zero STAGE]`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from meta.distributed.gradients import data_parallel
from meta.distributed.mesh import Group
from meta.distributed.planning import plan
from meta.distributed.sharding import zero
from meta.errors import ArgumentError


def configure(parser: argparse.ArgumentParser) -> None:
    """The step, how it is divided, and on how many ranks."""
    parser.add_argument(
        "step", metavar="MODULE:FUNCTION",
        help="a function without arguments that returns a new TrainStep and, after it, one rank's arguments of a call",
    )  # fmt: skip
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64], help="numbers of ranks (default: 8 64)")
    parser.add_argument("--zero", type=int, choices=[0, 1, 2, 3], default=0, help="0: data parallelism (default)")
    parser.add_argument("--arrays", action="store_true", help="list every array")


def run(options: argparse.Namespace) -> int:
    """Print the plan for each number of ranks; no other process is needed."""
    for ranks in options.ranks:
        if ranks < 1:
            raise ArgumentError("plan", f"--ranks {ranks}", "1 or more")
        step, *inputs = _made(options.step)
        group = Group("dp", ranks)
        divide = zero(options.zero, group, broadcast=False) if options.zero else data_parallel(group, broadcast=False)
        result = plan(divide(step), *inputs)
        print(f"{ranks} ranks: each keeps {result.held:,} bytes and sends {result.sent:,} in a step")
        if options.arrays:
            print(result)
        for c in result.collectives:
            print(
                f"  {c.operator}: {c.calls} calls, {c.sent:,} bytes, from {c.after:.0%} of the program on; "
                f"kernels move {c.meanwhile:,} bytes meanwhile"
            )
    return 0


def _made(path: str) -> Any:
    """What the user's function returns. Raises ArgumentError for a path without one."""
    module, _, name = path.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        problem = f"{path}: {error}"
        raise ArgumentError("plan", problem, "MODULE:FUNCTION of an importable module", location="") from error
    return function()
