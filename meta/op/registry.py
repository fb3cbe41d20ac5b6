"""The operator registry: what is declared about each operator, and look-ups by name.

    @declare("softmax", schema=nn.softmax, pattern="softmax", amp="never")
    def softmax(x: TensorType, axis: int) -> TensorType: ...

The decorated function is the declaration and the type function at once: argument types in, result type out.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from importlib import import_module
from keyword import iskeyword
from pkgutil import iter_modules
from typing import Any, Final, Literal, get_args

from meta._generated.table import ALIASES, FAMILIES
from meta.device import Device
from meta.dtype import is_complex
from meta.errors import MetaError, RegistryError, TypeInferenceError, add_operator_module, did_you_mean
from meta.ir.type import PATTERNS, FunctionType, Pattern, TensorType, TupleType, Type, Value, flat_types
from meta.op.positions import Rule
from meta.records import record
from meta.schema._dsl import Schema
from meta.tree import is_sequence

Amp = Literal["always", "never", "infer", "keep"]
AMP_RULES: tuple[str, ...] = get_args(Amp)
Complex = Literal["", "analytic", "as_is"]
COMPLEX_RULES: tuple[str, ...] = get_args(Complex)
TypeFunction = Callable[..., Type]
SEPARATOR = "::"


def split(name: str) -> tuple[str, str]:
    """The namespace of an operator's name, "" without one, and the rest."""
    namespace, _, rest = name.rpartition(SEPARATOR)
    return namespace, rest


@record(eq=False)
class Op:
    """One base operator and the facts about it.

    name: its public name, such as `relu`, or `mypkg::relu` in the namespace of a package.
    family: the basename of the files that describe it (`nn`, `unary`, ...).
    schema: its arguments.
    declare: the type function, argument types -> result type.
    doc: one paragraph for users.
    pattern: how it fuses and which schedule fits.
    amp: mixed precision: "always" runs in low precision, "never" in float32, "infer" in the precision of its inputs,
        "keep" leaves its inputs unchanged.
    amp_args: the arguments that mixed precision may cast; if empty, all tensors except those updated in place.
    amp_refusal: for an operator that needs digits of its first operand which low precision lacks: what to do instead of
        passing one in low precision, which mixed precision refuses. "" for other operators.
    inplace: result index -> name of the argument whose storage that result reuses.
    method: whether arrays have it as a method.
    aliases: other names of its function and method, such as those in torch or NumPy.
    operator: the Python special method it implements ("__add__").
    view: the result shares the storage of the first tensor; only the shape differs.
    part: the results are copies of elements of the first tensor in another order, which NumPy would return as views;
        as methods' results they refuse writes (see meta.parts).
    no_compute: why it has no TVM compute, but runs in libraries, which programs call; "" for operators that have one.
    positions: the values that tensors of positions may have (see meta.op.positions).
    outputs: names of the results, for docs and gradient formulas, when there are several.
    resolve: for results whose shape depends on values: arguments without those sizes -> arguments with them.
    revision: how many operators of this name the process had before, which distinguishes their kernels.
    complex: whether it takes complex tensors, or creates them: "" does not; "analytic" does, and is complex
        differentiable or linear, so that its real formula serves as a gradient (see meta.op.grad.rule.conjugated);
        "as_is" does, and its formula is the gradient for complex tensors as it is written.
    recorded_as: the operator that replaces it where gradients are recorded: with the same arguments and the same first
        result, and further results that the gradient reads.
    gradient: the entry that `meta.define` got, as in derivatives.yaml; None for the operators of that table.
    """

    name: str
    family: str
    schema: Schema
    declare: TypeFunction
    doc: str
    pattern: Pattern = "opaque"
    amp: Amp = "infer"
    amp_args: tuple[str, ...] = ()
    amp_refusal: str = ""
    inplace: Mapping[int, str] = field(default_factory=dict[int, str])
    method: bool = False
    aliases: tuple[str, ...] = ()
    operator: str = ""
    view: bool = False
    part: bool = False
    no_compute: str = ""
    positions: Rule | None = None
    outputs: tuple[str, ...] = ()
    resolve: Callable[..., tuple[Any, ...]] | None = None
    complex: Complex = ""
    recorded_as: str = ""
    gradient: Any = None
    revision: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The name, then the aliases."""
        return (self.name, *self.aliases)

    @property
    def namespace(self) -> str:
        """The part of the name before "::", "" without one."""
        return split(self.name)[0]

    @property
    def basename(self) -> str:
        """The name without the namespace, which is the name of its function."""
        return split(self.name)[1]

    @property
    def path(self) -> str:
        """Python for its function: `meta.relu`, or `meta.ops.mypkg.relu`."""
        return f"meta.ops.{self.namespace}.{self.basename}" if self.namespace else f"meta.{self.name}"

    def __repr__(self) -> str:
        return f"<Op {self.name}>"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return get, (self.name,)

    def infer(self, args: Sequence[Any]) -> Type:
        """The result type of a call with `args` in schema order: tensors by anything with a `.type`, or by their
        TensorType. Raises TypeInferenceError, in the operator's name, when they do not fit."""
        try:
            types = [*map(as_type, args)]
            if self.complex:
                return self.declare(*types)
            _refuse_complex_operands(self.schema, types)
            return _real(self.declare(*types))
        except MetaError as error:
            error.attribute(self.name)
            raise


def _refuse_complex_operands(schema: Schema, types: Sequence[Any]) -> None:
    """Raise TypeInferenceError for complex tensors and numbers among the arguments."""
    for arg, kind in zip(schema.args, types, strict=True):
        if isinstance(kind, complex):
            raise TypeInferenceError("", f"'{arg.name}' is the complex number {kind}", "a real number")
        for t in (kind,) if isinstance(kind, TensorType) else flat_types((kind,)) if arg.type.role == "tensors" else ():
            if is_complex(t.dtype):
                remedy = f"take a part of it: meta.real({arg.name}), meta.imag({arg.name}) or abs({arg.name})"
                raise TypeInferenceError("", f"'{arg.name}' has dtype {t.dtype}", "a real dtype", remedy)


def _real(out: Type) -> Type:
    """A result type, which is not complex, or TypeInferenceError."""
    if any(is_complex(t.dtype) for t in flat_types((out,))):
        raise TypeInferenceError(
            "", "the result would be complex", "a real dtype", "make it of real parts: meta.complex"
        )
    return out


def as_type(arg: object) -> Any:
    """An argument as a type function sees it: tensors become their types, attributes stay."""
    if is_sequence(arg):
        return tuple(map(as_type, arg))
    if isinstance(arg, (Device, str, int, float)):
        return arg
    kind = arg if isinstance(arg, TensorType) else getattr(arg, "type", None)
    if isinstance(kind, TensorType):
        return kind
    if isinstance(arg, (TupleType, FunctionType, Value)):
        raise TypeInferenceError("", f"an operand has type {str(arg)[:200]}", "tensors and attributes", _NO_TENSOR)
    return arg


_NO_TENSOR = "take a field of a tuple, or call a function, and pass the result"


USER = "user"
"""The family of the operators that are defined outside of this package."""
_ops: dict[str, Op] = {}
_FACTS: Final = tuple(each.name for each in fields(Op) if each.name not in ("name", "schema", "declare", "revision"))
"""The fields of `Op` that a declaration may give."""
_aliases: dict[str, str] = {}
"""Alias -> name of the operator."""
_revisions: Counter[str] = Counter()
_DECLARATIONS = "meta.op.declare"
_loaded = False
"""Whether all families are imported; until then, a look-up imports the family of its operator."""


def declare(name: str, *, schema: Schema, doc: str = "", **facts: Any) -> Callable[[TypeFunction], TypeFunction]:
    """Register the decorated type function as the declaration of operator `name`; `facts` are fields of `Op`, where
    `family` is the basename of the function's module unless given.

    Raises RegistryError when the name is taken or a fact is unknown."""
    check_facts(name, facts)

    def register(function: TypeFunction) -> TypeFunction:
        family = facts.pop("family", function.__module__.rsplit(".", 1)[-1])
        add(Op(name, family, schema, function, doc or _doc(function), **facts))
        return function

    return register


def check_facts(name: str, facts: Mapping[str, Any], accepted: Sequence[str] = ()) -> None:
    """Raise RegistryError for a fact of operator `name` that is not `accepted`, by default as a field of `Op`."""
    accepted = accepted or _FACTS
    for fact in facts:
        if fact not in accepted:
            raise RegistryError(name, f"unknown fact '{fact}'", ", ".join(accepted), did_you_mean(fact, accepted))


def add(op: Op) -> Op:
    """Register `op`, or raise RegistryError: one of its names is taken or invalid, or one of its facts is wrong."""
    _check(op)
    revision = _revisions[op.name]
    _revisions[op.name] += 1
    op = replace(op, revision=revision) if revision else op
    restore(op)
    return op


def check_name(name: str) -> None:
    """Raise RegistryError for a name that cannot be an attribute in Python, such as "a-b"."""
    parts = name.split(SEPARATOR)
    if len(parts) > 2 or not all(part.isidentifier() and not iskeyword(part) for part in parts):
        words = [re.sub(r"\W+", "_", part).strip("_") or "op" for part in parts[:2]]
        valid = SEPARATOR.join(f"op_{word}" if not word.isidentifier() or iskeyword(word) else word for word in words)
        problem = f"an operator cannot be called {name!r}"
        raise RegistryError("registry", problem, "names as Python's", f"write '{valid}'")


def _check(op: Op) -> None:
    if op.family == USER:
        for name in op.names:
            owner(name)  # imports the family that has the name
    if op.name in _ops:
        raise RegistryError("registry", f"operator '{op.name}' is declared twice", "one declaration a name")
    for name in op.names:
        check_name(name)
        if name in _ops or name in _aliases or op.names.count(name) > 1:
            problem = f"the name '{name}' belongs to operator '{_aliases.get(name, name)}'"
            raise RegistryError(op.name, problem, "names of one operator each")
    for fact, value, allowed in (("pattern", op.pattern, PATTERNS), ("amp", op.amp, AMP_RULES),
                                 ("complex", op.complex, COMPLEX_RULES)):  # fmt: skip
        if value not in allowed:
            hint = did_you_mean(str(value), allowed)
            raise RegistryError(op.name, f"{fact} is {value!r}", f"{', '.join(allowed)}", hint)
    for fact, names in (("inplace", op.inplace.values()), ("amp_args", op.amp_args)):
        unknown = set(names) - set(op.schema.names)
        if unknown:
            raise RegistryError(op.name, f"{fact} names {sorted(unknown)}", f"arguments of {op.schema!r}")


def remove(name: str) -> None:
    """Remove the operator `name` with its aliases, if there is one."""
    op = _ops.pop(name, None)
    for alias in op.aliases if op else ():
        del _aliases[alias]


def restore(op: Op) -> None:
    """Register an operator that was removed again, as it was."""
    _ops[op.name] = op
    _aliases.update(dict.fromkeys(op.aliases, op.name))
    add_operator_module(str(getattr(op.declare, "__module__", "")))


def check_registered(op: object) -> None:
    """Raise RegistryError for an operator that was redefined or unregistered, in a program recorded before that."""
    if isinstance(op, Op) and _ops.get(op.name) is not op:
        what = "redefined" if op.name in _ops else "unregistered"
        raise RegistryError(
            op.name,
            f"the operator was {what} after the program was recorded",
            "programs of registered operators",
            "record the program again",
        )


def _doc(function: TypeFunction) -> str:
    return (function.__doc__ or "").strip()


def load() -> None:
    """Import every declaration module once. The next call imports the modules that an interrupt left out."""
    global _loaded
    if _loaded:
        return
    for module in iter_modules(import_module(_DECLARATIONS).__path__):
        _load_family(module.name)
    _loaded = True


def _load_family(family: str) -> None:
    """Import the declarations of a family."""
    module = f"{_DECLARATIONS}.{family}"
    try:
        import_module(module)
    except BaseException:
        if module not in sys.modules:
            for op in [op for op in list(_ops.values()) if op.family == family]:
                remove(op.name)  # its module was interrupted, and declares it again
        raise


def _load_owner(name: str) -> Op | None:
    """The operator with this name or alias after the import of its family, None if this package has none."""
    if SEPARATOR not in name:
        family = FAMILIES.get(ALIASES.get(name, name))
        if family is not None:
            _load_family(family)
        else:
            load()  # an operator that the table does not list yet
    return _ops.get(_aliases.get(name, name))


def get(name: str) -> Op:
    """The operator with this name or alias; raises RegistryError that suggests similar names."""
    if not isinstance(name, str):
        wrong = f"the name is of class {type(name).__name__}"
        raise RegistryError("registry", wrong, 'a name, such as "softmax"')
    op = _ops.get(name) or owner(name) or _of_plugins(name)
    if op is None:
        load()
        hint = did_you_mean(name, [*_ops, *_aliases])
        raise RegistryError("registry", f"none of {len(_ops)} operators is called '{name}'", remedy=hint)
    return op


def _of_plugins(name: str) -> Op | None:
    """The operator of a name that installed packages define; they are imported at the first unknown name."""
    from meta.op import plugins

    plugins.load(plugins.OPERATORS)
    return _ops.get(_aliases.get(name, name))


def find(op: str | Callable[..., Any]) -> Op:
    """The operator of a name, or of a public function; raises RegistryError as `get` does."""
    return get(op if isinstance(op, str) else getattr(op, "op_name", getattr(op, "__name__", op)))  # type: ignore[arg-type]


def owner(name: str) -> Op | None:
    """The operator with this name or alias, None if the name is free."""
    return _ops.get(_aliases.get(name, name)) or _load_owner(name)


def names() -> set[str]:
    """The names and aliases of the operators without a namespace."""
    return {name for name in (*FAMILIES, *ALIASES, *_ops, *_aliases) if SEPARATOR not in name}


def all_ops() -> Iterator[Op]:
    """Every operator, by family, then by name."""
    load()
    return iter(sorted(_ops.values(), key=lambda op: (op.family, op.name)))
