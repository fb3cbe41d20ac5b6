"""Declarations of optimiser steps."""

from __future__ import annotations

from typing import Any

from meta.ir.type import TensorType, TupleType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import optimizer
from meta.schema._dsl import Schema


def _declare(schema: Schema, states: tuple[str, ...], doc: str) -> None:
    """Declare a step that updates x and `states` in place and returns them. Its other arguments are the gradient,
    numbers or 0-d tensors, and flags."""
    updated = ("x", *states)

    @declare(
        schema.name, schema=schema, doc=doc, pattern="elemwise", amp="never", amp_args=("dx",),
        inplace=dict(enumerate(updated)), outputs=updated,
    )  # fmt: skip
    def infer(*args: object) -> TupleType:
        arguments: dict[str, Any] = dict(zip(schema.names, args, strict=True))
        x, dx, *arrays = (arguments.pop(name) for name in ("x", "dx", *states))
        state_types = dict(zip(states, arrays, strict=True))
        rules.require_float("x", x)
        rules.require_same_dtype(x=x, dx=dx)
        rules.require_same_shape(x=x, dx=dx, **state_types)
        for name, state in state_types.items():
            rules.require_float(name, state)
        scalars = [t for t in arguments.values() if isinstance(t, TensorType)]
        for number in arguments.values():
            if isinstance(number, int):
                rules.require_held(number, x.dtype)
        for t in scalars:
            rules.require(t.ndim == 0, f"a number has shape {rules.show(t.shape)}", "a number or a 0-d tensor")
        rules.same_device(x, dx, *arrays, *scalars)
        return TupleType((x, *arrays))

    del infer


_declare(
    optimizer.sgd,
    ("v",),
    """A step of gradient descent with momentum, in place: v <- momentum * v + dx + weight_decay * x, then
    x <- x - learning_rate * v. Returns x and v. (I. Sutskever et al., 2013, with the learning rate
    outside of the velocity, so that a change of it takes effect at once.)""",
)

_declare(
    optimizer.adam,
    ("m", "v"),
    """A step of Adam (D. Kingma and J. Ba, 2015), or with `decoupled` of AdamW (I. Loshchilov and F. Hutter, 2019),
    in place: m <- beta1 * m + (1 - beta1) * dx, v <- beta2 * v + (1 - beta2) * dx**2,
    x <- x - learning_rate * (m / (1 - beta1**step)) / (sqrt(v / (1 - beta2**step)) + eps). Returns x, m and v.

    With 0-d tensors as betas, 1 - beta**step is computed in float64 for each element; an optimizer computes it once and
    passes learning_rate * sqrt(1 - beta2**step) / (1 - beta1**step), eps * sqrt(1 - beta2**step) and no step.""",
)

_declare(
    optimizer.amsgrad,
    ("m", "v", "v_max"),
    """A step of Adam that divides by the largest v so far (S. Reddi et al., 2018), in place: m and v as in `adam`,
    v_max <- maximum(v_max, v), and v_max in place of v in the new x. Returns x, m, v and v_max.""",
)

_declare(
    optimizer.adagrad,
    ("total",),
    """A step of Adagrad (J. Duchi et al., 2011), in place: total <- total + g**2 with g = dx + weight_decay * x,
    then x <- x - learning_rate * g / (sqrt(total) + eps). Returns x and total.""",
)

_declare(
    optimizer.rmsprop,
    ("v", "velocity"),
    """A step of RMSprop (T. Tieleman and G. Hinton, 2012), in place: v <- alpha * v + (1 - alpha) * g**2 with
    g = dx + weight_decay * x, velocity <- momentum * velocity + g / (sqrt(v) + eps), x <- x - learning_rate * velocity.
    Returns x, v and velocity.""",
)

_declare(
    optimizer.rmsprop_centered,
    ("v", "velocity", "m"),
    """A step of RMSprop by the variance of the gradient (A. Graves, 2013), in place: as `rmsprop`, with
    m <- alpha * m + (1 - alpha) * g and v - m**2 in place of v in the new velocity. Returns x, v, velocity and m.""",
)
