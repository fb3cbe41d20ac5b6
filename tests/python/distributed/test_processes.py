"""Checks that two processes run together over gloo."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, CommunicationError
from meta.ir.analysis import op_counts
from meta.optim.sgd import with_sgd
from meta.passes.standard import standard
from tests.python.distributed import training
from tests.python.distributed.processes import run_checks, run_processes


def _run(modules: str, processes: int, folder: Path, only: str = "") -> None:
    outcomes = run_checks(modules, processes, folder, only)
    assert outcomes
    failed = {name: trace for name, trace in outcomes.items() if trace}
    assert not failed, "\n".join(failed.values())


def test_collectives_of_two_processes(tmp_path: Path) -> None:
    _run("checks_collectives", 2, tmp_path)


def test_curves_of_two_processes(tmp_path: Path) -> None:
    _run("checks_curves", 2, tmp_path)


def test_curves_of_four_processes(tmp_path: Path) -> None:
    _run("checks_curves", 4, tmp_path)


def test_training_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run("checks_training,checks_tensor", 2, tmp_path, "two")
    # What two ranks saved goes on in one process and in four.
    expected = json.loads((tmp_path / "expected.json").read_text())
    step = training.new_step(training.MLP, "adamw", "float64")
    x, y = training.vectors(np.random.default_rng(1), "float64")
    meta.load(tmp_path / "one.safetensors", step)
    np.testing.assert_allclose([step(meta.array(x), meta.array(y)).item() for _ in range(3)], expected, 1e-9)
    meta.distributed.load(tmp_path / "step", step)
    np.testing.assert_allclose([step(meta.array(x), meta.array(y)).item() for _ in range(3)], expected, 1e-9)
    monkeypatch.setenv("SAVED", str(tmp_path / "step"))
    (tmp_path / "four").mkdir()
    _run("checks_training,checks_tensor", 4, tmp_path / "four", "four")


@pytest.mark.parametrize("step", ["eager", "compiled"])
def test_unequal_numbers_of_rows_that_both_ranks_had(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEP", step)
    _run("checks_rows", 2, tmp_path)


_FAULT = """
import os, sys, time
import meta
from meta import distributed
distributed.init(timeout={seconds})
x = meta.ones(4)
distributed.{collective}(x)
try:
    if distributed.rank() == 1:
        {fault}
    distributed.{collective}(x)
except meta.errors.CommunicationError as error:
    print(error)
    os._exit(3)
"""


@pytest.mark.parametrize(
    ("fault", "ranks", "collective"),
    [
        ("os._exit(5)", 4, "all_reduce"), ("time.sleep(14); os._exit(5)", 2, "all_reduce"),
        ("time.sleep(14); os._exit(5)", 2, "reduce_scatter"),  # in gloo it has no timeout
    ],
    ids=["stops", "hangs", "hangs in reduce_scatter"],
)  # fmt: skip
def test_a_rank_that_stops_or_hangs_is_named(fault: str, ranks: int, collective: str, tmp_path: Path) -> None:
    program = _FAULT.format(fault=fault, seconds=4, collective=collective)
    statuses, outputs = run_processes(["-c", program], ranks, tmp_path)
    assert statuses == [3, 5, *[3] * (ranks - 2)], outputs
    for rank in set(range(ranks)) - {1}:
        text = f"[{collective}] call 2 of group 'world' failed on rank {rank}: "
        assert f"{text}rank 1 did not answer; " in outputs[rank] or f"{text}the store of rank 0" in outputs[rank]
    assert "rank 1 did not answer" in outputs[0]


_STOPPED = """
import os, signal, sys, threading, time
import meta
from meta import distributed
stopped, place, start = int(sys.argv[1]), sys.argv[2], time.monotonic()
def stop(at):
    global start
    start = time.monotonic()
    if at == place and stopped == int(os.environ["RANK"]):
        if os.fork() == 0:  # ends the stopped process, so that the test does not wait for it
            time.sleep(10)
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
import torch.distributed
try:
    stop("init")
    distributed.init(timeout=3)
    distributed.all_reduce(meta.ones(4))
    stop("mesh")
    distributed.DeviceMesh({"dp": distributed.world_size(), "tp": 1})
    stop("new")
    distributed.all_reduce(meta.ones(5))
    stop("again")
    distributed.all_reduce(meta.ones(5))
    distributed.barrier()
except meta.errors.CommunicationError as error:
    print(f"{time.monotonic() - start:.1f} {error}", flush=True)
    os._exit(3)
"""


@pytest.mark.parametrize(
    ("ranks", "stopped", "place"),
    [(2, 0, "again"), (3, 0, "new"), (3, 0, "mesh"), (3, 0, "init"), (3, 2, "again")],
)
def test_a_stopped_rank_is_named_in_time(ranks: int, stopped: int, place: str, tmp_path: Path) -> None:
    """By SIGSTOP: its sockets stay open, and the store of a stopped rank 0 answers nothing."""
    statuses, outputs = run_processes(["-c", _STOPPED, str(stopped), place], ranks, tmp_path)
    assert statuses == [-9 if rank == stopped else 3 for rank in range(ranks)], outputs
    for rank in set(range(ranks)) - {stopped}:
        line = outputs[rank].strip().splitlines()[-1]
        assert f"the store of rank {stopped} does not answer" in line or f"rank {stopped} did not" in line, line
        assert float(line.split()[0]) < 10, line


def test_ranks_that_wait_for_each_other_elsewhere_stop_before_the_timeout(tmp_path: Path) -> None:
    """Rank 1 comes to a call that is new, where ranks compare it, and rank 0 to one that they have compared."""
    program = _FAULT.format(fault="distributed.all_reduce(meta.ones(5))", seconds=200, collective="all_reduce")
    statuses, outputs = run_processes(["-c", program], 2, tmp_path)
    assert statuses == [3, 3], outputs
    comparison = "the comparison of the call all_reduce(float32[5], sum)"
    call = "all_reduce, call 2 of group 'world'"
    assert f"[all_reduce] rank 0 waits for rank 1 in {call}, and rank 1 for rank 0 in {comparison}; " in outputs[0]
    assert f"[all_reduce] rank 1 waits for rank 0 in {comparison}, and rank 0 for rank 1 in {call}; " in outputs[1]


def test_a_process_alone_needs_no_group() -> None:
    meta.distributed.init()
    assert (meta.distributed.rank(), meta.distributed.world_size()) == (0, 1)
    mesh = meta.distributed.DeviceMesh({"dp": -1})
    x = meta.array([1.0, 2.0])
    assert meta.distributed.all_reduce(x, "mean", mesh["dp"]).tolist() == [1.0, 2.0]
    assert meta.distributed.all_reduce(x, "product").tolist() == [1.0, 2.0]
    with pytest.raises(ArgumentError, match="dp=2 for 1 process; expected sizes whose product is 1"):
        meta.distributed.DeviceMesh({"dp": 2})
    with pytest.raises(ArgumentError, match="there is no axis 'tp'"):
        mesh["tp"]


def test_programs_of_one_rank_have_no_collectives() -> None:
    step = meta.distributed.zero(2)(with_sgd(0.1)(meta.nn.Linear(3, 2), loss=meta.cross_entropy))
    module = step.record(meta.ones((4, 3)), meta.zeros(4, "int64")).module
    collectives = {"all_gather", "reduce_scatter"}
    assert collectives <= op_counts(module.functions["main"]).keys()
    assert not collectives & op_counts(standard()(module).functions["main"]).keys()


def test_an_incomplete_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CommunicationError, match="has RANK, but not WORLD_SIZE, MASTER_ADDR, MASTER_PORT"):
        meta.distributed.init()
