"""Random functions with writes in place, for `scripts.fuzz_writes`: text that runs on meta and on its model.

A function takes a namespace `m` (the model, or meta under the same names), arguments and state. A `Writer` knows the
shape of each name, and whether it may be written: leaves and views of them may not while gradients are recorded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

Shape: TypeAlias = "tuple[int, ...]"
SHAPES: Sequence[Shape] = ((3,), (3,), (2, 3), (3, 3), ())


@dataclass(slots=True)
class Name:
    """What is known of a name. leaf: whether it is a leaf or a differentiable view of one.  own: whether a write may
    reach it at all: arrays of outer functions and copies of elements may not be written."""

    shape: Shape
    leaf: bool = False
    own: bool = True


@dataclass(slots=True)
class Writer:
    """A function while it is written."""

    rng: random.Random
    lines: list[str] = field(default_factory=list[str])
    names: dict[str, Name] = field(default_factory=dict[str, Name])
    leaves: list[str] = field(default_factory=list[str])
    depth: int = 1
    recorded: bool = True
    inner: int = 0
    """The number of functions around: of branches, loops and transformations."""
    batched: bool = False
    """Whether values differ from call to call of `vmap`, so that no branch can depend on them."""
    plain: bool = False
    """Whether there is no `no_grad`, which forward mode ignores."""
    count: int = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def new(self, shape: Shape, text: str, *, leaf: bool = False, own: bool = True) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.add(f"{name} = {text}")
        self.names[name] = Name(shape, leaf, own)
        return name

    def pick(self, shape: Shape | None = None, want: Callable[[Name], bool] = lambda _: True) -> str | None:
        found = [n for n, v in self.names.items() if shape in (None, v.shape) and want(v)]
        return self.rng.choice(found[-5:] if self.rng.random() < 0.6 else found) if found else None

    def target(self, shape: Shape | None = None) -> str | None:
        """A name that may be written now."""
        return self.pick(shape, lambda v: v.own and not (v.leaf and self.recorded))

    def number(self) -> float:
        return self.rng.randrange(-8, 9) / 4

    def expression(self, shape: Shape, depth: int = 2) -> str:
        name = self.pick(shape)
        if depth == 0 or self.rng.random() < 0.15:
            return name or f"(m.zeros({shape}) + {self.number()})"
        kind = self.rng.random()
        inner = self.expression(shape, depth - 1)
        if kind < 0.3:
            return self.rng.choice(
                ("m.tanh({})", "m.sin({})", "({} * 0.5)", "({} + 1.0)", "m.square({}) * 0.25")
            ).format(inner)
        if kind < 0.85:
            other = self.expression(self.rng.choice((shape, shape, ())), depth - 1)
            return f"({inner} {self.rng.choice('+-*')} {other})"
        whole = self.pick(None, lambda v: v.shape != ())
        return f"({inner} + {whole}.sum() * 0.25)" if whole else inner

    @contextmanager
    def block(self, head: str, recorded: bool | None = None) -> Generator[None, None, None]:
        self.add(head)
        before, self.recorded = self.recorded, self.recorded if recorded is None else recorded
        self.depth += 1
        length = len(self.lines)
        try:
            yield
        finally:
            if len(self.lines) == length:
                self.add("pass")
            self.depth -= 1
            self.recorded = before

    @contextmanager
    def function(
        self, *params: tuple[str, Shape], recorded: bool | None = None, plain: bool = False
    ) -> Generator[str, None, None]:
        """A nested function, which reads names around it and writes its own."""
        self.count += 1
        name, before, settings = f"f{self.count}", self.names, (self.plain, self.inner)
        self.names = {n: Name(v.shape, v.leaf, own=False) for n, v in before.items()}
        self.names.update((p, Name(shape)) for p, shape in params)
        self.plain, self.inner = self.plain or plain, self.inner + 1
        try:
            with self.block(f"def {name}({', '.join(p for p, _ in params)}):", recorded):
                yield name
        finally:
            self.names, (self.plain, self.inner) = before, settings


# --- statements -------------------------------------------------------------------------------------------------------


def let(w: Writer) -> None:
    shape = w.rng.choice(SHAPES)
    w.new(shape, f"{w.expression(shape)} * 1.0")


def made(w: Writer) -> None:
    shape = w.rng.choice(SHAPES)
    w.new(shape, f"m.zeros({shape})")


def view(w: Writer) -> None:
    name = w.pick()
    if name is None:
        return
    known = w.names[name]
    shape = known.shape
    if w.rng.random() < 0.35:
        w.new(shape, f"{name}.detach()", own=known.own)
        return
    flat = 1
    for size in shape:
        flat *= size
    text, new = w.rng.choice(
        ((f"{name}[None]", (1, *shape)), (f"{name}.reshape(({flat},))", (flat,)), (f"{name}.reshape({shape})", shape))
    )
    # A view that is made under `no_grad` may not be written with gradients in torch.
    w.new(new, text, leaf=known.leaf or not w.recorded, own=known.own)


def element(w: Writer) -> None:
    name = w.pick(None, lambda v: len(v.shape) > 0)
    if name is not None:
        w.new(w.names[name].shape[1:], f"{name}[{w.rng.randrange(-1, w.names[name].shape[0])}]", own=False)


def write(w: Writer) -> None:
    name = w.target()
    if name is None:
        return
    shape = w.names[name].shape
    value = w.expression(shape, 1)
    lines = [f"{name} += {value}", f"{name} -= {value} * 0.5", f"{name} *= {w.number()}", f"{name} *= m.sin({value})",
             f"{name} += {w.number()}", f"{name}[...] = {value}", f"{name}.update({value} * 1.0)",
             f"{name}[{name} > {w.number()}] = {w.number()}",
             f"{name}[{value} < {w.number()}] = {w.expression((), 1)}"]  # fmt: skip
    if shape:
        row = w.expression(shape[1:], 1)
        size = shape[0]
        i = w.rng.randrange(-size, size)
        lines += [f"{name}[{i}] = {w.number()}", f"{name}[{i}] = {row}", f"{name}[{i}] = {w.expression((), 1)}",
                  f"{name}[{w.rng.randrange(size)}:] = {row}", f"{name}[{i}] *= {w.number()}",
                  f"{name}[{[*{i % size, w.rng.randrange(size)}]}] = {row}", f"{name}[::-1] = {value}"]  # fmt: skip
    if len(shape) == 2:
        lines += [f"{name}[:, {w.rng.randrange(shape[1])}] = {w.number()}", f"{name}[:, 1:] = {w.expression((), 1)}",
                  f"{name}[0, 1] = {w.expression((), 1)}"]  # fmt: skip
    w.add(w.rng.choice(lines))


def modes(w: Writer) -> None:
    if w.plain:
        return
    recorded = not w.recorded and w.rng.random() < 0.7
    with w.block("with m.enable_grad():" if recorded else "with m.no_grad():", recorded):
        for _ in range(w.rng.randrange(1, 4)):
            w.rng.choice((let, view, write, write, write, made))(w)


def _body(w: Writer, most: int = 3) -> None:
    kinds = (let, made, view, write, write, write, modes, element)
    for _ in range(w.rng.randrange(most + 1)):
        w.rng.choice(kinds if w.inner > 1 or w.batched else (*kinds, conditional, transformed))(w)


def conditional(w: Writer) -> None:
    shape = w.rng.choice(SHAPES)
    branches: list[str] = []
    for _ in range(2):
        with w.function(("t", shape)) as name:
            w.names["t"].own = False
            _body(w)
            w.add(f"return {w.expression(shape, 1)}")
        branches.append(name)
    flag = f"{w.expression((), 1)} > {w.number()}"
    w.new(shape, f"m.cond({flag}, {', '.join(branches)}, {w.expression(shape, 1)})")


def loop(w: Writer) -> None:
    shape = w.rng.choice(((3,), (), (2, 3)))
    start = w.expression(shape, 1)
    if w.rng.random() < 0.7:
        with w.function(("c", shape), ("e", (3,))) as step:
            _body(w)
            w.add(
                f"return {w.rng.choice(('c', w.expression(shape, 1)))}, {w.rng.choice(('c', w.expression(shape, 1)))}"
            )
        rows = w.rng.choice(((2, 3), (3, 3)))
        pair = f"v{w.count + 1}, v{w.count + 2} = m.scan({step}, {start}, {w.expression(rows, 1)})"
        w.count += 2
        w.add(pair)
        w.names[f"v{w.count - 1}"], w.names[f"v{w.count}"] = Name(shape), Name((rows[0], *shape))
        return
    with w.function(("c", shape)) as condition:
        w.add(f"return c.sum() < {abs(w.number()) + 1}")
    with w.function(("c", shape)) as step:
        _body(w)
        w.add(f"return {w.expression(shape, 1)} * 0.5 + c")
    w.new(shape, f"m.while_loop({condition}, {step}, {start}, 3)")


def transformed(w: Writer) -> None:
    """A derivative of a function with writes, or its calls on rows."""
    kind = w.rng.choice(("vjp", "vjp", "jvp", "vmap"))
    shape = w.rng.choice(((3,), (2, 3))) if kind != "vmap" else (3,)
    result = w.rng.choice(((3,), ()))
    params = [("a", shape)] if kind != "vmap" else [("a", shape), ("b", (3,))]
    with w.function(*params, recorded=True if kind == "vjp" else None, plain=kind == "jvp") as name:
        w.batched = kind == "vmap"
        _body(w, 4)
        w.batched = False
        w.add(f"return {w.expression(result, 2)}")
    if kind == "vmap":
        rows = w.rng.choice(((2, 3), (3, 3)))
        w.new((rows[0], *result), f"m.vmap({name}, {w.expression(rows, 1)}, {w.expression((3,), 1)})")
        return
    tangent = f", {w.expression(shape, 1)}" if kind == "jvp" else ""
    first, second = f"v{w.count + 1}", f"v{w.count + 2}"
    w.count += 2
    w.add(f"{first}, {second} = m.{kind}({name}, {w.expression(shape, 1)}{tangent})")
    w.names[first], w.names[second] = Name(result), Name(shape if kind == "vjp" else result)


def backward(w: Writer) -> None:
    name = w.pick()
    if name is None or w.inner or not w.leaves or not w.recorded:
        return
    leaves = f"[{', '.join(w.leaves)}]"
    if w.rng.random() < 0.5:
        w.add(f"m.backward({w.expression(w.names[name].shape)}, {leaves})")
        return
    first = w.count + 1
    w.count += len(w.leaves)
    results = [f"v{first + i}" for i in range(len(w.leaves))]
    create = w.rng.random() < 0.5
    w.add(f"{', '.join(results)}, = m.grad({w.expression(w.names[name].shape)}, {leaves}, {create})")
    w.names.update((r, Name(w.names[leaf].shape)) for r, leaf in zip(results, w.leaves, strict=True))


_STATEMENTS = (let, let, made, view, view, element, write, write, write, write, write, write, modes, modes, conditional,
               loop, transformed, backward)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """A random function. arguments, state: name -> (shape, whether it is a leaf that requires gradients)."""

    source: str
    arguments: dict[str, tuple[Shape, bool]]
    state: dict[str, tuple[Shape, bool]]


def random_function(seed: int, index: int) -> Function:
    """Function number `index` of a seed."""
    rng = random.Random(f"{seed}/{index}")
    w = Writer(rng)
    arguments = {f"x{i}": (rng.choice(SHAPES), rng.random() < 0.5) for i in range(rng.choice((1, 2, 2, 3)))}
    state = {f"w{i}": (rng.choice(SHAPES), rng.random() < 0.6) for i in range(rng.choice((0, 1, 1, 2)))}
    for name, (shape, leaf) in {**arguments, **state}.items():
        w.names[name] = Name(shape, leaf)
    w.leaves = [n for n, (_, leaf) in {**arguments, **state}.items() if leaf]
    for _ in range(rng.randrange(3, 10)):
        rng.choice(_STATEMENTS)(w)
    values = [n for n in w.names if n.startswith("v")]
    results = rng.sample(values, min(len(values), 3)) or [next(iter(arguments))]
    w.add(f"return {', '.join(f'{r} * 1.0' if rng.random() < 0.6 else r for r in results)},")
    names = ", ".join(("m", *arguments, *state))
    return Function("\n".join((f"def function({names}):", *w.lines, "")), arguments, state)
