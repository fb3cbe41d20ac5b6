"""Virtual environments that a test may install packages into, without network and within a fraction of a second."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def make(folder: Path) -> Path:
    """Create an environment that sees the packages of this one; returns its Python.

    pip and setuptools are those of this environment too: pip would need seconds to install itself."""
    venv.create(folder, symlinks=os.name != "nt", with_pip=False)
    paths = {scheme: sysconfig.get_path(scheme, vars=_variables(folder)) for scheme in ("purelib", "scripts")}
    outer = dict.fromkeys(sysconfig.get_path(scheme) for scheme in ("purelib", "platlib"))
    Path(paths["purelib"], "outer.pth").write_text("".join(f"{path}\n" for path in outer), encoding="utf-8")
    return Path(paths["scripts"], "python")


def _variables(folder: Path) -> dict[str, str]:
    return {"base": str(folder), "platbase": str(folder)}


def environment(python: Path) -> dict[str, str]:
    """The variables of commands in the environment: its commands come first, and pip builds from what is installed."""
    path = os.pathsep.join((str(python.parent), os.environ.get("PATH", "")))
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**os.environ, **pip, "COLUMNS": "120", "PATH": path, "PYTHONPATH": str(ROOT)}


def install(python: Path, package: Path) -> None:
    """Install a package from its folder, in place of an installed version."""
    command = [str(python), "-m", "pip", "install", "-q", str(package)]
    completed = subprocess.run(command, env=environment(python), capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
