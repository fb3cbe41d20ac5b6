"""Symbolic sizes as C: cells of the table of sizes, which a function computes or its caller sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.deploy.tables import TensorTables, number, unsupported

tirx = tvm.tirx


class CSizes:
    """The sizes of one function. variables: the cell of each, by name.  statements: set the cells and the arguments of
    kernels that depend on them."""

    def __init__(self, tables: TensorTables) -> None:
        self.tables = tables
        self.variables: dict[str, int] = {}
        self.statements: list[str] = []
        self._shapes: dict[str, int] = {}

    def shape(self, dims: Sequence[Any]) -> int:
        """The place of sizes in the table."""
        if all(isinstance(d, int) for d in dims):
            return self.tables.static_shape(tuple(dims))
        key = str(dims)
        if key not in self._shapes:
            start = self._shapes[key] = self.tables.cells([d if isinstance(d, int) else 0 for d in dims])
            self.tables.opens = True
            for i, d in enumerate(dims):
                if not isinstance(d, int):
                    self.statements.append(f"p->sizes[{start + i}] = {self.text(d)};")
        return self._shapes[key]

    def argument(self, value: Any) -> int:
        """A number as an argument of a kernel, see `TensorTables.arguments`."""
        if isinstance(value, (int, tirx.IntImm)):
            return ~self.tables.static_shape((int(value),))
        cell = self.tables.cells([0])
        self.tables.opens = True
        self.statements.append(f"p->values[{len(self.tables.arguments)}].as.integer = {self.text(value)};")
        return ~cell

    def solve(self, shapes: Sequence[Sequence[Any]]) -> list[tuple[int, int, str]]:
        """(parameter, axis, statement) that set the variables from the sizes of the parameters, which go to the `{}` of
        a statement."""
        out: list[tuple[int, int, str]] = []
        axes = [(i, axis, d) for i, dims in enumerate(shapes) for axis, d in enumerate(dims) if not isinstance(d, int)]
        while found := [x for x in axes if len(_variables(x[2]).keys() - self.variables.keys()) == 1]:
            i, axis, dim = found[0]
            out.append((i, axis, self._set(dim)))
        return out

    def _set(self, dim: Any) -> str:
        """The statement that sets the one unknown variable of a size, which is linear in it."""
        (name,) = _variables(dim).keys() - self.variables.keys()
        equation: Sequence[Any] = tvm.detect_linear_equation(dim, [_variables(dim)[name]])
        if not equation:
            raise unsupported(f"the size {name} is only known from {dim}", "sizes that are an axis of an input")
        coefficient, rest = map(self.text, equation)
        self.tables.opens = True
        cell = self.variables[name] = self.tables.cells([0])
        plain = (coefficient, rest) == ("1", "0")
        return f"p->sizes[{cell}] = {'{}' if plain else f'meta_floordiv({{}} - {rest}, {coefficient})'};"

    def text(self, value: Any) -> str:
        """An integer expression of TVM in C."""
        if isinstance(value, int):
            return number(value)
        if isinstance(value, tirx.IntImm):
            return number(int(value))
        if isinstance(value, tvm.Var):
            if value.name not in self.variables:
                raise unsupported(f"the size {value.name} is known only after a kernel ran", "sizes of inputs")
            return f"p->sizes[{self.variables[value.name]}]"
        if isinstance(value, tirx.Cast):
            return self.text(value.value)
        for kind, form in _FORMS.items():
            if isinstance(value, getattr(tirx, kind)):
                return form.format(self.text(value.a), self.text(value.b))
        raise unsupported(f"the program computes the size {value}", "sums, products, quotients and minima of sizes")


_FORMS = {
    "Add": "meta_sum({}, {})", "Sub": "({} - {})", "Mul": "meta_product({}, {})", "FloorDiv": "meta_floordiv({}, {})",
    "FloorMod": "meta_floormod({}, {})", "Min": "meta_least({}, {})", "Max": "meta_greatest({}, {})",
}  # fmt: skip


def _variables(value: Any) -> dict[str, Any]:
    found: list[Any] = []
    tvm.structural_walk(value, (tvm.Var, found.append))
    return {variable.name: variable for variable in found}
