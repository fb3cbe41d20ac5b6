"""Random programs, determined by a seed and an index."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from scripts import program_statements as statements
from scripts import program_training as training
from scripts.program_text import Array, Program, Size, Variable, Writer

_SIZES: Final = (1, 3, 3, 6, 8, 8, 16, 33, 64)
_DTYPES: Final = ("float64",) * 9 + ("float32",) * 9 + ("float16", "bfloat16")
_THEMES: Final[dict[str, tuple[Callable[[Writer], None], ...]]] = {
    "optimizers": (statements.optimizer_step,),
    "batch norm": (statements.batch_norm, statements.batch_norm, statements.write),
    "writes": (statements.write, statements.write_value, statements.swap),
    "several": (statements.several, statements.optimizer_step),
    "branches": (statements.branches, statements.branches, statements.branch_into_state, statements.kept_by_branch),
    "loops": (statements.loop,),
    "gradients": (training.forward, training.backward, training.backward),
    "steps": (training.train_step,),
    "views": (statements.view, statements.write),
    "made": (statements.made, statements.write_value),
    "casts": (statements.casts, statements.integers),
    "kept": (statements.kept, statements.kept, statements.kept, statements.let),
}
_ANYTHING: Final = (*(statements.let,) * 4, statements.made, statements.write, statements.view)


def random_program(seed: int, index: int, attached: bool = False) -> Program:
    """Program number `index` of a seed. attached: see Writer."""
    rng = random.Random(f"{seed}/{index}")
    columns, dynamic = rng.choice(_SIZES), rng.random() < 0.15
    size: int = columns if rng.random() < 0.5 else rng.choice(_SIZES)
    rows: Size = "n0" if dynamic else size
    w = Writer(rng, rows, columns, rng.choice(_DTYPES), attached=attached)
    matrix, square, channels = (rows, columns), (columns, columns), (columns,)
    for i in range(rng.choice((1, 2, 2, 3))):
        w.add_array(Array(w.name("x"), matrix if i == 0 else rng.choice((matrix, square)), w.dtype), w.arguments)
    shapes = (square, rng.choice((square, channels)), rng.choice((square, channels)), channels)
    for shape in shapes[: rng.choice((2, 3, 4))]:
        w.add_array(Array(w.name("w"), shape, w.dtype), w.state)
    for shape in (square, channels):
        w.add_array(Array(w.name("q"), shape, w.dtype, "positive"), w.state)
        w.add_array(Array(w.name("p"), shape, w.dtype, "parameter"), w.state)
    w.add_array(Array("c0", (), "int64", "count"), w.state)
    if not dynamic and rng.random() < 0.4:
        w.state.append(Array(w.name("w"), matrix, w.dtype))
        w.known[w.state[-1].name] = Variable(matrix, w.dtype, frozenset((w.state[-1].name,)), True)
    straight = rng.random() < 0.45
    themes = rng.sample(sorted(_THEMES), rng.choice((1, 2, 2, 3)))
    kinds = [kind for theme in themes for kind in _THEMES[theme] if not (straight and theme in ("branches", "loops"))]
    for _ in range(rng.randrange(4, 14)):
        (rng.choice(kinds) if kinds and rng.random() < 0.5 else rng.choice(_ANYTHING))(w)
    if w.late:
        statements.read_late(w)
    for _ in [*w.locked] if rng.random() < 0.7 else ():
        training.backward(w)
    return _finished(w, rng, size, dynamic)


def _finished(w: Writer, rng: random.Random, size: int, dynamic: bool) -> Program:
    names = [n for n in w.known if n[0] != "c"]
    unread = [n for n in names if sum(n in s.names() for s in w.body) == 1 and n[0] not in "wxpq"]
    results = rng.sample(unread, min(len(unread), 3)) + rng.sample(names, min(len(names), rng.choice((1, 2))))
    if w.late and rng.random() < 0.7:
        results = [next(b.name for s in reversed(w.body) for b in reversed(s.binds))]
    results += results[:1] if rng.random() < 0.2 else []
    text = "\n".join(line for s in w.body for line in s.lines) + "".join(x for _, part in w.setup for x in part)
    plain = not dynamic and not any(word in text for word in ("cond(", "loop(", "scan("))
    levels = tuple(sorted({0.0, *(rng.choice((0.1, 0.25, 0.5, 0.75, 0.9, 0.99)) for _ in range(2))}))
    budgets = levels if plain and rng.random() < (0.9 if w.late else 0.4) else ()
    sizes = (size, rng.choice(_SIZES), rng.choice(_SIZES)) if dynamic else (size,) * 3
    options = (("fuse", False),) if rng.random() < 0.25 else ()
    parts = tuple(w.state), tuple(w.arguments), tuple(w.setup), tuple(w.body), tuple(results or ["x0"])
    return Program(*parts, sizes, dynamic, options, budgets).used()
