"""`python -m meta env`: devices and dialects, on or off with the reason."""

import re
from importlib import metadata

import pytest

from meta.cli import main
from meta.op.dispatch import dialect, dialect_names


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which no line is wrapped."""
    monkeypatch.setenv("COLUMNS", "300")


def test_lists_every_dialect_with_its_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in dialect_names():
        line = next(line for line in reversed(lines) if re.match(rf"  {name} ", line))
        off = dialect(name).unavailable()
        assert (f"off: {off}" if off else f"on, plevel {dialect(name).plevel}") in line


def test_names_the_extra_of_a_missing_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    main(["env"])
    out = capsys.readouterr().out
    assert re.search(r"cuda-bindings +not installed: pip install 'meta-tvm\[cuda\]'", out)
    assert re.search(r"numpy +not installed\n", out)


def test_reports_why_a_device_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meta.backend.cuda.driver.probe", lambda: "no such thing")
    main(["env"])
    out = capsys.readouterr().out
    assert re.search(r"cuda +off: no such thing", out)
    assert re.search(r"tvm +on, plevel 10, for cpu, cuda \(off\)", out)
