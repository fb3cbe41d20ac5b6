"""Threads that compile machine code for the CPU. TVM's passes and LLVM run without Python's lock, and unlike processes
threads need neither a start of seconds nor copies of functions."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from meta.backend.tvm import library


@contextmanager
def compiling_all(
    requests: Sequence[Mapping[str, Any]], target: Any, count: int, *, checks: bool
) -> Generator[Iterator[tuple[int, bytes]], None, None]:
    """Compile while the body of the `with` statement runs; it gets (number of the request, its machine code) in the
    order in which they are done. Requests begin in the order given.

    requests: scheduled functions by name.  target: for the CPU.  count: of threads.  checks: see `lowering.pipeline`.

    Raises what the compilation of a request raises. If the body stops early, or is interrupted, requests that have
    begun are finished and others dropped."""

    def compile_request(functions: Mapping[str, Any]) -> bytes:
        return library.object_code(library.compile_functions(dict(functions), target, checks=checks))

    pool = ThreadPoolExecutor(count, thread_name_prefix="meta compile")
    try:
        numbers = {pool.submit(compile_request, request): number for number, request in enumerate(requests)}
        yield ((numbers[done], done.result()) for done in as_completed(numbers))
    finally:
        pool.shutdown(cancel_futures=True)
