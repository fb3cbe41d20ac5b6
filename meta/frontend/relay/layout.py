"""What is seen of a Relay text before its grammar: comments, the metadata section, and how deep its brackets nest.

Comments nest, which no regular expression can follow, and the metadata section is JSON up to the end of the file.
Both are taken out here in one pass, with every other character where it was.
"""

from __future__ import annotations

import re

from meta.frontend.relay.errors import syntax_error
from meta.frontend.relay.limits import MAX_NESTING, MAX_PROGRAM

# What can stand at a place where the text means something else; everything between is skipped by the regex engine.
_MARK = re.compile(r"""["(){}\[\]]|/\*|//[^\n]*|#\[\s*metadata\s*\]|^METADATA:|'[^'\n]*'""", re.MULTILINE)
_STRING_REST = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SIMPLE_COMMENT = re.compile(r"/\*[^*/]*\*/")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NOT_NEWLINE = re.compile(r"[^\n]+")


def split(text: str, source: str = "") -> tuple[str, str, int]:
    """The program with comments blanked, the JSON of its metadata section ("" without one), and the line it starts in.

    Raises RelaySyntaxError for an open comment and for brackets nested too deep."""
    pieces: list[str] = []
    done = at = depth = 0
    while found := _MARK.search(text, at, MAX_PROGRAM):
        start, at = found.span()
        mark = text[start]
        if mark in "([{":
            depth += 1
            if depth > MAX_NESTING:
                raise _at(text, start, f"brackets nested {depth} deep", f"at most {MAX_NESTING}", source)
        elif mark in ")]}":
            depth -= 1
        elif mark == '"':
            rest = _STRING_REST.match(text, at)
            if rest is None:
                raise _at(text, start, "this string does not end", 'every " has its second one', source)
            at = rest.end()
        elif mark in "#M":
            pieces.append(text[done:start])
            return "".join(pieces), text[at:], text.count("\n", 0, at) + 1
        elif mark == "/":
            if text[start + 1] == "*":
                at = _comment_end(text, start, source)
            pieces += (text[done:start], blank(text[start:at]))
            done = at
    if len(text) > MAX_PROGRAM:
        raise _at(text, MAX_PROGRAM, "the program is too long", f"at most {MAX_PROGRAM} characters", source)
    pieces.append(text[done:])
    return "".join(pieces), "", 0


def blank(text: str) -> str:
    """As many spaces, with the line breaks kept."""
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
    raise _at(text, start, "this comment does not end", "every /* has its */", source)


def _at(text: str, start: int, wrong: str, allowed: str, source: str) -> Exception:
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return syntax_error(text, line, column, wrong, allowed, source=source)
