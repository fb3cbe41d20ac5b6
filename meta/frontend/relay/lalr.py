"""The parser that lark makes of `grammar.lark`, with its tables kept on disk.

Making the tables takes lark 0.3 s, which is more than most programs take to parse. They are plain data, and are kept as
JSON in meta's cache, under a key of everything that they follow from.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import resources
from typing import Any, cast

from meta.cache import default_cache

_OPTIONS: dict[str, Any] = {"parser": "lalr", "lexer": "contextual", "maybe_placeholders": True}
_SUFFIX = ".relay-grammar.json"
# JSON has string keys only; a table has states and terminals by number.
_ITEMS = "//items"


def make_parser(transformer: Any) -> Any:
    """A `lark.Lark` that calls the methods of `transformer` for the rules of the grammar, while it parses."""
    import lark

    lark_class: Any = lark.Lark
    grammar = resources.files("meta.frontend.relay").joinpath("grammar.lark").read_text(encoding="utf-8")
    cache = default_cache()
    if cache is None:
        return lark.Lark(grammar, transformer=transformer, **_OPTIONS)
    facts = json.dumps([grammar, lark.__version__, sys.version_info[:2], _OPTIONS])
    key = hashlib.sha256(facts.encode()).hexdigest()
    kept = cache.read(key, _SUFFIX)
    if kept is None:
        kept = _tables(lark.Lark(grammar, **_OPTIONS))
        cache.put(key, kept, _SUFFIX)
    data, memo = _decoded(json.loads(kept))
    # As the stand-alone parsers that lark generates do it.
    return lark_class._load_from_dict(data, memo, transformer=transformer)


def _tables(parser: Any) -> bytes:
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    return json.dumps(_encoded(parser.memo_serialize([TerminalDef, Rule]))).encode()


def _encoded(value: Any) -> Any:
    if isinstance(value, dict):
        return {_ITEMS: [[_encoded(key), _encoded(each)] for key, each in cast("dict[Any, Any]", value).items()]}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_encoded(each) for each in cast("list[Any]", value)]
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decoded(each) for key, each in cast("dict[str, Any]", value)[_ITEMS]}
    return [_decoded(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value
