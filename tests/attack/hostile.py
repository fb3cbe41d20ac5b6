"""Files written by hand to take time, memory or the stack: those of the tests of the readers' limits, and others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import cache

from meta.errors import MetaError
from meta.frontend.relay import from_relay
from meta.frontend.relay.params import read_params
from meta.ir.parser import parse
from meta.ir.verifier import verify
from meta.passes.standard import standard
from tests.python.frontend.relay.test_fuzz import GROWING
from tests.python.frontend.relay.test_params import BROKEN
from tests.python.ir.test_limits import TEXTS, doubling

SECONDS = 20.0
Reader = Callable[[], object]


@cache
def readers() -> list[tuple[str, Reader]]:
    """A name and a function that reads, for each file."""
    return list(_readers())


def _readers() -> Iterator[tuple[str, Reader]]:
    for name, (text, _) in TEXTS.items():
        yield name, lambda text=text: verify(parse(text()))
    for name, (data, _) in BROKEN.items():
        yield name, lambda data=data: read_params(data)
    for name, (source, _) in GROWING.items():
        yield name, lambda source=source: from_relay(source)
    yield "doubling calls", lambda: verify(standard()(parse(doubling(60))))
    for size in (10**3, 10**5, 10**6):
        for mark in '([{"%@$#\\-0aé\n':
            yield f"{mark!r} times {size}", lambda text=mark * size: parse(text)
            yield f"{mark!r} times {size} in Relay", lambda text="def @main() {" + mark * size: from_relay(text)
            yield f"{mark!r} times {size} in JSON", lambda text='{"root": ' + mark * size: from_relay(text)


def case(seed: int, index: int) -> str:
    """One file; the order is that of the seed."""
    order = readers()[:]
    random.Random(seed).shuffle(order)
    name, reader = order[index % len(order)]
    start = time.process_time()
    problem = ""
    try:
        reader()
    except MetaError as error:
        problem = f"an error of {len(str(error))} characters" if len(str(error)) > 100_000 else ""
    seconds = time.process_time() - start
    return f"{name}: {problem or f'took {seconds:.1f} s'}" if problem or seconds > SECONDS else ""
