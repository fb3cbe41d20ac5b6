"""The parser of `grammar.lark`, with its tables in meta's cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from importlib import resources
from typing import Any

from meta.cache import default_cache

_OPTIONS: dict[str, Any] = {"parser": "lalr", "lexer": "contextual", "maybe_placeholders": True}
_SUFFIX = ".relay-grammar"


def make_parser(transformer: Any) -> Any:
    """A `lark.Lark` that calls the methods of `transformer` for the rules of the grammar, during the parse.

    lark computes the tables in 0.1 s and reads them in 0.01 s from the file that its option `cache` names. Only a
    verified entry of meta's cache is read; lark ignores the checksum at its end."""
    import lark

    grammar = resources.files("meta.frontend.relay.text").joinpath("grammar.lark").read_text(encoding="utf-8")
    cache = default_cache()
    if cache is None:
        return lark.Lark(grammar, transformer=transformer, **_OPTIONS)
    facts = json.dumps([grammar, lark.__version__, sys.version_info[:2], _OPTIONS, str(cache.directory.absolute())])
    key = hashlib.sha256(facts.encode()).hexdigest()
    entry = cache.get(key, _SUFFIX)
    path = entry or cache.reserve(key, _SUFFIX)  # lark writes its tables at the final path, which its checksum covers
    parser = lark.Lark(grammar, transformer=transformer, cache=str(path.absolute()) if path else False, **_OPTIONS)
    if path and not entry:
        with contextlib.suppress(OSError):
            cache.put(key, path.read_bytes(), _SUFFIX)
    return parser
