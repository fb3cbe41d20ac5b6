"""The progress of compilations: on a terminal only, after a delay, and gone at the end."""

import contextlib
import io

import pytest

import meta
from meta import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are compiled, also those of earlier runs of the tests."""
    monkeypatch.setenv("META_CACHE", "0")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    pytest.importorskip("rich", reason="rich is not installed (the extra progress)")
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def compile_once(scale: float, out: io.StringIO) -> None:
    @meta.trace
    def scaled(x: meta.NDArray) -> meta.NDArray:
        return x * scale

    with contextlib.redirect_stderr(out):
        meta.vm.compile(scaled)(meta.ones((2,)))


def test_a_terminal_shows_stages(terminal: Terminal) -> None:
    compile_once(1.25, terminal)
    for stage in ("compile scaled", "passes", "lower operators", "fuse operators", "schedule kernels", "generate code"):
        assert stage in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased


def test_switched_off_by_the_environment(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_PROGRESS", "0")
    compile_once(1.5, terminal)
    assert terminal.getvalue() == ""


def test_nothing_before_the_delay(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 3600.0)
    compile_once(1.75, terminal)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("delay", "switch", "lines"), [(0.0, "1", 1), (3600.0, "1", 0), (0.0, "0", 0)])
def test_one_line_where_standard_error_is_no_terminal(
    delay: float, switch: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "PLAIN_DELAY", delay)
    monkeypatch.setenv("META_PROGRESS", switch)
    compile_once(2.25 + delay + len(switch), out)
    assert len(out.getvalue().splitlines()) == lines
    assert out.getvalue().startswith("meta: compiling scaled has taken 0 s, now: " * lines)


def test_nested_compilations_are_one(terminal: Terminal) -> None:
    with contextlib.redirect_stderr(terminal), progress.compiling("outer"), progress.compiling("inner"):
        progress.stage("work", total=2)
        progress.advance()
    assert "compile outer: work" in terminal.getvalue()
    assert "1/2" in terminal.getvalue()
    assert "inner" not in terminal.getvalue()


def test_stages_are_timed() -> None:
    with progress.timed_stages() as seconds:
        compile_once(2.5, io.StringIO())
    assert next(iter(seconds)) == "trace"
    assert list(seconds)[-1] == "run"
    assert {"passes", "choose dialects", "lower operators", "schedule kernels", "plan memory"} <= seconds.keys()
    assert all(value >= 0 for value in seconds.values())
    before = dict(seconds)
    compile_once(2.75, io.StringIO())
    assert seconds == before


def test_stages_of_nested_blocks_belong_to_the_inner_block() -> None:
    with progress.timed_stages() as outer:
        with progress.timed_stages() as inner, progress.compiling("step"):
            progress.stage("work")
        progress.stage("more work")
    assert list(inner) == ["trace", "work", "run"]
    assert list(outer) == ["trace", "more work"]
