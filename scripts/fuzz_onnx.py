"""Mutates ONNX models and converts them: the outcome may only be a program or an error of meta.

    python -m scripts.fuzz_onnx 100000 --corpus DIR      models under DIR (.onnx), besides those of this file

Mutations change bytes, or fields of the parsed model: names, types, sizes, attributes; nodes go, repeat and move.
scripts/fuzzing.py has what every fuzzer of readers does.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from meta.errors import MetaError
from scripts import fuzzing
from scripts.fuzzing import LARGEST, Format, mutate_bytes

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
    parsed = [onnx.parser.parse_model(_HEAD + text) for text in TEXTS]
    weights = onnx.numpy_helper.from_array(np.ones((2, 2, 3, 3), np.float32), "w")
    parsed[0].graph.initializer.append(weights)
    return [model.SerializeToString() for model in parsed]


def mutate_model(data: bytes, rng: random.Random) -> bytes:
    """One to four changes of fields of the model."""
    onnx: Any = import_module("onnx")
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _mutate_message(model, rng)
    return model.SerializeToString()[:LARGEST]


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
            items: list[Any] = [copy.deepcopy(v) for v in values]
            rng.shuffle(items)
            del values[:]
            values.extend(items)


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


def read(data: bytes) -> str:
    """Import a model: "compiled" or "node by node"."""
    from meta.frontend.onnx import from_onnx

    return "compiled" if from_onnx(data).undecided is None else "node by node"


MODELS: Final = Format("model.onnx", mutated, read)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = fuzzing.parser("scripts.fuzz_onnx", __doc__ or "")
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="a directory of more models")
    options = parser.parse_args(arguments)
    fuzzing.limit_memory()
    corpus = [path.read_bytes() for directory in options.corpus for path in sorted(directory.rglob("*.onnx"))]
    files = [*models(), *(data for data in corpus if len(data) <= LARGEST)]
    for data in files:  # so that the time of the first mutations has no imports and kernels in it
        with contextlib.suppress(MetaError):
            read(data)
    return MODELS.run(options, files)


if __name__ == "__main__":
    sys.exit(main())
