"""The statements of the fuzzer of programs: updates, operators of several results, branches and loops."""

from __future__ import annotations

from scripts.program_text import Bound, Shape, Writer, names_in, shape_text

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


def kept(w: Writer) -> None:
    """A value of an array that is overwritten before the value is read again, at the end of the function."""
    name = w.target((w.columns, w.columns), "wwx")
    if name is None:
        return
    v, square = w.name("v"), (w.columns, w.columns)
    text = w.rng.choice(("meta.tanh({})", "({} * 2.0)", "meta.cumsum({}, axis=0)", "meta.sigmoid({} * {other})"))
    text = text.format(name, other=w.leaf(square))
    w.add(f"{v} = {text}", binds=(Bound(v, square, w.dtype),))
    w.late.append(v)
    if w.rng.random() < 0.8:
        w.add(f"{name} {w.rng.choice(('+=', '*='))} {w.rng.choice(('0.5', w.expression(square, 1)))}")
        w.overwritten(name)
    for _ in range(w.rng.randrange(3)):
        let(w)


def read_late(w: Writer) -> None:
    """A product of the values that were kept."""
    names = [name for name in w.late if name in w.known] + [w.leaf((w.columns, w.columns))]
    v = w.name("v")
    w.add(f"{v} = ({' @ '.join(names)} * 0.1)", binds=(Bound(v, (w.columns, w.columns), w.dtype),))


# --- operators of several results ------------------------------------------------------------------------------------


def optimizer_step(w: Writer) -> None:
    """An update operator on state, values and values made in the call; it writes its operands in place."""
    operator, slots = w.rng.choice((
        ("adam", "ma"), ("adam", "ma"), ("amsgrad", "maa"), ("sgd", "m"), ("rmsprop", "am"),
        ("rmsprop_centered", "amz"), ("adagrad", "a"),
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
        "adam": "None, 0.1, 0.9, 0.99, 0.01, 0.0", "amsgrad": "None, 0.1, 0.9, 0.99, 0.01, 0.0",
        "sgd": "0.1, 0.9, 0.01", "rmsprop": "0.1, 0.9, 0.1, 0.0, 0.9",
        "rmsprop_centered": "0.1, 0.9, 0.5, 0.0, 0.9", "adagrad": "0.1, 0.01",
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
    operands = ", ".join((w.expression(matrix, 1), mean, variance, scale, bias))
    binds = [Bound(r, s, w.dtype) for r, s in zip(results, shapes, strict=True)]
    w.add(f"{', '.join(results)} = meta.batch_norm_train({operands}, 0.3, 0.01)", binds=binds)
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

    def bound(*shapes: Shape) -> list[Bound]:
        return [Bound(name, shape, w.dtype) for name, shape in zip((a, b, c), shapes, strict=False)]

    choices = [
        (f"{a}, {b} = meta.var_mean({value}, axis=-1, correction=0)", bound(rows, rows)),
        (f"{a}, {b} = meta.topk({value}, {w.columns})[0], {value} * 1.0", bound(matrix, matrix)),
        (f"{a}, {b} = meta.max_with_indices({value}, axis=-1)[0], {value} * 2.0", bound(rows, matrix)),
    ]
    if w.columns % 3 == 0:
        third = (w.rows, w.columns // 3)
        choices.append((f"{a}, {b}, {c} = meta.split({value}, 3, axis=1)", bound(third, third, third)))
        choices.append((f"{a} = meta.concatenate(meta.split({value}, 3, axis=1)[::-1], 1)", bound(matrix)))
    if w.dtype in ("float32", "float64") and w.columns <= 8:
        square = (w.columns, w.columns)
        full = f"{w.expression(square, 1)} + {w.columns} * meta.eye({w.columns}, dtype={w.dtype!r})"
        choices.append((f"{a}, {b} = meta.qr({full})", bound(square, square)))
    line, binds = w.rng.choice(choices)
    w.add(line, binds=binds)


# --- branches and loops ----------------------------------------------------------------------------------------------


def predicate(w: Writer) -> str:
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
    w.add(f"{', '.join(names)} = meta.cond({predicate(w)}, lambda: {first}, lambda: {second})",
          binds=[Bound(n, s, w.dtype) for n, s in zip(names, shapes, strict=True)], roots=shared)  # fmt: skip


def _copied(*branches: str) -> bool:
    return all(b.endswith((".copy()", " * 1.0")) or b.startswith(("(", "meta.")) for b in branches)


def branch_into_state(w: Writer) -> None:
    name = w.target(letters="wwx")
    if name is None:
        return
    shape = w.known[name].shape
    w.add(f"{name}{w.rng.choice(('[...] =', ' +=', ' *='))} meta.cond({predicate(w)}, lambda: {_branch(w, shape)}, "
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
