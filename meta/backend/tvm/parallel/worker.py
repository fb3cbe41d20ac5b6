"""A process that compiles functions: `python -m meta.backend.tvm.parallel.worker`, started by `processes`.

Requests come on standard input and answers leave on standard output, each as its length in 8 bytes and its data. The
process ends when its input closes, with the process that started it, and after `IDLE` seconds without a request.
"""

from __future__ import annotations

import gc
import marshal
import os
import select
import sys
import threading
import time
from typing import Any, BinaryIO, Final

IDLE: Final = 120.0
_HEADER: Final = 8


def compile_functions(target: str, checks: bool, functions: list[tuple[str, bytes]]) -> tuple[bytes, list[Any]]:
    """The machine code for the CPU of functions given by name, and the (kind, code) of what it launches on GPUs.

    target: JSON.  checks: see `lowering.pipeline`."""
    from meta.backend.cuda import nvrtc
    from meta.backend.tvm import adapter as tvm
    from meta.backend.tvm import library
    from meta.backend.tvm.parallel.serialization import from_bytes

    tvm.load()
    compiled_for = tvm.load_json(target)
    if str(compiled_for.kind.name) == "cuda":
        nvrtc.install()
    built = library.compile_functions({n: from_bytes(data) for n, data in functions}, compiled_for, checks=checks)
    return library.object_code(built), library.import_codes(built) if built.imports else []


def send(stream: BinaryIO, message: Any) -> None:
    """Write a message of numbers, strings, bytes, tuples and lists."""
    data = marshal.dumps(message)
    stream.write(len(data).to_bytes(_HEADER, "little") + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next message. Raises EOFError at the end of the stream."""
    header = stream.read(_HEADER)
    size = int.from_bytes(header, "little")
    data = stream.read(size) if len(header) == _HEADER else b""
    if len(header) < _HEADER or len(data) < size:
        raise EOFError
    return marshal.loads(data)


def main() -> None:
    """Answer requests: ("compiled", object, imports), or ("failed", text) for functions that do not compile."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print must not mix with answers
    sys.modules["torch"] = None  # type: ignore[assignment]  # TVM imports an installed torch, which takes seconds
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    from meta.backend.tvm import adapter as tvm

    tvm.load()
    gc.freeze()  # what was imported stays
    while select.select([requests], [], [], IDLE)[0]:
        try:
            request = receive(requests)
        except EOFError:
            return
        try:
            answer = ("compiled", *compile_functions(*request))
        except Exception as error:  # noqa: BLE001 - the parent compiles them again and raises it where it belongs
            answer = ("failed", f"{type(error).__name__}: {error}")
        try:
            send(answers, answer)
        except BrokenPipeError:
            return


def _end_with(parent: int) -> None:
    watch = 1.0  # seconds between looks for the parent: a forked child of it may hold the pipe open
    while os.getppid() == parent:
        time.sleep(watch)
    os._exit(0)


if __name__ == "__main__":
    main()
