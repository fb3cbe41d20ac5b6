"""`meta.torch.register`: operators of meta as operators of torch."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from meta.errors import NotSupportedError, RegistryError
from meta.frontend.torch.operators import derivatives, hooks, kernels
from meta.frontend.torch.operators.autograd import autograd_kernel
from meta.frontend.torch.operators.schemas import TorchOverload, TorchParameter, overloads
from meta.frontend.torch.operators.strided import layout_tag
from meta.locks import new_lock
from meta.op import registry
from meta.op.registry import Op, split
from meta.records import record

NAMESPACE = "meta"
"""Torch's namespace of the operators without one."""

RESERVED = frozenset({
    "_c10d_functional", "aten", "c10d", "debugprims", "higher_order", "inductor", "mkldnn", "onednn", "prim", "prims",
    "profiler", "quantized", "quantized_decomposed", "rngprims", "symm_mem", "torch", "torchvision",
})  # fmt: skip
"""Namespaces of torch and its libraries."""


@record(eq=False)
class Registered:
    """An operator of torch. overloads, parameters: by the name of the overload."""

    op: Op
    overloads: dict[str, Any]
    parameters: dict[str, tuple[TorchParameter, ...]]


_OpNamespace: Any = torch._ops._OpNamespace


class _Namespace(_OpNamespace):
    """A namespace of torch whose operators are made at their first use.

    Code in torch's caches calls operators that were made because a gradient called them, in a process that does not
    compute that gradient."""

    __module__ = _OpNamespace.__module__  # the path by which torch pickles operators

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            full = name if self.name == NAMESPACE else f"{self.name}::{name}"
            op = None if name.startswith("_") or _defining.get(full) == get_ident() else registry.owner(full)
            if op is None or op.name != full or _refused(op):
                raise
            ensure(op)
            return super().__getattr__(name)


_registered: dict[str, Registered] = {}
"""By the name of meta."""
_defining: dict[str, int] = {}
"""The threads that are defining operators, by name: torch asks for an operator before it defines it."""
_asked: set[str] = set()
"""Names that `register` got; others were registered because a gradient calls them."""
_libraries: dict[str, torch.library.Library] = {}
_lock = new_lock("operators of torch")


def register(*operators: str | Callable[..., Any]) -> None:
    """Make operators of meta operators of torch: `torch.ops.meta.rms_norm(x, w)`, `torch.ops.mypkg.swish(x)`.

        meta.torch.register("rms_norm", "mypkg::swish")

    operators: names or public functions; without any, all that torch can call and that are not registered yet.
    They run on torch's tensors and share memory with them, differentiate to any order, and work under torch.compile,
    torch.export, torch.func, vmap and autocast. An operator of a package has its namespace, the others have `meta`.
    Raises RegistryError for an unknown name, a second registration and a namespace of torch, NotSupportedError for an
    operator that torch cannot call: one that writes its arguments, communicates, or returns sizes. Then nothing is
    registered."""
    if not operators:
        for op in list(registry.all_ops()):
            if op.name not in _asked and not _refused(op):
                ensure(op)
                _asked.add(op.name)
        return
    found = [registry.find(each) for each in operators]
    for op in found:
        if op.name in _asked or found.count(op) > 1:
            problem = f"it is registered already, as torch.ops.{_torch_name(op).replace('::', '.')}"
            raise RegistryError(op.name, problem, "one registration per operator")
        _check_namespace(op)
        overloads(op)
    for op in found:
        ensure(op)
        _asked.add(op.name)


def _refused(op: Op) -> bool:
    try:
        _check_namespace(op)
        overloads(op)
    except (NotSupportedError, RegistryError):
        return True
    return False


def _torch_name(op: Op) -> str:
    namespace, name = split(op.name)
    return f"{namespace or NAMESPACE}::{name}"


def _check_namespace(op: Op) -> None:
    if op.namespace in RESERVED:
        raise RegistryError(op.name, f"torch reserves the namespace '{op.namespace}'", "a namespace of your own")


def ensure(op: Op) -> Registered:
    """The operator of torch, which is made if there is none."""
    known = _registered.get(op.name)
    if known is not None and known.op is op:
        return known
    with _lock:
        known = _registered.get(op.name)
        if known is None:
            _defining[op.name] = get_ident()
            try:
                known = _registered[op.name] = _define(op)
            finally:
                del _defining[op.name]
        elif known.op is not op:
            raise RegistryError(
                op.name, "it was redefined after torch got it", "one definition", "restart the process to register it"
            )
    return known


def find_twin(name: str, overload: str) -> Callable[..., Any] | None:
    """The function of meta's tensors that an operator of torch made here calls; None for others.

    name: "namespace::operator"."""
    namespace, base = name.split("::")
    known = _registered.get(base if namespace == NAMESPACE else name)
    if known is None:
        return None
    parameters = known.parameters["" if overload == "default" else overload]
    function = kernels.function_of(known.op)

    def run(*args: Any, **kwargs: Any) -> Any:
        values = [*args, *(kwargs.get(p.arg.name, None if p.stands_in or p.arg.required else p.arg.default)
                           for p in parameters[len(args) :])]  # fmt: skip
        return function(*(p.from_torch(value, int) for p, value in zip(parameters, values, strict=True)))

    return run


def _define(op: Op) -> Registered:
    namespace, name = _torch_name(op).split("::")
    library = _libraries.get(namespace)
    if library is None:
        library = _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
        getattr(torch.ops, namespace).__class__ = _Namespace
    signatures = overloads(op)
    for overload in signatures:
        try:
            library.define(overload.schema(name), tags=(torch.Tag.pt2_compliant_tag, layout_tag(op)))
        except RuntimeError as error:
            raise RegistryError(
                op.name, f"torch has an operator {namespace}::{name} already", "another name"
            ) from error
    for overload in signatures:
        _implement(library, f"{name}.{overload.name}".rstrip("."), op, overload)
    packet = getattr(getattr(torch.ops, namespace), name)
    return Registered(
        op,
        {o.name: getattr(packet, o.name or "default") for o in signatures},
        {o.name: o.parameters for o in signatures},
    )


def _implement(library: torch.library.Library, name: str, op: Op, overload: TorchOverload) -> None:
    """Register the kernels of an overload, made at their first calls."""
    qualified = f"{library.ns}::{name}"
    if any(p.is_tensor for p in overload.parameters):
        on_cpu = hooks.at_first_call(lambda: kernels.cpu_kernel(op, overload))
        library.impl(name, on_cpu, "CPU")
        library.impl(name, hooks.at_first_call(lambda: kernels.cuda_kernel(op, overload)), "CUDA")
        for kind in ("cpu", "cuda"):
            library.impl(name, hooks.autocast(op, overload, kind), f"Autocast{kind.upper()}")
        torch.library.register_vmap(qualified, derivatives.batched(op, overload, ensure), lib=library)
        if op.recorded_as:
            library.impl(name, hooks.recorded(op, overload, ensure), "Autograd", with_keyset=True)
        else:
            kernel = hooks.at_first_call(lambda: autograd_kernel(op, overload, ensure, on_cpu))
            library.impl(name, kernel, "Autograd", with_keyset=True)
    else:
        kernel = hooks.at_first_call(lambda: kernels.cpu_kernel(op, overload))
        library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, hooks.fake(op, overload), lib=library)
