"""Builds the wheel and the sdist in dist/ and checks them as users get them: `make release`.

Both must describe the package well (twine) and hold the same files, and versions must agree. The wheel is then
installed in a fresh environment of each interpreter at hand, away from the source tree: the command runs, the demo
trains, and `op new` writes a package that passes its test. The first interpreter also installs torch and runs the
examples of the documentation. Prints one line for each check; exits with 1 if any fails."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from meta import __version__

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
DOCUMENTED = (
    "README.md", "docs", "tests/docs", "tests/conftest.py", "tests/sandbox.py", "pyproject.toml", "examples", "scripts",
)  # fmt: skip
"""What the examples of the documentation need, apart from the package."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", action="append", metavar="PATH", help="interpreter (default: 3.10 to 3.13, if found)"
    )
    parser.add_argument("--no-docs", action="store_true", help="skip torch and the examples of the documentation")
    options = parser.parse_args(argv)
    problems = list(disagreements())
    for problem in problems:
        print(f"FAILED: {problem}")
    found = interpreters()
    pythons = options.python or list(found.values())
    for version in () if options.python else (each for each in VERSIONS if each not in found):
        print(f"python{version}: skipped, it is not on this machine")
    wheel = built(ROOT / "dist")
    if wheel is None:
        return 1
    passed = not problems
    for number, python in enumerate(pythons):
        with tempfile.TemporaryDirectory(prefix="meta-release-") as folder:
            passed &= check_environment(python, wheel, Path(folder), documentation=not number and not options.no_docs)
    print(f"meta {__version__}: {'ready' if passed else 'NOT ready'}")
    return 0 if passed else 1


def disagreements() -> Iterator[str]:
    """Files that name another version than the package."""
    changes = re.search(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    for file, found in (("CHANGELOG.md", changes), ("CITATION.cff", cited)):
        if found is None or found[1] != __version__:
            yield f"{file} is about {found and found[1]}, the package is {__version__}"


def interpreters() -> dict[str, str]:
    """Version -> interpreter of this machine, for those that the package supports, this process's version first."""
    found: dict[str, str] = {}
    for version in VERSIONS:
        candidates = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
        for candidate in filter(None, candidates):
            run = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
            if run.stdout.startswith(f"Python {version}."):
                found.setdefault(version, str(candidate))
    own = ".".join(map(str, sys.version_info[:2]))
    return {version: found[version] for version in sorted(found, key=lambda v: v != own)}


def built(folder: Path) -> Path | None:
    """The wheel, built with the sdist into an empty folder; None if that fails or they do not hold the same files."""
    shutil.rmtree(folder, ignore_errors=True)
    files = [
        str(folder / name) for name in (f"meta_tvm-{__version__}-py3-none-any.whl", f"meta_tvm-{__version__}.tar.gz")
    ]
    done = step("build", [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], ROOT)
    done = done and step("twine check", [sys.executable, "-m", "twine", "check", "--strict", *files], ROOT)
    if not done:
        return None
    names = {name for name in zipfile.ZipFile(files[0]).namelist() if name.startswith("meta/")}
    with tarfile.open(files[1]) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    missing = sorted(names - source)
    print(f"sdist has the wheel's {len(names)} files: {'ok' if not missing else f'FAILED, it lacks {missing[:3]}'}")
    return None if missing else Path(files[0])


def check_environment(python: str, wheel: Path, folder: Path, *, documentation: bool) -> bool:
    """Install the wheel with an interpreter, and use it in an empty folder."""
    home, pages, binary = folder / "home", folder / "pages", folder / "env/bin/python"
    home.mkdir()
    wanted = [
        f"{wheel}[{'demo,torch,onnx' if documentation else 'demo'}]",
        "pytest",
        "pytest-timeout",
        "setuptools>=77.0.3",
    ]
    wanted += ["onnxruntime"] if documentation else []  # runs the models that a page exports
    steps: list[tuple[str, list[str]]] = [
        ("environment", [python, "-m", "venv", str(folder / "env")]),
        ("install", [*pip(binary), "-c", str(ROOT / "constraints.txt"), *wanted]),
        ("pip check", [str(binary), "-m", "pip", "check"]),
        ("version", [str(binary), "-m", "meta", "--version"]),
        ("demo", [str(binary), "-m", "meta", "demo"]),
        ("op new", [str(binary), "-m", "meta", "op", "new", "blank", "--inputs", "2", "--package", "blank_ops"]),
        ("install it", [*pip(binary), "--no-deps", "--no-build-isolation", "--editable", "blank_ops"]),
        ("test it", [str(binary), "-m", "pytest", "-q", "blank_ops"]),
        # Environments that examples of the documentation make would see its metadata, and not its sources.
        ("uninstall it", [str(binary), "-m", "pip", "uninstall", "-qq", "--yes", "blank_ops"]),
    ]  # fmt: skip
    if documentation:
        for name in DOCUMENTED:
            target = pages / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
    used = all(step(f"{python}: {name}", command, home) for name, command in steps)
    examples = [str(binary), "-m", "pytest", "-q", "tests/docs/test_code_blocks.py", "-k", "test_code_blocks_run"]
    return used and (not documentation or step(f"{python}: documentation", examples, pages))


def pip(binary: Path) -> list[str]:
    return [str(binary), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]


def step(name: str, command: Sequence[str], folder: Path) -> bool:
    """Run a command and print whether it succeeded, with its output if not."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    print(f"{name}: {'FAILED' if run.returncode else 'ok'}", flush=True)
    if run.returncode:
        print(run.stdout[-3000:], run.stderr[-3000:], sep="\n", flush=True)
    return not run.returncode


if __name__ == "__main__":
    sys.exit(main())
