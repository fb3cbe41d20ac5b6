"""The parts that an operator can have, which of them an operator has, and how to add the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from meta.inspect.description import Description, describe
from meta.inspect.gradient import UNDEFINED
from meta.op.registry import Op

State = Literal["present", "not needed", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class Part:
    """Whether an operator has one of `PARTS`.

    state: "not needed" says that the operator answers without it, for the reason `note`: it is not differentiable, its
        gradient is not implemented for a stated reason, or it needs no kernel. "unknown": cannot be found out here.
    note: what there is, or why it is not needed.  remedy: how to add it, if it is missing.
    """

    state: State
    note: str = ""
    remedy: str = ""


def checklist(operator: str | Op | Description) -> dict[str, Part]:
    """The state of every part in `PARTS`, by its name.

    operator: its name, itself or its description. Raises RegistryError, with similar names, for an unknown one."""
    description = operator if isinstance(operator, Description) else describe(operator)
    return {name: check(description) for name, check in _CHECKS.items()}


def _of_user(d: Description) -> bool:
    return d.family == "user"


def _grad(d: Description) -> Part:
    state = d.gradient.state
    if state == UNDEFINED:
        return Part("missing", "meta.define got no gradient", 'gradient={"x": ...}, or gradient="non_differentiable"')
    absent = [called.name for called in d.gradient.calls if called.state == "missing"]
    if absent:
        calls = f"the gradient calls {', '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not declared"
        return Part("missing", calls, "declare the backward operator, or correct the name")
    if state == "differentiable":
        return Part("present", "formula")
    return Part("not needed", f"not implemented: {d.gradient.reason}" if d.gradient.reason else "non-differentiable")


def _second(d: Description) -> Part:
    grad = _grad(d)
    if grad.state != "present":
        return Part("not needed", grad.note) if grad.state == "not needed" else grad
    undefined = [called.name for called in d.gradient.calls if called.state == UNDEFINED]
    if undefined:
        return Part("missing", f"no gradient of {', '.join(undefined)}", "give the backward operator a gradient")
    reasons = [f"{c.name}: {c.reason}" for c in d.gradient.calls if c.state == "not_implemented"]
    return Part("not needed", f"not implemented: {'; '.join(reasons)}") if reasons else Part("present", "formulas")


def _dialect(name: str, remedy: str) -> Callable[[Description], Part]:
    def check(d: Description) -> Part:
        kernel = next((k for k in d.kernels if k.dialect == name), None)
        if kernel is not None:
            return Part("present", f"off: {kernel.off}" if kernel.off else f"plevel {kernel.plevel}")
        if d.without_kernel:
            return Part("not needed", "needs no kernel")
        if d.no_compute and name == "tvm":
            return Part("not needed", d.no_compute)
        argument = f"{name}=... of meta.define" if _of_user(d) else remedy.format(family=d.family, name=d.name)
        return Part("missing", "no implementation", argument)

    return check


def _cuda(d: Description) -> Part:
    if d.without_kernel:
        return Part("not needed", "needs no kernel")
    on_cuda = [k.dialect for k in d.kernels if "cuda" in k.devices]
    if on_cuda:
        return Part("present", ", ".join(on_cuda))
    return Part("missing", "no dialect for CUDA devices implements it", "a TVM compute runs on the CPU and on CUDA")


def _amp(d: Description) -> Part:
    if d.amp == "keep" or d.amp_args:
        return Part("present", d.amp)
    if not any("Tensor" in argument.type or "Scalar" in argument.type for argument in d.arguments):
        return Part("not needed", "takes no tensors")
    return Part("missing", f"the rule {d.amp!r} casts nothing, for arguments are written in place",
                'amp_args=(...) names the arguments to cast; amp="keep" casts none')  # fmt: skip


def _samples(d: Description) -> Part:
    if d.samples.count is None:
        return Part("unknown", d.samples.problem)
    if d.samples.count:
        return Part("present", f"{d.samples.count}")
    if _of_user(d):
        return Part("missing", "no row", "SAMPLES = [meta.testing.Sample(...)] in a module that --import names")
    return Part("missing", "no row", f"a Sample in tests/python/op/samples/{d.family}.py")


def _docs(d: Description) -> Part:
    if d.doc in ("", d.name):
        return Part("missing", "no description", "a docstring of the type function")
    silent = [argument.name for argument in d.arguments if not argument.doc]
    if silent:
        return Part("missing", f"no text for {', '.join(silent)}", 'Arg("x", Tensor, doc="...")')
    return Part("present", "description and arguments")


_CHECKS: Mapping[str, Callable[[Description], Part]] = {
    "grad": _grad,
    "second": _second,
    "tvm": _dialect("tvm", '@compute("{name}") in meta/op/dialect/tvm/{family}.py'),
    "torch": _dialect("torch", "meta/op/dialect/torch/{family}.py, if ATen measured faster"),
    "cuda": _cuda,
    "reference": _dialect(
        "reference",
        "a decomposition in meta/op/decompose/{family}.py, "
        "or a NumPy function in meta/op/dialect/reference/{family}.py",
    ),
    "amp": _amp,
    "samples": _samples,
    "docs": _docs,
}
PARTS: tuple[str, ...] = tuple(_CHECKS)
"""grad, second: gradients of first and second order.  tvm, torch, reference: an implementation in that dialect.
cuda: one for CUDA devices.  amp: a rule of mixed precision that has an effect.  samples: rows of the generic tests.
docs: a description and a sentence for each argument."""
