"""Kernels from folders in the layout of Hugging Face's kernels: variants, digests, trust, functions of torch."""

import base64
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.tvm import library
from meta.cache import default_cache
from meta.errors import ArgumentError, FileError, KernelError
from meta.op.user.kernels import variants
from tests.python.recorded import array

torch = pytest.importorskip("torch")
HERE = f"{platform.machine()}-{platform.system().lower()}"
FFI = ".".join(map(str, variants._installed("apache-tvm-ffi")))
NAME = f"tvm-ffi{FFI.replace('.', '')}-cpu-{HERE}"
SOURCE = """
void double_it(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  for (int64_t i = 0; i < x.size(0); ++i)
    static_cast<float*>(out.data_ptr())[i] = 2 * static_cast<float*>(x.data_ptr())[i];
}
"""
PACKAGE = """
from .functions import gelu_and_mul, tripled

__all__ = ["gelu_and_mul", "tripled", "written"]


def written(x, out):
    out.copy_(5 * x)
"""
FUNCTIONS = """
import torch

def tripled(x):
    return 3 * x

def gelu_and_mul(x):
    return x
"""


@pytest.fixture(scope="module")
def code() -> bytes:
    """A shared library that exports `double_it`."""
    if shutil.which("ninja") is None or not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler, or no ninja")
    built = meta.kernels.compile(SOURCE, ["double_it"])
    cache = default_cache()
    assert cache is not None
    data = library.read(cache, f"kernels_{built.digest[:48]}")
    assert data is not None
    return data


@pytest.fixture
def hub() -> Iterator[Any]:
    with meta.register_dialect("hub", plevel=30) as dialect:
        yield dialect


def write(folder: Path, files: dict[str, bytes | str], **metadata: Any) -> Path:
    """A variant with metadata and the digests of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    digests: dict[str, str] = {}
    for name, data in files.items():
        data = data.encode() if isinstance(data, str) else data
        (folder / name).write_bytes(data)
        digests[name] = base64.b64encode(hashlib.sha256(data).digest()).decode()
    facts = {"id": "_kernels_cpu", "name": "some-kernels", "version": 1, "backend": {"type": "cpu"},
             "digest": {"algorithm": "sha256", "files": digests}, **metadata}  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps(facts))
    return folder


def pin(folder: Path) -> str:
    """The digest that the error without trust names."""
    with pytest.raises(FileError, match="holds code, with the SHA-256") as raised:
        meta.kernels.load(folder)
    return re.findall(r'trust="(\w{64})"', str(raised.value))[0]


def test_a_variant_for_tvm_ffi(code: bytes, hub: Any, tmp_path: Path) -> None:
    write(tmp_path / "build" / NAME, {"_kernels.so": code, "__init__.py": "raise SystemExit"})
    for other in ("tvm-ffi99-cpu-" + HERE, "torch29-cxx11-cpu-" + HERE, "unknown"):
        (tmp_path / "build" / other).mkdir()
    digest = pin(tmp_path)
    kernels = meta.kernels.load(tmp_path, version=1, trust=digest)
    assert repr(kernels) == f"<KernelLibrary some-kernels: double_it ({NAME} version 1)>"
    assert (kernels.digest, kernels.variant) == (digest, NAME)
    assert meta.kernels.load(tmp_path / "build", trust=("0" * 64, digest)) is kernels
    assert meta.kernels.load(tmp_path / "build" / NAME, trust=True) is kernels
    hub.from_ffi("tanh", kernels.double_it)
    assert meta.tanh(meta.array([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_a_package_for_torch(hub: Any, tmp_path: Path) -> None:
    write(tmp_path / "torch-universal", {"__init__.py": PACKAGE, "functions.py": FUNCTIONS})
    kernels = meta.kernels.load(tmp_path, trust=pin(tmp_path))
    assert sorted(kernels.functions) == ["gelu_and_mul", "tripled", "written"]
    hub.from_torch("tanh", kernels.tripled).from_torch("exp", kernels.written)
    hub.from_torch("gelu", kernels.gelu_and_mul, takes=("x",))
    x = array(3, 4)
    assert meta.explain("tanh", x).chosen == "hub"
    np.testing.assert_array_equal(meta.tanh(x).numpy(), 3 * x.numpy())
    np.testing.assert_array_equal(meta.exp(x).numpy(), 5 * x.numpy())
    np.testing.assert_array_equal(meta.gelu(x).numpy(), x.numpy())
    np.testing.assert_array_equal(meta.vm.compile(meta.trace(meta.tanh))(x).numpy(), 3 * x.numpy())
    assert not list(tmp_path.rglob("__pycache__")), "the package was imported from the folder that others may write"


def test_functions_with_a_torch_signature(hub: Any) -> None:
    """As in FlagGems and Liger: functions of tensors that return tensors."""
    hub.from_torch("rms_norm", lambda x, w, eps: torch.rms_norm(x, x.shape[-1:], w, eps), takes=("x", "scale", "eps"))
    hub.from_torch("adaptive_max_pool2d_with_indices", torch.nn.functional.adaptive_max_pool2d_with_indices)
    x = array(4, 8)
    with meta.with_dialect("tvm"):
        expected = meta.rms_norm(x).numpy()
    np.testing.assert_allclose(meta.rms_norm(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    y, indices = meta.adaptive_max_pool2d_with_indices(array(2, 3, 8, 8), (2, 2))
    assert (y.shape, indices.dtype) == ((2, 3, 2, 2), "int32")
    assert "takes no 'axis'" in str(meta.explain("rms_norm", x, axis=0))


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: x.double(), r"returned float64\[3\] on cpu; expected float32\[3\] on cpu"),
        (lambda x: x[:1], r"returned float32\[1\] on cpu"),
        (lambda x: (x, x), r"returned float32\[3\] on cpu, float32\[3\] on cpu"),
        (lambda x: None, "returned NoneType"),
        (lambda x: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_wrong_results_of_functions(hub: Any, function: Callable[..., Any], problem: str) -> None:
    hub.from_torch("tanh", function)
    with pytest.raises(KernelError, match=rf"\[tanh\] its hub implementation {problem}"):
        meta.tanh(array(3))


def test_files_that_differ(tmp_path: Path) -> None:
    folder = write(tmp_path / "torch-cpu", {"__init__.py": PACKAGE, "functions.py": FUNCTIONS})
    digest = pin(tmp_path)
    with pytest.raises(FileError, match=rf"has the SHA-256 {digest}; expected {'0' * 64}"):
        meta.kernels.load(tmp_path, trust="0" * 64)
    with pytest.raises(FileError, match="has version 1; expected version 2"):
        meta.kernels.load(tmp_path, version=2, trust=digest)
    (folder / "added.py").write_text("")
    with pytest.raises(FileError, match=r"added\.py is not listed in the metadata"):
        meta.kernels.load(tmp_path, trust=True)
    (folder / "added.py").unlink()
    (folder / "functions.py").write_text(FUNCTIONS + "changed = True\n")
    with pytest.raises(FileError, match=r"functions\.py differs from its digest in the metadata"):
        meta.kernels.load(tmp_path, trust=True)
    (folder / "metadata.json").write_text('{"digest": 3}')
    with pytest.raises(FileError, match=r"metadata\.json is malformed"):
        meta.kernels.load(tmp_path, trust=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"tvm-ffi99-cpu-{HERE}", f"built for the ABI of tvm-ffi 9.9, and {FFI} is installed"),
        (f"torch19-cxx11-cpu-{HERE}", "built for the ABI of torch 1.9"),
        (f"torch-stable-abi99-cpu-{HERE}", "built for the ABI of torch-stable-abi 9.9"),
        ("torch213-cpu-other-plan", "for plan on other"),
        (f"torch213-cxx11-rocm71-{HERE}", "for rocm"),
        ("torch-cuda", "for cuda"),
        ("nothing", "it has no variant"),
    ],
)
def test_no_variant_for_this_system(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(FileError, match=f"no variant in .* runs on cpu here: .*{reason}"):
        meta.kernels.load(tmp_path, device="cpu")


def test_the_order_of_variants(tmp_path: Path) -> None:
    names = ["torch-cpu", f"torch-stable-abi21-cpu-{HERE}", f"torch-stable-abi29-cpu-{HERE}", NAME]
    for i, name in enumerate(names):
        (tmp_path / name).mkdir()
        assert variants.choose(tmp_path, "cpu").folder.name == names[i]


def test_code_that_does_not_load(code: bytes, tmp_path: Path) -> None:
    write(tmp_path / NAME, {"_kernels.so": b"\x7fELF, but no library"})
    with pytest.raises(FileError, match=r"exports no function of tvm-ffi's ABI"):
        meta.kernels.load(tmp_path, trust=True)
    write(tmp_path / NAME, {"_kernels.so": code[:2000] + b"\0__tvm_ffi_f\0"})
    with pytest.raises(FileError, match=r"_kernels\.so is cut off; expected [\d,]+ bytes"):
        meta.kernels.load(tmp_path, trust=True)
    machine = bytearray(code)
    machine[18:20] = b"\x02\x00"  # the number of another architecture, in the header of ELF
    write(tmp_path / NAME, {"_kernels.so": bytes(machine)})
    with pytest.raises(FileError, match=r"_kernels\.so does not load: "):
        meta.kernels.load(tmp_path, trust=True)
    shutil.rmtree(tmp_path / NAME)
    write(tmp_path / NAME, {"README": "nothing else"})
    with pytest.raises(FileError, match="has no shared library"):
        meta.kernels.load(tmp_path, trust=True)


def test_packages_that_do_not_import(tmp_path: Path) -> None:
    write(tmp_path / "torch-cpu", {"__init__.py": "import package_that_is_missing"})
    with pytest.raises(FileError, match="raised ModuleNotFoundError: No module named 'package_that_is_missing'"):
        meta.kernels.load(tmp_path, trust=True)
    write(tmp_path / "torch-cpu", {"functions.py": FUNCTIONS})
    (tmp_path / "torch-cpu" / "__init__.py").unlink()
    with pytest.raises(FileError, match=r"has no __init__\.py"):
        meta.kernels.load(tmp_path, trust=True)


@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"trust": "abc"}, ArgumentError, "trust is 'abc'"),
        ({"trust": None}, ArgumentError, "trust is None"),
        ({"device": "tpu"}, ArgumentError, "device is 'tpu'; expected 'cpu' or 'cuda'"),
        (
            {"folder": "some-org/some-kernels"},
            FileError,
            "there is no folder 'some-org/some-kernels'.*snapshot_download",
        ),
    ],
)
def test_refuses_bad_arguments(tmp_path: Path, options: Any, kind: type[Exception], problem: str) -> None:
    options = {"folder": tmp_path, **options}
    with pytest.raises(kind, match=problem):
        meta.kernels.load(options.pop("folder"), **options)


PROCESS = """
import sys
import meta
meta.tanh(meta.array([1.0]))
built = meta.kernels.compile(sys.argv[2], ["double_it"])
loaded = meta.kernels.load(sys.argv[1], trust=True)
hub = meta.register_dialect("hub", plevel=30).from_ffi("tanh", loaded.double_it)
assert meta.tanh(meta.array([1.0])).tolist() == [2.0]
"""


def test_a_process_ends_while_kernels_are_in_use(code: bytes, tmp_path: Path) -> None:
    """Their code, and the code that calls them, is there until the last of them has gone."""
    write(tmp_path / NAME, {"_kernels.so": code})
    completed = subprocess.run(
        [sys.executable, "-c", PROCESS, str(tmp_path), SOURCE], capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stderr) == (0, "")
