"""The benchmarks compare equal networks, and their tables say what they measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import meta
from benchmarks import distributed, first_steps, ops, ops_page, ops_shapes, pytorch, train
from benchmarks.bert import Bert, Sizes, TorchBert
from benchmarks.ops_page import Measurement
from benchmarks.relay_networks import Twin
from benchmarks.train import Run
from benchmarks.training_steps import NETWORKS, _cpu_peak
from meta.testing.arrays import to_torch
from meta.testing.samples import Sample, T, leaves


@pytest.mark.parametrize("name", ["mlp", "resnet18", "resnet50", "bert-mini"])
def test_networks_have_the_same_parameters_in_both_libraries(name: str) -> None:
    network = NETWORKS[name]
    ours = sorted(tuple(x.shape) for x in network.ours().parameters())
    assert ours == sorted(tuple(p.shape) for p in network.theirs().parameters())


def test_networks_compute_the_same() -> None:
    sizes = Sizes(vocabulary=11, features=8, heads=2, hidden=16, layers=1, tokens=5, dropout=0.0)
    ours, theirs = Bert(sizes), TorchBert(sizes)
    values = ours.state_dict()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            weight = values[name.replace(".weight", ".w").replace(".bias", ".b")]
            parameter.copy_(to_torch(weight.detach().numpy()))
    indices = np.random.default_rng(0).integers(0, 11, (2, 5))
    expected = theirs(torch.from_numpy(indices)).detach().numpy()
    np.testing.assert_allclose(ours(meta.array(indices)).detach().numpy(), expected, atol=1e-5)


def test_a_module_runs_in_torch() -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 6, 6), (4, 3, 3, 3)))

    @meta.trace
    def network(x, w):
        h = meta.relu(meta.conv2d(x, w, padding=1))
        return meta.softmax(meta.mean(meta.max_pool2d(h, 2, 2), (2, 3)) + 1.0)

    arrays = meta.array(x), meta.array(w)
    twin = Twin(network.record(*arrays).module)
    result = twin(torch.from_numpy(x), torch.from_numpy(w))
    np.testing.assert_allclose(result.numpy(), network(*arrays).numpy(), atol=1e-5)


def test_the_peak_of_torch_counts_state_and_temporaries() -> None:
    layer = torch.nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, 0.9)
    x = torch.randn(32, 64)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.relu(layer(x)).sum().backward()
        optimizer.step()

    step()
    parameter, activation = 64 * 64 * 4, 32 * 64 * 4
    peak = _cpu_peak(step, layer, optimizer, x)
    assert 3 * parameter + activation <= peak <= 3 * parameter + 8 * activation


def test_a_cell_marks_a_missed_target() -> None:
    assert train.against(0.8, 1.0, 0.9) == "0.80 (at most 0.9)"
    assert train.against(1.0, 1.0, 0.9) == "1.00 (at most 0.9) **missed**"
    assert train.against(None, 1.0, 0.9) == ""


def test_an_unknown_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--only", "resnet50"]) == 2
    expected = "there is no part resnet50 on cpu; expected mlp, resnet18, bert-mini, relay, compile\n"
    assert capsys.readouterr().err == expected


def test_rows_without_a_corpus_say_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert train.main(["--only", "relay", "--corpus", str(tmp_path)]) == 0
    assert f"there are no Relay programs in {tmp_path}" in capsys.readouterr().out


def test_a_failed_row_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert train.main(["--only", "mlp", "--minutes", "0.01"]) == 0
    assert "| failed: no time left |" in capsys.readouterr().out


def test_stages_of_first_steps_are_listed_slowest_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([{"trace": 0.5, "link": 16.0, "run": 1.0}, {"trace": 0.5, "read from disk": 0.1}])

    def job(run: Run, what: str, cache: Path, threads: int | None, **arguments: Any) -> dict[str, Any]:
        assert (what, arguments["contenders"]) == ("step", ["meta"])
        stages = next(steps)
        return {"meta": {"stages": stages, "first": sum(stages.values()), "ms": 2.5, "loss": 0.1}}

    monkeypatch.setattr(Run, "job", job)
    assert first_steps.main(["--only", "mlp"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    assert [row.split(" | ")[0] for row in rows] == [
        "| link", "| run", "| trace", "| read from disk", "| first step", "| loss", "| later steps, ms",
    ]  # fmt: skip
    assert rows[4] == "| first step | 17.50 (at most 15) **missed** | 0.60 (at most 3) |"


def test_first_steps_that_fail_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert first_steps.main(["--only", "resnet50"]) == 2
    assert "expected mlp, resnet18, bert-mini" in capsys.readouterr().err
    assert first_steps.main(["--only", "mlp", "--minutes", "0.01"]) == 0
    assert "float32: failed: no time left" in capsys.readouterr().out


def test_operators_are_measured_small_and_large_forward_and_backward(capsys: pytest.CaptureFixture[str]) -> None:
    assert {(p.size, p.sample.op) for p in ops.problems_of(["tanh", "argmax"])} == {
        (size, op) for size in ("4", "large", "model") for op in ("tanh", "argmax")
    }
    assert max(ops._elements(p.sample) for p in ops.problems_of(["tanh"])) == 1 << 20
    assert ops.main(["--only", "tanh", "argmax", "--row-seconds", "0.001", "--seconds", "30"]) == 0
    *rows, total = capsys.readouterr().out.strip().splitlines()
    assert sum("backward" in row for row in rows if not row.startswith("slow")) == 3  # of tanh
    assert "TOTAL rows=16" in total


def test_rows_of_operators_are_kept_and_make_a_page(tmp_path: Path) -> None:
    results, page = tmp_path / "rows", tmp_path / "page.md"
    slow = Measurement("tanh", "4", "forward", "tanh-4x4", "tvm", 3.0, 1.0)
    other = Measurement("sum", "large", "backward", "sum-9x9", "torch", 1.0, 2.0)
    for row in (Measurement("tanh", "4", "forward", "tanh-4x4", "tvm", 9.0, 1.0), slow, other):
        ops_page.add(results, row)
    assert ops_page.read(results) == [slow, other]  # the last row of each name
    page.write_text(ops_page.page(ops_page.read(results), "1", "2"))
    text = page.read_text()
    assert "| `tanh-4x4` | 4 | forward | 3.0 | 1.0 | 3.00 |" in text
    assert "`sum-9x9`" not in text
    assert "| `sum` | torch |  |  |  | 0.50 |" in text
    assert "Why dispatch" not in text
    rows = [Measurement(op, "4", "forward", f"{op}-4x4", "tvm", 3.0, 1.0) for op in ("stack", "tanh")]
    assert "\n- `stack`: torch's gradients are views" in ops_page.page(rows, "1", "2")


def test_views_of_torch_are_copied_before_they_are_compared() -> None:
    x = torch.ones(3, 4)
    call = ops.Arguments((x,), {})
    assert ops._compact(call, torch.neg) is torch.neg
    result = ops._compact(call, torch.t)(x)
    assert result.is_contiguous()
    assert result.data_ptr() != x.data_ptr()


def test_references_of_other_shapes_are_left_out() -> None:
    problem = ops.Problem(Sample("tanh", T(2, 3), ref=lambda x: x.sum()), "4")
    with pytest.raises(ValueError, match="not a function of torch with the same result"):
        list(ops.measured(problem, 0.001))


def test_rows_of_pytorch_without_time_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert pytorch.main(["--only", "steps", "--network", "mlp", "--minutes", "0.01"]) == 0
    failed = " | ".join(["failed"] * len(pytorch.CONTENDERS))
    assert f"| {pytorch.NETWORKS['mlp']} | {failed} |  |  |" in capsys.readouterr().out


def test_steps_of_two_processes_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--only", "mlp", "--contenders", "one,zero3,ddp", "--seconds", "0.1"]
    assert distributed.main(arguments) == 0
    _, _, title, _, heading, _, *rows = capsys.readouterr().out.splitlines()
    assert title == "Training steps on 2 processes, medians of the slowest rank"
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in [heading, *rows]]
    table = {row[0].partition(": ")[2]: dict(zip(cells[0][1:], row[1:], strict=True)) for row in cells[1:]}
    assert list(table) == [
        "one process",
        *(f"{name}, 2 processes" for name in ("zero(3)", "torch DDP")),
    ]
    assert all(float(row["ms"]) > 0 for row in table.values())
    one, divided = (float(table[name]["parameters and state, MiB"]) for name in ("one process", "zero(3), 2 processes"))
    assert divided == pytest.approx(one / 2, abs=0.1)


def test_the_memory_of_a_rank_is_planned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(distributed.STEPS, "cpu", {"mlp": "MLP"})
    assert distributed.main(["--only", "memory"]) == 0
    *_, share, _ = capsys.readouterr().out.splitlines()[-1].split("|")
    assert 0.5 < float(share) < 0.8  # the largest of three layers is whole


def test_unknown_contenders_and_failed_processes_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert distributed.main(["--contenders", "one,horovod"]) == 2
    assert "there is no contender horovod on cpu; expected one, data_parallel" in capsys.readouterr().err
    results = distributed.processes("absent", "cpu", 1, ["one"], 0.1, 60.0)
    assert "invalid choice: 'absent'" in results["error"]
    (row,) = distributed.step_rows("MLP", results, 2, limits=True)
    assert row[1].startswith("failed: ")


def test_operators_are_measured_on_the_shapes_of_models() -> None:
    calls = [p.sample for p in ops.problems_of(["sum", "embedding", "add", "median"]) if p.size == ops_page.MODEL]
    assert {p.op for p in calls} == {"sum", "embedding", "add", "median"}
    ranks = {len(t.shape) for p in calls for t in leaves(p.args, p.kwargs)}
    assert {1, 8} <= ranks
    axes = {(p.kwargs["axis"], len(p.args[0].shape)) for p in calls if p.op == "sum"}
    assert {"first", "middle", "last"} == {_place(axis, rank) for axis, rank in axes if rank > 1}
    assert all(p.accepts("float32") for p in calls if p.op != "median")


def _place(axis: int, rank: int) -> str:
    return {0: "first", rank - 1: "last"}.get(axis, "middle")


def test_rows_of_the_shapes_of_models_are_kept_for_each_call(tmp_path: Path) -> None:
    results = tmp_path / "rows"
    rows = [Measurement("sum", ops_page.MODEL, "forward", f"sum-{n}", "tvm", n, 1.0) for n in (1.0, 3.0, 2.0)]
    for row in rows:
        ops_page.add(results, row)
    assert ops_page.read(results) == rows
    assert ops_page.median(rows) == rows[2]
    assert "| `sum` | tvm |  |  |  |  | 3.00 |  |" in ops_page.page(rows, "1", "2")


def test_functions_of_several_operators_are_measured_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--only", "bincount", "--row-seconds", "0.001", "--runs", "3"]
    count = 0
    for part in ("1/2", "2/2"):
        assert ops.main([*arguments, "--part", part]) == 0
        count += sum(" bincount-" in line for line in capsys.readouterr().out.splitlines() if "slow" not in line)
    assert count == sum(p.op == "bincount" for p in ops_shapes.functions())
