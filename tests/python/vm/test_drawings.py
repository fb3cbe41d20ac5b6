"""Pictures of programs: the layers of memory, the kernels as boxes, and their times."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import NotSupportedError
from meta.pictures import Picture
from meta.pictures.programs import Timeline
from meta.vm.located import locate, timeline
from meta.vm.plan.graph import live_bytes
from meta.vm.plan.kernels import OWN, PLANNED

SVG = "{http://www.w3.org/2000/svg}"
X, LABELS = meta.array(np.linspace(-1, 1, 64 * 16).reshape(64, 16).astype(np.float32)), meta.array(np.arange(64) % 4)


class Net(meta.Model):
    def build(self) -> None:
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: Any) -> Any:
        return self.last(meta.gelu(self.first(x)))  # the line of the activations


def squares(scores: Any, labels: Any) -> Any:
    """A loss without a backward operator."""
    return ((scores - meta.one_hot(labels, 4)) * (scores + 1.0)).mean()


def training(loss: Any = meta.cross_entropy) -> Any:
    net = Net()
    return meta.vm.compile(meta.optim.TrainStep(net, meta.optim.Adam(net, learning_rate=0.1), loss=loss))


def timeline_of(executor: Any, *inputs: Any) -> Timeline:
    program = executor.program(*inputs)
    return timeline(program, locate(program.source, fuse=True), inputs)


def texts(picture: Picture) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize("loss", [meta.cross_entropy, squares])
def test_layers_of_a_training_step(loss: Any) -> None:
    step = training(loss)
    living = timeline_of(step, X, LABELS)
    program = step.program(X, LABELS)
    base = sum(x.nbytes for _, x in program.record.state) + X.nbytes + LABELS.nbytes
    base += sum(x.nbytes for x in program.constants)
    main = locate(program.source, fuse=True).planned.main
    assert living.totals == [base + count for count in live_bytes(main, PLANNED, OWN)]
    assert max(living.totals) <= step.memory(X, LABELS).total
    layers = {each.what: each.layer for step in living.steps for each in step}
    assert layers["first.w"] == "parameters"
    assert layers["first.w.m"] == "state"
    activations = [i for i, step in enumerate(living.steps) if any(e.layer == "activations" for e in step)]
    gradients = [i for i, step in enumerate(living.steps) if any(e.layer == "gradients" for e in step)]
    assert 0 < len(gradients) < len(living.steps)
    assert min(activations) < min(gradients)
    assert all("_dx" not in what for what, layer in layers.items() if layer == "activations")


def test_the_largest_tensors_have_their_lines() -> None:
    living = timeline_of(training(), X, LABELS)
    largest = living.largest()
    assert len(largest) == 10
    assert [e.bytes for e in largest] == sorted((e.bytes for e in living.steps[living.peak]), reverse=True)[:10]
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "the line of the" in text)
    gelu = next(e for e in largest if e.what.startswith("float32 of shape (64, 32)") and e.what.endswith("gelu"))
    assert (gelu.layer, gelu.lines) == ("activations", (f"{__file__}:{line}",))


def test_inference_has_no_gradients() -> None:
    living = timeline_of(meta.vm.compile(Net()), X)
    assert {each.layer for step in living.steps for each in step} == {
        "parameters",
        "inputs and constants",
        "activations",
    }


def test_the_picture_of_memory(tmp_path: Path) -> None:
    step = training()
    picture = step.memory(X, LABELS).draw()
    shown = texts(picture)
    assert shown[0] == "memory of TrainStep"
    assert {"parameters", "state", "activations", "gradients", "largest tensors at the peak"} <= set(shown)
    assert any("first.w" in text for text in shown)
    picture.save(tmp_path / "memory.svg")
    assert (tmp_path / "memory.svg").read_text() == picture == picture._repr_svg_()


def test_kernels_are_boxes_with_operators_times_and_bytes() -> None:
    step = training()
    step(X, LABELS)
    before = [p.detach().numpy().copy() for p in step.compiled_from.model.parameters()]
    picture = step.draw(X, LABELS)
    for p, kept in zip(step.compiled_from.model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), kept)
    program = step.program(X, LABELS)
    steps = locate(program.source, fuse=True).planned.main.steps
    boxes = [r for r in ElementTree.fromstring(picture).iter(f"{SVG}rect") if r.get("class") == "box"]
    shown = texts(picture)
    assert len(boxes) == len(steps) == sum(" us, " in text for text in shown)
    assert {"gelu", "cross_entropy", "adam"} <= set(shown)
    assert sum("test_drawings.py:" in text for text in shown) > 4
    assert not any(" us, " in text for text in texts(step.draw(X, LABELS, repeat=0)))


def test_the_times_of_kernels_are_bars_with_lines() -> None:
    executor = meta.vm.compile(Net())
    profile = executor.profile(X, repeat=2)
    assert all(kernel.lines[0].startswith(__file__) for kernel in profile.kernels)
    shown = texts(profile.draw())
    assert shown[0] == f"kernels by time; a run takes {profile.total:.1f} us"
    assert len(shown) == 1 + 2 * len(profile.kernels)


def test_a_program_from_a_file_has_no_plan(tmp_path: Path) -> None:
    executor = meta.vm.compile(Net())
    executor(X)
    executor.save(tmp_path / "net.program")
    with pytest.raises(NotSupportedError, match=r"\[vm\] a program that was loaded from a file has no plan; expected"):
        meta.vm.load(tmp_path / "net.program").memory(X).draw()
