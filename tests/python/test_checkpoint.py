"""meta.save and meta.load: nests, loading into models, errors, and training that goes on bit by bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.amp.grad_scaler import GradScaler
from meta.errors import ArgumentError, FileError, TraceError


def network(width: int = 4, dtype: str = "float32") -> Any:
    return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2)).to(dtype=dtype)


def values(model: Any) -> dict[str, bytes]:
    return {name: x.detach().numpy().tobytes() for name, x in model.named_state()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_models_keep_their_bits(dtype: str, tmp_path: Path) -> None:
    first, second = network(dtype=dtype), network(dtype=dtype)
    assert values(first) != values(second)
    meta.save(tmp_path / "m", first)
    arrays = second.parameters()
    assert meta.load(tmp_path / "m", second) is second
    assert values(first) == values(second)
    assert all(x is y for x, y in zip(arrays, second.parameters(), strict=True))
    assert all(x.requires_grad for x in arrays)
    assert sorted(meta.load(tmp_path / "m")) == sorted(first.state_dict())


def test_nests_of_arrays_and_plain_values(tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    shared = meta.array([1, 2])
    nest = {
        "plain": [None, True, 0, -3, 2.5, "text \u00e9\n", ()],
        "floats": (float("inf"), -float("inf"), 0.1, -0.0, 5e-324),
        3: {"array": shared, "float": [shared, np.float32(0.5), np.int64(4)]},
        "numpy": generator.bit_generator.state,
        "host": np.arange(3, dtype="int16"),
    }
    meta.save(tmp_path / "x", nest)
    loaded = meta.load(tmp_path / "x")
    assert loaded[3]["array"] is loaded[3]["float"][0]
    assert loaded[3]["array"].tolist() == [1, 2]
    assert loaded["host"].tolist() == [0, 1, 2]
    assert (loaded["plain"], loaded["numpy"]) == (nest["plain"], nest["numpy"])
    assert [x.hex() for x in loaded["floats"]] == [x.hex() for x in nest["floats"]]
    assert loaded[3]["float"][1:] == [0.5, 4]
    assert list(loaded) == list(nest)
    meta.save(tmp_path / "x", shared)
    assert meta.load(tmp_path / "x").tolist() == [1, 2]
    meta.save(tmp_path / "x", float("nan"))
    assert np.isnan(meta.load(tmp_path / "x"))


def test_a_nest_takes_the_values_of_a_file(tmp_path: Path) -> None:
    generator = meta.random.Generator(3)
    scaler = GradScaler(scale=8.0)
    generator.advance(5)
    meta.save(tmp_path / "x", {"random": generator, "scaler": scaler, "step": 7, "ema": [meta.ones((2,))]})
    ema, other = meta.zeros((2,)), GradScaler()
    target = {"random": meta.random.Generator(), "scaler": other, "step": 0, "ema": [ema]}
    loaded = meta.load(tmp_path / "x", target)
    assert loaded["step"] == 7
    assert target["step"] == 0
    assert target["random"].state == (3, 5)
    assert other.factor == 8.0
    assert loaded["ema"][0] is ema
    assert ema.tolist() == [1.0, 1.0]


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run"
    model = network()
    meta.save(path, {"model": model, "step": 3})
    other = network(width=5)
    before = values(other)
    problem = r"'model\.layers\.0\.w' in .*run is float32 of shape \(4, 3\); expected float32 of shape \(5, 3\), as"
    with pytest.raises(FileError, match=problem):
        meta.load(path, {"step": 0, "model": other})
    with pytest.raises(FileError, match=r"run lacks 'layers\.0\.w', 'layers\.0\.b', .* and has 'model', 'step' too"):
        meta.load(path, other)
    with pytest.raises(FileError, match=r"run has 'step' too; expected 'model'; load the parts that match: .*strict=F"):
        meta.load(path, {"model": model})
    with pytest.raises(FileError, match=r"run lacks 'layers.*; expected 'layers"):
        meta.load(path, other, strict=False)
    with pytest.raises(FileError, match=r"'step' in .* is a int; expected a dict"):
        meta.load(path, {"model": model, "step": {}})
    with pytest.raises(FileError, match=r"run is a dict; expected a tuple or list"):
        meta.load(path, [model])
    assert values(other) == before


def test_parts_that_match(tmp_path: Path) -> None:
    longer = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(2, 2))
    meta.save(tmp_path / "m", network())
    before = longer.layers[3].w.detach().numpy().tobytes()
    meta.load(tmp_path / "m", longer, strict=False)
    assert values(longer)["layers.0.w"] == meta.load(tmp_path / "m")["layers.0.w"].numpy().tobytes()
    assert values(longer)["layers.3.w"] == before
    unmatched = longer.load_state_dict({**meta.load(tmp_path / "m"), "extra": meta.ones(())}, strict=False)
    assert unmatched == (["layers.3.w", "layers.3.b"], ["extra"])
    assert unmatched.missing == ["layers.3.w", "layers.3.b"]
    with pytest.raises(ArgumentError, match=r"unknown: \['extra'\]"):
        longer.load_state_dict({**longer.state_dict(), "extra": meta.ones(())})


def test_optimizers_are_checked_before_the_models_are_written(tmp_path: Path) -> None:
    model = network()
    optimizer = meta.optim.Adam(model)
    state = {"learning_rate": optimizer.state_dict()["learning_rate"]}
    meta.save(tmp_path / "run", {"model": model, "optimizer": state})
    before = values(model)
    other = {"model": network(), "optimizer": optimizer}
    saved = values(other["model"])
    with pytest.raises(FileError, match=r"'optimizer' in .*run lacks 'layers.0.w.m', .*strict=False"):
        meta.load(tmp_path / "run", other)
    assert (values(model), values(other["model"])) == (before, saved)

    class Refusing:
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Any) -> None:
            raise ArgumentError("load_state_dict", f"there is {state}", "nothing")

    with pytest.raises(FileError, match=r"'optimizer' in .*run does not fit Refusing: there is .*learning_r") as caught:
        meta.load(tmp_path / "run", {"model": other["model"], "optimizer": Refusing()})
    assert isinstance(caught.value.__cause__, ArgumentError)
    assert values(other["model"]) == saved


def _trained(*layers: Any) -> tuple[Any, Any, Any]:
    """A model, its optimizer and its schedule after two steps."""
    model = nn.Sequential(*layers)
    optimizer = meta.optim.Adam(model, 0.1)
    schedule = meta.optim.ExponentialLR(optimizer, 0.5)
    step = meta.optim.TrainStep(model, optimizer, meta.cross_entropy, schedule=schedule)
    for _ in range(2):
        step(meta.ones((2, 3)), meta.array([0, 1]))
    return model, optimizer, schedule


def test_states_of_optimizers_that_match(tmp_path: Path) -> None:
    path = tmp_path / "run"
    model, optimizer, schedule = _trained(nn.Linear(3, 4), nn.Linear(4, 2))
    meta.save(path, {"model": model, "optimizer": optimizer, "schedule": schedule})
    longer, other, rates = _trained(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2))
    target = {"model": longer, "optimizer": other, "schedule": rates}
    other.learning_rate = 0.7
    kept = {name: x.numpy().tobytes() for name, x in other.state_dict().items()}
    assert "layers.2.w.m" in kept.keys() - optimizer.state_dict().keys()
    with pytest.raises(FileError, match=r"'model' in .* lacks 'layers.2.w'"):
        meta.load(path, target)
    assert {name: x.numpy().tobytes() for name, x in other.state_dict().items()} == kept
    meta.load(path, target, strict=False)
    loaded, saved = other.state_dict(), optimizer.state_dict()
    for name, x in loaded.items():
        expected = saved[name].numpy().tobytes() if name in saved else kept[name]
        assert x.numpy().tobytes() == expected, name
    assert (rates.count, other.learning_rate) == (2, optimizer.learning_rate)
    assert other.load_state_dict({"learning_rate": 0.5, "x": 1}, strict=False).unknown == ["x"]
    assert other.learning_rate == 0.5
    with pytest.raises(FileError, match=r"'optimizer' in .* lacks 'layers.2.w.m'"):
        meta.load(path, {"model": model, "optimizer": other, "schedule": rates})
    narrow, small, _ = _trained(nn.Linear(3, 2))
    before = values(narrow) | values(small)
    with pytest.raises(FileError, match=r"'optimizer.layers.0.w.m' in .* is float32 of shape \(4, 3\)"):
        meta.load(path, {"optimizer": small}, strict=False)
    meta.save(path, {"first": other, "second": optimizer})
    with pytest.raises(FileError, match=r"'second' in .* has 'layers.1.w.m', .* too"):
        meta.load(path, {"first": other, "second": small})
    assert other.learning_rate == 0.5
    assert values(narrow) | values(small) == before


def test_values_that_cannot_be_saved_are_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "x"
    deep: list[Any] = []
    deep.append(deep)
    for value, problem in {
        "'a.1' is of class builtins.object; expected arrays, numbers, strings": {"a": [0, object()]},
        "'t' is of class torch.Tensor; expected .*wrap it: meta.from_dlpack": {"t": torch.ones(1)},
        r"the value has a key of class float; expected strings and ints": {0.5: 1},
        "'x' is a NumPy array of dtype datetime64": {"x": np.zeros(1, "datetime64[s]")},
        "'a.b' is the name of two arrays; expected other keys": {"a": {"b": meta.ones(1)}, "a.b": meta.ones(1)},
        "nests deeper than 64": deep,
        "'n' is an int of more than 400 digits": {"n": 10**400},
        "the value is of class builtins.bytes": b"",
    }.items():
        with pytest.raises(ArgumentError, match=value if isinstance(value, str) else problem):
            meta.save(path, problem)
    assert not path.exists()


def test_training_steps_are_saved_whole(tmp_path: Path) -> None:
    step = meta.optim.sgd.with_sgd(0.1, 0.9)(network(), loss=meta.cross_entropy)
    x, target = meta.ones((2, 3)), meta.array([0, 1])
    step(x, target)
    meta.save(tmp_path / "step", step)
    expected = step(x, target).item()
    assert meta.load(tmp_path / "step", step) is step
    assert step(x, target).item() == expected

    class Twice:
        def named_state(self) -> Any:
            return iter([("w", meta.ones(1)), ("w", meta.zeros(1))])

    with pytest.raises(ArgumentError, match=r"two arrays of Twice are called .w.; expected distinct names; save its"):
        meta.save(tmp_path / "step", Twice())


def test_arguments_in_the_order_of_torch(tmp_path: Path) -> None:
    model = network()
    with pytest.raises(
        ArgumentError, match=r"\[save\] the path is of class Sequential; .*; the path comes first: meta.save\("
    ):
        meta.save(model, tmp_path / "m")  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentError, match=r"\[load\] the path is of class Sequential; expected a str or a path; the path"
    ):
        meta.load(model, tmp_path / "m")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"\[load\] the path is of class Sequential; expected a str or a path \("):
        meta.vm.load(model)  # type: ignore[arg-type]


def test_files_are_not_used_while_tracing(tmp_path: Path) -> None:
    @meta.trace
    def step(x: Any) -> Any:
        meta.save(tmp_path / "x", {"x": x})
        return x

    with pytest.raises(TraceError, match=r"a file is used while tracing.*call save outside of the traced function"):
        step.record(meta.ones(2))


def _with_nest(path: Path, nest: Any) -> None:
    text = json.dumps({"__metadata__": {"meta.nest": nest if isinstance(nest, str) else json.dumps(nest)}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


@pytest.mark.parametrize(
    "nest",
    ["{", "[" * 5000, [1], {"array": "w"}, {"float": "1"}, {"dict": [1]}, {"dict": [["a", 1], ["a", 2]]},
     {"dict": [[None, 1]]}, {"list": 3}, {"set": []}, {"list": [], "dict": []}],
)  # fmt: skip
def test_false_descriptions_are_refused(nest: Any, tmp_path: Path) -> None:
    _with_nest(tmp_path / "x", nest)
    with pytest.raises(FileError, match=r"the description in .*x (is not valid JSON|has)"):
        meta.load(tmp_path / "x")


# --- training goes on bit by bit ---


TRAINING = """
import sys
import numpy as np
import meta
from meta import nn

start, folder = int(sys.argv[1]), sys.argv[2]
for mode in ("eager", "vm"):
    path = f"{folder}/{mode}.safetensors"
    meta.random.seed(start)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = meta.optim.AdamW(model, learning_rate=0.1)
    schedule = meta.optim.CosineAnnealingLR(optimizer, 6)
    scaler = meta.amp.GradScaler(scale=8.0, interval=2)
    rng = np.random.default_rng(start)

    @meta.trace
    def step(x, target):
        optimizer.zero_grad()
        loss = meta.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        schedule.step()
        return loss

    run = meta.vm.compile(step) if mode == "vm" else step
    state = {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": scaler,
             "random": meta.random.default_generator, "step": 0, "rng": None}
    if start:
        state = meta.load(path, state)
        rng.bit_generator.state = state["rng"]
    assert state["step"] == start
    for i in range(start, 6):
        if i == 3 and start == 0:
            meta.save(path, {**state, "step": i, "rng": rng.bit_generator.state})
        x = meta.array(rng.standard_normal((6, 4)), dtype="float32")
        loss = run(x, meta.array(rng.integers(0, 3, 6)))
        print(mode, i, loss.item().hex())
"""


def test_training_goes_on_bit_by_bit_in_another_process(tmp_path: Path) -> None:
    def train(start: int) -> list[str]:
        command = [sys.executable, "-c", TRAINING, str(start), str(tmp_path)]
        process = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert process.returncode == 0, process.stderr
        return process.stdout.splitlines()

    whole = train(0)
    assert len({line.split()[2] for line in whole}) > 6
    assert train(3) == [line for line in whole if int(line.split()[1]) >= 3]
