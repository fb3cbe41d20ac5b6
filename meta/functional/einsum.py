"""Sums of products written in Einstein's notation, as transpositions, matrix products and sums."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.dim import Dim, product, same_dim
from meta.errors import ArgumentError
from meta.functional._axes import main_diagonal
from meta.tree import is_sequence

__all__ = ["einsum"]

_EQUATION = re.compile(r"(?P<inputs>[A-Za-z.,]*)(->(?P<output>[A-Za-z.]*))?")
_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")

Labels = tuple[str, ...]


def einsum(equation: str, *operands: T) -> T:
    """The sum of products that an equation such as "bij,bjk->bik" describes, as numpy.einsum does.

    Each operand has a term of one letter an axis; letters that the result (after "->") lacks are summed over. "..."
    is for further axes, which broadcast. Without "->" the result has the letters that occur once, in alphabetical
    order, after those axes. Operands are contracted two at a time, as matrix products, in the order of least work (from
    left to right where sizes are symbolic). They may also be one list. Raises ArgumentError for an equation that does
    not fit the operands."""
    if len(operands) == 1 and is_sequence(operands[0]):
        operands = tuple(operands[0])
    if not isinstance(equation, str):
        found = next((each for each in operands if isinstance(each, str)), "ij,jk->ik")
        remedy = f'write meta.einsum("{found}", {", ".join(f"x{i}" for i in range(1, found.count(",") + 2))})'
        raise ArgumentError("einsum", f"the equation is of class {type(equation).__name__}", "a str first", remedy)
    inputs, output = _parsed(equation, [x.ndim for x in operands])
    terms = [_diagonal(x, labels) for x, labels in zip(operands, inputs, strict=True)]
    terms = _squeezed(equation, terms)
    for i, j in _path(terms, output):
        left, right = terms[i], terms[j]
        terms = [term for n, term in enumerate(terms) if n not in (i, j)]
        needed_labels = {*output, *(label for _, labels in terms for label in labels)}
        terms.append(_contracted(*left, *right, needed_labels))
    x, labels = _summed(*terms[0], set(output))
    absent = [label for label in output if label not in labels]  # all of size 1
    x = meta.reshape(x, (*x.shape, *(1 for _ in absent))) if absent else x
    return _ordered(x, (*labels, *absent), output)


def _path(terms: Sequence[tuple[Any, Labels]], output: Labels) -> Sequence[tuple[int, int]]:
    """The positions of the two operands of each contraction; its result becomes the last operand."""
    if len(terms) <= 2:
        return ((0, 1),) * (len(terms) - 1)
    sizes = {label: size for x, labels in terms for label, size in zip(labels, x.shape, strict=True)}
    if all(isinstance(size, int) for size in sizes.values()):
        return _least_work(tuple(labels for _, labels in terms), output, tuple(sizes.items()))
    return [(0, 1), *((len(terms) - n, 0) for n in range(2, len(terms)))]


@lru_cache(maxsize=1024)
def _least_work(
    inputs: tuple[Labels, ...], output: Labels, sizes: tuple[tuple[str, int], ...]
) -> tuple[tuple[int, int], ...]:
    # Not loaded before it is needed: one or two operands leave no choice.
    from opt_einsum.paths import auto  # pyright: ignore[reportMissingTypeStubs]

    first = list(range(len(inputs)))  # the first operand in each term
    path: list[tuple[int, int]] = []
    for pair in auto(list(map(frozenset, inputs)), frozenset(output), dict(sizes)):
        i, j = sorted(pair, key=first.__getitem__)  # in the order of the equation, which leaves least to transpose
        path.append((i, j))
        first = [n for k, n in enumerate(first) if k not in pair] + [first[i]]
    return tuple(path)


def _refuse(equation: str, wrong: str, allowed: str) -> ArgumentError:
    return ArgumentError("einsum", f"{equation!r}: {wrong}", allowed, 'write it like "ij,jk->ik"')


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of the operands and of the result, with digits for the axes of "..."."""
    match = _EQUATION.fullmatch(equation.replace(" ", ""))
    if match is None:
        raise _refuse(equation, "does not parse", "terms of letters and '...', joined by ',' and '->'")
    texts = match["inputs"].split(",")
    if len(texts) != len(ranks):
        raise _refuse(equation, f"{len(texts)} terms for {len(ranks)} operands", "a term an operand")
    for text in (*texts, match["output"] or ""):
        if _TERM.fullmatch(text) is None:
            raise _refuse(equation, f"the term {text!r}", "letters, with '...' at most once")
    extra = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True)]
    for text, rank, rest in zip(texts, ranks, extra, strict=True):
        if rest < 0 or (rest > 0 and "..." not in text):
            raise _refuse(equation, f"the term {text!r} for an operand of rank {rank}", "a letter an axis")
    inputs = [_labels(text, rest) for text, rest in zip(texts, extra, strict=True)]
    most = max((rest for text, rest in zip(texts, extra, strict=True) if "..." in text), default=0)
    if match["output"] is not None:
        output = _labels(match["output"], most)
    else:
        letters = "".join(texts).replace(".", "")
        output = (*_labels("...", most), *sorted(c for c in set(letters) if letters.count(c) == 1))
    input_labels = {label for labels in inputs for label in labels}
    for label in output:
        if label not in input_labels or output.count(label) > 1:
            raise _refuse(equation, f"the result has {label!r}", "labels of the operands, each once")
    return inputs, output


def _labels(text: str, rest: int) -> Labels:
    """One label an axis; the axes of "..." are counted from the right, where they align."""
    before, dots, after = text.partition("...")
    return (*before, *(str(n) for n in range(rest if dots else 0, 0, -1)), *after)


def _diagonal(x: Tensor, labels: Labels) -> tuple[Any, Labels]:
    """An operand without repeated labels: the elements whose positions along such axes agree."""
    for label in labels:
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            n = x.shape[first]
            if not same_dim(n, x.shape[second]):
                raise _refuse(
                    "".join(labels), f"axes {first} and {second} have sizes {n} and {x.shape[second]}", "equal"
                )
            x = main_diagonal(meta.moveaxis(x, (first, second), (-2, -1)))
            labels = (*(c for n, c in enumerate(labels) if n not in (first, second)), label)
    return x, labels


def _squeezed(equation: str, terms: list[tuple[Any, Labels]]) -> list[tuple[Any, Labels]]:
    """The operands without the axes of size 1 that others have at full size."""
    sizes: dict[str, Dim] = {}
    for x, labels in terms:
        for label, size in zip(labels, x.shape, strict=True):
            full = sizes.setdefault(label, size)
            if full == 1:
                sizes[label] = size
            elif size != 1 and not same_dim(full, size):
                raise _refuse(equation, f"{label!r} has sizes {full} and {size}", "one size a label, or 1")
    out: list[tuple[Any, Labels]] = []
    for x, labels in terms:
        gone = [n for n, label in enumerate(labels) if x.shape[n] == 1 and sizes[label] != 1]
        remaining = tuple(label for n, label in enumerate(labels) if n not in gone)
        out.append((meta.squeeze(x, gone) if gone else x, remaining))
    return out


def _summed(x: Tensor, labels: Labels, needed_labels: Iterable[str]) -> tuple[Any, Labels]:
    gone = tuple(n for n, label in enumerate(labels) if label not in needed_labels)
    return (meta.sum(x, gone), tuple(label for label in labels if label in needed_labels)) if gone else (x, labels)


def _ordered(x: T, labels: Labels, order: Labels) -> T:
    return x if labels == order else meta.transpose(x, tuple(map(labels.index, order)))


def _contracted(x: Tensor, left: Labels, y: Tensor, right: Labels, needed_labels: set[str]) -> tuple[Any, Labels]:
    """The product of two operands, summed over the labels that nothing needs any more."""
    x, left = _summed(x, left, needed_labels | set(right))
    y, right = _summed(y, right, needed_labels | set(left))
    shared = tuple(label for label in left if label in right and label in needed_labels)
    inner = tuple(label for label in left if label in right and label not in needed_labels)
    rows = tuple(label for label in left if label not in right)
    columns = tuple(label for label in right if label not in left)
    x, y = _ordered(x, left, shared + rows + inner), _ordered(y, right, shared + inner + columns)
    batch, lead = x.shape[: len(shared)], len(shared)
    row_shape = x.shape[lead : lead + len(rows)]
    last = y.shape[lead + len(inner) :]
    if not inner:
        spread = meta.reshape(x, (*batch, *row_shape, *(1 for _ in columns))) if columns else x
        across = meta.reshape(y, (*batch, *(1 for _ in rows), *last)) if rows else y
        return spread * across, shared + rows + columns
    depth = product(x.shape[lead + len(rows) :])
    outer = (product(batch),) if shared else ()
    a = meta.reshape(x, (*outer, product(row_shape), depth))
    b = meta.reshape(y, (*outer, depth, product(last)))
    return meta.reshape(meta.matmul(a, b), (*batch, *row_shape, *last)), shared + rows + columns
