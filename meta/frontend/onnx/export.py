"""`to_onnx`: a program as an ONNX model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from meta.dtype import is_complex
from meta.errors import ArgumentError, NotSupportedError, SymbolicSizeError, install_hint
from meta.frontend._outgoing import Outgoing, outgoing
from meta.frontend.onnx.errors import OnnxError, UnsupportedError
from meta.frontend.onnx.export_graph import ExportGraph, size_sources, value_info
from meta.frontend.onnx.export_loops import write_loop
from meta.frontend.onnx.export_ops._table import OnnxSite, complex_table, table
from meta.frontend.onnx.export_types import UnwritableError, held_array, held_type
from meta.ir.builder import Builder
from meta.ir.expr import ATOMS, Atom, Block, Call, Constant, FunctionExpr, If, Tuple, TupleGetItem, Var, arg_types
from meta.ir.printer import to_array
from meta.ir.type import TensorType, TupleType, Type, flat_types, leaf_types
from meta.ir.visitor import walk_blocks
from meta.op.registry import Op
from meta.tracing import emit_decomposition
from meta.tracing.loop_op import LoopOp
from meta.tracing.open_sizes import Dynamic
from meta.tree import leaves_of, with_leaves

_SUBJECT: Final = "to_onnx"
OPSETS: Final = range(18, 24)
"""The versions of ONNX's operators that can be written."""
OPSET: Final = 23
"""The default: its Attention and RMSNormalization are whole nodes, and onnxruntime runs it."""
_LARGEST: Final = 1 << 31
"""Bytes of a protobuf message, at most."""
_PLACEHOLDER: Final = "missing"
"""The name of a result that cannot be written."""
_EXTERNAL: Final = 1 << 10
"""Bytes of a tensor from which on it goes to the file of a model that is larger."""


def to_onnx(
    what: Any,
    *args: Any,
    path: str | os.PathLike[str] | None = None,
    opset: int = OPSET,
    dynamic: Dynamic | None = None,
) -> Any:
    """A program as an `onnx.ModelProto`, checked by ONNX's checker with its inference of shapes.

    what: a Model, a traced function with example arguments `args` (arrays or TensorTypes), or a Module.
    path: a file to write the model to. A model of 2 GiB or more needs it: its tensors go to PATH.data.
    opset: the version of ONNX's operators, 18 to 23.
    dynamic: sizes that stay open, as in `meta.vm.compile`: input -> axis -> name; parameters of dimensions in ONNX.

    Parameters are initializers under their names, complex ones with their parts along a last axis. Inputs have the
    names of the arguments; arrays that the program writes are further inputs, and `new_NAME` are outputs with their new
    values. Outputs are called `output`, or `output_0` and so on in the order of the results.

    Raises UnsupportedError with all operators and arguments that ONNX cannot express, NotSupportedError without the
    package `onnx`, ArgumentError for something other than a program, wrong arguments and other opsets."""
    onnx = _package()
    if opset not in OPSETS:
        raise ArgumentError(_SUBJECT, f"opset is {opset!r}", f"{OPSETS[0]} to {OPSETS[-1]}")
    program = outgoing(_SUBJECT, what, args, dynamic, params_as_inputs=True)
    graph = _GraphWriter(program, opset).graph()
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, producer_name="meta")
    model.ir_version = onnx.helper.find_min_ir_version_for(opsets)
    return _checked(model, None if path is None else os.fspath(path))


def _package() -> Any:
    try:
        import onnx
    except ImportError:
        raise NotSupportedError(_SUBJECT, "the package onnx is not installed", remedy=install_hint("onnx")) from None
    return onnx


def _checked(model: Any, path: str | None) -> Any:
    """The model, valid and written to `path`."""
    import onnx

    large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) >= _LARGEST - (1 << 20)
    if large and path is None:
        raise ArgumentError(_SUBJECT, "the model has 2 GiB or more", "a path, beside which the tensors are written")
    if path is not None and large:
        location = f"{os.path.basename(path)}.data"
        copy = type(model)()
        copy.CopyFrom(model)
        onnx.save_model(copy, path, save_as_external_data=True, location=location, size_threshold=_EXTERNAL)
    elif path is not None:
        onnx.save_model(model, path)
    try:
        onnx.checker.check_model(path if large and path is not None else model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise OnnxError(_SUBJECT, f"the model that was written is not valid: {str(error)[:500]}") from error
    return model


@dataclass(frozen=True, slots=True)
class _Missing:
    """A call that ONNX cannot express, in words, with its line."""

    name: str
    text: str


class _GraphWriter:
    """Writes the graph of one program."""

    def __init__(self, program: Outgoing, opset: int) -> None:
        self.program = program
        self.opset = opset
        self.values: dict[Any, Any] = {}
        self.missing: list[_Missing] = []
        self.used = dict(_used_results(program.main))

    def graph(self) -> Any:
        import onnx

        program = self.program
        main = program.main
        self._refuse_types()
        sizes = size_sources({n: _shape(p.type) for n, p in zip(program.names, main.params, strict=True)})
        dtypes = {name: held_type(p.type).dtype for name, p in zip(program.names, main.params, strict=True)}  # type: ignore[arg-type]
        graph = ExportGraph(self.opset, sizes, set(program.names), dtypes)
        self.values.update(zip(main.params, program.names, strict=True))
        for name, array in program.params.items():
            graph.initializer(name, held_array(array.detach().numpy()))
        results = [leaf for value in self.block(graph, main.body) for leaf in _leaves(value)]
        self._raise_missing()
        kinds = [kind for atom in main.body.results for kind in leaf_types(atom.type)]
        outputs = [value_info(name, kind) for name, kind in zip(self._output_names(len(kinds)), kinds, strict=True)]  # type: ignore[arg-type]
        for value, info in zip(results, outputs, strict=True):
            node = onnx.helper.make_node("Identity", [value], [info.name], name=f"result_{info.name}")
            graph.nodes.append(node)
        count = len(program.names) - len(program.params)
        inputs = [
            value_info(name, param.type)  # type: ignore[arg-type]
            for name, param in zip(program.names[:count], main.params, strict=False)
        ]
        return onnx.helper.make_graph(
            graph.nodes, program.name or "main", inputs, outputs, initializer=graph.initializers
        )

    def _output_names(self, count: int) -> list[str]:
        names_in_use = set(self.program.names)
        results = count - len(self.program.state)
        names = ["output"] if results == 1 else [f"output_{i}" for i in range(results)]
        names += [f"new_{name}" for name in self.program.state]
        return [name if name not in names_in_use else f"{name}_result" for name in names]

    def _refuse_types(self) -> None:
        program = self.program
        inputs = program.main.params[: len(program.names) - len(program.params)]
        kinds: list[Type] = [*(p.type for p in inputs), *program.result_types]
        complex_dtypes = sorted({t.dtype for t in flat_types(kinds) if is_complex(t.dtype)})
        if complex_dtypes:
            remedy = "pass and return real and imaginary parts: meta.view_as_real(x)"
            raise NotSupportedError(
                _SUBJECT, f"the program takes or returns {complex_dtypes[0]}", "real dtypes", remedy
            )

    def _raise_missing(self) -> None:
        if not self.missing:
            return
        counts = Counter(each.name for each in self.missing)
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
        what = "operator has" if len(counts) == 1 else "operators have"
        raise UnsupportedError(
            _SUBJECT,
            f"{len(counts)} {what} no expression in ONNX's opset {self.opset}: {listed}",
            remedy="write them with other operators",
            operators=dict(counts),
            problems=[each.text for each in self.missing],
        )

    # --- expressions -------------------------------------------------------------------------------------------------

    def block(self, graph: ExportGraph, block: Block) -> list[Any]:
        """The values of the results of a block."""
        for binding in block.bindings:
            value = self.values[binding.var] = self.value(graph, binding.var, binding.value)
            kinds = leaf_types(binding.var.type)
            graph.dtypes.update(
                (name, held_type(kind).dtype)
                for name, kind in zip(_leaves(value), kinds, strict=True)
                if isinstance(kind, TensorType) and name not in ("", _PLACEHOLDER)
            )
        return [self.atom(graph, atom) for atom in block.results]

    def atom(self, graph: ExportGraph, atom: Atom) -> Any:
        if isinstance(atom, Constant):
            return graph.constant(held_array(to_array(atom.value)), held_type(atom.type).dtype)
        return self.values[atom]

    def value(self, graph: ExportGraph, var: Var, value: Any) -> Any:
        match value:
            case Call(op=Op()):
                return self.call(graph, var, value)
            case Tuple():
                return tuple(self.atom(graph, f) for f in value.fields)
            case TupleGetItem():
                return self.atom(graph, value.value)[value.index]
            case If():
                return self.conditional(graph, value)
            case _:
                raise NotSupportedError(
                    _SUBJECT, "the program has functions that call themselves", "programs without recursion"
                )

    def loop(self, graph: ExportGraph, var: Var, call: Call, op: LoopOp) -> Any:
        """A loop. The sizes and values around it are visible in its body."""
        if op.body is not None:
            self.used.update(_used_results(op.body))
        args = [self.atom(graph, arg) for arg in call.args]
        result = write_loop(graph, op, args, self.used.get(var, frozenset()), self.values, self.block)
        if result is None:
            self.missing.append(_Missing(call.op_name, _description(call, True)))
            return _placeholder(call.type)
        return result

    def call(self, graph: ExportGraph, var: Var, call: Call) -> Any:
        if isinstance(call.op, LoopOp):
            return self.loop(graph, var, call, call.op)
        row = (complex_table if _has_complex(call) else table).find(call.op_name)
        graph.label = call.op_name
        result = None
        if row is not None:
            leaves = [self.atom(graph, leaf) if isinstance(leaf, ATOMS) else leaf for leaf in leaves_of(call.args)]
            with suppress(UnwritableError, SymbolicSizeError):
                result = row(OnnxSite(graph, call, self.used.get(var, frozenset())), *with_leaves(call.args, leaves))
        if result is None:
            result = self.composed(graph, call)
        if result is None:
            self.missing.append(_Missing(call.op_name, _description(call, row is not None)))
            result = _placeholder(call.type)
        return (result,) if isinstance(call.type, TupleType) and not isinstance(result, tuple) else result

    def composed(self, graph: ExportGraph, call: Call) -> Any:
        """The results of a call by operators that have rows; None if no decomposition covers it or ends in other
        operators, and for operators that write in place."""
        if isinstance(call.op, Op) and call.op.inplace:
            return None
        builder = Builder(call.span, caller_spans=False)
        results = emit_decomposition(builder, call)
        if results is None:
            return None
        missing = len(self.missing)
        for binding in builder.bindings:
            self.values[binding.var] = self.value(graph, binding.var, binding.value)
        if len(self.missing) > missing:
            del self.missing[missing:]  # the error names the operator of the program
            return None
        return with_leaves(results, [self.atom(graph, atom) for atom in leaves_of(results)])

    def conditional(self, graph: ExportGraph, value: If) -> Any:
        import onnx

        kinds = leaf_types(value.type)
        branches: dict[str, Any] = {}
        for name, block in (("then_branch", value.then), ("else_branch", value.orelse)):
            inner = graph.branch()
            results = [leaf for each in self.block(inner, block) for leaf in _leaves(each)]
            outputs = [value_info(inner.name("result"), kind) for kind in kinds]  # type: ignore[arg-type]
            inner.nodes += [
                onnx.helper.make_node("Identity", [r], [o.name]) for r, o in zip(results, outputs, strict=True)
            ]
            branches[name] = onnx.helper.make_graph(inner.nodes, name, [], outputs, initializer=inner.initializers)
        names = graph.node("If", self.atom(graph, value.cond), outputs=len(kinds), **branches)
        leaves = iter(names if isinstance(names, tuple) else (names,))
        return _nest(value.type, leaves)


def _has_complex(call: Call) -> bool:
    return any(is_complex(kind.dtype) for kind in flat_types((*arg_types(call.args), call.type)))


def _shape(kind: Type) -> tuple[Any, ...]:
    return kind.shape if isinstance(kind, TensorType) else ()


def _leaves(value: Any) -> Sequence[str]:
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, tuple) else [value]


def _nest(kind: Type, leaves: Any) -> Any:
    return tuple(_nest(f, leaves) for f in kind.fields) if isinstance(kind, TupleType) else next(leaves)


def _placeholder(kind: Type) -> Any:
    return tuple(map(_placeholder, kind.fields)) if isinstance(kind, TupleType) else _PLACEHOLDER


def _used_results(main: FunctionExpr) -> Mapping[Var, frozenset[int]]:
    """For variables of tuples, the fields that the program reads; all of those that are used otherwise."""
    fields: dict[Var, set[int]] = {}
    for block in walk_blocks(main):
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, TupleGetItem) and isinstance(value.value, Var):
                fields.setdefault(value.value, set()).add(value.index)
        for atom in block.results:
            if isinstance(atom, Var) and isinstance(atom.type, TupleType):
                fields.setdefault(atom, set()).update(range(len(atom.type.fields)))
    return {var: frozenset(indices) for var, indices in fields.items()}


def _description(call: Call, has_row: bool) -> str:
    """A call in words: its arguments if another call of the operator can be written, and its line."""
    place = f" (at {call.span})" if call.span is not None else ""
    if not has_row:
        return f"{call.op_name}{place}"
    assert isinstance(call.op, Op)
    shown = [
        f"{name}={arg.type!r}" if isinstance(arg, ATOMS) else f"{name}={arg!r}"
        for name, arg in zip(call.op.schema.names, call.args, strict=True)
        if not (isinstance(arg, tuple) and arg and isinstance(arg[0], ATOMS))
    ]
    return f"{call.op_name} with {', '.join(shown)}{place}"
