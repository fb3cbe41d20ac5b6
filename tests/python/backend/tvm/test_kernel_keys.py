"""Which sources the keys of kernels cover."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from meta.backend.tvm import compute
from meta.backend.tvm import target as targets
from meta.op.dispatch import implementations
from meta.op.registry import all_ops, get


def test_the_identity_covers_processor_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = targets.identity("cpu")
    assert identity == targets.identity.__wrapped__("cpu")
    monkeypatch.setattr(targets, "describe_processor", lambda: "another")
    assert identity != targets.identity.__wrapped__("cpu")
    monkeypatch.undo()
    monkeypatch.setattr(targets, "version", lambda package: "0.0")
    assert identity != targets.identity.__wrapped__("cpu")


def test_the_identity_of_the_cpu_excludes_sources_for_gpus() -> None:
    """Sources for the CPU import those for GPUs where they select by device: in `patterns`, `target` and `kernel`."""
    backend = Path(targets.__file__).parents[1]
    gpu = {
        p.relative_to(backend).parent.as_posix()
        for p in {*targets.lowering_sources("cuda")} - {*targets.lowering_sources("cpu")}
    }
    assert gpu == {"tvm/schedule/gpu", "cuda"}
    names = ("meta.backend.cuda", "meta.backend.tvm.schedule.gpu")
    reached = {
        (path.stem, node.module)
        for path in targets.lowering_sources("cpu")
        if backend in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(names)
    }
    assert reached == {
        ("patterns", "meta.backend.tvm.schedule.gpu.rules"),
        ("target", "meta.backend.cuda"),
        ("kernel", "meta.backend.cuda.driver"),
    }


def test_sources_cover_the_modules_that_computes_call() -> None:
    """Each module outside the dialect that a compute imports is in the identity; memory decides no kernel."""
    package = Path(targets.__file__).parents[2]
    hashed = {"meta." + ".".join(p.relative_to(package).with_suffix("").parts) for p in targets.lowering_sources("cpu")}
    hashed = {name.removesuffix(".__init__") for name in hashed}
    folders = ("op/dialect/tvm", "backend/tvm/te", "backend/tvm/schedule")
    imported: set[str] = set()
    for path in (path for folder in folders for path in (package / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "meta":
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                modules = {n for n in names if (package.parent / n.replace(".", "/")).with_suffix(".py").is_file()}
                imported |= modules or {node.module or ""}
    inside = ("meta.op.dialect.tvm", "meta.backend.tvm")
    assert {name for name in imported if not name.startswith(inside)} - {"meta.backend.memory.allocation"} <= hashed


def test_source_keys_exclude_the_sources_of_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity covers them. A source key covers the operator's family, so that an edit for GPUs keeps it."""
    read: list[Path] = []
    contents = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), contents(path))[1])
    implementation = next(i for i in implementations(get("softmax")) if i.dialect.name == "tvm")
    compute.source_key.__wrapped__(implementation.payload.source)
    assert {path.name for path in read} == {"nn.py"}
    assert not set(read) & set(targets.lowering_sources("cuda"))


def test_computes_of_this_package_have_source_keys() -> None:
    """A kernel without one is looked up by its function, which takes TVM's compiler."""
    payloads = [i.payload for op in all_ops() if op.declare.__module__.startswith("meta.") for i in implementations(op)]
    computes = [p for p in payloads if isinstance(p, compute.TEImplementation)]
    assert computes
    assert all(compute.source_key(p.source) for p in computes)
