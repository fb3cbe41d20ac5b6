"""The statements of the fuzzer of programs that train: gradients, optimizers and training steps."""

from __future__ import annotations

import re
from typing import Final

from scripts.program_statements import predicate
from scripts.program_text import Bound, Writer, names_in

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
    "(meta.cond((x * p1).sum() > 0.25, lambda: x @ p0, lambda: meta.tanh(x @ p0)) * p1).mean()",
    "(meta.scan(lambda c, _: (meta.tanh(c @ p0 + p1), ()), x, length=3)[0] * x).mean()",
)
"""Losses of a training step, which read the parameters p0 and p1."""


def forward(w: Writer) -> None:
    """A loss that a later statement differentiates, and a value that its gradient needs."""
    matrix, h, loss = (w.rows, w.columns), w.name("h"), w.name("l")
    x, other = w.expression(matrix, 1), w.expression(matrix, 1)
    body = w.rng.choice((
        f"meta.tanh({x} @ p0 + p1)", f"meta.layer_norm({x} @ p0, p1, eps=0.01)", f"meta.softmax({x} @ p0 * p1)",
        f"meta.cond({predicate(w)}, lambda: meta.tanh({x} @ p0 * p1), lambda: {x} @ p0 * 0.5 + p1)",
        f"meta.scan(lambda c, _: (meta.tanh(c @ p0 + p1), ()), {x}, length=2)[0]",
        f"meta.tanh(meta.tanh({x} @ p0) @ p0 + p1)",
    ))  # fmt: skip
    w.locked[loss] = w.roots_of(body + other) | {"p0", "p1"}
    constants = sorted(_earlier(w, body + other))
    for name in constants:
        body, other = (re.sub(rf"\b{name}\b", f"d{name}", text) for text in (body, other))
    lines = (*(f"d{name} = {name}.detach()" for name in constants), "with meta.enable_grad():", f"    {h} = {body}",
             f"    {loss} = ({h} * {other}).mean()")  # fmt: skip
    w.add(*lines, binds=(Bound(h, matrix, w.dtype), Bound(loss, (), w.dtype)))


def _earlier(w: Writer, text: str) -> set[str]:
    """Names of values of other graphs, which a loss reads as constants."""
    return {name for name in names_in(text) if name[0] in ("hlt" if w.attached else "hltgrvi")}


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
    optimizer, x = _optimizer(w), w.expression((w.rows, w.columns), 1)
    for name in _earlier(w, x):
        x = re.sub(rf"\b{name}\b", f"{name}.detach()", x)
    w.setup.append((model, (f"def {model}(x):", f"    return {w.rng.choice(_MODELS)}")))
    w.setup.append((step, (f"{step} = meta.optim.TrainStep({', '.join(filter(None, (model, optimizer, options)))})",)))
    w.add("with meta.enable_grad():", f"    {loss} = {step}({x})",
          binds=(Bound(loss, (), w.dtype),))  # fmt: skip
    w.overwritten("p0")
    w.overwritten("p1")
