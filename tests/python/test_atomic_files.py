"""Files are replaced at once or not at all: full disks, killed processes, links, permissions."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import meta
from meta.errors import FileError
from meta.files import atomic

LIMITED = """
import resource, sys
import meta
meta.save(sys.argv[1], {"w": meta.ones((100,))})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
try:
    meta.save(sys.argv[1], {"w": meta.zeros((1 << 16,))})
except meta.errors.FileError as error:
    print(error.summary)
assert meta.load(sys.argv[1])["w"].tolist() == [1.0] * 100
"""


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    process = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == (
        f"[save] cannot write {path}: file too large; expected a directory that you can write to, with space; "
        "a file that was there is unchanged"
    )
    assert _names(tmp_path) == ["w.safetensors"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_errors_at_the_end_leave_the_old_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    path = tmp_path / "w"
    meta.save(path, {"w": meta.ones((3,))})

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(
            FileError, match=r"cannot write .*w: no space left on device; .*a file that was there is unch"
        ):
            meta.save(path, {"w": meta.zeros((3,))})
    assert meta.load(path)["w"].tolist() == [1.0] * 3
    assert _names(tmp_path) == ["w"]


def test_other_errors_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with atomic.replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["w"]


KILLED = """
import sys
from meta.files import atomic
with atomic.replacing(sys.argv[1]) as file:
    file.write(b"new")
    file.flush()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(b"old")
    command = [sys.executable, "-c", KILLED, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with atomic.replacing(path) as file:  # what a living process writes stays
        file.write(b"second")
    assert len(_names(tmp_path)) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert path.read_bytes() == b"second"
    with atomic.replacing(path) as file:
        file.write(b"third")
    assert path.read_bytes() == b"third"
    assert _names(tmp_path) == ["w"], "the next save removes what the killed process left"


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    real, link = folder / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    meta.save(link, {"w": meta.ones(())})
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert meta.load(real)["w"].item() == 1.0
    before = os.umask(0o027)
    try:
        meta.save(tmp_path / "new", {"w": meta.ones(())})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"\[save\] .* is a directory; expected the path of a file"):
        meta.save(tmp_path, 1)
    with pytest.raises(FileError, match=r"\[save\] /dev/null is not a regular file; expected the path of a file"):
        meta.save("/dev/null", 1)
    with pytest.raises(FileError, match=r"cannot write .*x: no such file or directory; expected a directory that you"):
        meta.save(tmp_path / "missing" / "x", 1)
    with pytest.raises(FileError, match="cannot write a\0b: "):
        meta.save("a\0b", 1)


def test_long_names(tmp_path: Path) -> None:
    path = tmp_path / ("\u00e9" * 120)
    meta.save(path, 1)
    assert meta.load(path) == 1
