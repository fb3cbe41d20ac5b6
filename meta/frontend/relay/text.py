"""Relay text -> Program, by the grammar in `grammar.lark`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from meta.frontend.relay import layout
from meta.frontend.relay.actions import Actions
from meta.frontend.relay.actions_values import Mistake
from meta.frontend.relay.errors import syntax_error
from meta.frontend.relay.lalr import make_parser
from meta.frontend.relay.metadata import Metadata

if TYPE_CHECKING:
    from meta.frontend.relay.ast import Program

# What the terminals of the grammar are called in errors.
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
# Where an expression may stand, all that can start one may; keywords are not always listed.
_EXPRESSION = frozenset({"LOCAL", "GRAPH", "GLOBAL", "NAME", "NUMBER", "META"})
_EXPRESSION_TOO = frozenset({"FN", "LPAR", "LBRACE", "BOOLEAN", "IF", "MATCH", "REF", "REF_READ", "REF_WRITE"})
_VALUE = frozenset({"STRING", "NUMBER", "NONE", "META", "LSQB"})
_VALUE_TOO = frozenset({"QUOTED", "BOOLEAN", "GLOBAL", "NAME", "LPAR", "LBRACE", "QMARK"})
_MOST_EXPECTED = 8


def parse(text: str, source: str = "") -> Program:
    """The program that `text` writes: a module, or an expression, which becomes the function "main".

    source: the name of the text for errors.
    Raises RelaySyntaxError with line, column, the line and what was expected there."""
    program, metadata, line = layout.split(text, source)
    actions = Actions(Metadata(metadata, line).entry)
    with _lock:
        parser = _parser()
        _current.actions = actions
        try:
            return _run(parser, program, text, source)
        finally:
            _current.actions = None


def _run(parser: Any, program: str, text: str, source: str) -> Program:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    try:
        return parser.parse(program)
    except Mistake as mistake:
        raise syntax_error(text, mistake.line, mistake.column, *mistake.parts, source=source) from None
    except (UnexpectedToken, UnexpectedCharacters) as error:
        _unexpected(error, text, source)


def _unexpected(error: Any, text: str, source: str) -> NoReturn:
    """The error for a token, or for a character that starts none, where others were expected."""
    token = getattr(error, "token", None)
    line, column = error.line, error.column
    if token is None:
        found, expected = repr(error.char), error.allowed
    elif token.type == "$END":
        found, expected = "the end of the text", error.accepts or error.expected
        line, column = _end(text)
    else:
        found, expected = repr(str(token) if len(token) <= 40 else token[:37] + "..."), error.accepts or error.expected
    wrong = f"unexpected {found}"
    raise syntax_error(text, line, column, wrong, _listed(expected or ()), source=source) from None


def _listed(terminals: Any) -> str:
    names = set(terminals)
    words: list[str] = []
    if names >= _EXPRESSION:
        words.append("an expression")
        names -= _EXPRESSION | _EXPRESSION_TOO
    if names >= _VALUE:
        words.append("a value")
        names -= _VALUE | _VALUE_TOO
    readable = {_READABLE.get(name) or _literal(name) for name in names}
    words += sorted(readable)
    if len(words) > _MOST_EXPECTED:
        words = [*words[:_MOST_EXPECTED], "..."]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else "nothing more"


@functools.cache
def _literal(terminal: str) -> str:
    """How a terminal that is one fixed string is written: "LPAR" is "(" ."""
    for each in _parser().terminals:
        if each.name == terminal:
            return repr(each.pattern.value) if each.pattern.type == "str" else terminal.lower()
    return terminal.lower()


def _end(text: str) -> tuple[int, int]:
    """Line and column behind the last character that is not blank."""
    shown = text.rstrip()
    return shown.count("\n") + 1, len(shown) - (shown.rfind("\n") + 1) + 1


# --- the parser: one for the process, with the actions of the parse that is running ---

_lock = threading.Lock()


class _Current:
    actions: Any = None


_current = _Current()


@functools.cache
def _parser() -> Any:
    return make_parser(_Forward())


class _Forward:
    """Lark binds the methods of this object once; each calls the method of the same name of the actions that run."""

    def __init__(self) -> None:
        for name in dir(Actions):
            if not name.startswith("_") and callable(getattr(Actions, name)):
                setattr(self, name, _forward(getattr(Actions, name)))


def _forward(method: Callable[[Actions, Any], Any]) -> Callable[[Any], Any]:
    def forward(children: Any) -> Any:
        return method(_current.actions, children)

    return forward
