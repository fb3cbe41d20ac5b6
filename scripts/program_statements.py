"""The statements of the fuzzer of programs: updates, operators of several results, branches, loops, training."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Final

from scripts.program_text import Array, Bound, Program, Shape, Size, Writer, names_in, shape_text

_SIZES: Final = (1, 3, 3, 6, 8, 8, 16, 33, 64)
_DTYPES: Final = ("float64",) * 9 + ("float32",) * 9 + ("float16", "bfloat16")
_OPTIMIZERS: Final = (
    "SGD({}, 0.05)", "SGD({}, 0.05, momentum=0.9)", "SGD({}, 0.05, momentum=0.9, nesterov=True)",
    "SGD({}, 0.05, momentum=0.9, dampening=0.5, weight_decay=0.01)", "Adam({}, 0.01, eps=0.01)",
    "Adam({}, 0.01, eps=0.01, amsgrad=True)", "AdamW({}, 0.01, eps=0.01)", "RMSprop({}, 0.01, eps=0.01)",
    "RMSprop({}, 0.01, eps=0.1, momentum=0.9, centered=True)", "Adagrad({}, 0.05, eps=0.01)", "LAMB({}, 0.01)",
    "LANS({}, 0.01)",
)  # fmt: skip
_MODELS: Final = (
    "(meta.tanh(x @ p0 + p1) ** 2).mean()",
    "(meta.layer_norm(x @ p0, eps=0.01) * p1).mean() + (x @ p0 * p1).mean()",
    "(meta.cond(x.sum() > 0.0, lambda: x @ p0, lambda: meta.tanh(x @ p0)) * p1).mean()",
    "(meta.scan(lambda c, _: (meta.tanh(c @ p0 + p1), ()), x, length=3)[0] * x).mean()",
)
"""Losses of a training step, which read the parameters p0 and p1."""


# --- values ----------------------------------------------------------------------------------------------------------


def let(w: Writer) -> None:
    shape = w.shape()
    text = w.expression(shape, w.rng.choice((1, 2, 2, 3)))
    own = text.startswith(("(", "meta."))
    w.add(f"{(v := w.name('v'))} = {text}", binds=(Bound(v, shape, w.dtype),), roots=() if own else w.roots_of(text),
          writable=own and text.startswith("("))  # fmt: skip


def made(w: Writer) -> None:
    """A value that the program makes, which nothing else reads so far."""
    shape = w.shape()
    w.add(f"{(v := w.name('v'))} = {w.fresh(shape, 1)}", binds=(Bound(v, shape, w.dtype),), writable=True)


def view(w: Writer) -> None:
    shape = w.shape()
    if (name := w.choose(shape)) is not None and shape:
        v = w.name("v")
        w.add(f"{v} = {w.view(shape, name)}", binds=(Bound(v, shape, w.dtype),), roots=w.known[name].roots)


def casts(w: Writer) -> None:
    shape, v = w.shape(), w.name("v")
    low = w.rng.choice(("float32", "float32", "float64", "bfloat16", "float16"))
    w.add(f"{v} = ({w.expression(shape, 1)}).cast({low!r}).cast({w.dtype!r}) * 1.0", binds=(Bound(v, shape, w.dtype),))


def integers(w: Writer) -> None:
    """Positions of sorted arguments, and a count that is state."""
    matrix, v, i = (w.rows, w.columns), w.name("v"), w.name("i")
    name = w.choose(matrix, lambda n, _: n[0] in "xw")
    if name is None:
        return
    w.add(f"{i} = meta.argsort({name}, axis=-1) + c0", f"{v} = ({i}.cast({w.dtype!r}) * 0.125)",
          binds=(Bound(v, matrix, w.dtype),))  # fmt: skip
    w.add("c0 += 1")


# --- writes ----------------------------------------------------------------------------------------------------------


def write(w: Writer, letters: str = "wwx") -> None:
    """An update of state or an argument."""
    name = w.target(letters=letters)
    if name is None:
        return
    shape = w.known[name].shape
    value = w.expression(shape, w.rng.choice((1, 2, 2)))
    step = f"{value} * 0.1"
    lines = [f"{name} += {step}", f"{name} -= {step}", f"{name} *= meta.sigmoid({value})", f"{name} *= 0.75",
             f"{name}[...] = {value}", f"{name}.update({value})", f"{name}[...] = {w.view(shape, value)}"]  # fmt: skip
    if shape:
        lines += [f"{name}[0] = {w.number()}", f"{name}[0] = {w.expression(shape[1:], 1)}"]
    line = w.rng.choice(lines)
    if name in names_in(value) and ".update" in line:
        line = f"{name}.update({value} * 1.0)"
    w.add(line)
    w.overwritten(name)


def write_value(w: Writer) -> None:
    """An update of a value of the function."""
    write(w, "v")


def swap(w: Writer) -> None:
    """Two arrays get the values of each other."""
    first = w.target(letters="wx")
    second = None if first is None else w.target(w.known[first].shape, "wx")
    if first is None or second is None or first == second:
        return
    a, b, shape = w.name("v"), w.name("v"), w.known[first].shape
    w.add(f"{a}, {b} = {first} * 1.0, {w.rng.choice(('{} * 1.0', '{}.copy()')).format(second)}",
          binds=(Bound(a, shape, w.dtype), Bound(b, shape, w.dtype)))  # fmt: skip
    w.add(f"{first}[...] = {b}")
    w.add(f"{second}[...] = {a}")
    w.overwritten(first)
    w.overwritten(second)


# --- operators of several results ------------------------------------------------------------------------------------


def optimizer_step(w: Writer) -> None:
    """An update operator on state, values and values made in the call; it writes its operands in place."""
    operator, slots = w.rng.choice((
        ("adam", "ma"), ("adam", "ma"), ("amsgrad", "maa"), ("sgd", "m"), ("rmsprop", "am"), ("rmsprop_centered", "amz"),
        ("adagrad", "a"),
    ))  # fmt: skip
    shape: Shape = w.rng.choice(((w.columns, w.columns), (w.columns, w.columns), (w.rows, w.columns), (w.columns,)))
    dx, operands, written = w.expression(shape, 1), list[str](), list[str]()
    for slot in "x" + slots:
        name = w.target(shape, "wwxv") if slot in "xm" and w.rng.random() < 0.6 else None
        if slot == "a":
            name = w.choose(shape, lambda n, v: n[0] == "q" and v.writable) if w.rng.random() < 0.5 else None
        if name is not None and name not in written and name not in names_in(dx):
            written.append(name)
            operands.append(name)
        elif slot == "z":
            operands.append(f"meta.zeros({shape_text(shape)}, dtype={w.dtype!r})")
        else:
            operands.append(f"(meta.square({w.expression(shape, 1)}) + 0.25)" if slot == "a" else w.fresh(shape, 1))
    numbers = {
        "adam": "None, 0.1, 0.9, 0.99, 0.01, 0.0", "amsgrad": "None, 0.1, 0.9, 0.99, 0.01, 0.0", "sgd": "0.1, 0.9, 0.01",
        "rmsprop": "0.1, 0.9, 0.1, 0.0, 0.9", "rmsprop_centered": "0.1, 0.9, 0.5, 0.0, 0.9", "adagrad": "0.1, 0.01",
    }[operator]  # fmt: skip
    results = [w.name("r") for _ in operands]
    w.add(f"{', '.join(results)} = meta.{operator}({operands[0]}, {dx}, {', '.join(operands[1:])}, {numbers})",
          binds=[Bound(r, shape, w.dtype) for r in results])  # fmt: skip
    for result, operand in zip(results, operands, strict=True):
        if operand in written:
            w.overwritten(operand)
            w.known[result].roots = w.known[operand].roots
    if w.rng.random() < 0.6:  # each result is read late
        v = w.name("v")
        product = " + ".join(f"({r} @ {r}.T).mean() * {r}" if len(shape) == 2 else f"{r} * {r}" for r in results)
        w.add(f"{v} = ({product})", binds=(Bound(v, shape, w.dtype),), writable=True)


def batch_norm(w: Writer) -> None:
    """Batch norm with running statistics that are state, values, or made in the call."""
    matrix, channels = (w.rows, w.columns), (w.columns,)
    wide = w.dtype if w.dtype in ("float32", "float64") else None
    if wide is None or w.columns == 1 or w.rows == 1:
        return
    mean = w.target(channels, "wwr")
    variance = w.choose(channels, lambda n, v: n[0] == "q" and v.writable)
    kinds = w.rng.random()
    if mean is None or kinds < 0.4:
        mean = w.fresh(channels, 1)
    if variance is None or w.rng.random() < 0.4:
        variance = w.rng.choice((f"meta.ones(({w.columns},), dtype={w.dtype!r})",
                                 f"(meta.square({w.expression(channels, 1)}) + 0.5)"))  # fmt: skip
    scale, bias = (w.rng.choice(("None", w.expression(channels, 1), w.fresh(channels, 1))) for _ in "wb")
    results = [w.name("r") for _ in range(5)]
    shapes = (matrix, *(channels,) * 4)
    w.add(f"{', '.join(results)} = meta.batch_norm_train({w.expression(matrix, 1)}, {mean}, {variance}, {scale}, {bias}, "
          "0.3, 0.01)", binds=[Bound(r, s, w.dtype) for r, s in zip(results, shapes, strict=True)])  # fmt: skip
    for result, operand in zip(results[1:3], (mean, variance), strict=True):
        if operand in w.known:
            w.overwritten(operand)
            w.known[result].roots = w.known[operand].roots
        elif result == results[1]:
            w.known[result].writable = True


def several(w: Writer) -> None:
    """Other operators of several results."""
    matrix, rows = (w.rows, w.columns), (w.rows,)
    value = w.expression(matrix, 1)
    a, b, c = w.name("r"), w.name("r"), w.name("r")
    choices: list[tuple[str, list[Bound]]] = [
        (f"{a}, {b} = meta.var_mean({value}, axis=-1, correction=0)", [Bound(a, rows, w.dtype), Bound(b, rows, w.dtype)]),
        (f"{a}, {b} = meta.topk({value}, {w.columns})[0], {value} * 1.0", [Bound(a, matrix, w.dtype), Bound(b, matrix, w.dtype)]),
        (f"{a}, {b} = meta.max_with_indices({value}, axis=-1)[0], {value} * 2.0", [Bound(a, rows, w.dtype), Bound(b, matrix, w.dtype)]),
    ]  # fmt: skip
    if w.columns % 3 == 0:
        third = (w.rows, w.columns // 3)
        choices.append((f"{a}, {b}, {c} = meta.split({value}, 3, axis=1)", [Bound(n, third, w.dtype) for n in (a, b, c)]))
        choices.append((f"{a} = meta.concatenate(meta.split({value}, 3, axis=1)[::-1], 1)", [Bound(a, matrix, w.dtype)]))
    if w.dtype in ("float32", "float64") and w.columns <= 8:
        square = (w.columns, w.columns)
        full = f"{w.expression(square, 1)} + {w.columns} * meta.eye({w.columns}, dtype={w.dtype!r})"
        choices.append((f"{a}, {b} = meta.qr({full})", [Bound(a, square, w.dtype), Bound(b, square, w.dtype)]))
    line, binds = w.rng.choice(choices)
    w.add(line, binds=binds)


# --- branches and loops ----------------------------------------------------------------------------------------------


def _predicate(w: Writer) -> str:
    return f"{w.leaf(w.rng.choice((w.shape(), ())))}.sum() > {w.number()}"


def _branch(w: Writer, shape: Shape) -> str:
    name = w.leaf(shape)
    share = w.rng.random()
    if share < 0.5:
        return w.rng.choice(("{}", "{}.copy()", "{} * 1.0")).format(name)
    return w.expression(shape, 2)


def branches(w: Writer) -> None:
    """A cond whose branches return names around it, copies of them, and computed values."""
    shapes = [w.shape() for _ in range(w.rng.choice((1, 1, 2, 3)))]
    then, otherwise = ([_branch(w, s) for s in shapes] for _ in range(2))
    names = [w.name("v") for _ in shapes]
    if len(names) > 1 and w.rng.random() < 0.3 and shapes[0] == shapes[1]:
        then[1] = then[0]
    first, second = (", ".join(b) if len(b) == 1 else f"({', '.join(b)})" for b in (then, otherwise))
    own = [t.startswith(("(", "meta.")) and o.startswith(("(", "meta.")) for t, o in zip(then, otherwise, strict=True)]
    shared = frozenset[str]().union(*(w.roots_of(t + o) for t, o, o_ in zip(then, otherwise, own, strict=True) if not o_
                                      and not _copied(t, o)))  # fmt: skip
    w.add(f"{', '.join(names)} = meta.cond({_predicate(w)}, lambda: {first}, lambda: {second})",
          binds=[Bound(n, s, w.dtype) for n, s in zip(names, shapes, strict=True)], roots=shared)  # fmt: skip


def _copied(*branches: str) -> bool:
    return all(b.endswith((".copy()", " * 1.0")) or b.startswith(("(", "meta.")) for b in branches)


def branch_into_state(w: Writer) -> None:
    name = w.target(letters="wwx")
    if name is None:
        return
    shape = w.known[name].shape
    w.add(f"{name}{w.rng.choice(('[...] =', ' +=', ' *='))} meta.cond({_predicate(w)}, lambda: {_branch(w, shape)}, "
          f"lambda: {_branch(w, shape)})")  # fmt: skip
    w.overwritten(name)


def loop(w: Writer) -> None:
    """A scan or a while_loop; its body reads names around it."""
    shape, v, r = w.shape(), w.name("v"), w.name("r")
    inner = w.expression(shape, 2)
    start = w.expression(shape, 1)
    kind = w.rng.randrange(3)
    if kind == 0:
        w.add(f"{v}, {r} = meta.scan(lambda c, _: (meta.tanh(c + {inner}), c.sum()), {start}, length=3)",
              binds=(Bound(v, shape, w.dtype), Bound(r, (3,), w.dtype)))  # fmt: skip
    elif kind == 1:
        carry = w.name("v")
        w.add(f"{v}, {carry}, _ = meta.while_loop(lambda s: s[2] < 3, lambda s: (s[1] * 0.5, meta.sin(s[0] + {inner}), "
              f"s[2] + 1), ({start} * 1.0, {inner} * 1.0, 0){w.rng.choice(('', ', max_steps=4'))})",
              binds=(Bound(v, shape, w.dtype), Bound(carry, shape, w.dtype)))  # fmt: skip
    else:
        matrix = (w.columns, w.columns)
        w.add(f"{v}, {r} = meta.scan(lambda c, x: (c * 0.5 + x, c), {w.expression((w.columns,), 1)}, "
              f"{w.expression(matrix, 1)})",
              binds=(Bound(v, (w.columns,), w.dtype), Bound(r, matrix, w.dtype)))  # fmt: skip


# --- training --------------------------------------------------------------------------------------------------------


def forward(w: Writer) -> None:
    """A loss that a later statement differentiates, and a value that its gradient needs."""
    matrix, h, loss = (w.rows, w.columns), w.name("h"), w.name("l")
    x, other = w.expression(matrix, 1), w.expression(matrix, 1)
    body = w.rng.choice((
        f"meta.tanh({x} @ p0 + p1)", f"meta.layer_norm({x} @ p0, p1, eps=0.01)", f"meta.softmax({x} @ p0 * p1)",
        f"meta.cond({_predicate(w)}, lambda: meta.tanh({x} @ p0 * p1), lambda: {x} @ p0 * 0.5 + p1)",
        f"meta.scan(lambda c, _: (meta.tanh(c @ p0 + p1), ()), {x}, length=2)[0]",
        f"meta.tanh(meta.tanh({x} @ p0) @ p0 + p1)",
    ))  # fmt: skip
    lines = ("with meta.enable_grad():", f"    {h} = {_constant(body)}", f"    {loss} = ({h} * {_constant(other)}).mean()")
    w.locked[loss] = w.roots_of("\n".join(lines)) | {"p0", "p1"}
    w.add(*lines, binds=(Bound(h, matrix, w.dtype), Bound(loss, (), w.dtype)))


def _constant(text: str) -> str:
    """The text with values of other graphs detached."""
    return re.sub(r"\b([hlt]\d+)\b", r"\1.detach()", text)


def backward(w: Writer) -> None:
    if not w.locked:
        forward(w)
    loss = w.rng.choice(list(w.locked))
    del w.locked[loss]
    first, second = w.name("g"), w.name("g")
    square, channels = (w.columns, w.columns), (w.columns,)
    w.add(f"{first}, {second} = meta.autograd.grad([{loss}], [p0, p1])",
          binds=(Bound(first, square, w.dtype), Bound(second, channels, w.dtype)))  # fmt: skip
    if "p0" in frozenset[str]().union(*w.locked.values()):
        return
    share = w.rng.random()
    if share < 0.4:
        w.add(f"p0 -= {first} * 0.5")
        w.add(f"p1 -= {second} * 0.5")
    elif share < 0.8:
        w.add(f"p0.grad, p1.grad = {first}, {second}", f"{_optimizer(w)}.step()", "p0.grad = p1.grad = None")
    else:
        return
    w.overwritten("p0")
    w.overwritten("p1")


def _optimizer(w: Writer) -> str:
    name = w.name("opt")
    text = w.rng.choice(_OPTIMIZERS).format('[("p0", p0), ("p1", p1)]')
    w.setup.append((name, (f"{name} = meta.optim.{text}",)))
    return name


def train_step(w: Writer) -> None:
    """A TrainStep of meta.optim inside of the function."""
    if w.locked or w.dtype not in ("float32", "float64"):
        return
    model, step, loss = w.name("model"), w.name("step"), w.name("t")
    options = w.rng.choice(("", "accumulate=2", "accumulate=2", "accumulate=3", "scaler=meta.amp.GradScaler(8.0)",
                            "clip_norm=0.1", "accumulate=2, clip_value=0.01"))  # fmt: skip
    optimizer = _optimizer(w)
    w.setup.append((model, (f"def {model}(x):", f"    return {w.rng.choice(_MODELS)}")))
    w.setup.append((step, (f"{step} = meta.optim.TrainStep({', '.join(filter(None, (model, optimizer, options)))})",)))
    w.add("with meta.enable_grad():", f"    {loss} = {step}({_constant(w.expression((w.rows, w.columns), 1))})",
          binds=(Bound(loss, (), w.dtype),))  # fmt: skip
    w.overwritten("p0")
    w.overwritten("p1")


# --- programs --------------------------------------------------------------------------------------------------------

_THEMES: Final[dict[str, tuple[Callable[[Writer], None], ...]]] = {
    "optimizers": (optimizer_step,), "batch norm": (batch_norm, batch_norm, write), "writes": (write, write_value, swap),
    "several": (several, optimizer_step), "branches": (branches, branches, branch_into_state, write), "loops": (loop,),
    "gradients": (forward, backward, backward), "steps": (train_step,), "views": (view, write), "made": (made, write_value),
    "casts": (casts, integers),
}  # fmt: skip
_ANYTHING: Final = (let, let, let, let, made, write, view)


def random_program(seed: int, index: int) -> Program:
    """Program number `index` of a seed."""
    rng = random.Random(f"{seed}/{index}")
    columns, dynamic = rng.choice(_SIZES), rng.random() < 0.08
    size: int = columns if rng.random() < 0.5 else rng.choice(_SIZES)
    rows: Size = "n0" if dynamic else size
    w = Writer(rng, rows, columns, rng.choice(_DTYPES))
    matrix, square, channels = (rows, columns), (columns, columns), (columns,)
    for i in range(rng.choice((1, 2, 2, 3))):
        w.add_array(Array(w.name("x"), matrix if i == 0 else rng.choice((matrix, square)), w.dtype), w.arguments)
    for shape in [square, rng.choice((square, channels)), rng.choice((square, channels)), channels][: rng.choice((2, 3, 4))]:
        w.add_array(Array(w.name("w"), shape, w.dtype), w.state)
    for shape in (square, channels):
        w.add_array(Array(w.name("q"), shape, w.dtype, "positive"), w.state)
        w.add_array(Array(w.name("p"), shape, w.dtype, "parameter"), w.state)
    w.add_array(Array("c0", (), "int64", "count"), w.state)
    if not dynamic and rng.random() < 0.4:
        w.state.append(Array(w.name("w"), matrix, w.dtype))
        w.known[w.state[-1].name] = w.known["x0"].__class__(matrix, w.dtype, frozenset((w.state[-1].name,)), True)
    straight = rng.random() < 0.45
    themes = rng.sample(sorted(_THEMES), rng.choice((1, 2, 2, 3)))
    kinds = [kind for theme in themes for kind in _THEMES[theme] if not (straight and theme in ("branches", "loops"))]
    for _ in range(rng.randrange(4, 14)):
        (rng.choice(kinds) if kinds and rng.random() < 0.5 else rng.choice(_ANYTHING))(w)
    for _ in [*w.locked] if rng.random() < 0.7 else ():
        backward(w)
    return _finished(w, rng, size, dynamic)


def _finished(w: Writer, rng: random.Random, size: int, dynamic: bool) -> Program:
    names = [n for n in w.known if n[0] != "c"]
    unread = [n for n in names if sum(n in s.names() for s in w.body) == 1 and n[0] not in "wxpq"]
    results = rng.sample(unread, min(len(unread), 3)) + rng.sample(names, min(len(names), rng.choice((1, 2))))
    results += results[:1] if rng.random() < 0.2 else []
    text = "\n".join(line for s in w.body for line in s.lines) + "".join(x for _, part in w.setup for x in part)
    plain = not dynamic and not any(word in text for word in ("cond(", "loop(", "scan("))
    budgets = tuple(sorted({0.0, *(rng.choice((0.1, 0.25, 0.5, 0.75, 0.9, 0.99)) for _ in range(2))}))
    sizes = (size, size, rng.choice(_SIZES)) if dynamic else (size,) * 3
    options = (("fuse", False),) if rng.random() < 0.25 else ()
    program = Program(tuple(w.state), tuple(w.arguments), tuple(w.setup), tuple(w.body), tuple(results or ["x0"]), sizes,
                      dynamic, options, budgets if plain and rng.random() < 0.5 else ())  # fmt: skip
    return program.used()
