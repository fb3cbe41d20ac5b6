"""`python -m scripts.prose [PATH ...]`: find wording that readers have to untangle; exit with 1 if there is any.

"that of", "those of", "of which", "the one that" and ", too" replace or postpone a noun. Better are the noun itself, a
possessive, two sentences, or "also". The script reads docstrings, comments and all strings of Python files, because
error texts are built in many places. In files called test_*.py it reads the names of tests only, in Markdown pages all
but blocks of code. By default it reads meta, without generated modules (their text comes from declarations and
schemas), tests/python, docs, and the pages beside them.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT / "meta", ROOT / "tests/python")
PAGES = (ROOT / "docs", *sorted(ROOT.glob("*.md")))
GENERATED = ROOT / "meta/_generated"

_WORDS = ("that of", "those of", "of which", "the one that")
_IN_TEXT = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b|, too\b".replace(" ", r"\s+"), re.IGNORECASE)
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
_IN_NAMES = re.compile(rf"(?<=_)(?:{'|'.join(_WORDS)})(?=_|$)|_too$".replace(" ", "_"))

ALLOWED: Mapping[str, str] = {
    ", too few": "'too' means excessively: an amount of work below the least",
    ", too many": "'too' means excessively: an amount of work above the most",
}
"""Uses that are plain English, by their text from the first matching word on, with the reason."""


def find(path: Path) -> Iterator[tuple[int, str]]:
    """(line, excerpt) of each use in a Python file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), source)
        yield from _uses(1, text)
        return
    tree = ast.parse(source)
    if path.name.startswith("test_"):
        functions = (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))
        yield from ((n.lineno, n.name) for n in functions if n.name.startswith("test_") and _IN_NAMES.search(n.name))
        return
    for line, text in (*_strings(tree), *_comments(source)):
        yield from _uses(line, text)


def _uses(line: int, text: str) -> Iterator[tuple[int, str]]:
    """(line, excerpt) of each use in a text that begins in a line of a file."""
    for match in _IN_TEXT.finditer(text):
        use = " ".join(text[match.start() : match.end() + 20].split())
        if not use.lower().startswith(tuple(ALLOWED)):
            excerpt = " ".join(text[max(match.start() - 40, 0) : match.end() + 30].split())
            yield line + text[: match.start()].count("\n"), excerpt


def _strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of strings; values inside of f-strings are "{}"."""
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of comments; lines with nothing but a comment continue the comment above them."""
    start, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        row, column = token.start
        is_alone = not token.line[:column].strip()
        if not is_alone or row != last + 1:
            if lines:
                yield start, "\n".join(lines)
            start, lines = row, []
        lines.append(token.string.lstrip("#: "))
        last = row if is_alone else 0
    if lines:
        yield start, "\n".join(lines)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        for file in sorted([*path.rglob("*.py"), *path.rglob("*.md")]) if path.is_dir() else [path]:
            in_tests = FOLDERS[1] in file.parents
            if GENERATED not in file.parents and (not in_tests or file.name.startswith("test_")):
                yield file


def main(argv: Sequence[str] | None = None) -> int:
    """Print the uses in files and folders as `file:line: text`. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.prose", description="Find wording that hides a noun.")
    parser.add_argument("paths", nargs="*", type=Path, default=(*FOLDERS, *PAGES), metavar="PATH")
    found = 0
    for path in _files(parser.parse_args(argv).paths):
        for line, text in find(path):
            name = path.relative_to(ROOT) if ROOT in path.parents else path
            print(f"{name}:{line}: {text}")
            found += 1
    if found:
        print(f"{found} uses of wording that hides a noun: name the noun, or allow the use in scripts/prose.py")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
