"""Run the Python in a Markdown file: `python run_blocks.py FILE`.

Blocks fenced as `python` are executed, blocks fenced as `pycon` are replayed and their output compared (`...` stands
for any text), all in order and in one namespace, as a reader would who types them in. Tracebacks name the Markdown file
and its lines. The exit status is 1 when output differs; an exception in a block is not caught.
"""

import doctest
import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n`]*\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.M | re.S)
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str) -> Iterator[tuple[str, str, int]]:
    """(language, code without the fence's indentation, lines before the code) of every fenced block, in order."""
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        body = "".join(line[indent:] if line.strip() else "\n" for line in match["body"].splitlines(keepends=True))
        yield match["language"], body, text.count("\n", 0, match.start("body"))


def run(path: Path) -> int:
    """Run the blocks of a file. Returns how many examples printed something else than the file says."""
    text = path.read_text(encoding="utf-8")
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    failures = 0
    for language, body, line in blocks(text):
        if language == "python":
            exec(compile("\n" * line + body, str(path), "exec"), namespace)
        elif language == "pycon":
            session = doctest.DocTestParser().get_doctest(body, namespace, path.name, str(path), line)
            session.globs = namespace  # get_doctest copies its namespace; the blocks of a file share theirs
            failures += doctest.DocTestRunner(optionflags=_OPTIONS).run(session, clear_globs=False).failed
    return failures


if __name__ == "__main__":
    sys.exit(1 if run(Path(sys.argv[1])) else 0)
