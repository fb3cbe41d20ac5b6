"""Run the code in a Markdown file: `python run_blocks.py FILE`.

Blocks fenced as `python` are executed, blocks fenced as `pycon` are replayed and their output compared (`...` stands
for any text), all in order and in one namespace, as a reader would who types them in. Code runs under the name and the
lines of the Markdown file, so tracebacks and meta's own `file:line` name the page.

A block of any language with `file=PATH` after it becomes that file below the working directory. The lines of a block
fenced as `console` that begin with `$ ` are run by the shell, and their output (both streams) is compared as above; a
last line `[exit status N]` is expected of commands that fail.

The exit status is 1 when output differs; an exception in a `python` block is not caught.
"""

import contextlib
import doctest
import io
import linecache
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?: +file=(?P<file>\S+))?[^\n`]*\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.M | re.S,
)
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str) -> Iterator[tuple[str, str, int, str]]:
    """(language, code without the fence's indentation, lines before the code, file or "") of every block, in order."""
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        body = "".join(line[indent:] if line.strip() else "\n" for line in match["body"].splitlines(keepends=True))
        yield match["language"], body, text.count("\n", 0, match.start("body")), match["file"] or ""


def run(path: Path) -> int:
    """Run the blocks of a file. Returns how many examples printed something else than the file says."""
    text = path.read_text(encoding="utf-8")
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    failures = 0
    for language, body, line, file in blocks(text):
        if file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(body, encoding="utf-8")
        elif language == "python":
            exec(_code(body, path, line, "exec"), namespace)
        elif language == "pycon":
            for example in doctest.DocTestParser().get_examples(body, str(path)):
                failures += not _replay(example, path, line + example.lineno, namespace)
        elif language == "console":
            for example in _commands(body):
                failures += not _run_command(example, path, line + example.lineno)
    return failures


def _code(source: str, path: Path, line: int, mode: str) -> Any:
    return compile("\n" * line + source, str(path), mode, dont_inherit=True)


def _replay(example: doctest.Example, path: Path, line: int, namespace: dict[str, Any]) -> bool:
    """Run one `>>>` example; whether it printed, or raised, what the page says. If not, print the difference."""
    printed = io.StringIO()
    expected = example.want
    with contextlib.redirect_stdout(printed):
        try:
            exec(_code(example.source, path, line, "single"), namespace)
        except Exception as error:  # noqa: BLE001  # examples show errors of any kind
            if example.exc_msg is None:
                traceback.print_exc()
                return False
            print("".join(traceback.format_exception_only(error)), end="")
            expected = example.exc_msg
    return _compare(example.source, expected, printed.getvalue(), path, line)


def _commands(body: str) -> Iterator[doctest.Example]:
    """The commands of a `console` block, each with the output that the page shows."""
    lines = body.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield doctest.Example(lines[start][2:], "".join(lines[start + 1 : end]), lineno=start)


def _run_command(example: doctest.Example, path: Path, line: int) -> bool:
    """Run a command; whether it printed what the page says, and ended with the exit status that the page says."""
    completed = subprocess.run(
        example.source, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    status = f"[exit status {completed.returncode}]\n" if completed.returncode else ""
    return _compare(example.source, example.want, completed.stdout + status, path, line)


def _compare(source: str, expected: str, printed: str, path: Path, line: int) -> bool:
    """Whether an example printed what the page says. If not, print the difference."""
    checker = doctest.OutputChecker()
    if checker.check_output(expected, printed, _OPTIONS):
        return True
    difference = checker.output_difference(doctest.Example(source, expected), printed, _OPTIONS)
    print(f"{path}:{line + 1}: {source}", difference, sep="")
    return False


if __name__ == "__main__":
    sys.exit(1 if run(Path(sys.argv[1])) else 0)
