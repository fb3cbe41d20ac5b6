"""The checks notice wrong results, gradients, dtypes and accepted bad input, and count what they skip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import meta
from tests.python.conformance.__main__ import main
from tests.python.conformance.adapter import ADAPTER
from tests.python.conformance.case import Case
from tests.python.conformance.checks import Expected, Result, check_derivatives, check_entry, expectation
from tests.python.conformance.compare import difference, differences
from tests.python.conformance.opinfos import database, samples, spread
from tests.python.conformance.report import Report, decoded, encoded
from tests.python.conformance.results import Results, merged
from tests.python.conformance.ties import tie_order

pytestmark = pytest.mark.filterwarnings("ignore")


def _result(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., Any], **options: Any) -> Result:
    monkeypatch.setattr(type(ADAPTER), "lookup", lambda self, *_: function)
    return check_entry(database()[name], [torch.float32], [torch.float32], 1, **options)


def _failed(result: Result) -> set[str]:
    return {check for (check, _, _), count in result.counts.items() if count["failed"]}


def test_values_dtypes_and_gradients_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = _result(monkeypatch, "tanh", lambda x: meta.tanh(x) + 1e-3)
    assert _failed(wrong) == {"forward"}
    assert "values are off, by up to 0.001" in wrong.notes[0]
    assert "float64" in _result(monkeypatch, "tanh", lambda x: meta.tanh(x).cast("float64")).notes[0]
    cut = _result(monkeypatch, "tanh", lambda x: meta.tanh(meta.stop_gradient(x)))
    assert _failed(cut) == {"backward", "jvp"}
    refused = _result(monkeypatch, "tanh", meta.tanh, orders=2)
    assert _failed(refused) == set()


def test_second_gradients_of_attention_have_exact_values() -> None:
    op = database()["nn.functional.scaled_dot_product_attention"]
    case = Case(op, samples(op, torch.float32, 2, True)[1])
    cotangents = case.cotangents()
    assert [g.dtype for g in case.exact_gradients(cotangents, second=True)] == [torch.float64] * 3


def test_bad_input_has_to_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def accepts(x: Any, **_: Any) -> Any:
        return meta.flip(x, 0) if x.ndim else x

    assert _failed(_result(monkeypatch, "flipud", accepts)) == {"errors"}


def test_entries_without_a_function_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(ADAPTER), "lookup", lambda *_: None)
    result = check_entry(database()["tanh"], [torch.float32], [], 1)
    assert result.notes == ["forward eager failed: not implemented"]


def test_results_as_json_and_as_a_line() -> None:
    result = Result("tanh")
    result.add("forward", "eager", torch.float32, "")
    result.add("backward", "eager", torch.float32, "1 of 2 values | are off")
    result.add("forward", "compiled", torch.float32, "", "a tensor is sparse")
    assert decoded(encoded(result)) == result
    report = Report([result])
    assert report.total() == ("TOTAL ops=0/1 forward=1/1 backward=0/1 second=0/0 jvp=0/0 errors=0/0 backward_ops=0/0")
    assert report.failures() == ["tanh: backward eager float32 failed: 1 of 2 values | are off (1x)"]


def test_results_are_kept_by_dtype_settings_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, failed = Result("tanh"), Result("tanh")
    passed.add("forward", "eager", torch.float32, "")
    failed.add("forward", "eager", torch.float64, "off")
    results = Results(tmp_path, {"samples": 1})
    assert results.read() == {}
    results.add("float32", passed)
    results.add("float64", passed)
    results.add("float64", failed)
    with open(next(tmp_path.iterdir()), "a") as file:
        file.write('{"entry": "ta')  # the process was killed here
    measured = results.read()
    assert measured == {("tanh", "float32"): passed, ("tanh", "float64"): failed}
    whole = merged("tanh", measured.values())
    assert whole.total("forward") == {"passed": 1, "failed": 1}
    assert whole.notes == ["forward eager float64 failed: off"]
    assert Results(tmp_path, {"samples": 2}).read() == {}
    monkeypatch.setattr("tests.python.conformance.results.code", lambda: "another")
    assert results.read() == {}
    assert Results(tmp_path, {"samples": 1}, any_code=True).read() == measured


def test_a_run_goes_on_where_another_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--results", str(tmp_path), "--dtypes", "float32", "--samples", "1", "--compiled", "0", "--no-strided"]
    assert main(["abs", "neg", "--child", "--shard", "1/2", *settings]) == 0
    assert main(["abs", "neg", "--seconds", "0", *settings]) == 1  # no time to check what is left
    assert "1 of 2 entries are checked\nTOTAL ops=1/1 forward=1/1" in capsys.readouterr().out
    assert main(["abs", "neg", "--child", *settings]) == 0
    checked = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert checked == ["abs"]
    assert main(["abs", "neg", *settings]) == 0  # and starts no process
    assert "TOTAL ops=2/2 forward=2/2" in capsys.readouterr().out


def test_derivatives_of_forward_mode_that_torch_lacks_are_compared_with_its_gradient() -> None:
    op = database()["logcumsumexp"]
    cases = [Case(op, sample) for sample in samples(op, torch.complex64, 0, requires_grad=True)]
    expected = expectation(cases[0], torch.complex64, True)
    assert isinstance(expected, Expected)
    places = list(expected.cotangents)
    assert all(t.isnan().all() for t in cases[0].derivatives(places))
    x = cases[0].tensors[0].detach().to(torch.complex128)
    scaled = (x - x.real.amax(0)).exp()
    (moves,) = cases[0].tangents()
    exact = ((scaled * moves).cumsum(0) / scaled.cumsum(0)).to(torch.complex64)
    assert check_derivatives(expected, [meta.array(exact.numpy())], torch.complex64) == ""
    wrong = check_derivatives(expected, [meta.array((exact * 1.01).numpy())], torch.complex64)
    assert "1 of 1 values are off" in wrong


def test_a_value_near_the_float64_run_passes() -> None:
    rounded, exact = torch.tensor([1.0001]), torch.tensor([1.0], dtype=torch.float64)
    assert difference(torch.tensor([1.0]), rounded, torch.float32) == "1 of 1 values are off, by up to 0.0001"
    assert difference(torch.tensor([1.0]), rounded, torch.float32, truth=lambda: exact) == ""
    assert differences([1], [1, 2], torch.float32) == "1 results, expected 2"
    assert difference(1, 1.0, torch.float32) == "a int, expected a float"


def test_samples_are_spread_evenly() -> None:
    assert spread(range(10), 4) == [0, 2, 5, 7]
    assert spread(range(3), 0) == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "places", "differs"),
    [
        ([1, 2, 2], [0, 2, 1], False),
        ([1, 2, 2], [0, 1, 1], True),
        ([1, 2, 2], [1, 0, 2], True),
        ([2, 2, 1], [0, 1, 2], True),
    ],
)
def test_positions_of_equal_elements_may_be_in_any_order(values: list[int], places: list[int], differs: bool) -> None:
    op = database()["sort"]
    theirs = [torch.tensor([1, 2, 2]), torch.tensor([0, 1, 2])]
    ours = [torch.tensor(values), torch.tensor(places)]
    from torch.testing._internal.opinfo.core import SampleInput

    case = Case(op, SampleInput(torch.tensor([1, 2, 2]), args=(0,)))
    assert bool(tie_order(case, ours, theirs, "off")) == differs
    stable = Case(op, SampleInput(torch.tensor([1, 2, 2]), kwargs={"dim": 0, "stable": True}))
    assert tie_order(stable, ours, theirs, "off") == "off"


def test_a_value_beyond_the_dtype_is_infinite() -> None:
    nan, inf, exact = torch.tensor([float("nan")]).half(), torch.tensor([float("inf")]).half(), torch.tensor([7e4])
    assert difference(inf, nan, torch.float16, truth=exact.double) == ""
    assert difference(-inf, nan, torch.float16, truth=exact.double) != ""
