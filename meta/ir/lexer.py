"""Tokens of IR text, a cursor over them, and errors that show the line and the place in it."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from meta.dim import NAME
from meta.errors import IRError
from meta.ir.expr import Span
from meta.limits import MAX_DEPTH, MAX_NAME, MAX_PROGRAM, MAX_SOURCE, MAX_STRING, MAX_TOKENS, MAX_VALUE_SIZE

_TOKEN = re.compile(
    rf"""(?P<space>\s+)
    |(?P<comment>\#[^\n]*)
    |(?P<string>")
    |(?P<var>%[\w.]+)
    |(?P<global>@(?:{NAME}|"))
    |(?P<ref>\$\d+)
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>{NAME}(?:::{NAME})?)
    |(?P<mark>\.\.\.|->|//|[(){{}}\[\],:=+*-])""",
    re.VERBOSE,
)
_STRING_END = re.compile(r'["\\\n]')
_SPAN = re.compile(r"#\s*(?P<file>\S.*):(?P<line>\d{1,9})\s*")
_SHOWN = 100


class Token(NamedTuple):
    """kind: string, var, global, ref, number, name, mark or end.  start: offset in the text."""

    kind: str
    text: str
    start: int


class Cursor:
    """The tokens of a text and a position among them."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.position = 0
        self.depth = 0
        self.items = 0
        self.spans: dict[int, Span] = {}
        lines = text.count("\n") if len(text) <= MAX_SOURCE else MAX_PROGRAM
        if lines >= MAX_PROGRAM:
            problem = f"the text has {len(text)} characters"
            raise IRError("parse", problem, f"at most {MAX_SOURCE}, and {MAX_PROGRAM} without constants")
        self._starts = array("q", [0])
        self._starts.extend(m.end() for m in re.finditer("\n", text))
        self.tokens = self._scan()

    def _scan(self) -> list[Token]:
        tokens: list[Token] = []
        offset = program = 0
        while offset < len(self.text):
            match = _TOKEN.match(self.text, offset)
            if match is None:
                self.fail_at(offset, f"unexpected character {self.text[offset]!r}")
            kind, text, end = match.lastgroup or "", match[0], match.end()
            if kind == "string" or text == '@"':
                end = self._string_end(end, offset)
                text = self.text[offset:end]
            else:
                program += end - offset
            if program > MAX_PROGRAM or len(tokens) >= MAX_TOKENS:
                expected = f"at most {MAX_PROGRAM} characters without constants, and {MAX_TOKENS} tokens"
                self.fail_at(offset, "the program is too long", expected)
            if kind == "comment":
                self._comment(text, offset)
            elif kind != "space":
                tokens.append(Token(kind, text, offset))
            offset = end
        return [*tokens, Token("end", "", offset)]

    def _string_end(self, position: int, start: int) -> int:
        """The offset behind the string that starts before `position`."""
        match = _STRING_END.search(self.text, position)
        while match and match[0] == "\\":
            match = _STRING_END.search(self.text, match.end() + 1)
        if match is None or match[0] == "\n":
            self.fail_at(start, "this string does not end", 'a closing " on the same line')
        return match.end()

    def _comment(self, text: str, offset: int) -> None:
        span = _SPAN.fullmatch(text) if len(text) <= MAX_NAME else None
        if span:
            self.spans[self.line(offset)] = Span(span["file"], int(span["line"]))

    def line(self, offset: int) -> int:
        """The number of the line, from 1, around `offset`."""
        return bisect_right(self._starts, offset)

    def span(self) -> Span | None:
        """The span in the comment at the end of the line of the last token taken. Without a comment it is that line, if
        the text has a source name."""
        line = self.line(self.tokens[self.position - 1].start)
        return self.spans.get(line) or (Span(self.source, line) if self.source else None)

    @property
    def token(self) -> Token:
        """The token at the position."""
        return self.tokens[self.position]

    def looking_at(self, text: str, ahead: int = 0) -> bool:
        """Whether the token `ahead` of the position is the mark or name `text`."""
        token = self.tokens[min(self.position + ahead, len(self.tokens) - 1)]
        return token.text == text and token.kind in ("mark", "name")

    def take(self) -> Token:
        token = self.token
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return token

    def accept(self, text: str) -> bool:
        """Take the mark or name `text` if it comes next."""
        if not self.looking_at(text):
            return False
        self.take()
        return True

    def expect(self, text: str) -> Token:
        """Take the mark or name `text`; raises IRError for another token."""
        if not self.looking_at(text):
            self.unexpected(repr(text))
        return self.take()

    def expect_kind(self, kind: str, what: str) -> Token:
        """Take a token of `kind`; raises IRError, which asks for `what`, for another token."""
        if self.token.kind != kind:
            self.unexpected(what)
        return self.take()

    def string(self, what: str, limit: int = MAX_STRING) -> str:
        """Take a string; its value. Raises IRError beyond `limit` characters."""
        token = self.expect_kind("string", what)
        if len(token.text) > limit:
            self.fail_at(token.start, f"a string of {len(token.text)} characters", f"at most {limit}")
        return self.unquoted(token)

    def name(self, kind: str, what: str) -> Token:
        """Take a token of `kind` as a name; raises IRError beyond MAX_NAME characters."""
        token = self.expect_kind(kind, what)
        if len(token.text) > MAX_NAME:
            self.fail_at(token.start, f"a name of {len(token.text)} characters", f"at most {MAX_NAME}")
        return token

    def count_item(self) -> None:
        """Count an item of an attribute or type; raises IRError beyond MAX_VALUE_SIZE."""
        self.items += 1
        if self.items > MAX_VALUE_SIZE:
            self.fail("a value with too many items", f"at most {MAX_VALUE_SIZE}")

    def unquoted(self, token: Token) -> str:
        """The value of a string token, or of the string in a `@"..."` token."""
        try:
            return json.loads(token.text.removeprefix("@"), strict=False)
        except json.JSONDecodeError as error:
            self.fail_at(token.start, f"bad string: {error.msg}")

    @contextmanager
    def nested(self) -> Generator[None, None, None]:
        """One level deeper; raises IRError beyond MAX_DEPTH."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"nesting deeper than {MAX_DEPTH}", remedy="move the inner parts into functions")
        yield
        self.depth -= 1

    def unexpected(self, expected: str) -> NoReturn:
        actual = "the end of the text" if self.token.kind == "end" else repr(_clip(self.token.text))
        self.fail(f"found {actual}", expected)

    def fail(self, problem: str, expected: str = "", remedy: str = "") -> NoReturn:
        """Raise IRError about the token at the position."""
        self.fail_at(self.token.start, problem, expected, remedy)

    def fail_at(self, offset: int, problem: str, expected: str = "", remedy: str = "") -> NoReturn:
        """Raise IRError about the place at `offset`."""
        raise self.error(offset, problem, expected, remedy)

    def error(self, offset: int, problem: str, expected: str = "", remedy: str = "") -> IRError:
        """An error about the place at `offset`, showing its line and a caret below it."""
        line = self.line(offset)
        start = self._starts[line - 1]
        column = offset - start
        left = max(start, offset - _SHOWN // 2)
        shown = self.text[left : left + _SHOWN].split("\n", 1)[0]
        where = f"{self.source or 'text'}:{line}:{column + 1}"
        excerpt = f"  {shown}\n  {' ' * (offset - left)}^"
        return IRError("parse", f"{where}: {problem}", expected, remedy, details=excerpt)


def _clip(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
