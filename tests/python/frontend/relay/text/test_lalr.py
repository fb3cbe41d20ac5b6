"""The parser's tables in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lark
import pytest

from meta.frontend.relay.text import reader as lalr

TEXT = "def @main(%x) { nn.relu(%x) }"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("META_CACHE", "1")
    return tmp_path


def tree() -> str:
    parsed: Any = lalr.make_parser(None).parse(TEXT)
    return parsed.pretty()


def test_tables_are_read_from_the_cache(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tree()
    (entry,) = directory.glob("*/*.relay-grammar")
    payload = entry.read_bytes()
    monkeypatch.setattr(lark.lark, "load_grammar", None)
    assert tree() == first
    assert entry.read_bytes() == payload


def test_a_damaged_entry_is_computed_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tree()
    (entry,) = directory.glob("*/*.relay-grammar")
    entry.write_bytes(entry.read_bytes()[:-100])
    assert tree() == first
    monkeypatch.setattr(lark.lark, "load_grammar", None)
    assert tree() == first


def test_without_a_cache_nothing_is_written(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_CACHE", "0")
    assert "main" in tree()
    assert not list(directory.iterdir())
