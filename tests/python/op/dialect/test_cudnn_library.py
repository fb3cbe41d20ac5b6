"""The library of cuDNN: the search for it, and reasons for the dialect to be off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meta.backend.cuda import driver
from meta.backend.cudnn import loader
from meta.op import dispatch
from meta.op.dialect.cudnn import DIALECT


def test_import_loads_no_library() -> None:
    program = "import sys, meta.op.dialect.cudnn as d; d.DIALECT.unavailable(); print(sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"cudnn", "torch", "tvm", "numpy"} & set(eval(run.stdout))


def test_libraries_on_the_path_come_before_bundled_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "ld", tmp_path / "site/nvidia/cudnn/lib", tmp_path / "site/torch/lib"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / loader.NAME).write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path}/missing:{folders[0]}")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), ""])
    assert list(loader.candidates()) == [*(str(f / loader.NAME) for f in folders), loader.NAME]


def test_a_missing_library_error_lists_the_paths_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "libcudnn-broken.so.9"
    broken.write_bytes(b"no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(loader, "_BUNDLES", ())
    monkeypatch.setattr(loader, "NAME", broken.name)
    with pytest.raises(OSError, match=f"libcudnn not found in {broken}, the paths of the dynamic linker"):
        loader.find()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the reason is the system")
class TestProbe:
    """Why the dialect is off."""

    def test_no_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "probe", lambda: "no CUDA device")
        assert loader.probe() == "no CUDA device"

    def test_no_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def find() -> Any:
            raise OSError("libcudnn not found in /here")

        monkeypatch.setattr(driver, "probe", lambda: None)
        monkeypatch.setattr(loader, "find", find)
        assert loader.probe() == "libcudnn not found in /here"

    def test_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "probe", lambda: None)
        old = SimpleNamespace(cudnnGetVersion=lambda: 8907)
        monkeypatch.setattr(loader, "find", lambda: (old, "libcudnn.so.9"))
        assert loader.probe() == "libcudnn.so.9 is cuDNN 8907; at least 90000 is needed"

    def test_probe_runs_once(self) -> None:
        devices: list[int] = []

        def probe() -> str:
            devices.append(1)
            return "not today"

        off = dispatch.Dialect("cudnn", frozenset({"cuda"}), 15, probe, DIALECT.kernel)
        assert [off.unavailable(), off.unavailable()] == ["not today"] * 2
        assert len(devices) == 1
