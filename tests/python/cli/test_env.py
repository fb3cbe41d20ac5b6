"""`python -m meta env`: what is there, and why the rest is not."""

import re

import pytest

from meta.cli import main
from meta.op.dispatch import DIALECTS, dialect


def test_every_dialect_is_on_or_off_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in DIALECTS:
        line = next(line for line in reversed(lines) if re.match(rf"  {name} ", line))
        off = dialect(name).unavailable()
        assert (f"off: {off}" if off else f"on, plevel {dialect(name).plevel}") in line


def test_devices_that_are_missing_say_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meta.op.dialect.tvm._driver.probe", lambda: "no such thing")
    main(["env"])
    out = capsys.readouterr().out
    assert re.search(r"cuda +off: no such thing", out)
    assert re.search(r"tvm +on, plevel 10, for cpu, cuda \(off\)", out)
