"""Tuning: every choice gives the same results, a change has to win, and choices are stored and used again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.tvm import choices
from meta.backend.tvm import target as targets
from meta.backend.tvm.library import compile_functions
from meta.backend.tvm.target import KnobChoices, Knobs, choose, choose_divisor, tentative
from meta.deploy.tuning import results as stored
from meta.deploy.tuning import session
from meta.deploy.tuning.kernels import KernelVariant, TunableKernel, tunable_kernels
from meta.deploy.tuning.search import tune_kernel
from meta.deploy.tuning.timing import alternate
from meta.errors import ArgumentError, FileError, MetaError, NotSupportedError
from meta.modes import scoped
from meta.optim.sgd import with_sgd
from tests.python.kernels_in_memory import forget_programs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty disk cache."""
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("META_CACHE", "1")
    forget_programs()
    return tmp_path


# --- kernels ----------------------------------------------------------------------------------------------------------


def several(x: Any, w: Any, image: Any, kernel: Any, dy: Any) -> tuple[Any, ...]:
    """Operators with knobs. x: (24, 64).  w: (48, 64).  image: (2, 8, 8, 16).  kernel: (16, 3, 3, 16).
    dy: (2, 4, 4, 16)."""
    return (
        meta.relu(meta.dense(x, w, None)),
        meta.conv2d(image, kernel, padding=1, channels_last=True),
        meta.conv2d_dw(image, image, (16, 3, 3, 16), padding=1, channels_last=True) * 0.1,
        meta.conv2d_dx(kernel, dy, (2, 8, 8, 16), stride=2, padding=1, channels_last=True) + 1,
        meta.matmul(meta.reshape(x, (2, 12, 64)), meta.reshape(w[:32], (2, 64, 16))),
        meta.softmax(x, 1),
    )


def operands() -> list[Any]:
    generator = np.random.default_rng(0)
    shapes = ((24, 64), (48, 64), (2, 8, 8, 16), (16, 3, 3, 16), (2, 4, 4, 16))
    return [meta.array(generator.standard_normal(shape).astype("float32")) for shape in shapes]


def kernels_of(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, list[TunableKernel]]:
    with meta.with_dialect("tvm"):
        source = meta.vm.compile(meta.trace(function)).program(*inputs).source
    return source, tunable_kernels(source, fuse=True)


def results(variants: Sequence[KernelVariant], target: Any) -> list[np.ndarray[Any, Any]]:
    """The last result of each, on the same random operands."""
    generator = np.random.default_rng(1)
    types = [p.ty for p in variants[0].function.params]
    arrays = [generator.standard_normal([int(d) for d in t.shape]).astype(str(t.dtype)) for t in types]
    found: list[np.ndarray[Any, Any]] = []
    for variant in variants:
        module = compile_functions({"kernel": variant.function}, target)
        tensors = [meta.array(x)._data for x in arrays]
        module["kernel"](*tensors)
        found.append(np.from_dlpack(tensors[-1]).copy())
    return found


def test_every_choice_gives_the_same_results() -> None:
    source, kernels = kernels_of(several, operands())
    asked = set[str]()
    for kernel in kernels:
        first = kernel.variant({})
        assert first is not None
        others = [kernel.variant(state) for place in first.knobs for state in list(first.neighbours(place))[-1:]]
        distinct = {v.code: v for v in (first, *others) if v is not None}
        asked |= {name.partition(".")[0] for _, name in first.knobs}
        expected, *found = results(list(distinct.values()), source.target)
        for result in found:
            np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)
    assert asked >= {"tile_lanes", "tile_rows", "tile_pixels", "part_images", "block_tiles"}


def test_default_variant_is_the_kernel_of_the_program() -> None:
    """Otherwise tuning would compare with something that no program runs."""
    inputs = operands()
    with meta.with_dialect("tvm"):
        executor = meta.vm.compile(meta.trace(several))
        planned = executor.relax(*inputs, stage="planned")
        kernels = tunable_kernels(executor.program(*inputs).source, fuse=True)
    blocks = {str(name.name_hint): f.script().count("T.sblock(") for name, f in planned.functions.items()}
    for kernel in kernels:
        variant = kernel.variant({})
        assert variant is not None
        names = [name for name in blocks if name == kernel.name or name.startswith(f"{kernel.name}_")]
        assert variant.function.script().count("T.sblock(") in [blocks[name] for name in names]


# --- knobs ------------------------------------------------------------------------------------------------------------


def test_knobs_are_asked_only_while_tuning() -> None:
    assert choose("size", 4, (4, 8)) == 4
    knobs = Knobs({"size": 8, "size.1": 5, "order": True})
    with scoped(knobs=knobs):
        assert choose("size", 4, (4, 8)) == 8
        assert choose("size", 4, (4, 8)) == 4  # 5 is not among the options
        assert choose("order", 0, (0, 1)) == 0  # nor is a truth value a number
        assert choose_divisor("parts", 3, 12) == 3
        with tentative():
            choose("withdrawn", 1, (1, 2))
    assert list(knobs.asked) == ["size", "size.1", "order", "parts"]
    assert knobs.asked["parts"].options == (1, 2, 3, 4, 12)


def test_choices_are_part_of_the_identity_of_code() -> None:
    plain = targets.identity("cpu")
    with scoped(tuning=KnobChoices({"kernel": {"size": 1}})):
        one = targets.identity("cpu")
    with scoped(tuning=KnobChoices({"kernel": {"size": 2}})):
        two = targets.identity("cpu")
    assert len({plain, one, two}) == 3
    assert targets.identity("cpu") == plain


# --- the search -------------------------------------------------------------------------------------------------------


def product(x: Any, w: Any) -> Any:
    return meta.relu(meta.dense(x, w, None))


def pair() -> list[Any]:
    return operands()[:2]


def timed_by(seconds: Callable[[KernelVariant], float]) -> tuple[list[int], Any]:
    """A measure by a function of the variant, and how many variants each call of it had."""
    counts: list[int] = []

    def measure(variants: Sequence[KernelVariant], rounds: int) -> list[float]:
        counts.append(len(variants))
        return [seconds(v) for v in variants]

    return counts, measure


def value_of(variant: KernelVariant, name: str) -> Any:
    return next(value for (_, knob), value in variant.values.items() if knob == name)


def the_product() -> tuple[TunableKernel, KernelVariant]:
    _, kernels = kernels_of(product, pair())
    (kernel,) = kernels
    variant = kernel.variant({})
    assert variant is not None
    return kernel, variant


@pytest.mark.parametrize(("ratio", "is_kept"), [(0.5, True), (0.97, True), (0.98, False), (1.2, False)])
def test_a_change_is_kept_if_it_wins_by_three_percent(ratio: float, is_kept: bool) -> None:
    kernel, first = the_product()
    lanes = value_of(first, "tile_lanes")
    _, measure = timed_by(lambda v: 1.0 if value_of(v, "tile_lanes") == lanes else ratio)
    found = tune_kernel(kernel, first, 1.0, measure, lambda: False)
    assert found.finished
    assert (found.variant.choices() != {}) == is_kept
    assert found.seconds == (ratio if is_kept else 1.0)


def test_the_search_ends_with_the_time() -> None:
    kernel, first = the_product()
    counts, measure = timed_by(lambda v: 1.0)
    found = tune_kernel(kernel, first, 1.0, measure, lambda: len(counts) >= 2)
    assert (len(counts), found.finished) == (2, False)


def test_choices_of_another_kernel_stay() -> None:
    kernel, first = the_product()
    _, measure = timed_by(lambda v: 1.0 if v is first else 0.5)
    found = tune_kernel(kernel, first, 1.0, measure, lambda: False, fixed=kernel.scopes)
    assert all(scope not in kernel.scopes for scope in found.variant.choices())


def test_rounds_alternate_and_slow_variants_leave() -> None:
    now, order = [0.0], list[str]()

    def call(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            now[0] += seconds
            order.append(name)

        return run

    times = alternate([call("a", 1.0), call("b", 2.0), call("c", 1.1)], 4, lambda: now[0])
    assert times == pytest.approx([1.0, 2.0, 1.1])
    assert order[6:] == list("abcabcacac")


# --- executors --------------------------------------------------------------------------------------------------------


def fake(monkeypatch: pytest.MonkeyPatch, measure: Any, times: tuple[float, float] = (2.0, 1.0)) -> None:
    """Kernels and calls take times that do not depend on the machine."""
    monkeypatch.setattr(session, "timer", lambda *_: measure)
    monkeypatch.setattr(session, "alternate", lambda *_: times)


def wide_lanes(variant: KernelVariant) -> float:
    return 1 / value_of(variant, "tile_lanes")


def compiled(**options: Any) -> Any:
    with meta.with_dialect("tvm"):
        return meta.vm.compile(meta.trace(product), **options)


def test_tuned_programs_return_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x, w = pair()
    executor = compiled()
    expected, before = executor(x, w).numpy(), executor.program(x, w).loaded.key
    fake(monkeypatch, timed_by(wide_lanes)[1])
    report = executor.tune(x, w, seconds=60)
    (kernel,) = report.kernels
    assert (kernel.measured, report.kept, report.after) == (True, True, 1e6)
    assert kernel.choices["tile_lanes"] == 4 * targets.lanes(32)
    assert "tile_lanes" in str(report)
    assert "a call took 2000000.0 us, and takes 1000000.0" in str(report)
    after = executor.program(x, w).loaded.key
    assert after != before
    np.testing.assert_allclose(executor(x, w).numpy(), expected, rtol=1e-5, atol=1e-5)

    # From a file, the program is the same, and nothing is measured.
    report.save(tmp_path / "tuning.json")
    monkeypatch.setattr(session, "timer", None)
    again = compiled(tuning=tmp_path / "tuning.json")
    assert again.program(x, w).loaded.key == after
    assert compiled().program(x, w).loaded.key == before

    # Saved programs have the choices in their code.
    again.save(tmp_path / "program")
    loaded = meta.vm.load(tmp_path / "program")
    np.testing.assert_array_equal(loaded(x, w).numpy(), executor(x, w).numpy())


def test_finished_kernels_are_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = pair()
    fake(monkeypatch, timed_by(wide_lanes)[1])
    first = compiled().tune(x, w)
    counts, measure = timed_by(wide_lanes)
    fake(monkeypatch, measure)
    second = compiled().tune(x, w)
    assert counts == []
    assert second.choices == first.choices
    assert not second.kernels[0].measured
    assert "(from before)" in str(second)


def test_choices_that_slow_the_call_are_dropped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x, w = pair()
    executor = compiled()
    before = executor.program(x, w)
    fake(monkeypatch, timed_by(wide_lanes)[1], times=(1.0, 1.01))
    report = executor.tune(x, w)
    assert not report.kept
    assert "dropped" in str(report)
    assert executor.program(x, w) is before
    report.save(tmp_path / "tuning.json")
    assert json.loads((tmp_path / "tuning.json").read_text())["targets"] == {report.target: {}}


def test_steps_keep_their_state(monkeypatch: pytest.MonkeyPatch) -> None:
    model = meta.nn.Linear(64, 48)
    with meta.with_dialect("tvm"):
        step = meta.vm.compile(with_sgd(0.1)(model, loss=lambda y, t: meta.mean((y - t) ** 2)))
    x, target = pair()[0], meta.zeros((24, 48))
    step(x, target)
    before = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    counts, measure = timed_by(lambda v: float(v.work))
    fake(monkeypatch, measure)
    step.tune(x, target)
    assert counts
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.detach().numpy(), before[name])


def test_open_sizes_have_the_sizes_of_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    with meta.with_dialect("tvm"):
        executor = meta.vm.compile(meta.trace(lambda x: meta.softmax(x, 1)), dynamic={"x": {0: "n"}})
    x = pair()[0]
    report = executor.tune(x, seconds=5)
    assert all(k.before > 0 for k in report.kernels)
    np.testing.assert_allclose(executor(x[:5]).numpy().sum(1), np.ones(5), rtol=1e-5)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "60"])
def test_seconds_have_to_be_positive(seconds: Any) -> None:
    with pytest.raises(ArgumentError, match=r"\[tune\] seconds is .*expected a positive number"):
        compiled().tune(*pair(), seconds=seconds)


def test_refuses_programs_without_kernels_of_tvm() -> None:
    with meta.with_dialect("reference"):
        executor = meta.vm.compile(meta.trace(product))
    with pytest.raises(NotSupportedError, match=r"no kernel is TVM's: they are reference\.dense.*with_dialect"):
        executor.tune(*pair())


def test_refuses_programs_for_another_machine() -> None:
    with pytest.raises(NotSupportedError, match=r"\[tune\] the program is compiled for riscv64"):
        compiled(target="riscv64").tune(*pair())


# --- files ------------------------------------------------------------------------------------------------------------


def content(**changes: Any) -> bytes:
    fields = {"format": choices.FORMAT, "version": choices.VERSION, "targets": {}}
    return json.dumps(fields | changes).encode()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is not in JSON"),
        (b"\x80\x04N.", "is not in JSON"),
        (b"[" * 100_000, "is not in JSON"),
        (b"[]", "is not a file of choices"),
        (content(format="other"), "is not a file of choices"),
        (content(version=2), "has version 2 of the format, not 1"),
        (content(targets=[]), "has no targets"),
        (content(targets={"a": 1}), "has malformed choices for 'a'"),
        (content(targets={"a": {"k": 1}}), "has malformed choices for 'a'"),
        (content(targets={"a": {"k": {"n": "print()"}}}), "has malformed choices for 'a'"),
        (content(targets={"a": {"k": {"n": [1, 2.5]}}}), "has malformed choices for 'a'"),
        (content(targets={"other": {}}), "has choices for other; expected choices for"),
    ],
)
def test_refuses_damaged_files(data: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_bytes(data)
    with pytest.raises(FileError, match=problem):
        compiled(tuning=path)


@pytest.mark.parametrize("path", ["missing.json", ".", "a\0b"])
def test_refuses_paths_of_no_file(path: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        compiled(tuning=str(tmp_path / path) if "\0" not in path else path)
    with pytest.raises(MetaError):
        compiled(tuning=3)


def test_files_keep_the_choices_of_other_targets(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    one, two = KnobChoices({"k": {"tile": (1, 8), "order": True}}), KnobChoices({"k": {"tile": (2, 4)}})
    choices.write(path, "one", one)
    choices.write(path, "two", two)
    assert dict(choices.read(path).targets) == {"one": one, "two": two}
    path.write_text("{")
    with pytest.raises(FileError, match="is not in JSON"):
        choices.write(path, "one", one)


def test_damaged_entries_of_the_cache_are_ignored() -> None:
    result = stored.TuneResult({("scope", "name"): (1, 2)}, 2.0, 1.0, finished=True)
    stored.store_result("tuned_x", result)
    assert stored.read_result("tuned_x") == result
    for payload in (
        b"{",
        b"[]",
        b'{"choices": 1}',
        b'{"default": 1, "tuned": 1, "finished": 1, "choices": [["a", "b", {}]]}',
    ):
        disk = meta.cache.default_cache()
        assert disk is not None
        disk.put("tuned_x", payload, ".tuned")
        assert stored.read_result("tuned_x") is None
