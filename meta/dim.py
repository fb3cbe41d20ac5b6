"""Sizes of tensors: integers, and polynomials over named sizes, quotients and minima.

A `Dim` is an `int` or a `SymDim`, a sum of products of atoms. An atom is the name of a size, a `Quotient`, which is a
floor division with a remainder, or a `Least`, the minimum of two sizes. A size computes what an int computes: with
floats and roots numbers for tensors (`SizeNumber`). Arithmetic folds to `int` where it can, and two
sizes that are equal as polynomials are equal to `==`. Symbolic sizes have no order, so `<` raises; ask `same_dim`,
which also knows which sizes a `unify` scope has tied together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, TypeVar

from meta.dim_expressions import IntegerLike, Least, Order, Quotient, SizePair, is_size, real, too_large
from meta.dim_ties import find as find
from meta.dim_ties import found_unequal
from meta.dim_ties import same_dim as same_dim
from meta.dim_ties import unify as unify
from meta.errors import ArgumentError, IRError, SymbolicSizeError
from meta.limits import MAX_FACTORS, MAX_NAME

T = TypeVar("T")

_MAX_BITS = 64
"""Bits of a coefficient: machines count no more elements."""
WHOLE = 2**62
"""A bound past every size."""

NAME = r"[^\W\d][\w.]*"
"""The characters of names of sizes, variables and functions in IR text."""
VALUES: Mapping[str, Any] = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}
"""Words of IR text that are values, so that sizes cannot have them as names."""
_WORDS = frozenset({*VALUES, "const", "device"})


_Atom = str | SizePair
_Monomial = tuple[_Atom, ...]
_Terms = tuple[tuple[_Monomial, int], ...]


class SymDim(IntegerLike):
    """A polynomial with integer coefficients over atoms. `SymDim(name)` is the size called `name`, and arithmetic gives
    the others. terms: each product of atoms with its coefficient, ordered by the text of the atoms.

    Raises ArgumentError for a name that IR text cannot hold, TypeInferenceError for arithmetic whose result has more
    than `limits.MAX_FACTORS` factors."""

    __slots__ = ("_hash", "terms")

    terms: _Terms

    def __init__(self, name: str) -> None:
        if not is_name(name):
            raise ArgumentError(
                "SymDim",
                f"the name of a symbolic size is {repr(name)[:80]}",
                "letters, digits, '_' and '.', a letter or '_' first, and no word of IR text such as True",
                'write sym("n")',
            )
        self._set((((name,), 1),))

    def _set(self, terms: _Terms) -> SymDim:
        self.terms = terms
        self._hash = hash(terms)
        return self

    @property
    def name(self) -> str | None:
        """The name, for a polynomial that is a single named size; None for others."""
        ((monomial, coefficient), *rest) = self.terms
        if rest or coefficient != 1 or len(monomial) != 1:
            return None
        return monomial[0] if isinstance(monomial[0], str) else None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymDim):
            return other.terms == self.terms or found_unequal(self, other)
        return isinstance(other, int) and found_unequal(self, other)

    def __repr__(self) -> str:
        return " + ".join(_term_text(m, c) for m, c in self.terms).replace("+ -", "- ") or "0"

    def __reduce__(self) -> tuple[object, tuple[_Terms]]:
        return _polynomial, (self.terms,)  # hashes of strings differ between processes

    def __add__(self, other: Any) -> Any:
        return _from_terms((*self.terms, *_terms(other))) if is_size(other) else real("add", self, other)

    def __mul__(self, other: Any) -> Any:
        if not is_size(other):
            return real("multiply", self, other)
        if len(self.terms) * len(_terms(other)) > MAX_FACTORS:
            raise too_large(f"a product of {len(self.terms)} and {len(_terms(other))} terms", f"at most {MAX_FACTORS}")
        return _from_terms((tuple(sorted(a + b, key=str)), c * d) for a, c in self.terms for b, d in _terms(other))

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + (-other) if is_size(other) else real("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other if is_size(other) else real("subtract", other, self)

    def __floordiv__(self, other: Any) -> Any:
        if not is_size(other):
            return real("floor_divide", self, other)
        if other == 0:
            raise ZeroDivisionError(f"the size {self} is divided by 0")
        if other == 1:
            return self
        if self == other:
            return 1
        if isinstance(other, int) and other > 1:
            multiple = [(m, c // other) for m, c in self.terms if c % other == 0]
            if multiple:
                return _from_terms(multiple) + _from_terms((m, c) for m, c in self.terms if c % other) // other
        quotient = _exact_quotient(self, other)
        if quotient is not None:
            return quotient
        factor = _common_factor(self, other)
        if factor is not None:  # b * x // (b * y) is x // y
            rest: Any = _exact_quotient(self, factor)
            return rest // _exact_quotient(other, factor)  # type: ignore[arg-type]
        return _atom(Quotient(self, other))

    def __rfloordiv__(self, other: Any) -> Any:
        if not is_size(other):
            return real("floor_divide", other, self)
        return 0 if other == 0 else _atom(Quotient(other, self))

    def __abs__(self) -> Dim:
        return maximum(self, -self)

    __radd__ = __add__
    __rmul__ = __mul__

    def _order(self, distance: Any, mark: str, other: object) -> Any:
        """Whether `distance` is 0 or more: a bool where the terms tell."""
        if not is_size(other):
            return NotImplemented
        low, high = least(distance), least(-distance)
        if low is not None and low >= 0:
            return True
        return False if high is not None and high > 0 else Order(distance, f"{self} {mark} {other}")

    def __lt__(self, other: Any) -> Any:
        return self._order(other - self - 1, "<", other)

    def __le__(self, other: Any) -> Any:
        return self._order(other - self, "<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._order(self - other - 1, ">", other)

    def __ge__(self, other: Any) -> Any:
        return self._order(self - other, ">=", other)

    def __bool__(self) -> bool:
        return True

    def __index__(self) -> int:
        raise size_error("shape", self, "a static size")


def is_name(name: object) -> bool:
    """Whether a symbolic size may be called `name`: IR text writes names without quotes."""
    valid = isinstance(name, str) and len(name) <= MAX_NAME and re.fullmatch(NAME, name) is not None
    return valid and name not in _WORDS


def size_error(subject: str, size: SymDim, expected: str) -> SymbolicSizeError:
    """The error of a symbolic size in a place that needs its value."""
    problem = f"the size {size} is symbolic where a number is needed"
    return SymbolicSizeError(subject, problem, expected, "build or trace with static shapes")


Dim = int | SymDim
Shape = tuple[Dim, ...]


def sym(name: str) -> SymDim:
    """The symbolic size called `name`."""
    return SymDim(name)


def _polynomial(terms: _Terms) -> SymDim:
    return SymDim.__new__(SymDim)._set(terms)


def _atom(atom: _Atom) -> SymDim:
    return _polynomial((((atom,), 1),))


def _terms(value: Dim) -> _Terms:
    if isinstance(value, SymDim):
        return value.terms
    return (((), value),) if value else ()


def _from_terms(terms: Iterable[tuple[_Monomial, int]]) -> Dim:
    total: dict[_Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    nonzero = tuple(sorted(((m, c) for m, c in total.items() if c), key=_order))
    factors = sum(len(monomial) for monomial, _ in nonzero)
    if factors > MAX_FACTORS:
        raise too_large(f"{factors} factors", f"at most {MAX_FACTORS}")
    bits = max((int(coefficient).bit_length() for _, coefficient in nonzero), default=0)
    if bits > _MAX_BITS:
        raise too_large(f"a coefficient of {bits} bits", f"at most {_MAX_BITS}")
    if all(not m for m, _ in nonzero):
        return nonzero[0][1] if nonzero else 0
    return _polynomial(nonzero)


def _order(term: tuple[_Monomial, int]) -> tuple[str, ...]:
    return tuple(map(str, term[0]))


def _term_text(monomial: _Monomial, coefficient: int) -> str:
    if not monomial:
        return str(coefficient)
    product = "*".join(map(str, monomial))
    return product if coefficient == 1 else f"-{product}" if coefficient == -1 else f"{coefficient}*{product}"


def _exact_quotient(value: SymDim, divisor: Dim) -> Dim | None:
    """`value / divisor` when `divisor` is a single term that divides every term of `value`."""
    terms = _terms(divisor)
    if len(terms) != 1:
        return None
    atoms, coefficient = terms[0]
    out: list[tuple[_Monomial, int]] = []
    for monomial, c in value.terms:
        rest = list(monomial)
        for atom in atoms:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % coefficient:
            return None
        out.append((tuple(rest), c // coefficient))
    return _from_terms(out)


def _common_factor(value: SymDim, divisor: Dim) -> SymDim | None:
    """An atom of a divisor of one term that every term of `value` has."""
    terms = _terms(divisor)
    if len(terms) != 1:
        return None
    ((atoms, _),) = terms
    return next((_atom(atom) for atom in atoms if all(atom in monomial for monomial, _ in value.terms)), None)


def total(dims: Iterable[Dim]) -> Dim:
    """The sum of `dims` (0 for none), in time proportional to their terms."""
    return _from_terms(term for size in dims for term in _terms(size))


def product(dims: Iterable[Dim]) -> Dim:
    """The product of `dims` (1 for none)."""
    return reduce(lambda a, b: a * b, dims, 1)


def around(shape: Shape, axis: int) -> tuple[Dim, Dim, Dim]:
    """The number of elements before, along and after an axis; ones for rank 0."""
    if not shape:
        return 1, 1, 1
    axis %= len(shape)
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def is_static(shape: Iterable[Dim]) -> bool:
    return all(isinstance(d, int) for d in shape)


def names(value: Dim) -> frozenset[str]:
    """The names that a size is computed from, those inside of quotients included."""
    atoms = [atom for monomial, _ in _terms(value) for atom in monomial]
    inner = (names(a.left) | names(a.right) for a in atoms if isinstance(a, SizePair))
    return frozenset(a for a in atoms if isinstance(a, str)).union(*inner)


def compute(
    value: Dim, size: Callable[[str], T], number: Callable[[int], T], divide: Callable[[T, T], T],
    smaller: Callable[[T, T], T],
) -> T:  # fmt: skip
    """`value` in the arithmetic of T, which has `+` and `*`: with ints, or with the expressions of a compiler.

    size: the value of a name.  number: of an int.  divide: floor division.  smaller: the minimum."""

    def factor(atom: _Atom) -> Any:
        if isinstance(atom, str):
            return size(atom)
        function = divide if isinstance(atom, Quotient) else smaller
        return function(*(compute(part, size, number, divide, smaller) for part in (atom.left, atom.right)))

    def term(monomial: _Monomial, coefficient: int) -> Any:
        factors: list[Any] = [factor(atom) for atom in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, number(coefficient))
        return reduce(lambda a, b: a * b, factors)

    terms = [term(*each) for each in _terms(value)]
    return reduce(lambda a, b: a + b, terms) if terms else number(0)


def least(value: Dim) -> int | None:
    """A lower bound of a size whose names are at least 0; None where its terms do not tell."""
    constant = 0
    for monomial, coefficient in _terms(value):
        if not monomial:
            constant = coefficient
        elif coefficient < 0 and len(monomial) == 1 and isinstance(atom := monomial[0], SizePair):
            rest = value - coefficient * _atom(atom)
            bounds = [least(rest + term) for term in _lower_bounds(atom, coefficient)]
            return max((bound for bound in bounds if bound is not None), default=None)
        elif coefficient < 0 or not all(map(_is_counted, monomial)):
            return None
    return constant


def _lower_bounds(atom: SizePair, coefficient: int) -> tuple[Dim, ...]:
    """Sizes that are as small as `coefficient * atom` or smaller, for a negative coefficient."""
    if isinstance(atom, Least):
        return coefficient * atom.left, coefficient * atom.right
    divides = isinstance(atom.right, int) and atom.right > 0 and coefficient % atom.right == 0
    return (coefficient // atom.right * atom.left,) if divides else ()


def _is_counted(atom: _Atom) -> bool:
    """Whether an atom is known to be 0 or more."""
    if isinstance(atom, str):
        return True
    bounds = least(atom.left), least(atom.right)
    return all(bound is not None and bound >= 0 for bound in bounds)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller size."""
    first, second = sorted((a, b), key=lambda size: (isinstance(size, int), str(size)))
    constant = first.terms[0][1] if isinstance(first, SymDim) and not first.terms[0][0] else 0
    if constant:  # one form of sizes that differ by a constant
        return _least(first - constant, second - constant) + constant
    return _least(first, second)


def _least(a: Dim, b: Dim) -> Dim:
    for smaller, larger in ((a, b), (b, a)):
        distance = least(larger - smaller)
        if (distance is not None and distance >= 0) or (isinstance(larger, int) and larger >= WHOLE):
            return smaller
    return _atom(Least(a, b))


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger size."""
    return a + b - minimum(a, b)


def truncated_quotient(a: Dim, b: Dim) -> Dim:
    """The quotient without its fraction, as C divides. A symbolic divisor is a count, not below 0."""
    if isinstance(b, int) and b < 0:
        return truncated_quotient(-a, -b)
    low = least(a)
    return a // b if low is not None and low >= 0 else maximum(a, 0) // b - maximum(-a, 0) // b


def evaluate(value: Dim, sizes: Mapping[str, int]) -> int:
    """A size as a number, where `sizes` has the sizes of names. Raises IRError when it depends on another name."""
    if isinstance(value, int):
        return value
    unknown = sorted(names(value) - sizes.keys())
    if unknown:
        problem = f"the size {value} depends on {', '.join(unknown)}, which no input has"
        raise IRError("shape", problem, f"sizes computed from {', '.join(sizes) or 'none'}")
    return compute(value, sizes.__getitem__, int, int.__floordiv__, min)
