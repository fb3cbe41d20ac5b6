"""Run the code in Markdown files and notebooks: `python -m tests.docs.run_blocks [--write] FILE ...`.

Blocks fenced as `python` are executed, blocks fenced as `pycon` are replayed and their output is compared with the page
(`tests/docs/outputs.py` says how), all in order and in one namespace, as a reader would who types them in. The code
has the file name and the lines that it has for a reader who puts the code of a page `start.md` into `start.py`.
Tracebacks show the frames of that file.

A block of any language with `file=PATH` after it becomes that file below the working directory. The lines of a block
fenced as `console` that begin with `$ ` are run by the shell, and their output (both streams) is compared as above; a
last line `[exit status N]` is expected of commands that fail.

With `--write`, output that differs, also in the lines of Python files, is written into the page. The exit
status is 1 when output differs; an exception in a `python` block is not caught.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import linecache
import re
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meta
from tests.docs.notebooks import Notebook
from tests.docs.outputs import matches, portable

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?: +file=(?P<file>\S+))?[^\n`]*\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.M | re.S,
)
_WIDTH = 100
_TRACEBACK = "Traceback (most recent call last):\n"


@dataclass(frozen=True, slots=True)
class Example:
    """A piece of code or a command, and the output that the page shows."""

    source: str
    output: str
    line: int
    """Lines of the page before the code."""
    indent: int = 0

    @property
    def output_lines(self) -> slice:
        """The lines of the page that show the output."""
        start = self.line + self.source.count("\n")
        return slice(start, start + self.output.count("\n"))


def blocks(text: str) -> Iterator[tuple[str, str, int, str, int]]:
    """(language, code without the fence's indentation, lines before it, file or "", indentation) of each block."""
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        body = "".join(line[indent:] if line.strip() else "\n" for line in match["body"].splitlines(keepends=True))
        yield match["language"], body, text.count("\n", 0, match.start("body")), match["file"] or "", indent


def examples(body: str, first: int, indent: int, prompt: str, continuation: str | None = None) -> Iterator[Example]:
    """The examples of a block, whose first line has `first` lines of the page before it."""
    lines = body.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if line.startswith(prompt)]
    for start, following in zip(starts, [*starts[1:], len(lines)], strict=True):
        end = start + 1
        while continuation and end < following and (lines[end].rstrip("\n") + " ").startswith(continuation):
            end += 1
        code = "".join(line[len(prompt) :] or "\n" for line in lines[start:end])
        yield Example(code, "".join(lines[end:following]).rstrip() + "\n" * (end < following), first + start, indent)


class Page:
    """A page, whose examples run in one namespace."""

    def __init__(self, path: Path, with_lines: bool = False) -> None:
        self.path = path
        self.with_lines = with_lines
        self.text = path.read_text(encoding="utf-8")
        self.script = "example.py" if path.stem.isupper() else f"{path.stem}.py"
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.different: list[tuple[Example, str]] = []
        self._code = ""

    def run(self) -> None:
        """Run the blocks. Examples that print something else than the page says are in `different`, with the output."""
        for language, body, line, file, indent in blocks(self.text):
            if file:
                Path(file).parent.mkdir(parents=True, exist_ok=True)
                Path(file).write_text(body, encoding="utf-8")
            elif language == "python":
                self._located(line, lambda body=body: exec(self._compiled(body, "exec"), self.namespace))
            elif language == "pycon":
                for example in examples(body, line, indent, ">>> ", "... "):
                    self._check(example, self._replay(example))
            elif language == "console":
                for example in examples(body, line, indent, "$ "):
                    self._check(example, _output_of_command(example.source))

    def _compiled(self, source: str, mode: str) -> Any:
        """Code with the lines that it has in the script, which `linecache` has up to here."""
        before = self._code.count("\n")
        self._code += source if source.endswith("\n") else source + "\n"
        lines = self._code.splitlines(keepends=True)
        linecache.cache[self.script] = (len(self._code), None, lines, self.script)
        return compile("\n" * before + source, self.script, mode, dont_inherit=True)

    def _located(self, line: int, run: Callable[[], object]) -> None:
        """Run a block; an exception names its line in the page."""
        before = self._code.count("\n")
        try:
            run()
        except Exception as error:
            inner = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == self.script]
            print(f'File "{self.path}", line {line + (inner[0] if inner else 1) - before}', file=sys.stderr)
            raise

    def _replay(self, example: Example) -> str:
        """What a `>>>` example prints, or the error that it raises."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(self._compiled(example.source, "single"), self.namespace)
            except Exception as error:  # noqa: BLE001  # examples show errors of any kind
                if not example.output.startswith(_TRACEBACK):
                    traceback.print_exc()
                frames = traceback.extract_tb(error.__traceback__)
                shown = (
                    f'  File "{f.filename}", line {f.lineno}, in {f.name}\n'
                    for f in frames
                    if f.filename == self.script
                )
                print(_TRACEBACK, *shown, _message(error), sep="")
        return printed.getvalue()

    def _check(self, example: Example, printed: str) -> None:
        if not matches(example.output, printed, self.with_lines):
            self.different.append((example, printed))

    def report(self) -> str:
        """The differences, for a reader of a failed test."""
        return "".join(
            f"{self.path}:{example.line + 1}: {example.source}Expected:\n{example.output}Got:\n{printed}\n"
            for example, printed in self.different
        )

    def written(self) -> str:
        """The text of the page, with the output that was printed."""
        lines = self.text.splitlines(keepends=True)
        for example, printed in reversed(self.different):
            shown = (" " * example.indent + line.rstrip() + "\n" for line in portable(printed).strip("\n").splitlines())
            lines[example.output_lines] = [line for line in shown if printed]
        return "".join(lines)


def _message(error: Exception) -> str:
    """The last lines of a traceback, without what only some versions of Python add."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = f"{name}: {error}".rstrip(": ")
    if "\n" in text or len(text) <= _WIDTH:
        return text
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _output_of_command(command: str) -> str:
    completed = subprocess.run(
        command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return completed.stdout + (f"[exit status {completed.returncode}]\n" if completed.returncode else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pages, and print or write what differs."""
    parser = argparse.ArgumentParser(description="Run the code of pages.")
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write output that differs into the page")
    options = parser.parse_args(arguments)
    different = 0
    for path in options.pages:
        page = (Notebook if path.suffix == ".ipynb" else Page)(path, with_lines=options.write)
        # Examples of operators show the numbers of the reference; compiling a kernel for each would take minutes.
        with meta.with_dialect("reference") if path.parent.name == "reference" else contextlib.nullcontext():
            page.run()
        different += len(page.different)
        print(page.report(), end="")
        if options.write:
            path.write_text(page.written(), encoding="utf-8")
    return int(different > 0 and not options.write)


if __name__ == "__main__":
    sys.exit(main())
