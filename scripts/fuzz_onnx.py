"""Mutates ONNX models and converts them: the outcome may only be a program or an error of meta.

    python -m scripts.fuzz_onnx 100000 --corpus DIR      models under DIR (.onnx), besides those of this file

Mutations change bytes, or fields of the parsed model: names, types, sizes, attributes; nodes go, repeat and move. A run
is determined by --seed. An input that does anything else, or takes longer than --slow seconds, is written to
--failures and reported; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from meta.errors import MetaError
from scripts.fuzz_relay import Report, mutate_bytes

_MEMORY = 8 << 30
_LARGEST = 200_000
_NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 3, 7, 8, 9, 13, 16, 21, 64, 1000, 2**31 - 1)
_LONG = (*_NUMBERS, 2**40, 2**62, -(2**63), 2**63 - 1)
_NAMES = ("", "x", "y", "h", "Add", "Conv", "Loop", "If", "Reshape", "Cast", "axis", "ai.onnx", "mine", "é", "a" * 5000)

_HEAD = '<ir_version: 9, opset_import: ["" : 21, "mine" : 1]>\n'
TEXTS = (
    """g (float[n, 2, 4, 4] x, float[2, 2, 3, 3] w) => (float[n, a] y) {
        c = Conv<pads=[1, 1, 1, 1]>(x, w)  p = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(c)  r = Relu(p)
        s = Shape(r)  zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()
        n = Slice(s, zero, one)  rest = Constant<value_ints=[-1]>()  shape = Concat<axis=0>(n, rest)
        f = Reshape(r, shape)  m = Softmax(f)  y = Mul(m, f)
    }""",
    """g (bool c, float[3] x, int64[2] places) => (float[3] y, float[n, 3] all) {
        t = If(c) <then_branch = t () => (float[3] a) { a = Add(x, x) },
                   else_branch = e () => (float[3] b) { b = Neg(x) }>
        three = Constant<value_int=3>()  true = Constant<value = bool {1}>()
        y, all = Loop(three, true, t) <body = b (int64 i, bool on, float[3] v) => (bool more, float[3] w, float[3] o) {
            w = Add(v, x)  o = Mul(w, v)  more = Identity(on)
        }>
    }""",
    """g (float[4, 6] x) => (float[6, 4] y, seq(float[2, 6]) parts) {
        two = Constant<value_int=2>()  parts = SplitToSequence<axis=0>(x, two)  j = ConcatFromSequence<axis=0>(parts)
        t = Transpose<perm=[1, 0]>(j)  y = mine.scaled<by=2.0>(t)
    }
    <domain: "mine", opset_import: ["" : 21]> scaled<by: float = 0.5>(x) => (y) {
        f = Constant<value_float: float = @by>()  y = Mul(x, f)
    }""",
    """g (float[2, 3] s, float[5, 2, 3] xs) => (float[2, 3] last, float[5, 2, 3] all, float[2] g, float[2, 3] q) {
        last, all = Scan<num_scan_inputs=1, body = b (float[2, 3] v, float[2, 3] e) => (float[2, 3] w, float[2, 3] o) {
            w = Add(v, e)  o = Tanh(w)
        }> (s, xs)
        i = Constant<value = int64[1] {1}>()  p = Gather<axis=1>(s, i)  g = Squeeze(p, i)
        h = Celu(s)  d = Cast<to=10>(h)  q = Cast<to=1>(d)
    }""",
)
"""Models that use most of what conversion does: shapes, loops, branches, functions, sequences, subgraphs."""


def models() -> list[bytes]:
    """The models of TEXTS; the first one with weights."""
    import numpy as np

    onnx: Any = import_module("onnx")
    found = [onnx.parser.parse_model(_HEAD + text) for text in TEXTS]
    weights = onnx.numpy_helper.from_array(np.ones((2, 2, 3, 3), np.float32), "w")
    found[0].graph.initializer.append(weights)
    return [model.SerializeToString() for model in found]


def mutate_model(data: bytes, rng: random.Random) -> bytes:
    """One to four changes of fields of the model."""
    onnx: Any = import_module("onnx")
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _mutate_message(model, rng)
    return model.SerializeToString()[:_LARGEST]


def _mutate_message(message: Any, rng: random.Random) -> None:
    """A change of one field somewhere inside of a message."""
    while fields := message.ListFields():
        field, value = rng.choice(fields)
        if field.type == field.TYPE_MESSAGE:
            if not isinstance(value, type(message)) and hasattr(value, "__len__"):
                if len(value) and rng.random() < 0.75:
                    message = value[rng.randrange(len(value))]
                    continue
                _mutate_list(value, rng)
            elif rng.random() < 0.97:
                message = value
                continue
            else:
                message.ClearField(field.name)
        elif hasattr(value, "append"):
            _mutate_numbers(value, field, rng)
        else:
            with contextlib.suppress(ValueError, TypeError):  # an enum or a range that protobuf itself refuses
                setattr(message, field.name, _other(value, field, rng))
        return


def _mutate_list(values: Any, rng: random.Random) -> None:
    if not len(values):
        return
    position, other = rng.randrange(len(values)), rng.randrange(len(values))
    match rng.randrange(4):
        case 0:
            del values[position]
        case 1:
            values.add().CopyFrom(values[position])
        case 2:
            values[position].CopyFrom(values[other])
        case _:
            kept: list[Any] = [copy.deepcopy(v) for v in values]
            rng.shuffle(kept)
            del values[:]
            values.extend(kept)


def _mutate_numbers(values: Any, field: Any, rng: random.Random) -> None:
    position = rng.randrange(len(values))
    with contextlib.suppress(ValueError, TypeError):
        match rng.randrange(3):
            case 0:
                del values[position]
            case 1:
                values.append(values[position])
            case _:
                values[position] = _other(values[position], field, rng)


def _other(value: Any, field: Any, rng: random.Random) -> Any:
    if isinstance(value, str):
        return rng.choice(_NAMES)
    if isinstance(value, bytes):
        return mutate_bytes(value, rng)
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    return rng.choice(_LONG if field.type == field.TYPE_INT64 else _NUMBERS)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A mutation of a model, by bytes or by fields."""
    return mutate_bytes(data, rng) if rng.random() < 0.3 else mutate_model(data, rng)


def attempt(report: Report, data: bytes, slow: float) -> str:
    """Convert one input and enter the outcome; the reason if it is a failure, else ""."""
    from meta.frontend.onnx import from_onnx

    report.runs += 1
    start = time.perf_counter()
    problem = ""
    try:
        program = from_onnx(data)
        report.outcomes["compiled" if program.undecided is None else "node by node"] += 1
    except MetaError as error:
        report.outcomes[type(error).__name__] += 1
    except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - whatever it is, it is what this looks for
        problem = traceback.format_exc(limit=-4)
    taken = time.perf_counter() - start
    if taken > report.worst[0]:
        report.worst = (taken, f"{len(data)} bytes")
    return problem or (f"took {taken:.1f} s" if taken > slow else "")


def fuzz(
    files: Sequence[bytes],
    count: int,
    seed: int,
    slow: float = 10.0,
    failed: Callable[[bytes, str], None] | None = None,
) -> Report:
    """`count` mutations of `files`, determined by `seed`."""
    rng = random.Random(seed)
    report = Report()
    for data in files:  # imports and kernels of the models as they are count for no mutation
        attempt(Report(), data, slow)
    for number in range(count):
        changed = mutated(rng.choice(files), rng)
        problem = attempt(report, changed, slow)
        if problem:
            report.failures.append(f"mutation {number}: {problem}")
            if failed is not None:
                failed(changed, problem)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts.fuzz_onnx", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("count", type=int, help="how many mutations")
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="a directory of more models")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=10.0, help="seconds that one input may take")
    parser.add_argument("--failures", type=Path, default=None, help="where inputs that fail are written")
    options = parser.parse_args(arguments)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    corpus = [path.read_bytes() for directory in options.corpus for path in sorted(directory.rglob("*.onnx"))]
    files = [*models(), *(data for data in corpus if len(data) <= _LARGEST)]

    def failed(data: bytes, problem: str) -> None:
        print(problem, flush=True)
        if options.failures is not None:
            options.failures.mkdir(parents=True, exist_ok=True)
            (options.failures / f"{len(list(options.failures.iterdir())):04}.onnx").write_bytes(data)

    start = time.perf_counter()
    report = fuzz(files, options.count, options.seed, options.slow, failed)
    print(f"{report.runs} mutations of {len(files)} models in {time.perf_counter() - start:.0f} s, "
          f"{len(report.failures)} failures; slowest {report.worst[0]:.2f} s ({report.worst[1]})")  # fmt: skip
    for outcome, times in sorted(report.outcomes.items()):
        print(f"  {outcome}: {times}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
