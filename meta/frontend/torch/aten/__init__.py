"""The table of ATen's operators: what each is in meta.

    aten.find("addmm")(bias, x, w, beta=1, alpha=2)

`find` gives a function with ATen's arguments that calls public functions of meta, on arrays and on traced values alike.
The modules of this package hold the rows, by family. `rows({...})` enters, for ATen's base name (all overloads share
one row), one of

- a name, `"tanh"`: the function `meta.tanh` has ATen's order of arguments, and their names up to the common
  renames of `_row.RENAMES` (`self` is `x`, `dim` is `axis`, ...). Dots are allowed: `"special.lgamma"`; names that are
  the same in meta are listed by `same("tanh", ...)`;
- `direct("conv2d", weight="w")`: the same with further renames; a number of a reduction of losses becomes its name;
- a function with ATen's names of arguments: a lambda if it is one call, else entered by `@row()` under its own name or
  by `@row("max")` under others. It serves all overloads of the name, and sees no argument that only places memory
  (`_row.PLACEMENT`): those are dropped.

Nothing here imports torch: dtypes and devices of torch are converted when a row is called. Operators that torch could
decompose have rows as well: `.pt2` files hold them whole and are read without torch. A new operator needs one line in
the file of its family; a test checks every row against the registry and against torch.
"""

from __future__ import annotations

from meta.frontend.torch.aten._table import find, names, rows, stays_whole, without_rows

__all__ = ["find", "names", "rows", "stays_whole", "without_rows"]


def __dir__() -> list[str]:
    return sorted(__all__)
