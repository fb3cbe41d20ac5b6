"""meta/_generated/methods.py: operators as methods and Python operators of arrays and symbols."""

from __future__ import annotations

from collections.abc import Sequence

from meta.op.codegen.methods import in_place_method, method, special_method
from meta.op.registry import Op
from scripts.src_codegen.layout import by_family, header

_IMPORTS = '''
# ruff: noqa: A001, A002, E501

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

import meta
from meta.errors import NotSupportedError
from meta.parts import mark_part
from meta.schema._dsl import TensorLike
from meta.schema.annotations import bound_by_schema

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self

    from meta.device import Device
    from meta.dim import Dim
    from meta.dtype import Number
    from meta.ir.type import TensorType

    DeviceLike = Device | str
    DTypeLike = Any
    Index = Any

T = TypeVar("T", bound="Tensor")


def _ints(first: Any, more: tuple[int, ...]) -> Any:
    """The ints of `x.reshape(3, 2)` or `x.reshape((3, 2))`."""
    return (first, *more) if more else first


class Casts(TensorLike):
    """Casts by the names that they have in torch."""

    __slots__ = ()

    def half(self) -> Self:
        """The values as float16."""
        return self._cast("float16")

    def bfloat16(self) -> Self:
        """The values as bfloat16."""
        return self._cast("bfloat16")

    def float(self) -> Self:
        """The values as float32."""
        return self._cast("float32")

    def double(self) -> Self:
        """The values as float64."""
        return self._cast("float64")

    def short(self) -> Self:
        """The values as int16."""
        return self._cast("int16")

    def int(self) -> Self:
        """The values as int32."""
        return self._cast("int32")

    def long(self) -> Self:
        """The values as int64."""
        return self._cast("int64")

    def bool(self) -> Self:
        """The values as bool."""
        return self._cast("bool")

    def _cast(self, dtype: str) -> Self:
        raise NotImplementedError


class Tensor(Casts):
    """The base class of arrays and symbols, and their type in annotations: every operator that takes a tensor first is
    a method, and type checkers know the members that all of its subclasses have."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def type(self) -> TensorType: ...
        @property
        def shape(self) -> tuple[Any, ...]: ...  # ints, or SymDims in traces
        @property
        def dtype(self) -> str: ...
        @property
        def device(self) -> Device: ...
        @property
        def ndim(self) -> int: ...
        @property
        def size(self) -> Any: ...
        @property
        def nbytes(self) -> Any: ...
        @property
        def requires_grad(self) -> bool: ...
        @requires_grad.setter
        def requires_grad(self, required: bool) -> None: ...
        @property
        def grad(self) -> Self | None: ...
        def backward(self, dy: Any = None, *, retain_graph: bool = False, create_graph: bool = False) -> None: ...
        def detach(self) -> Self: ...
        def to(self, device: DeviceLike | None = None, dtype: DTypeLike = None) -> Self: ...
        def update(self, value: Any) -> None: ...
        def item(self) -> Any: ...
        def tolist(self) -> Any: ...
        def numpy(self, *, copy: bool = False) -> np.ndarray[Any, Any]: ...
        def __getitem__(self, index: Index) -> Self: ...
        def __setitem__(self, index: Index, value: Any) -> None: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Self]: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __hash__(self) -> int: ...

    @property
    def T(self) -> Self:
        """The axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Self:
        """The last two axes swapped."""
        return self.swap_axis(-2, -1)

    @property
    def mH(self) -> Self:
        """The complex conjugate with the last two axes swapped."""
        return meta.conj(self.mT)

    @property
    def real(self) -> Self:
        """The real part of each element."""
        return meta.real(self)

    @property
    def imag(self) -> Self:
        """The imaginary part of each element of a complex tensor."""
        return meta.imag(self)

    def _cast(self, dtype: str) -> Self:
        return meta.cast(self, dtype)

    def t(self) -> Self:
        """The transpose of a matrix; itself for fewer dimensions."""
        return self.T

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from start_dim to end_dim as one: by default, all elements in row-major order."""
        return meta.flatten(self, start_dim, end_dim)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The namespace of the array API standard (see meta.array_api).

        Raises NotSupportedError for a version that it does not have."""
        namespace = meta.array_api
        if api_version is not None and api_version not in namespace.VERSIONS:
            raise NotSupportedError(
                "__array_namespace__", f"api_version is {api_version!r}", ", ".join(namespace.VERSIONS)
            )
        return namespace

    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Self:
        """The tensor on `device`, as the array API has it; itself if it is there. Raises NotSupportedError for a
        `stream`: `meta.use_stream` sets it."""
        if stream is not None:
            raise NotSupportedError("to_device", f"stream is {stream!r}", "None", "use meta.use_stream")
        return self.to(device)

    def dim(self) -> int:
        """The number of dimensions."""
        return len(meta.shape(self))

    def _in_place(self, function: Callable[[Any, Any], Any], other: Any) -> Self:
        """The tensor, after `function(self, other)` was written into it."""
        raise NotImplementedError

    def __divmod__(self, other: Self | Number) -> tuple[Self, Self]:
        return self // other, self % other

    def __rdivmod__(self, other: Self | Number) -> tuple[Self, Self]:
        return other // self, other % self
'''

REFLECTED = {"__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__", "__matmul__",
             "__and__", "__or__", "__xor__", "__lshift__", "__rshift__"}  # fmt: skip


IN_PLACE = REFLECTED - {"__matmul__"}
"""`x @= y` remains `x = x @ y`, as in torch: the result has the shape of x for square matrices only."""


def render(ops: Sequence[Op]) -> str:
    parts = [header("Operators as methods."), _IMPORTS]
    for group in by_family(ops).values():
        for op in group:
            parts.extend(_methods(op))
    return "".join(parts)


def _methods(op: Op) -> list[str]:
    out: list[str] = []
    if op.operator:
        out.append(special_method(op, op.operator, reflected=False))
    if op.operator in REFLECTED:
        out.append(special_method(op, op.operator.replace("__", "__r", 1), reflected=True))
    if op.operator in IN_PLACE:
        out.append(in_place_method(op))
    if op.method:
        out.append(method(op))
    return out
