"""The functions of this package that kernels call, which have to be loaded before a kernel is: the launcher of their
loops and the memory of their buffers."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache

from meta.backend.tvm import launcher, workspaces
from meta.cache import default_cache


@cache
def prepare() -> None:
    """Load the functions, from disk or newly assembled. Without space for their code, kernels use TVM's own."""
    try:
        launcher.prepare()
        workspaces.prepare()
    except OSError as error:
        if (disk := default_cache()) is not None:
            disk.report(error)


@contextmanager
def prepared_meanwhile() -> Generator[None, None, None]:
    """The functions are loaded at the end of the block, in which a thread assembles them: 40 ms of the first kernel
    that is compiled on a machine."""
    if prepare.cache_info().currsize:
        yield
        return
    thread = threading.Thread(target=prepare, name="meta hooks")
    with suppress(RuntimeError):  # the process may have no more threads
        thread.start()
    try:
        yield
    finally:
        if thread.ident is not None:
            thread.join()
    prepare()  # raises here what it raised in the thread
