"""`meta.torch.provide`: operators of meta as implementations in registries of other projects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import wraps
from typing import Any, Final

import torch

from meta.eager.explain import Explanation, explain
from meta.errors import MetaError, RegistryError, did_you_mean
from meta.frontend.torch.operators.registration import NAMESPACE, ensure
from meta.frontend.torch.operators.sizes import Symbols
from meta.op.dispatch import dialect as dialect_of
from meta.op.dispatch import implementation, with_dialect
from meta.op.registry import Op, find
from meta.tree import leaves_of, with_leaves

_SUBJECT: Final = "torch.provide"


class Provider:
    """An operator of meta with the signature of another function.

    function: the operator on torch's tensors, with the signature, the annotations and the name of the other function.
    """

    def __init__(self, op: Op, like: Callable[..., Any], arguments: Mapping[str, str], dialect: str) -> None:
        self._op = op
        self._signature = inspect.signature(like)
        self._arguments = arguments
        self._dialect = dialect
        packet = getattr(getattr(torch.ops, op.namespace or NAMESPACE), op.basename)

        @wraps(like)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._chosen():
                return packet(**self._bound(args, kwargs))

        self.function: Callable[..., Any] = run

    @property
    def priority(self) -> int:
        """The plevel of the dialect's implementation, by which meta orders kernels; 0 without a dialect."""
        found = implementation(self._op, self._dialect) if self._dialect else None
        return 0 if found is None else found.plevel

    def supports(self, *args: Any, **kwargs: Any) -> bool:
        """Whether it can run a call of the other function, by the types of the arguments; nothing is computed."""
        try:
            return self.explain(*args, **kwargs).chosen is not None
        except MetaError:
            return False

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """What `meta.explain` says of a call of the other function: the kernel that runs it, and why others do not.

        Raises what the call would."""
        symbols = Symbols()
        given = self._bound(args, kwargs)
        types = {name: with_leaves(value, [_typed(leaf, symbols) for leaf in leaves_of(value)])
                 for name, value in given.items()}  # fmt: skip
        with self._chosen():
            return explain(self._op.name, **types)

    def _chosen(self) -> Any:
        return with_dialect(self._dialect) if self._dialect else nullcontext()

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The operator's arguments by name. Raises RegistryError for a parameter that it has no argument for."""
        parameters, given = self._signature.parameters, dict[str, Any]()
        for name, value in self._signature.bind(*args, **kwargs).arguments.items():
            if name in self._arguments:
                given[self._arguments[name]] = value
            elif value is not None and value != parameters[name].default:
                raise RegistryError(self._op.name, f"it has no argument for '{name}'", "a call without it")
        return given

    def __repr__(self) -> str:
        return f"<Provider of {self._op.name}{self._dialect and f' by {self._dialect}'}>"


def _typed(value: Any, symbols: Symbols) -> Any:
    return symbols.type(value) if isinstance(value, torch.Tensor) else value


def provide(
    operator: str | Callable[..., Any], like: Callable[..., Any], *, arguments: Mapping[str, str] | None = None,
    dialect: str = "",
) -> Provider:  # fmt: skip
    """An operator of meta as an implementation for a registry of operators on torch's tensors, such as vLLM's.

        provided = meta.torch.provide("rms_norm", like=native, arguments={"weight": "scale", "epsilon": "eps"})
        registry.rms_norm.register_impl("meta", supports_args=provided.supports)(provided.function)

    operator: its name or public function.
    like: the function that defines the operator in the registry; the provided function has its signature.
    arguments: the operator's argument for each parameter of `like` with another name. Calls that pass a parameter for
        which the operator has no argument are not supported, unless it is None or its default.
    dialect: the dialect that computes it, for a registry that chooses between kernels itself: `priority` is its plevel.
        By default meta chooses the kernel of each call.
    Raises RegistryError for unknown names and missing arguments, NotSupportedError for an operator that torch cannot
    call."""
    op = find(operator)
    ensure(op)
    named, parameters = dict(arguments or {}), [*inspect.signature(like).parameters]
    for wrong, known in [*((n, parameters) for n in named), *((t, op.schema.names) for t in named.values())]:
        if wrong not in known:
            hint = did_you_mean(wrong, known)
            raise RegistryError(_SUBJECT, f"arguments names {wrong!r}", f"one of {', '.join(known)}", hint)
    targets = {name: named.get(name, name) for name in parameters}
    mapped = {name: target for name, target in targets.items() if target in op.schema.names}
    missing = [arg.name for arg in op.schema.args if arg.required and arg.name not in mapped.values()]
    if missing:
        problem = f"{getattr(like, '__name__', 'the function')} has no parameter for '{missing[0]}' of {op.name}"
        raise RegistryError(_SUBJECT, problem, f'arguments={{"...": "{missing[0]}"}}')
    return Provider(op, like, mapped, dialect_of(dialect).name if dialect else "")
