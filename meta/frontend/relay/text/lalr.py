"""The parser of `grammar.lark`, with its tables in meta's cache."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from meta.cache import default_cache

_OPTIONS: dict[str, Any] = {"parser": "lalr", "lexer": "contextual", "maybe_placeholders": True}
_SUFFIX = ".relay-grammar"


def make_parser(transformer: Any) -> Any:
    """A `lark.Lark` that calls the methods of `transformer` for the rules of the grammar, during the parse.

    lark takes 0.1 s to compute the tables and 0.01 s to read them from the file named by its option `cache`. It ignores
    the checksum that meta's cache appends to that file."""
    import lark

    grammar = resources.files("meta.frontend.relay.text").joinpath("grammar.lark").read_text(encoding="utf-8")
    cache = default_cache()
    if cache is None:
        return lark.Lark(grammar, transformer=transformer, **_OPTIONS)
    facts = json.dumps([grammar, lark.__version__, sys.version_info[:2], _OPTIONS])
    key = hashlib.sha256(facts.encode()).hexdigest()
    cached = cache.get(key, _SUFFIX)
    if cached is not None:
        return lark.Lark(grammar, transformer=transformer, cache=str(cached), **_OPTIONS)
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "tables"
        parser = lark.Lark(grammar, transformer=transformer, cache=str(tables), **_OPTIONS)
        cache.put(key, tables.read_bytes(), _SUFFIX)
    return parser
