"""Definition of operators at run time: `@meta.define(...)` on the declaration.

    @meta.define("scale", Schema("scale", Arg("x", Tensor), Arg("by", Float, 2.0)),
                 gradient={"x": "scale(dy, by)"}, tvm=lambda x, by: topi.multiply(x, by), pattern="elemwise")
    def scale(x, by):
        return x                                   # types in, type out

    meta.scale(meta.array([1.0]), 3.0)

Such an operator runs eagerly with autograd and is traced, compiled and cast like the operators of the package. Its
formulas may call it and every other operator. Its function is compiled from the same text as theirs
(meta.op.codegen), so that calls cost the same.

The package cannot be named `define`: Python binds an imported submodule to its name in the package, which would replace
the public function `meta.define`.
"""

from meta.definition.gradients import UNDEFINED as UNDEFINED
from meta.definition.registration import define as define
from meta.definition.removal import unregister as unregister
