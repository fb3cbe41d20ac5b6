"""Which sources the keys of kernels cover."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from meta.backend.tvm import compute
from meta.backend.tvm import target as targets
from meta.op.dispatch import implementations
from meta.op.registry import all_ops, get
from meta.vm.build import executables


def test_the_identity_covers_processor_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = targets.identity("cpu")
    assert identity == targets._identity.__wrapped__("cpu", None)
    monkeypatch.setattr(targets, "describe_processor", lambda: "another")
    assert identity != targets._identity.__wrapped__("cpu", None)
    monkeypatch.undo()
    monkeypatch.setattr(targets, "version", lambda package: "0.0")
    assert identity != targets._identity.__wrapped__("cpu", None)


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


_PACKAGE = Path(targets.__file__).parents[2]

# Modules that decide no code: files, memory, arrays, calls, transfers, and schemas, whose arguments are in the key, as
# the programs that passes make are.
_RUNS_ONLY = (
    *("meta.files", "meta.backend.memory", "meta.schema", "meta.eager", "meta._generated", "meta.tracing"),
    *("meta.op.grad", "meta.backend.torch", "meta.passes", "meta.spellings"),
)


def _modules_of(paths: Iterable[Path]) -> set[str]:
    names = {"meta." + ".".join(p.relative_to(_PACKAGE).with_suffix("").parts) for p in paths}
    return {name.removesuffix(".__init__").removesuffix(".") for name in names}


def _imported(module: str) -> set[str]:
    """The modules of the package that a module imports anywhere in its file, but for type checkers."""
    path = _PACKAGE.parent / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text())
    unchecked = (n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    skipped = {id(n) for block in unchecked for n in ast.walk(block)}
    imports = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and id(n) not in skipped)
    modules: set[str] = set()
    for node in imports:
        for name in (f"{node.module}.{alias.name}" for alias in node.names if (node.module or "").startswith("meta")):
            place = _PACKAGE.parent / name.replace(".", "/")
            is_module = place.is_dir() or place.with_suffix(".py").is_file()
            modules.add(name if is_module else str(node.module))
    return modules - {"meta"}


def _reached(modules: Iterable[str]) -> set[str]:
    """The modules, and all that they import, directly or not."""
    reached, pending = set[str](), set(modules)
    while pending:
        module = pending.pop()
        reached.add(module)
        pending |= {m for m in _imported(module) if not m.startswith(_RUNS_ONLY)} - reached
    return reached


def test_the_key_of_a_kernel_covers_the_modules_that_decide_it() -> None:
    """A family's own file and its package's are in its source key."""
    families = _modules_of((_PACKAGE / "op/dialect/tvm").glob("*.py"))
    start = {*families, "meta.backend.tvm.kernel", "meta.backend.tvm.shape_generic"}
    assert _reached(start) - families == _reached(start) & _modules_of(targets.lowering_sources("cuda"))


def test_the_key_of_a_program_covers_the_modules_that_decide_it() -> None:
    hashed = _modules_of([*targets.lowering_sources("cuda"), *executables.own_sources()])
    start = _modules_of(p for folder in ("vm/lower", "vm/build") for p in (_PACKAGE / folder).glob("*.py"))
    assert not _reached(start) - hashed


def test_source_keys_exclude_the_sources_of_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity covers them. A source key covers the operator's family, so that an edit for GPUs keeps it."""
    paths: list[Path] = []
    contents = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (paths.append(path), contents(path))[1])
    implementation = next(i for i in implementations(get("softmax")) if i.dialect.name == "tvm")
    compute.source_key.__wrapped__(implementation.payload.source)
    assert {path.name for path in paths} == {"__init__.py", "nn.py"}
    assert not set(paths) & set(targets.lowering_sources("cuda"))


def test_computes_of_this_package_have_source_keys() -> None:
    """A kernel without one is looked up by its function, which takes TVM's compiler."""
    payloads = [i.payload for op in all_ops() if op.declare.__module__.startswith("meta.") for i in implementations(op)]
    computes = [p for p in payloads if isinstance(p, compute.TEImplementation)]
    assert computes
    assert all(compute.source_key(p.source) for p in computes)
