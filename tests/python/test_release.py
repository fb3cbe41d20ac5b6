"""What a release consists of agrees: versions, the interpreters, and the versions of torch that are tested."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import meta
from scripts import release

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_all_files_name_one_version() -> None:
    assert list(release.disagreements()) == []


def test_another_version_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "__version__", "9.9.9")
    problems = [
        f"{file} is about {meta.__version__}, the package is 9.9.9" for file in ("CHANGELOG.md", "CITATION.cff")
    ]
    assert list(release.disagreements()) == problems


def test_constraints_are_versions_that_the_package_accepts() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {r.name: r for r in map(Requirement, (line for line in lines if not line.startswith("#")))}
    accepted = Requirement(PROJECT["optional-dependencies"]["torch"][0])
    assert set(pins) == {"torch"}
    (pin,) = pins["torch"].specifier
    assert pin.operator == "=="
    assert pin.version in accepted.specifier
    assert "2.11" in accepted.specifier
    assert "2.10" not in accepted.specifier


def test_make_installs_by_the_constraints() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = re.findall(r"^.*pip install.*$|^INSTALL := .*$", makefile, re.M)
    assert installs
    assert all("--constraint $(CONSTRAINTS)" in line for line in installs)


def test_releases_are_checked_on_all_interpreters() -> None:
    supported = SpecifierSet(PROJECT["requires-python"])
    assert [f"3.{minor}" for minor in range(30) if f"3.{minor}" in supported] == list(release.VERSIONS)
    assert next(iter(release.interpreters().values())).endswith(("python", "python3", f"python3.{sys.version_info[1]}"))


def test_a_failed_step_shows_its_output(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert release.step("good", [sys.executable, "-c", "print(1)"], tmp_path)
    assert not release.step("bad", [sys.executable, "-c", "print('reason'); raise SystemExit(2)"], tmp_path)
    assert capsys.readouterr().out.split() == ["good:", "ok", "bad:", "FAILED", "reason"]
