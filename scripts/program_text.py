"""Programs of the fuzzer of programs as text: their statements, the file that runs them, and random expressions.

A `Writer` knows which names a function has bound so far, their types, and which of them share memory. Eager code and
traces treat views differently (docs/semantics.md), so no name is read after a write to an array that it may share.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Size: TypeAlias = "int | str"
"""A number of elements, or the name of a symbolic one."""
Shape: TypeAlias = "tuple[Size, ...]"

_NAME: Final = re.compile(r"\b[a-z]+\d+\b")
_UNARY: Final = (
    "meta.tanh({})", "meta.sin({})", "meta.sigmoid({})", "meta.relu({})", "(-{})", "({} * 0.5)", "({} + 1.0)",
    "meta.abs({})", "(1.0 - {})", "meta.exp(-meta.abs({}))", "(0.5 * {})", "meta.clip({}, -1.0, 1.0)",
)  # fmt: skip
_BINARY: Final = (
    "({} + {})", "({} - {})", "({} * {})", "meta.maximum({}, {})", "({} / (meta.abs({}) + 1.0))",
    "meta.where({0} > {1}, {0}, {1} * 0.5)",
)  # fmt: skip
_ROWS: Final = (
    "meta.softmax({}, axis=-1)", "meta.layer_norm({}, eps=0.01)", "meta.cumsum({}, axis=0)", "meta.cumsum({}, axis=-1)",
    "meta.flip({}, -1)", "meta.sort({}, axis=-1)", "meta.roll({}, 1, 0)", "meta.concatenate([{0}[1:], {0}[:1]], 0)",
    "meta.flip({}, 0)", "{}.copy()",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bound:
    """A name that a statement binds to a tensor."""

    name: str
    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class Array:
    """An array that a function reaches. kind: "normal", "positive", "parameter" (requires gradients) or "count"."""

    name: str
    shape: Shape
    dtype: str
    kind: str = "normal"


@dataclass(frozen=True, slots=True)
class Statement:
    """Lines of a function, and the names that they bind."""

    lines: tuple[str, ...]
    binds: tuple[Bound, ...] = ()

    def names(self) -> set[str]:
        """All names in the text."""
        return names_in("\n".join(self.lines))


@dataclass(frozen=True, slots=True)
class Program:
    """A random function. setup: lines that make optimizers and training steps, by the name that they bind.
    sizes: the symbolic size in each call; dynamic: whether the program is compiled for all of them.
    options: further arguments of `meta.vm.compile`; budgets: levels between the least memory (0) and all (1)."""

    state: tuple[Array, ...]
    arguments: tuple[Array, ...]
    setup: tuple[tuple[str, tuple[str, ...]], ...]
    body: tuple[Statement, ...]
    results: tuple[str, ...]
    sizes: tuple[int, ...]
    dynamic: bool = False
    options: tuple[tuple[str, object], ...] = ()
    budgets: tuple[float, ...] = ()

    def used(self) -> Program:
        """The program without the arrays and the setup that it does not read."""
        text = "\n".join([line for s in self.body for line in s.lines] + list(self.results))
        setup: list[tuple[str, tuple[str, ...]]] = []
        for name, lines in reversed(self.setup):
            if name in names_in(text):
                setup.insert(0, (name, lines))
                text += "\n" + "\n".join(lines)
        state = tuple(a for a in self.state if a.name in names_in(text))
        return Program(state, self.arguments, tuple(setup), self.body, self.results, self.sizes, self.dynamic,
                       self.options, self.budgets)  # fmt: skip

    def source(self) -> str:
        """A file whose `make()` gives the function, its state, and the arguments of call number i."""
        objects = [name for name, _ in self.setup if not name.startswith("model")]
        lines = [
            "import numpy as np", "import meta", "", f"OPTIONS = {dict(self.options)!r}", f"DYNAMIC = {self._open()!r}",
            f"BUDGETS = {self.budgets!r}", f"SIZES = {self.sizes!r}", "", *_DATA, "", "def make():",
        ]  # fmt: skip
        lines += [f"    {a.name} = {_creation(a, _seed(a))}" for a in self.state]
        lines += [f"    {a.name}.requires_grad = True" for a in self.state if a.kind == "parameter"]
        lines += [f"    {line}" for _, part in self.setup for line in part]
        lines += [f"    given = {', '.join(a.name for a in self.state)},"] if self.state else []
        lines += ["", f"    def function({', '.join(a.name for a in self.arguments)}):"]
        if self.state:  # `w += x` makes the name local to the function
            lines.append(f"        {', '.join(a.name for a in self.state)}, = given")
        if any("n0" in s.names() for s in self.body):
            lines.append("        n0 = x0.shape[0]")
        lines.append("        with meta.no_grad():")
        lines += [f"            {line}" for s in self.body for line in s.lines]
        lines += [f"            return {', '.join(self.results)},", "", "    def state():"]
        lines.append(f"        arrays = {{{', '.join(f'{a.name!r}: {a.name}' for a in self.state)}}}")
        for name in objects:
            lines.append(f'        arrays.update((f"{name}.{{n}}", x) for n, x in {name}.named_state())')
        lines += ["        return arrays", "", "    def arguments(call):", "        n0 = SIZES[call]"]
        given = [_creation(a, f"{_seed(a)} + 10 * call") for a in self.arguments]
        lines += [f"        return [{', '.join(given)}]", "", "    return function, state, arguments", ""]
        return "\n".join(lines)

    def _open(self) -> dict[str, dict[int, str]]:
        """The argument `dynamic` of the compilation."""
        axes = {a.name: {i: "n" for i, size in enumerate(a.shape) if isinstance(size, str)} for a in self.arguments}
        return {name: sizes for name, sizes in axes.items() if sizes} if self.dynamic else {}


_DATA: Final = (
    "def data(seed, shape, dtype, positive=False):",
    '    x = np.random.default_rng(seed).standard_normal(shape).astype("float32")',
    "    return meta.array(np.abs(x) if positive else x, dtype=dtype)",
    "",
)


def _creation(array: Array, seed: int | str) -> str:
    if array.kind == "count":
        return f"meta.zeros({shape_text(array.shape)}, dtype={array.dtype!r})"
    positive = ", True" if array.kind == "positive" else ""
    return f"data({seed}, {shape_text(array.shape)}, {array.dtype!r}{positive})"


def _seed(array: Array) -> int:
    return 1000 * ord(array.name[0]) + int(array.name[1:])


def names_in(text: str) -> set[str]:
    return set(_NAME.findall(text))


def shape_text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


@dataclass(slots=True)
class Variable:
    """What is known of a name. roots: the arrays whose memory it may share; writable: whether a write may reach it."""

    shape: Shape
    dtype: str
    roots: frozenset[str]
    writable: bool


@dataclass(slots=True)
class Writer:
    """A function while it is written. rows, columns: the sizes of its matrices. dtype: of most tensors."""

    rng: random.Random
    rows: Size
    columns: int
    dtype: str
    state: list[Array] = field(default_factory=list[Array])
    arguments: list[Array] = field(default_factory=list[Array])
    setup: list[tuple[str, tuple[str, ...]]] = field(default_factory=list[tuple[str, tuple[str, ...]]])
    body: list[Statement] = field(default_factory=list[Statement])
    known: dict[str, Variable] = field(default_factory=dict[str, Variable])
    locked: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Loss -> the roots that its gradient reads, which nothing may overwrite before that."""
    attached: bool = False
    """Whether losses read values that were computed before, of other graphs or without gradients, as they are."""
    late: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Values that the end of the function reads, and the arrays that they were computed from."""
    counts: dict[str, int] = field(default_factory=dict[str, int])

    # --- names -------------------------------------------------------------------------------------------------------

    def name(self, letter: str) -> str:
        number = self.counts[letter] = self.counts.get(letter, -1) + 1
        return f"{letter}{number}"

    def add_array(self, array: Array, to: list[Array]) -> None:
        to.append(array)
        writable = array.kind in ("normal", "positive")
        self.known[array.name] = Variable(array.shape, array.dtype, frozenset((array.name,)), writable)

    def add(self, *lines: str, binds: Sequence[Bound] = (), roots: Iterable[str] = (), writable: bool = False) -> None:
        """Append a statement. roots: what its results may share memory with, besides themselves."""
        self.body.append(Statement(lines, tuple(binds)))
        for bound in binds:
            shared = frozenset(roots)
            self.known[bound.name] = Variable(
                bound.shape, bound.dtype, shared or frozenset((bound.name,)), writable and not shared
            )

    def overwritten(self, name: str) -> None:
        """Forget the other names of memory that a statement wrote."""
        roots = self.known[name].roots
        for other in [o for o, v in self.known.items() if o != name and v.roots & roots]:
            del self.known[other]

    def choose(self, shape: Shape | None = None, wanted: Callable[[str, Variable], bool] | None = None) -> str | None:
        """A known name, more often a recent one; None if there is none. shape: any if None."""
        alike = {n: v for n, v in self.known.items() if shape in (None, v.shape) and v.dtype == self.dtype}
        names = [n for n, v in alike.items() if wanted is None or wanted(n, v)]
        if not names:
            return None
        return self.rng.choice(names[-4:] if self.rng.random() < 0.5 else names)

    def target(self, shape: Shape | None = None, letters: str = "wxv") -> str | None:
        """A name that may be written now: state (w), an argument (x) or a value (v)."""
        locked: frozenset[str] = frozenset[str]().union(*self.locked.values())
        return self.choose(shape, lambda n, v: n[0] in letters and v.writable and not v.roots & locked)

    def roots_of(self, text: str) -> frozenset[str]:
        return frozenset[str]().union(*(self.known[n].roots for n in names_in(text) if n in self.known))

    # --- expressions -------------------------------------------------------------------------------------------------

    def shape(self) -> Shape:
        """A random type of tensor."""
        matrix, square = (self.rows, self.columns), (self.columns, self.columns)
        return self.rng.choice((matrix, matrix, square, square, (self.columns,), (self.rows,), ()))

    def leaf(self, shape: Shape) -> str:
        chosen = self.choose(shape)
        if chosen is None or self.rng.random() < 0.04:
            return f"meta.full({shape_text(shape)}, {self.number()}, dtype={self.dtype!r})"
        return chosen

    def number(self) -> float:
        return self.rng.randrange(-12, 13) / 8

    def expression(self, shape: Shape, depth: int = 2) -> str:
        """The text of a tensor of `shape`; with a depth of 0 a name, if there is one."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.12:
            return self.leaf(shape)
        share = rng.random()
        if share < 0.3:
            return rng.choice(_UNARY).format(self.expression(shape, depth - 1))
        if share < 0.62:
            return rng.choice(_BINARY).format(self.expression(shape, depth - 1), self.broadcast(shape, depth - 1))
        if len(shape) == 2:
            return self._matrix(shape, depth)
        return self._reduced(shape, depth) if share < 0.85 else self.leaf(shape)

    def fresh(self, shape: Shape, depth: int = 2) -> str:
        """A tensor whose memory is its own."""
        if self.rng.random() < 0.15:
            return f"meta.{self.rng.choice(('zeros', 'ones'))}({shape_text(shape)}, dtype={self.dtype!r})"
        return f"({self.expression(shape, depth - 1)} {self.rng.choice(('* 1.0', '* 2.0', '+ 0.5'))})"

    def broadcast(self, shape: Shape, depth: int) -> str:
        """A tensor that broadcasts to `shape`."""
        kinds = [shape, shape, shape, ()] + ([shape[-1:]] if len(shape) == 2 else [])
        return self.expression(self.rng.choice(kinds), depth)

    def view(self, shape: Shape, of: str) -> str:
        """A tensor of `shape` as a view of itself."""
        total = " * ".join(map(str, shape))
        return f"{of}.reshape(({total or 1},)).reshape({shape_text(shape)})"

    def _matrix(self, shape: Shape, depth: int) -> str:
        rng, (rows, columns) = self.rng, shape
        share = rng.random()
        if share < 0.5:
            left = self.expression((rows, self.columns), depth - 1)
            return f"({left} @ {self.expression((self.columns, columns), depth - 1)} * 0.3)"
        if share < 0.6 and rows == columns:
            return f"{self.expression(shape, depth - 1)}.T"
        if share < 0.7:
            return self.view(shape, self.expression(shape, depth - 1))
        if share < 0.75 and rows == columns == self.rows:
            return f"meta.concatenate([{self.leaf(shape)}, {self.expression(shape, depth - 1)}], 0)[1:{rows} + 1]"
        return rng.choice(_ROWS).format(self.expression(shape, depth - 1))

    def _reduced(self, shape: Shape, depth: int) -> str:
        matrix = (self.rows, self.columns)
        if shape == matrix[:1] == matrix[1:] and self.rng.random() < 0.5:
            return f"({self.expression(matrix, depth - 1)}.T @ {self.leaf(shape)} * 0.3)"
        inner = self.expression(matrix, depth - 1)
        how = self.rng.choice(("mean", "sum", "max"))
        scale = " * 0.1" if how == "sum" else ""
        if shape == ():
            return f"({inner}.{'mean' if how == 'sum' else how}())"
        axis = 0 if shape == (self.columns,) else 1
        return f"({inner}.{how}(axis={axis}){scale})"
