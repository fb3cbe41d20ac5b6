"""Processes that run pages, forked from one interpreter that has imported what pages import. Without forks, imports of
TVM and torch would take most of the time of the pages' tests.

`python -m tests.docs.forks PAGE ...` writes the output of examples into pages, where it differs.

Without arguments the module is the interpreter. It reads requests from stdin, a JSON list a line: arguments of
`run_blocks`, working directory, folder of installed packages, environment. It answers each with a line: the exit
status. What is printed goes to a file `.txt` beside the working directory.
"""

from __future__ import annotations

import importlib
import json
import os
import site
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from pathlib import Path
from typing import NoReturn

from tests import sandbox

_IMPORTED = ("numpy", "torch", "tvm", "meta", "meta.vm", "meta.nn", "meta.optim", "meta.testing", "meta.profiler")


class Interpreter:
    """The forking interpreter."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", "-m", "tests.docs.forks"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=sandbox.ROOT, bufsize=1
        )

    def run_page(self, page: Path, directory: Path, *options: str) -> tuple[int, str]:
        """Run a page's code in a new process and environment, so that operators and packages of one page do not affect
        other tests. Returns the exit status and the output."""
        python = sandbox.make(directory / ".venv")
        packages = sysconfig.get_path("purelib", vars={"base": str(directory / ".venv")})
        request = [[str(page), *options], str(directory), packages, sandbox.environment(python)]
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        status = self._process.stdout.readline()
        output = directory.with_suffix(".txt")
        return int(status), output.read_text(encoding="utf-8") if output.exists() else ""

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _serve() -> None:
    for name in _IMPORTED:
        try:
            importlib.import_module(name)
        except ImportError:  # pages say what they need; torch is optional
            continue
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(arguments: list[str], directory: str, packages: str, environment: dict[str, str]) -> NoReturn:
    from tests.docs import run_blocks

    status = 2
    try:
        os.chdir(directory)
        os.environ.update(environment)
        site.addsitedir(packages)
        sys.path.insert(0, directory)
        output = os.open(Path(directory).with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for stream, number in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(stream, number)
        status = run_blocks.main(arguments)
    except BaseException:  # noqa: BLE001  # the parent must not continue as a copy of the server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _write(pages: list[str]) -> None:
    interpreter = Interpreter()
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            status, output = interpreter.run_page(Path(page).resolve(), Path(folder, "page"), "--write")
        print(f"{page}: exit status {status}\n{output}")
    interpreter.close()


if __name__ == "__main__":
    _write(sys.argv[1:]) if len(sys.argv) > 1 else _serve()
