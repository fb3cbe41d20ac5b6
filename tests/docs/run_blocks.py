"""Run the Python in a Markdown file: `python run_blocks.py FILE`.

Blocks fenced as `python` are executed, blocks fenced as `pycon` are replayed and their output compared (`...` stands
for any text), all in order and in one namespace, as a reader would who types them in. Code runs under the name and the
lines of the Markdown file, so tracebacks and meta's own `file:line` name the page. The exit status is 1 when output
differs; an exception in a `python` block is not caught.
"""

import contextlib
import doctest
import io
import linecache
import re
import sys
import traceback
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
            exec(_code(body, path, line, "exec"), namespace)
        elif language == "pycon":
            for example in doctest.DocTestParser().get_examples(body, str(path)):
                failures += not _replay(example, path, line + example.lineno, namespace)
    return failures


def _code(source: str, path: Path, line: int, mode: str) -> Any:
    return compile("\n" * line + source, str(path), mode, dont_inherit=True)


def _replay(example: doctest.Example, path: Path, line: int, namespace: dict[str, Any]) -> bool:
    """Run one `>>>` example; whether it printed, or raised, what the page says. If not, print the difference."""
    printed = io.StringIO()
    wanted = example.want
    with contextlib.redirect_stdout(printed):
        try:
            exec(_code(example.source, path, line, "single"), namespace)
        except Exception as error:  # noqa: BLE001  # examples show errors of any kind
            if example.exc_msg is None:
                traceback.print_exc()
                return False
            print("".join(traceback.format_exception_only(error)), end="")
            wanted = example.exc_msg
    checker = doctest.OutputChecker()
    if checker.check_output(wanted, printed.getvalue(), _OPTIONS):
        return True
    shown = doctest.Example(example.source, wanted)
    print(
        f"{path}:{line + 1}: {example.source}", checker.output_difference(shown, printed.getvalue(), _OPTIONS), sep=""
    )
    return False


if __name__ == "__main__":
    sys.exit(1 if run(Path(sys.argv[1])) else 0)
