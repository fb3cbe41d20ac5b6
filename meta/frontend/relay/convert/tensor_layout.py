"""Layouts of tensors: `NCHW`, `HWIO`, and those with blocks such as `NCHW4c`."""

from __future__ import annotations

import re
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.relay.convert.call import OpCall

SPATIAL_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
"""The default layout by the number of spatial axes."""

_PART = re.compile(r"(\d*)([A-Za-z])")


def spatial_rank(call: OpCall) -> int:
    """The number of spatial axes, which is in the operator's name: 2 in "nn.conv2d"."""
    return int(next(c for c in call.name if c in "123"))


def permuted(x: Tensor, source: str, target: str) -> Any:
    """x with its axes, named by `source`, in the order of `target`."""
    return x if source == target else meta.transpose(x, tuple(source.index(letter) for letter in target))


def is_permutation(source: str, target: str) -> bool:
    return sorted(source) == sorted(target) and len(set(source)) == len(source)


def convert_layout(call: OpCall, x: Tensor, source: str, target: str) -> Any:
    """x from one layout into another. Raises NotSupportedError where elements would have to be padded."""
    if is_permutation(source, target) and len(source) == x.ndim:
        return permuted(x, source, target)
    source_parts, target_parts = _parts(call, source), _parts(call, target)
    plain = "".join(letter for letter, factor in source_parts if not factor)
    if len(source_parts) != x.ndim or sorted(plain) != sorted(letter for letter, factor in target_parts if not factor):
        call.refuse(f"layouts {source!r} and {target!r} for rank {x.ndim}", "two layouts of the same axes")
    return _split(call, _merged(x, source_parts, plain), plain, target_parts)


def _parts(call: OpCall, layout: str) -> list[tuple[str, int]]:
    """(letter, 0) for an axis, (LETTER, factor) for a block of it: `NCHW4c` has ("C", 4) last."""
    parts = _PART.findall(layout)
    if "".join(n + c for n, c in parts) != layout or any(bool(n) != c.islower() for n, c in parts):
        call.refuse(f"the layout {layout!r}", "capitals for axes, a number and a small letter for blocks")
    return [(c.upper(), int(n) if n else 0) for n, c in parts]


def _merged(x: Tensor, parts: list[tuple[str, int]], plain: str) -> Any:
    """x with blocks merged into their axes, in the order of `plain`."""
    order: list[int] = []
    shape: list[Any] = []
    for letter in plain:
        places = [i for i, (c, factor) in enumerate(parts) if c == letter and not factor]
        places += [i for i, (c, factor) in enumerate(parts) if c == letter and factor]
        size: Any = 1
        for i in places:
            size = size * x.shape[i]
        order += places
        shape.append(size)
    moved = x if order == list(range(x.ndim)) else meta.transpose(x, tuple(order))
    return moved if tuple(shape) == moved.shape else meta.reshape(moved, tuple(shape))


def _split(call: OpCall, x: Tensor, plain: str, parts: list[tuple[str, int]]) -> Any:
    """x, whose axes `plain` names, in a layout with blocks."""
    shape: list[Any] = []
    places: dict[tuple[str, int], int] = {}
    for letter, size in zip(plain, x.shape, strict=True):
        rest, factors = size, [(i, f) for i, (c, f) in enumerate(parts) if c == letter and f]
        for _, factor in factors:
            if not isinstance(rest, int) or rest % factor:
                call.refuse(f"blocks of {factor} in an axis {letter} of size {size}", "blocks that divide the size")
            rest //= factor
        outer = next(i for i, (c, f) in enumerate(parts) if c == letter and not f)
        places[parts[outer][0], outer] = len(shape)
        shape.append(rest)
        for i, factor in factors:
            places[letter, i] = len(shape)
            shape.append(factor)
    x = x if tuple(shape) == x.shape else meta.reshape(x, tuple(shape))
    order = tuple(places[letter, i] for i, (letter, _) in enumerate(parts))
    return x if order == tuple(range(len(order))) else meta.transpose(x, order)
