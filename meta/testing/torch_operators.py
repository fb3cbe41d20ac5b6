"""torch_opcheck: an operator of meta as an operator of torch, in torch's own check of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meta import dtype as dtypes
from meta.op.grad.rule import gradient_rule
from meta.op.registry import Op, find
from meta.testing.call import is_array
from meta.testing.operators import cases_of
from meta.testing.samples import Sample
from meta.tree import leaves_of, with_leaves


class TorchCall:
    """A call with torch's tensors as a call of torch: an overload, and its arguments in the order of its schema."""

    def __init__(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        from meta.frontend.torch.operators.registration import ensure

        self.op = op
        given = {**dict(zip(op.schema.names, args, strict=False)), **kwargs}
        registered = ensure(op)
        overload = "_".join(a.name for a in op.schema.args if _is_other(a, given.get(a.name, a.default)))
        self.overload = registered.overloads[overload]
        self.parameters = registered.parameters[overload]
        last = max((i for i, p in enumerate(self.parameters) if p.arg.name in given), default=-1)
        self.values = tuple(
            self._argument(p, given.get(p.arg.name, None if p.stands_in else p.arg.default))
            for p in self.parameters[: last + 1]
        )

    def _argument(self, parameter: Any, value: Any) -> Any:
        if value is None or parameter.is_tensor:
            return value
        if parameter.type.startswith("ScalarType"):
            import torch

            return getattr(torch, dtypes.canonical(value))
        if parameter.type.startswith("SymInt["):
            return list(parameter.arg.normalize(self.op.name, value))
        return float(value) if parameter.type.startswith("float") else value

    def tracked(self) -> tuple[Any, ...]:
        """The arguments; tensors that have a gradient require it."""
        rule = gradient_rule(self.op.name)
        positions = set(rule.differentiable) - rule.unavailable.keys() if rule is not None else set[int]()
        return tuple(
            with_leaves(v, [_track(x) for x in leaves_of(v)]) if i in positions else v
            for i, v in enumerate(self.values)
        )

    def problems(self) -> dict[str, str]:
        """What torch's opcheck finds, by its tests; {} if nothing."""
        from torch import library

        torch_library: Any = library
        found: dict[str, Any] = torch_library.opcheck(self.overload, self.tracked(), raise_exception=False)
        return {name: str(result) for name, result in found.items() if result != "SUCCESS"}


def torch_opcheck(op: Op | str | Callable[..., Any], *samples: Sequence[Any] | Mapping[str, Any] | Sample) -> None:
    """Run `torch.library.opcheck` on an operator of meta that `meta.torch.register` makes an operator of torch.

        torch_opcheck(mypkg.swish, (T(3, 4), 2.0))

    op, samples: as for `meta.testing.opcheck`; without samples, some are derived from the schema.
    It checks the schema, the registration of gradients, the kernel on tensors without memory, and compilation with
    static and symbolic sizes. Raises AssertionError with what it finds."""
    operator = op if isinstance(op, Op) else find(op)
    for i, case in enumerate(cases_of(operator, samples, "cpu")):
        call = case.call.map(_tensor)
        problems = TorchCall(operator, call.args, call.kwargs).problems()
        assert not problems, f"{operator.name}, sample {i}: {problems}"


def _tensor(array: Any) -> Any:
    import torch

    return torch.as_tensor(array)


def _is_other(arg: Any, value: Any) -> bool:
    """Whether an argument selects another overload than the first."""
    is_number = isinstance(value, (bool, int, float, complex))
    return (arg.type.role == "scalar" and is_number) or (arg.type.name == "Sections" and not is_number)


def _track(x: Any) -> Any:
    return x.clone().requires_grad_() if is_array(x) and (x.is_floating_point() or x.is_complex()) else x
