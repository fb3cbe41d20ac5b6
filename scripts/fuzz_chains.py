"""Compiles programs that use values several times, and checks their results and the time of compilation.

    python -m scripts.fuzz_chains 40 --seed 1      40 random chains, of 32 and of 64 links

A chain is a sequence of equal links; each reads the value of the one before two or three times: elementwise,
shifted, turned around, or joined. Programs are compared with the interpreter. A program of twice the links may take
2.2 times as long, plus a constant: that is processor time, without import and with an empty cache of kernels.
`--table` times the named chains, long joins and long random programs instead.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

import meta

Link = Callable[[Any], Any]
Chain = Callable[[Any, int], Any]

SHAPE: Final = (12, 12)
_GROWTH: Final = 2.2
_CONSTANT: Final = 1.0
"""Seconds that compilation may take longer for twice the links, besides `_GROWTH` times the time."""


def _repeated(link: Link) -> Chain:
    def chain(x: Any, links: int) -> Any:
        for _ in range(links):
            x = link(x)
        return x

    return chain


def _sums_and_products(x: Any, links: int) -> Any:
    a, b = x, x * 0.5
    for _ in range(links):
        a, b = (a + b) * 0.5, a * b
    return a + b


def _rope(x: Any) -> Any:
    half = x.shape[-1] // 2
    a, b = x[:, :half], x[:, half:]
    return meta.concatenate([a * 0.6 - b * 0.8, a * 0.8 + b * 0.6], axis=-1)


CHAINS: Final[dict[str, Chain]] = {
    "x * sigmoid(x)": _repeated(lambda x: x * meta.sigmoid(x)),
    "c = a + b, d = a * b": _sums_and_products,
    "diff": lambda x, links: meta.diff(meta.tile(x, (1, 12)), n=links, axis=-1) * 0.5**links,
    "concatenate([x[1:], x[:1]]) + x": _repeated(lambda x: (meta.concatenate([x[1:], x[:1]]) + x) * 0.5),
    "roll(x) + x": _repeated(lambda x: (meta.roll(x, 1, 0) + x) * 0.5),
    "flip(x) + x": _repeated(lambda x: (meta.flip(x, 0) + x) * 0.5),
    "x.T + x": _repeated(lambda x: (x.T + x) * 0.5),
    "rope": _repeated(_rope),
    "gelu": _repeated(lambda x: x * 0.5 * (1.0 + meta.erf(x * 0.7071))),
    "x * x + x": _repeated(lambda x: x * x * 0.3 + x),
}
"""Chains by name. Values stay in the range of float32."""

_LINKS: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    lambda x, y: x * meta.sigmoid(y) + x * 0.5,
    lambda x, y: (x + y) * 0.5 - x * y * 0.1,
    lambda x, y: meta.roll(x, 1, 1) * 0.5 + y * 0.5,
    lambda x, y: meta.flip(x, 0) * 0.3 + x * 0.3 + y * 0.3,
    lambda x, y: x.T * 0.5 + y * x,
    lambda x, y: meta.where(x > y, x * 0.9, y + 0.1) - x * 0.2,
    lambda x, y: meta.concatenate([x[:, 3:], y[:, :3]], axis=1) * 0.5 + x * 0.4,
    lambda x, y: meta.tanh(x) * x + meta.tanh(y) * 0.5,
    lambda x, y: meta.reshape(meta.reshape(x, (6, 24)), SHAPE) * 0.5 + meta.maximum(x, y) * 0.5,
    lambda x, y: meta.pad(x[1:, 1:], ((0, 1), (1, 0))) * 0.5 + meta.minimum(x, y) * 0.5,
)
_PLAIN: Final[tuple[Link, ...]] = (
    lambda x: meta.tanh(x), lambda x: x + 0.5, lambda x: x * 0.9, lambda x: x.T, lambda x: meta.matmul(x, x) * 0.05,
    lambda x: meta.roll(x, 1, 0), lambda x: meta.softmax(x, axis=-1), lambda x: x - meta.mean(x, axis=0, keepdims=True),
)  # fmt: skip


def random_chain(seed: int) -> Chain:
    """Random links that each use earlier values two or three times."""

    def chain(x: Any, links: int) -> Any:
        rng = random.Random(seed)
        values = [x, x * 0.5]
        for _ in range(links):
            values = [*values[-2:], rng.choice(_LINKS)(values[-1], rng.choice(values[-3:]))]
        return values[-1]

    return chain


def mixed(operators: int, *, reuse: bool) -> Link:
    """About so many operators of all kinds: elementwise, products, reductions, shifts. reuse: of random values."""

    def program(x: Any) -> Any:
        rng = random.Random(0)
        values = [x]
        for _ in range(operators // 2):
            y = rng.choice(_PLAIN)(values[-1])
            values = [*values[-7:], meta.tanh(y + rng.choice(values)) if reuse else meta.tanh(y)]
        return values[-1]

    return program


def total(xs: Sequence[Any]) -> Any:
    """The sum of a list by additions."""
    result = xs[0]
    for x in xs[1:]:
        result = result + x
    return result


def of_links(chain: Chain, links: int) -> Link:
    """The program of a chain."""

    def program(x: Any) -> Any:
        return chain(x, links)

    return program


def of_list(join: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """The program that joins its arguments."""

    def program(*xs: Any) -> Any:
        return join(list(xs))

    return program


JOINS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "concatenate": lambda xs: meta.concatenate(xs, axis=0),
    "stack": lambda xs: meta.stack(xs, axis=1),
    "sum": total,
}


def example() -> Any:
    return meta.array(np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32))


def seconds(function: Callable[..., Any], *args: Any, check: bool = True) -> float:
    """Processor time of compilation and one run. Raises ValueError where results differ from eager ones."""
    executor = meta.vm.compile(meta.trace(function))
    start = time.process_time()
    result = executor(*args).numpy()
    duration = time.process_time() - start
    if check and not np.allclose(result, function(*args).numpy(), rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ValueError("the program and eager calls differ")
    return duration


def import_tvm() -> None:
    """Compile a program, so that others take no longer because they are the first."""
    seconds(of_links(CHAINS["x * sigmoid(x)"], 1), example())


def check_chain(chain: Chain, links: int) -> str:
    """Compile a chain of so many links and one of twice as many; the problem, "" without one."""
    x = example()
    try:
        once, twice = (seconds(of_links(chain, n), x) for n in (links, 2 * links))
    except ValueError as error:
        return str(error)
    fits = twice <= _GROWTH * once + _CONSTANT
    return "" if fits else f"{links} links take {once:.1f} s, {2 * links} links {twice:.1f} s"


def table(links: int, operators: int, arrays: int) -> Iterator[tuple[str, float]]:
    """Names of programs, and the seconds of their compilation."""
    x = example()
    for name, chain in CHAINS.items():
        yield f"{links} links of {name}", seconds(of_links(chain, links), x)
    xs = [meta.array(np.full((3, 4), i, np.float32)) for i in range(arrays)]
    for name, join in JOINS.items():
        start = time.process_time()
        join(xs).numpy()
        yield f"{name} of {arrays} arrays, eager", time.process_time() - start
        yield f"{name} of {arrays} arrays", seconds(of_list(join), *xs)
    for reuse in (False, True) if operators else ():
        suffix = "with reuse" if reuse else "without reuse"
        yield f"{operators} operators {suffix}", seconds(mixed(operators, reuse=reuse), x, check=False)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="fuzz_chains", description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("count", type=int, help="how many random chains")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--links", type=int, default=32)
    parser.add_argument("--table", action="store_true", help="time the named programs")
    options = parser.parse_args(arguments)
    with contextlib.suppress(BrokenPipeError):
        import_tvm()
        if options.table:
            for name, duration in table(2 * options.links, 10_000, 500):
                print(f"{duration:7.2f} s  {name}", flush=True)
            return 0
        failures = 0
        for seed in range(options.seed, options.seed + options.count):
            problem = check_chain(random_chain(seed), options.links)
            failures += bool(problem)
            if problem:
                print(f"chain {seed}: {problem}", flush=True)
        print(f"{options.count} chains, {failures} failures")
        return 1 if failures else 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
