"""`to_relax`: a program as an IRModule of TVM, for compilers that do not know meta."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.spec import KernelSpec
from meta.backend.tvm.workarounds.parameter_sizes import solve_parameter_sizes
from meta.device import CPU
from meta.dtype import is_complex
from meta.errors import DispatchError, NotSupportedError
from meta.frontend._outgoing import Outgoing, outgoing, refuse_loops
from meta.frontend.relax._portable import portable
from meta.frontend.relax.export_ops._table import RelaxSite, table
from meta.ir.builder import Builder, Module
from meta.ir.expr import ATOMS, Atom, Call, Constant
from meta.ir.type import TupleType, Type, flat_types
from meta.modes import scoped
from meta.op.registry import Op
from meta.passes.lift_closures import lift_closures
from meta.tracing import emit_decomposition
from meta.tracing.open_sizes import Dynamic
from meta.tree import leaves_of, with_leaves
from meta.vm.lower.calls import Calls
from meta.vm.lower.choose import Choice, Choices, is_open
from meta.vm.lower.translate import Lowering, Scope

_SUBJECT: Final = "to_relax"


def to_relax(what: object, *args: object, dynamic: Dynamic | None = None, params_as_inputs: bool = False) -> Any:
    """A program as an IRModule of Relax, which plain TVM compiles and runs: `tvm.compile(to_relax(model, x), "llvm")`.

    what: a Model, a traced function with example arguments `args` (arrays or TensorTypes), or a Module.
    dynamic: sizes that stay open, as in `meta.vm.compile`: input -> axis -> name.
    params_as_inputs: the parameters follow the inputs of "main", with their names, and its attribute "params" has their
        values, as `tvm.relax.frontend.detach_params` expects it. By default they are constants.

    "main" takes the inputs, an int64[2] random key for each generator that the program draws from, the arrays that it
    writes (`attrs["state"]` has their names), and the parameters. It returns what the function returns, with containers
    flattened, then the new values of those arrays.
    Where Relax operators compute the same, the program calls them, so that Relax's passes see them; for other calls it
    has meta's kernels as PrimFuncs, without a schedule.

    Raises NotSupportedError, with all operators that have neither, for complex tensors and for loops; ArgumentError for
    something other than a program and for arguments that do not fit."""
    program = outgoing(_SUBJECT, what, args, dynamic, params_as_inputs=params_as_inputs)
    refuse_loops(_SUBJECT, program.module)
    _refuse_complex(program)
    with scoped(dialects=("tvm",)):
        lowered = _Standard(lift_closures(program.module)).run()
    module = tvm.Sequential([tvm.relax_transform.ConvertToDataflow(1)])(solve_parameter_sizes(lowered.module))
    module.update_func(module.get_global_var("main"), _with_attributes(module["main"], program))
    return module


class _Standard(Lowering):
    """A lowering that prefers Relax's operators to meta's kernels."""

    def __init__(self, module: Module) -> None:
        super().__init__(module, Choices(CPU), Calls())
        self.missing: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        self.constants: dict[Constant, Any] = {}

    def normalized(self) -> Any:
        if not self.missing:
            return super().normalized()
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(self.missing.items()))
        raise NotSupportedError(
            _SUBJECT,
            f"{len(self.missing)} operators have neither a Relax operator nor a TVM kernel: {listed}",
            "operators with a TVM compute",
            "leave them out, or compile with meta.vm.compile",
            details="\n".join(f"    {name}: {reason}" for name, reason in sorted(self.reasons.items())),
        )

    def call(self, scope: Scope, call: Call) -> Any:
        if not isinstance(call.op, Op):
            return super().call(scope, call)
        standard = self.in_relax(scope, call)
        if standard is not None:
            return standard
        if is_open(call):
            return self.refused(scope, call, "the shape of its result depends on values")
        try:
            self.choices.add(call)
        except DispatchError as error:
            return self.refused(scope, call, error.problem)
        return super().call(scope, call)

    def in_relax(self, scope: Scope, call: Call) -> Any:
        """A call as operators of Relax, of its decomposition if need be; None if Relax lacks one of them."""
        if call.op.view:  # type: ignore[union-attr]
            return super().call(scope, call)
        result = self.standard(scope, call)
        return self.composed(scope, call) if result is None else result

    def composed(self, scope: Scope, call: Call) -> Any:
        steps = Builder(call.span, caller_spans=False)
        results = emit_decomposition(steps, call)
        position = len(scope.bindings)
        for binding in steps.bindings if results is not None else ():
            is_call = isinstance(binding.value, Call)
            value = self.in_relax(scope, binding.value) if is_call else self.value(scope, binding.value)  # type: ignore[arg-type]
            if value is None:
                del scope.bindings[position:]
                return None
            scope.values[binding.var] = self.bind(scope, "", binding.var.type, value)
        if results is None:
            return None
        parts = [self.atom(scope, atom) for atom in leaves_of(results)]
        return tvm.RelaxTuple(parts) if isinstance(call.type, TupleType) else parts[0]

    def standard(self, scope: Scope, call: Call) -> Any:
        """The Relax operator for a call, None without one that returns exactly its type."""
        row = table.find(call.op_name)
        if row is None:
            return None
        position = len(scope.bindings)
        try:
            leaves = [self.atom(scope, x) if isinstance(x, ATOMS) else x for x in leaves_of(call.args)]
            value = row(RelaxSite(call, scope.types), *with_leaves(call.args, leaves))
            value = None if value is None else self.normal(scope, value)
        except tvm.TVMError:  # Relax's type rules refuse it
            value = None
        if value is not None and tvm.structural_equal(value.ty, scope.types.type(call.type)):
            return value
        del scope.bindings[position:]
        return None

    def atom(self, scope: Scope, atom: Atom) -> Any:
        if not isinstance(atom, Constant):
            return super().atom(scope, atom)
        if atom not in self.constants:  # Relax's passes look for constants among the operands, not behind bindings
            self.constants[atom] = self.constant(atom)
        return self.constants[atom]

    def normal(self, scope: Scope, value: Any) -> Any:
        """An expression with its type, after bindings of the calls inside of it."""
        if isinstance(value, tvm.RelaxTupleGetItem):
            return self.builder.normalize(tvm.RelaxTupleGetItem(self.leaf(scope, value.tuple_value), value.index))
        if isinstance(value, tvm.RelaxCall):
            args = [self.leaf(scope, arg) for arg in value.args]
            return self.builder.normalize(tvm.RelaxCall(value.op, args, value.attrs, value.ty_args))
        return value

    def leaf(self, scope: Scope, value: Any) -> Any:
        if not isinstance(value, (tvm.RelaxCall, tvm.RelaxTupleGetItem)):
            return value
        inner = self.normal(scope, value)
        return self.bind_as(scope, "", inner.ty, inner)

    def kernel(self, kernel_spec: KernelSpec, choice: Choice, is_fed: bool) -> Any:
        before = len(self.kernels)
        target = super().kernel(kernel_spec, choice, is_fed)
        if len(self.kernels) > before:
            func = portable(self.builder.get()[target])
            self.builder.update_func(target, func)
        return target

    def refused(self, scope: Scope, call: Call, reason: str) -> Any:
        self.missing[call.op_name] += 1
        self.reasons.setdefault(call.op_name, reason)
        return tvm.RelaxVar("missing", scope.types.type(call.type))


def _refuse_complex(program: Outgoing) -> None:
    kinds: list[Type] = [*(p.type for p in program.main.params), *program.result_types]
    complex_dtypes = sorted({t.dtype for t in flat_types(kinds) if is_complex(t.dtype)})
    if complex_dtypes:
        raise NotSupportedError(
            _SUBJECT,
            f"the program takes or returns {complex_dtypes[0]}",
            "real dtypes, which are all that TVM has",
            "pass and return real and imaginary parts: meta.view_as_real(x)",
        )


def _with_attributes(main: Any, program: Outgoing) -> Any:
    """The Relax function with the number of its inputs, and the names and values of its state."""
    count = len(program.inputs) + len(program.keys) + len(program.state)
    if program.state:
        main = main.with_attr("state", list(program.state))
    if program.params:
        main = main.with_attr("params", [tvm.tensor(x.numpy()) for x in program.params.values()])
    return main.with_attr("num_input", count)
