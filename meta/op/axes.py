"""Arithmetic of axes that declarations share with computes and passes."""

from __future__ import annotations

from meta.op import rules


def class_axis(ndim: int) -> int:
    """The axis of classes among the predictions."""
    return 0 if ndim == 1 else 1


def swapped(axis1: int, axis2: int, ndim: int) -> tuple[int, ...]:
    """The order of axes after two of them changed places."""
    a, b = rules.axis_index(axis1, ndim), rules.axis_index(axis2, ndim)
    return tuple(b if i == a else a if i == b else i for i in range(ndim))


def moved(source: tuple[int, ...], destination: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """The order of axes after `source` moved to `destination`."""
    rules.require(
        len(source) == len(destination),
        f"source {source} and destination {destination}",
        "as many of one as of the other",
    )
    for axes in (source, destination):
        rules.axis_indices(axes, ndim)  # distinct, and in range
    source_of = {rules.axis_index(d, ndim): rules.axis_index(s, ndim) for s, d in zip(source, destination, strict=True)}
    rest = iter(i for i in range(ndim) if i not in source_of.values())
    return tuple(source_of[i] if i in source_of else next(rest) for i in range(ndim))
