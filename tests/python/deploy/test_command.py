"""`python -m meta deploy` of models in files and of functions: the programs return the values of the models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import meta
from benchmarks.deploy.machines import DRIVER, HOST, MACHINES, build, decode, run
from benchmarks.deploy.networks import normal, onnx_bytes
from examples import relay
from meta.cli import main
from tests.python.deploy.programs import require

Model = tuple[list[str], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def onnx(folder: Path) -> Model:
    (folder / "net.onnx").write_bytes(onnx_bytes())
    x = normal(4, 1, 12, 12)
    return [str(folder / "net.onnx")], x, meta.vm.compile(meta.frontend.onnx.load(onnx_bytes()).infer_mode())(x).numpy()


def pt2(folder: Path) -> Model:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.GELU()).eval()
    x = torch.from_numpy(normal(3, 2, 8, 8))
    torch.export.save(torch.export.export(module, (x,)), folder / "net.pt2")
    return [str(folder / "net.pt2")], x.numpy(), module(x).detach().numpy()


def relay_text(folder: Path) -> Model:
    (folder / "net.relay").write_text(relay.PROGRAM.replace("BATCH", "4"))
    values = relay.parameters()
    np.savez(folder / "net.npz", **values)  # type: ignore[arg-type]
    x = normal(4, 64)
    hidden = np.maximum(x.astype("float64") @ values["w1"].T + values["b1"], 0)
    y = hidden @ values["w2"].T + values["b2"]
    return [str(folder / "net.relay"), "--params", str(folder / "net.npz")], x, y.astype("float32")


def function(folder: Path) -> Model:
    (folder / "deployed_net.py").write_text(
        "import meta\nfrom meta import nn\n\n\ndef net():\n    meta.random.seed(0)\n"
        "    return nn.Sequential(nn.Linear(8, 4), nn.Softmax(-1)).infer_mode(), meta.ones((2, 8))\n"
    )
    sys.modules.pop("deployed_net", None)
    from deployed_net import net  # type: ignore[import-not-found]

    x = normal(2, 8)
    return ["deployed_net:net"], x, meta.vm.compile(net()[0])(x).numpy()


@pytest.mark.parametrize("model", [onnx, pt2, relay_text, function], ids=lambda model: model.__name__)
@pytest.mark.parametrize("name", ["host", "aarch64"])
def test_programs_return_the_values_of_models(
    model: Callable[[Path], Model], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MACHINES.get(name, HOST)
    require(machine)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments, x, expected = model(tmp_path)
    target = ["--target", str(machine.target)] if machine.target else []
    assert main(["deploy", *arguments, *target, "-o", str(tmp_path / "out")]) == 0
    binary = build(tmp_path / "out", machine, DRIVER, ["net"])
    (y,) = decode(run(machine, binary, "net", [(x,)])[0], [expected])
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
