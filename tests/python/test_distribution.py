"""The installed distribution: requirements, command, data files. check-wheel runs these tests on the wheel."""

import importlib
import subprocess
import sys
from importlib import metadata, resources

import pytest
from packaging.requirements import Requirement

REQUIREMENTS = [Requirement(text) for text in metadata.requires("meta-tvm") or ()]


def requirements(extra: str = "") -> dict[str, Requirement]:
    """Requirements by name: the hard ones, or those that `extra` adds."""
    return {
        item.name.replace("_", "-"): item
        for item in REQUIREMENTS
        if (item.marker is None and not extra) or (item.marker is not None and item.marker.evaluate({"extra": extra}))
    }


def test_hard_requirements_are_few() -> None:
    """TVM, NumPy with its bfloat16, the format of saved arrays (0.5 MB), and small packages in pure Python."""
    required = {"apache-tvm", "lark", "ml-dtypes", "numpy", "opt-einsum", "platformdirs", "safetensors"}
    assert set(requirements()) == required


def test_torch_is_an_extra() -> None:
    assert str(requirements("torch")["torch"].specifier) == ">=2.11"


def test_cuda_bindings_are_an_extra() -> None:
    assert set(requirements("cuda")) == {"cuda-bindings"}


def test_tvm_is_pinned() -> None:
    assert str(requirements()["apache-tvm"].specifier) == f"=={metadata.version('apache-tvm')}"


@pytest.mark.parametrize(
    ("package", "file"),
    [
        ("meta", "py.typed"),
        ("meta.op.grad", "derivatives.yaml"),
        ("meta.frontend.relay.text", "grammar.lark"),
        ("meta.deploy", "runtime/meta_program.h"),
        ("meta.deploy", "runtime/threads.c"),
        ("meta.deploy", "web/program.js"),
    ],
)
def test_data_files_are_installed(package: str, file: str) -> None:
    assert resources.files(package).joinpath(file).is_file()


def test_console_command() -> None:
    (command,) = metadata.entry_points(group="console_scripts", name="meta")
    module, _, function = command.value.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_module_command_prints_help() -> None:
    completed = subprocess.run([sys.executable, "-m", "meta", "--help"], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert "demo" in completed.stdout
