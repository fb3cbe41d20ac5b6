"""The reader of Relay text, by the grammar in `grammar.lark`."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any, NoReturn

from meta.cache import default_cache
from meta.frontend.relay.errors import syntax_error
from meta.frontend.relay.text.actions import Actions
from meta.frontend.relay.text.metadata import Metadata
from meta.frontend.relay.text.preprocess import split
from meta.frontend.relay.text.value_actions import MistakeError
from meta.locks import new_lock

if TYPE_CHECKING:
    from meta.frontend.relay.ast import RelayProgram


_OPTIONS: dict[str, Any] = {"parser": "lalr", "lexer": "contextual", "maybe_placeholders": True}
_SUFFIX = ".relay-grammar"


def make_parser(transformer: object) -> Any:
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


# Names of the terminals in error texts.
_READABLE = {
    "LOCAL": "%name",
    "GRAPH": "%0",
    "GLOBAL": "@name",
    "NAME": "a name",
    "NUMBER": "a number",
    "META": "meta[...][0]",
    "KEY": "name=",
    "STRING": "a string",
    "QUOTED": "a string",
    "BOOLEAN": "True or False",
    "NONE": "None",
    "PROJECTION": ".0",
    "OPERATOR": "an operator",
    "VERSION": '#[version = "0.0.5"]',
    "ARROW": "->",
    "$END": "the end of the text",
}
# The terminals that start an expression, and those that start a value. lark lists only some of the keywords.
_EXPRESSION = frozenset({"LOCAL", "GRAPH", "GLOBAL", "NAME", "NUMBER", "META"})
_EXPRESSION_KEYWORDS = frozenset({"FN", "LPAR", "LBRACE", "BOOLEAN", "IF", "MATCH", "REF", "REF_READ", "REF_WRITE"})
_VALUE = frozenset({"STRING", "NUMBER", "NONE", "META", "LSQB"})
_VALUE_KEYWORDS = frozenset({"QUOTED", "BOOLEAN", "GLOBAL", "NAME", "LPAR", "LBRACE", "QMARK"})
_MAX_EXPECTED = 8


def parse(text: str, source: str = "") -> RelayProgram:
    """The program in `text`: a module, or an expression, which becomes the function "main".

    source: the name of the text for errors.
    Raises RelaySyntaxError with line, column, the line and what was expected there."""
    program, metadata, line = split(text, source)
    actions = Actions(Metadata(metadata, line).entry)
    with _lock:
        parser = _parser()
        _current.actions = actions
        try:
            return _run(parser, program, text, source)
        finally:
            _current.actions = None


def _run(parser: Any, program: str, text: str, source: str) -> RelayProgram:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    try:
        return parser.parse(program)
    except MistakeError as mistake:
        raise syntax_error(text, mistake.line, mistake.column, *mistake.parts, source=source) from None
    except (UnexpectedToken, UnexpectedCharacters) as error:
        _unexpected(error, text, source)


def _unexpected(error: Any, text: str, source: str) -> NoReturn:
    """Raise the error for an unexpected token, or for a character that starts no token."""
    token = getattr(error, "token", None)
    line, column = error.line, error.column
    if token is None:
        excerpt, expected = repr(error.char), error.allowed
    elif token.type == "$END":
        excerpt, expected = "end of the text", error.accepts or error.expected
        line, column = _end(text)
    else:
        excerpt = repr(str(token) if len(token) <= 40 else token[:37] + "...")
        expected = error.accepts or error.expected
    problem = f"unexpected {excerpt}"
    raise syntax_error(text, line, column, problem, _alternatives(expected or ()), source=source) from None


def _alternatives(terminals: Any) -> str:
    names = set(terminals)
    words: list[str] = []
    if names >= _EXPRESSION:
        words.append("an expression")
        names -= _EXPRESSION | _EXPRESSION_KEYWORDS
    if names >= _VALUE:
        words.append("a value")
        names -= _VALUE | _VALUE_KEYWORDS
    readable = {_READABLE.get(name) or _literal(name) for name in names}
    words += sorted(readable)
    if len(words) > _MAX_EXPECTED:
        words = [*words[:_MAX_EXPECTED], "..."]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else "nothing more"


@functools.cache
def _literal(terminal: str) -> str:
    """The spelling of a terminal that is a fixed string: "(" for "LPAR"."""
    for each in _parser().terminals:
        if each.name == terminal:
            return repr(each.pattern.value) if each.pattern.type == "str" else terminal.lower()
    return terminal.lower()


def _end(text: str) -> tuple[int, int]:
    """Line and column after the last character that is not blank."""
    body = text.rstrip()
    return body.count("\n") + 1, len(body) - (body.rfind("\n") + 1) + 1


# --- the parser: one for the process, with the actions of the current parse ---

_lock = new_lock("relay parser")


class _Current:
    actions: Any = None


_current = _Current()


@functools.cache
def _parser() -> Any:
    return make_parser(_Forward())


class _Forward:
    """lark binds the methods of this object once; each calls the method of the same name of the current actions."""

    def __init__(self) -> None:
        for name in dir(Actions):
            if not name.startswith("_") and callable(getattr(Actions, name)):
                setattr(self, name, _forward(getattr(Actions, name)))


def _forward(method: Callable[[Actions, Any], Any]) -> Callable[[Any], Any]:
    def forward(children: object) -> Any:
        return method(_current.actions, children)

    return forward
