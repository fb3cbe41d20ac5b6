"""Programs for browsers: in Node, and in headless Chromium the example that trains LeNet."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from examples.web import __main__ as example
from meta import nn
from meta.cli import main
from meta.errors import NotSupportedError
from tests.chromium import run_page

NEEDED = ("clang", "wasm-ld", "node")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)} (apt install clang lld wasi-libc nodejs)"
)
PLAIN = f"{platform.machine()}-linux-gnu"
STEPS = 50
HARNESS = Path(__file__).with_name("web_harness.html")


def node(script: str, *arguments: object) -> str:
    command = ["node", "--no-warnings", str(Path(__file__).with_name(script)), *map(str, arguments)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


# --- a small program --------------------------------------------------------------------------------------------------


class Mixed(meta.Model):
    """Open sizes, four dtypes, random keys, and an argument that is written."""

    def build(self) -> None:
        self.embedding, self.drop = nn.Embedding(5, 4), nn.Dropout(0.5)

    @meta.trace
    def forward(self, x: Any, ids: Any, keep: Any, total: Any) -> Any:
        y = meta.where(keep.reshape((-1, 1)), self.drop(x) + self.embedding(ids), x)
        total += y.sum().cast("float64")
        return y, ids + 1, keep


def mixed() -> Any:
    meta.random.seed(0)
    model = Mixed().train_mode()
    meta.random.seed(6)
    return model


def calls() -> list[dict[str, np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(0)
    return [
        {"x": rng.normal(size=(n, 4)).astype("float32"), "ids": np.arange(n), "keep": np.arange(n) % 2 == 0,
         "total": np.array(0.5)}
        for n in (3, 5)
    ]  # fmt: skip


def compiled(target: str) -> Any:
    dynamic = {name: {0: "n"} for name in ("x", "ids", "keep")}
    with meta.with_dialect("tvm"):
        return meta.vm.compile(mixed(), target=target, dynamic=dynamic)


def test_a_program_in_node(tmp_path: Path) -> None:
    browser, host = compiled("wasm32"), compiled(PLAIN)
    browser.program(*map(meta.array, calls()[0].values()))
    browser.save(tmp_path / "mixed", format="web")
    tensors: dict[str, Any] = {}
    for i, inputs in enumerate(calls()):
        arrays = {name: meta.array(x) for name, x in inputs.items()}
        tensors |= {f"{i}.{name}": meta.array(x) for name, x in inputs.items()}
        tensors |= {f"{i}.result.{k}": y for k, y in enumerate(host(*arrays.values()))}
        tensors[f"{i}.total.after"] = arrays["total"]
    meta.save(tmp_path / "mixed" / "calls.safetensors", tensors)
    node("web_program.mjs", tmp_path / "mixed")
    types = (tmp_path / "mixed" / "program.d.ts").read_text()
    assert '  "ids": Shaped<BigInt64Array>;\n' in types
    assert '  "total": Float64Array | Shaped<Float64Array>;\n' in types
    assert "export type Results = [Tensor<Float32Array>, Tensor<BigInt64Array>, Tensor<Uint8Array>];" in types
    assert '  "embedding.w": Float32Array;\n' in types


def test_the_command_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web_model.py").write_text(
        "import meta\nfrom meta import nn\n\n\ndef net():\n    return nn.Linear(8, 4), meta.ones((2, 8))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "out"
    assert main(["deploy", "web_model:net", "--target", "wasm32", "--cpu", "mvp", "--embed", "-o", str(folder)]) == 0
    assert f"bytes; serve it: python -m http.server -d {folder}\n" in capsys.readouterr().out
    names = {"index.html", "page.css", "page.js", "program.d.ts", "program.js", "program.wasm"}
    assert {file.name for file in folder.iterdir()} == names
    assert '<main data-weights="">' in (folder / "index.html").read_text()


def test_a_page_is_for_webassembly(tmp_path: Path) -> None:
    executor = meta.vm.compile(meta.trace(lambda x: x + 1.0))
    executor.program(meta.ones((2,)))
    problem = r'which no browser runs; expected a program for wasm32; .*target="wasm32"'
    with pytest.raises(NotSupportedError, match=problem):
        executor.save(tmp_path / "page", format="web")
    assert not list(tmp_path.iterdir())


# --- the example ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the example."""
    folder = tmp_path_factory.mktemp("page")
    example.main(["-o", str(folder)])
    return folder


@pytest.fixture(scope="module")
def losses() -> list[float]:
    """The losses on this machine, compiled for a processor without special instructions."""
    digits = example.digits()
    images = np.repeat(np.repeat(digits["trained.images"], 3, 1), 3, 2)[:, None].astype("float32") / 16
    images, labels = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2))), digits["trained.labels"].astype("int64")
    with meta.with_dialect("tvm"):
        step = meta.vm.compile(example.training_step(example.model()), target=PLAIN)
    count = len(labels) // example.BATCH
    batches = [slice(example.BATCH * (i % count), example.BATCH * (i % count + 1)) for i in range(STEPS)]
    return [step(meta.array(images[part]), meta.array(labels[part])).item() for part in batches]


def check_losses(actual: list[float], expected: list[float]) -> None:
    assert len(actual) == len(expected) == STEPS
    np.testing.assert_allclose(actual[:5], expected[:5], rtol=1e-6)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_the_example_trains_in_node(page: Path, losses: list[float]) -> None:
    found = json.loads(node("web_training.mjs", page, STEPS))
    check_losses(found["losses"], losses)
    assert found["again"] == found["losses"][0]
    assert found["accuracy"] > 0.5
    assert max(file.stat().st_size for file in page.rglob("program.wasm")) <= 300_000


def test_the_example_in_chromium(page: Path, losses: list[float], tmp_path_factory: pytest.TempPathFactory) -> None:
    text = HARNESS.read_text().replace("STEPS", str(STEPS))
    found, log = run_page(page, text, tmp_path_factory.mktemp("profile"), seconds=120)
    check_losses(found["losses"], losses)
    assert [line for line in log.splitlines() if "CONSOLE" in line] == []
    assert found["program"].endswith("bytes of memory")
    assert found["results"] == ["result.0", "float32 [1, 10]"]
    assert found["trained"].startswith("step 400 of 400, loss 0.")
    assert found["curve"] > 100
    assert (found["drawn"], found["sampled"]) == ("0", True)
    assert found["width"] == {"400": True, "1600": True}
    assert min(found["contrast"]) >= 4.5
    assert len(set(found["contrast"])) == 2, "light and dark"
