"""Files of programs: trusted sources, and damaged, foreign and forged files."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import meta
from meta.backend.tvm import library
from meta.errors import ArgumentError, FileError
from meta.files import program_file, safetensors


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("META_KEY_DIR", str(tmp_path / "key"))
    return tmp_path / "key"


@meta.trace
def scaled(x: Any) -> Any:
    return {"x": meta.tanh(x) * 2.0}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A program of one call, `scaled(x)` with x of shape (3,)."""
    executor = meta.vm.compile(scaled)
    executor.program(meta.ones((3,)))
    executor.save(tmp_path / "scaled")
    return tmp_path / "scaled"


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_bytes(_: bytes) -> Any:
        raise AssertionError("code of the file was loaded")

    monkeypatch.setattr(library, "load_bytes", load_bytes)


def test_files_of_others_need_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: Path
) -> None:  # fmt: skip
    executor = meta.vm.compile(scaled)
    executor.program(meta.ones((3,)))
    digest = executor.save(tmp_path / "scaled")
    assert (key / "signing-key").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("META_KEY_DIR", str(tmp_path / "other"))
    problem = r"scaled holds machine code and is not signed by this user; expected a program that this user saved; if"
    with pytest.raises(FileError, match=problem):
        meta.vm.load(tmp_path / "scaled")
    assert not (tmp_path / "other").exists()
    with pytest.raises(FileError, match=f"has the SHA-256 {digest}; expected {'0' * 64}; get the file that was meant"):
        meta.vm.load(tmp_path / "scaled", trust="0" * 64)
    with pytest.raises(ArgumentError, match=r"trust is 'yes'; expected False, True, or the SHA-256 of the file in hex"):
        meta.vm.load(tmp_path / "scaled", trust="yes")
    for trust in (digest, True):
        assert meta.vm.load(tmp_path / "scaled", trust=trust)(meta.zeros((3,)))["x"].tolist() == [0.0] * 3


@pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666, 0o622])
def test_keys_that_others_can_read_or_write_are_not_used(saved: Path, key: Path, mode: int, nothing_runs: None) -> None:
    (key / "signing-key").chmod(mode)
    with pytest.raises(FileError, match=r"the key that signs it is not safe: others can .*; expected a key that only"):
        meta.vm.load(saved)
    executor = meta.vm.compile(scaled)
    executor.program(meta.ones((3,)))
    message = r"scaled is not signed, so that loading it takes trust=.*others can .*delete this file"
    with pytest.warns(UserWarning, match=message):
        executor.save(saved)
    (key / "signing-key").unlink()
    executor.save(saved)
    assert (key / "signing-key").stat().st_mode & 0o777 == 0o600


def test_damaged_and_foreign_files_are_refused(saved: Path, nothing_runs: None) -> None:
    whole = saved.read_bytes()
    draw = random.Random(0)
    for position in [16, 48, 80, len(whole) - 1, *(draw.randrange(16, len(whole)) for _ in range(20))]:
        saved.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(FileError, match=r"is damaged: its contents have another hash|is not signed by this user"):
            meta.vm.load(saved)
    for length in (16, 40, 80, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:length])
        with pytest.raises(FileError, match="is damaged"):
            meta.vm.load(saved, trust=True)
    for foreign in (b"", b"\x7fELF" + b"\0" * 200, b"PK\x03\x04"):
        saved.write_bytes(foreign)
        with pytest.raises(FileError, match=r"\[load\] .*scaled is not a saved program; expected a whole file that"):
            meta.vm.load(saved, trust=True)
    with pytest.raises(FileError, match=r"cannot read .*missing"):
        meta.vm.load(saved.with_name("missing"))


def test_other_versions_and_processors_are_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch, nothing_runs: None
) -> None:  # fmt: skip
    for facts, problem in [
        ({"format": 0}, "was saved for format 0; expected format 2; save the program again here, from its source"),
        ({"meta": "0.0.1"}, "was saved for meta 0.0.1; expected meta"),
        ({"tvm": "0.20"}, "was saved for tvm 0.20; expected tvm"),
        ({"platform": "plan9 vax"}, "was saved for platform plan9 vax; expected platform"),
        (
            {"processor": "", "features": ["avx9"]},
            "was compiled for a processor with avx9, which this one lacks; ex",
        ),
    ]:
        _rewrite(saved, facts)
        with pytest.raises(FileError, match=problem):
            meta.vm.load(saved)


def test_false_descriptions_are_refused(saved: Path, nothing_runs: None) -> None:
    for facts in (
        {"programs": 3}, {"programs": [{}]}, {"generators": [[1]]},
        {"programs": [{"signature": [["1", 0, []]]}]}, {"programs": [{"types": "def main("}]},
        {"programs": [{"arguments": ["set", [], [], None]}]}, {"programs": [{"functions": ["meta.x"]}]},
        {"programs": [{"state": ["w"]}]}, {"programs": [{"memory": {}}]},
    ):  # fmt: skip
        _rewrite(saved, facts)
        with pytest.raises(FileError, match=r"\[load\] "):
            meta.vm.load(saved)


def _rewrite(path: Path, facts: dict[str, Any]) -> None:
    """Sign the file again with other facts in its description."""
    if not path.with_suffix(".whole").exists():
        path.with_suffix(".whole").write_bytes(path.read_bytes())
    body = program_file.contents(path.with_suffix(".whole"), trust=True)
    file = safetensors.from_bytes(body, str(path))
    header = json.loads(file.metadata["meta.program"])
    programs = facts.get("programs")
    if isinstance(programs, list):
        facts = {"programs": [{**header["programs"][0], **programs[0]} if programs[0] else {}]}
    entries = [
        safetensors.ArrayEntry(n, dtype, lambda n=n: file.array(n)) for n, dtype in file.dtypes.items()
    ]  # fmt: skip
    program_file.write(path, entries, {"meta.program": json.dumps({**header, **facts})})
