"""Preprocessing of Relay text before the grammar: comments, the metadata section, and the depth of brackets.

Comments nest, which a regular expression cannot follow, and the metadata section is JSON up to the end of the file.
One pass removes both and keeps the position of every other character.
"""

from __future__ import annotations

import re

from meta.frontend.relay.errors import syntax_error
from meta.limits import MAX_NESTING, MAX_PROGRAM

# The characters that matter to preprocessing; the regex engine skips everything between them.
_MARK = re.compile(r"""["(){}\[\]]|/\*|//[^\n]*|#\[\s*metadata\s*\]|^METADATA:|'[^'\n]*'""", re.MULTILINE)
_STRING_REST = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SIMPLE_COMMENT = re.compile(r"/\*[^*/]*\*/")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NOT_NEWLINE = re.compile(r"[^\n]+")


def split(text: str, source: str = "") -> tuple[str, str, int]:
    """The program with comments blanked, and its metadata section: the JSON ("" without one) and its first line.

    Raises RelaySyntaxError for unterminated comments and strings, and for brackets nested too deep."""
    pieces: list[str] = []
    copied = position = depth = 0
    while mark_match := _MARK.search(text, position, MAX_PROGRAM):
        start, position = mark_match.span()
        mark = text[start]
        if mark in "([{":
            depth += 1
            if depth > MAX_NESTING:
                raise _error(text, start, f"brackets nested {depth} deep", f"at most {MAX_NESTING}", source)
        elif mark in ")]}":
            depth -= 1
        elif mark == '"':
            rest = _STRING_REST.match(text, position)
            if rest is None:
                raise _error(text, start, "this string does not end", 'a closing "', source)
            position = rest.end()
        elif mark in "#M":
            pieces.append(text[copied:start])
            return "".join(pieces), text[position:], text.count("\n", 0, position) + 1
        elif mark == "/":
            if text[start + 1] == "*":
                position = _comment_end(text, start, source)
            pieces += (text[copied:start], blank(text[start:position]))
            copied = position
    if len(text) > MAX_PROGRAM:
        raise _error(text, MAX_PROGRAM, "the program is too long", f"at most {MAX_PROGRAM} characters", source)
    pieces.append(text[copied:])
    return "".join(pieces), "", 0


def blank(text: str) -> str:
    """As many spaces as `text` has characters, with its line breaks."""
    return _NOT_NEWLINE.sub(lambda run: " " * len(run[0]), text) if "\n" in text else " " * len(text)


def _comment_end(text: str, start: int, source: str) -> int:
    simple = _SIMPLE_COMMENT.match(text, start)
    if simple:
        return simple.end()
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return edge.end()
    raise _error(text, start, "this comment does not end", "a closing */", source)


def _error(text: str, start: int, problem: str, expected: str, source: str) -> Exception:
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return syntax_error(text, line, column, problem, expected, source=source)
