"""Layers that call one function: with the operands of the layer, then with its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import meta
from meta.model.model import Model
from meta.schema.annotations import checked


class FunctionLayer(Model):
    """A layer that calls the function of meta that has the layer's name in lower case, or another one.

        class ELU(FunctionLayer):
            alpha: float = 1.0

        class MSELoss(FunctionLayer, function="mse_loss", operands=("x", "target")):
            reduction: Reduction = "mean"

    Annotated attributes are its options: parameters of the constructor, and the function's arguments behind the
    operands, both in this order."""

    _function: ClassVar[str] = ""
    _operands: ClassVar[Sequence[str]] = ("x",)

    def __init_subclass__(cls, function: str | None = "", operands: Sequence[str] = (), **options: object) -> None:
        """function: None for a base class.  operands: names of the parameters of `forward`, by default the base's."""
        cls._operands = operands or cls._operands
        if function or (function == "" and not cls._function):
            annotations = inspect.get_annotations(cls, eval_str=True)
            cls._function = function or cls.__name__.lower()
            if annotations:
                cls.build = checked(_constructor(cls, annotations), is_constructor=True)
            if "forward" not in vars(cls):
                cls.forward = _forward(cls._function, cls._operands, annotations)
        super().__init_subclass__(**options)

    def _set_option(self, name: str, value: Any) -> None:
        setattr(self, name, value)


def _constructor(cls: type[Any], annotations: dict[str, Any]) -> Callable[..., None]:
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    parameters = [
        inspect.Parameter(name, kind, default=getattr(cls, name, empty), annotation=annotation)
        for name, annotation in annotations.items()
    ]
    signature = inspect.Signature([inspect.Parameter("self", kind), *parameters])

    def build(self: FunctionLayer, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name in annotations:
            self._set_option(name, bound.arguments[name])

    build.__signature__ = signature
    return build


def _forward(function: str, operands: Sequence[str], options: Iterable[str]) -> Any:
    """`def forward(self, x): return meta.elu(x, self.alpha)`: a call of a layer takes a microsecond or two."""
    arguments = ", ".join((*operands, *(f"self.{option}" for option in options)))
    source = f"def forward(self, {', '.join(operands)}): return meta.{function}({arguments})"
    space: dict[str, Any] = {"meta": meta, "__name__": __name__}
    exec(compile(source, __file__, "exec"), space)
    return space["forward"]
