"""IR as text, which `parser.parse` reads back.

    def main(%x: Tensor[(1, 2), "float32"]) -> Tensor[(1, 2), "float32"] {
      %0: Tensor[(1, 2), "float32"] = softmax(%x, axis=0)  # model.py:12
      %0
    }

Arguments equal to their default are left out. Tensors are written by position as long as no argument before them is
left out, attributes by name. Two variables of one name become `%x` and `%x_1`; nameless ones are numbered.

Small constants are written in place (`const([1.0, 2.0], "float32")`), others as `$0`, with the bytes base64-encoded in
a separate section. Either way reading gives the same bits.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from meta.device import CPU
from meta.dim import NAME
from meta.dtype import is_complex, is_float, to_numpy
from meta.errors import IRError
from meta.ir.expr import (
    ATOMS,
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Expr,
    FunctionExpr,
    GlobalVar,
    If,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    is_atom_list,
)
from meta.ir.type import TensorType
from meta.limits import MAX_DEPTH


class HasFunctions(Protocol):
    """A module, as the printer sees it."""

    @property
    def functions(self) -> Mapping[str, FunctionExpr]: ...


Node = HasFunctions | FunctionExpr | Block | Binding | Expr | Atom


def to_text(node: Node, *, spans: bool = True, data: bool = True) -> str:
    """The text of a module, or of any part of it.

    spans: write the user's line behind each binding.  data: write the contents of large constants; without them the
    text is for reading only."""
    printer = Printer(spans)
    printer.node(node)
    printer.constant_section(data)
    return "\n".join(printer.lines)


def one_line(node: Binding | Expr | Atom) -> str:
    """A binding or value on one line for error texts: nested blocks and large data are elided."""
    printer = Printer(spans=False)
    if isinstance(node, Binding):
        return f"%{printer.name(node.var)} = {printer.simple(node.value)}"
    return printer.inline(node)


def _global_name(name: str) -> str:
    return name if re.fullmatch(NAME, name) else json.dumps(name, ensure_ascii=False)


def _facts(attrs: Mapping[str, Any]) -> str:
    return f" with {attr_text(attrs)}" if attrs else ""


def _shown_file(file: str) -> str:
    """A path below the working directory relative to it, others as they are."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else file


class Printer:
    """Collects lines. spans: whether to write them.  hints: whether to write the names of closures."""

    def __init__(self, spans: bool, hints: bool = True) -> None:
        self.spans = spans
        self.hints = hints
        self.lines: list[str] = []
        self.names: dict[Var, str] = {}
        self.taken: set[str] = set()
        self.repeats: dict[str, int] = {}
        self.count = 0
        self.constants: dict[Constant, str] = {}

    def node(self, node: Node) -> None:
        match node:
            case FunctionExpr():
                name = _global_name(node.name or "main") if self.hints else "main"
                self.function(f"def {name}", node, 0)
            case Block():
                self.block(node, 0)
            case Binding():
                self.binding(node, 0)
            case Var() | Constant() | GlobalVar() | Call() | Tuple() | TupleGetItem() | If():
                self.lines.append(self.inline(node))
            case _:
                self.module(node.functions)

    def module(self, functions: Mapping[str, FunctionExpr]) -> None:
        for i, (name, function) in enumerate(functions.items()):
            self.lines += [""] if i else []
            self.names, self.taken, self.repeats, self.count = {}, set(), {}, 0
            self.function(f"def {_global_name(name)}", function, 0)

    def put(self, depth: int, text: str, span: Span | None = None) -> None:
        if depth > MAX_DEPTH + 1:
            raise IRError("printer", f"blocks nest deeper than {MAX_DEPTH}")
        comment = f"  # {_shown_file(span.file)}:{span.line}" if self.spans and span else ""
        self.lines.append("  " * depth + text + comment)

    def function(self, head: str, function: FunctionExpr, depth: int) -> None:
        width = 120  # Function headers longer than this are broken, one parameter a line.
        params = [f"%{self.name(p)}: {p.type!r}" for p in function.params]
        tail = f") -> {function.body.type!r}{_facts(function.attrs)} {{"
        if len(head) + sum(map(len, params)) + len(tail) + 2 * (depth + len(params)) <= width:
            self.put(depth, f"{head}({', '.join(params)}{tail}", function.span)
        else:
            self.put(depth, f"{head}(")
            for param in params:
                self.put(depth + 1, f"{param},")
            self.put(depth, tail, function.span)
        self.block(function.body, depth + 1)
        self.put(depth, "}")

    def block(self, block: Block, depth: int) -> None:
        for binding in block.bindings:
            self.binding(binding, depth)
        result = block.result
        self.put(depth, self.inline(result))

    def binding(self, binding: Binding, depth: int) -> None:
        value = binding.value
        var = f"%{self.name(binding.var)}"
        if isinstance(value, FunctionExpr):
            name = f" {_global_name(value.name)}" if value.name and self.hints else ""
            self.function(f"{var} = fn{name}", value, depth)
            return
        head = f"{var}: {binding.var.type!r} = "
        if isinstance(value, If):
            self.put(depth, f"{head}if {self.atom(value.cond)} {{", value.span)
            self.block(value.then, depth + 1)
            self.put(depth, "} else {")
            self.block(value.orelse, depth + 1)
            self.put(depth, "}")
        else:
            self.put(depth, head + self.simple(value), value.span)

    def inline(self, value: Expr | Atom) -> str:
        """A value or an atom on one line."""
        return self.atom(value) if isinstance(value, ATOMS) else self.simple(value)

    def simple(self, value: Expr) -> str:
        """A value on one line."""
        match value:
            case Call():
                return self.call(value)
            case Tuple():
                return tuple_text([self.atom(f) for f in value.fields])
            case TupleGetItem():
                return f"{self.atom(value.value)}[{value.index}]"
            case If():
                return f"if {self.atom(value.cond)} {{ ... }} else {{ ... }}"
            case FunctionExpr():
                return f"fn {value.name}({', '.join(f'%{self.name(p)}' for p in value.params)}) {{ ... }}"

    def call(self, call: Call) -> str:
        if isinstance(call.op, (Var, GlobalVar)):
            return f"{self.atom(call.op)}({', '.join(map(self.argument, call.args))}){_facts(call.attrs)}"
        by_position = True
        parts: list[str] = []
        for arg, value in zip(call.op.schema.args, call.args, strict=False):
            if not (arg.required or isinstance(value, ATOMS)) and attr_text(value) == attr_text(arg.default):
                by_position = False
                continue
            by_position = by_position and arg.is_tensor
            parts.append(self.argument(value) if by_position else f"{arg.name}={self.argument(value)}")
        return f"{call.op_name}({', '.join(parts)}){_facts(call.attrs)}"

    def argument(self, value: Any) -> str:
        if isinstance(value, ATOMS):
            return self.atom(value)
        return f"[{', '.join(map(self.atom, value))}]" if is_atom_list(value) else attr_text(value)

    def atom(self, atom: Atom) -> str:
        match atom:
            case Var():
                return f"%{self.name(atom)}"
            case GlobalVar():
                return f"@{_global_name(atom.name)}"
            case Constant():
                inline = encode_inline(atom.value, atom.type)
                return inline or self.constants.setdefault(atom, f"${len(self.constants)}")
            case _:  # error texts print other objects as well
                return f"<{type(atom).__name__}>"

    def name(self, var: Var) -> str:
        name = self.names.get(var)
        if name is None:
            name = self.names[var] = self.fresh(re.sub(r"[^\w.]", "_", var.name))
            self.taken.add(name)
        return name

    def fresh(self, preferred: str) -> str:
        if not preferred or re.fullmatch(r"\d+", preferred):
            self.count += 1
            return str(self.count - 1)
        preferred = preferred if re.match(r"[^\W\d]", preferred) else f"_{preferred}"
        name, count = preferred, self.repeats.get(preferred, 0)
        while name in self.taken:
            count += 1
            name = f"{preferred}_{count}"
        self.repeats[preferred] = count
        return name

    def constant_section(self, data: bool) -> None:
        if not self.constants:
            return
        self.lines += ["", "constants {"]
        for constant, reference in self.constants.items():
            text = f'"{encode_data(constant.value)}"' if data else "..."
            self.put(1, f"{reference}: {constant.type!r} = {text}")
        self.lines.append("}")


# Attribute values and constants.


def attr_text(value: Any) -> str:
    """The text of an attribute value. Equal texts mean equal values of equal classes: `1`, `1.0` and `True` differ."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return tuple_text(list(map(attr_text, value)))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{attr_text(k)}: {attr_text(v)}" for k, v in value.items()) + "}"  # pyright: ignore[reportUnknownVariableType]
    return f"complex({value.real!r}, {value.imag!r})" if isinstance(value, complex) else repr(value)


def tuple_text(parts: Sequence[str]) -> str:
    """`(a, b)`, `(a,)`, `()`."""
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


def to_array(value: Any) -> Any:
    """The NumPy array of a constant's value, on the host."""
    import numpy as np

    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def encode_inline(value: Any, kind: TensorType) -> str | None:
    """`const(...)` for a small vector or scalar, None when it is too large or its bits would not survive."""
    inline_limit = 8  # Most elements of a constant that is written in place.
    if kind.ndim > 1 or is_complex(kind.dtype) or not isinstance(kind.size, int) or kind.size > inline_limit:
        return None
    array = to_array(value)
    items = [_number_text(x, kind.dtype) for x in array.reshape(-1)]
    values = [float(text) for text in items] if is_float(kind.dtype) else array.reshape(-1).tolist()
    if decode_items(values, kind).tobytes() != array.tobytes():
        return None
    data = items[0] if kind.ndim == 0 else f"[{', '.join(items)}]"
    device = "" if kind.device is CPU else f', "{kind.device}"'
    return f'const({data}, "{kind.dtype}"{device})'


def _number_text(item: Any, dtype: str) -> str:
    """The shortest text that distinguishes `item` from other values of its dtype."""
    if not is_float(dtype):
        return str(item)
    text = str(item)
    return text if any(c in text for c in ".en") else f"{text}.0"


def decode_items(items: list[Any], kind: TensorType) -> Any:
    """The array of `kind` with these elements in row-major order; raises IRError when they do not fit."""
    import numpy as np

    try:
        array: Any = np.array(items, dtype=to_numpy(kind.dtype))
        return array.reshape(kind.shape)
    except (ValueError, OverflowError, TypeError) as error:
        raise IRError("parse", f"the values do not make a {kind!r}: {error}") from None


def encode_data(value: Any) -> str:
    """Base64 of the bytes in row-major order."""
    return base64.b64encode(to_array(value).tobytes()).decode("ascii")


def decode_data(text: str, kind: TensorType) -> Any:
    """The array of `kind` from the text of `encode_data`; raises IRError when the size does not fit."""
    import numpy as np

    from meta.files.into_memory import allocate

    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise IRError("parse", f"the data is not base64: {error}") from None
    if kind.nbytes != len(data):
        raise IRError("parse", f"the data has {len(data)} bytes", f"{kind.nbytes}, the size of a {kind!r}")
    array: Any = allocate(kind.shape, to_numpy(kind.dtype))  # type: ignore[arg-type]  # ints
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return array
