"""Operators and dialects that are defined at run time, such as `@meta.define(...)` on a declaration:

    @meta.define("scale", Schema("scale", Arg("x", Tensor), Arg("by", Float, 2.0)),
                 gradient={"x": "scale(dy, by)"}, tvm=lambda x, by: topi.multiply(x, by), pattern="elemwise")
    def scale(x, by):
        return x                                   # types in, type out

    meta.scale(meta.array([1.0]), 3.0)

Such an operator runs eagerly with autograd and is traced, compiled and cast like the operators of the package. Its
formulas may call it and every other operator. Its function is compiled from the same text as theirs
(meta.op.codegen), so that calls cost the same.

    definition   define, unregister: the parts of an operator, registered or removed together
    functions    its public function, its methods
    gradients    its gradient rule, with checks of what its functions return
    namespaces   meta.ops.<package>
    dialects     register_dialect, unregister_dialect
"""
