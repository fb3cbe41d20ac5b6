"""`python -m meta plan MODULE:FUNCTION --ranks 8 64 [--zero STAGE] [--tensor-parallel N --parts MODULE:PLAN]`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from meta.distributed.gradients import data_parallel
from meta.distributed.mesh import Group
from meta.distributed.parallel import tensor_parallel
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
    parser.add_argument(
        "--copies", type=int, default=1, metavar="N",
        help="with --zero: how many groups of ranks divide the step, each with data parallelism to the others",
    )  # fmt: skip
    parser.add_argument(
        "--tensor-parallel", type=int, default=1, metavar="N", help="ranks that divide the parameters of --parts"
    )
    parser.add_argument("--parts", metavar="MODULE:PLAN", help="the plan of tensor_parallel, a dict")
    parser.add_argument("--arrays", action="store_true", help="list every array")


def run(options: argparse.Namespace) -> int:
    """Print the plan for each number of ranks; no other process is needed."""
    for ranks in options.ranks:
        inner = options.copies * options.tensor_parallel
        if ranks < 1 or inner < 1 or ranks % inner:
            problem = f"--ranks {ranks} --copies {options.copies} --tensor-parallel {options.tensor_parallel}"
            raise ArgumentError("plan", problem, "numbers above 0, and ranks that the others divide")
        step, *inputs = _named(options.step)()
        result = plan(_divided(step, options, ranks // inner), *inputs)
        print(
            f"{ranks} ranks: each keeps {result.held:,} bytes, {result.held / result.whole:.4f} of one process's, has "
            f"{result.intermediates:,} more in a step, and sends {result.sent:,}"
        )
        if options.arrays:
            print(result)
        for c in result.collectives:
            print(
                f"  {c.operator} over {c.group}: {c.calls} calls, {c.sent:,} bytes, from {c.after:.0%} of the program "
                f"on; kernels move {c.meanwhile:,} bytes meanwhile"
            )
    return 0


def _divided(step: Any, options: argparse.Namespace, ranks: int) -> Any:
    """The step of a rank. Raises ArgumentError for options that do not fit.

    ranks: those over which the batch is divided, and with --zero the state, in each copy."""
    if (options.tensor_parallel > 1) != (options.parts is not None):
        problem = f"--tensor-parallel {options.tensor_parallel} --parts {options.parts}"
        raise ArgumentError("plan", problem, "both or neither", location="")
    if options.copies > 1 and not options.zero:
        raise ArgumentError("plan", f"--copies {options.copies} without --zero", "--zero 1, 2 or 3", location="")
    if options.parts is not None:
        group = Group("tp", options.tensor_parallel)
        step = tensor_parallel(_named(options.parts), group, broadcast=False)(step)
    if options.zero:
        step = zero(options.zero, Group("zero", ranks), broadcast=False)(step)
    if not options.zero or options.copies > 1:
        group = Group("dp", options.copies if options.zero else ranks)
        step = data_parallel(group, broadcast=False)(step)
    return step


def _named(path: str) -> Any:
    """The object at a path `module:name`. Raises ArgumentError for a path without anything."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        problem = f"{path}: {error}"
        raise ArgumentError("plan", problem, "MODULE:FUNCTION of an importable module", location="") from error
