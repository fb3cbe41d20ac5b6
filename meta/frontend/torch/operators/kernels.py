"""Kernels of torch's operators that call meta's functions, on the memory of torch's tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

import meta
from meta import dtype as dtypes
from meta.backend.cuda import streams
from meta.backend.torch.bridge import _view as view_of
from meta.backend.tvm.runtime import ffi
from meta.device import CPU, Device
from meta.device import device as parse_device
from meta.eager.call import CACHE_LIMIT
from meta.eager.ndarray import NDArray
from meta.errors import NotSupportedError, RegistryError
from meta.frontend.torch.operators.schemas import TorchOverload
from meta.frontend.torch.operators.strided import on_strides
from meta.ir.type import TensorType, tensor_type
from meta.op.registry import Op, split

_COMPLEX = frozenset(dtypes.COMPLEX)


class _Types(dict[Any, TensorType | None]):
    """Types of tensors on the CPU by torch's dtype and shape; None for those whose memory does not pass as it is:
    complex ones, and empty ones, whose strides TVM reads otherwise."""

    def __missing__(self, key: tuple[torch.dtype, torch.Size]) -> TensorType | None:
        dtype, shape = key
        if len(self) >= CACHE_LIMIT:
            self.clear()
        is_passed = not dtype.is_complex and 0 not in shape
        kind = tensor_type(tuple(shape), dtypes.canonical(dtype, "torch"), CPU)
        self[key] = kind if is_passed else None
        return self[key]


_types = _Types()


def function_of(op: Op) -> Callable[..., Any]:
    """The public function of an operator."""
    namespace, name = split(op.name)
    return getattr(getattr(meta.ops, namespace), name) if namespace else getattr(meta, name)


def array_of(x: torch.Tensor) -> NDArray:
    """A tensor's memory as an array, a compact copy of it if it is strided."""
    if x.layout is not torch.strided:
        raise NotSupportedError("torch", f"a tensor has the layout {x.layout}", "strided tensors", "x.to_dense()")
    return meta.from_dlpack(x.detach())


def tensor_of(y: NDArray) -> torch.Tensor:
    """An array as a tensor of torch over its memory."""
    out = view_of(y._data.__dlpack__())
    return torch.view_as_complex(out) if y._type.dtype in _COMPLEX else out


@cache
def taker() -> Callable[[torch.Tensor], NDArray]:
    """`array_of` for tensors on the CPU."""
    convert, types = ffi().from_dlpack, _types

    def take(x: torch.Tensor) -> NDArray:
        kind = types[x.dtype, x.shape]
        if kind is None or not x.is_contiguous():
            return array_of(x)
        return NDArray(convert(x), kind)

    return take


def cpu_kernel(op: Op, overload: TorchOverload) -> Callable[..., Any]:
    """The kernel of an overload for tensors on the CPU."""
    return on_strides(op, overload, _kernel(op, overload, taker()), taker(), result_of(op, overload))


def cuda_kernel(op: Op, overload: TorchOverload) -> Callable[..., Any]:
    """The kernel of an overload for tensors on GPUs, on torch's current stream of the first tensor's device."""
    run = on_strides(op, overload, _kernel(op, overload, array_of), array_of, result_of(op, overload))

    def on_stream(*args: Any) -> Any:
        with stream_of(args):
            return run(*args)

    return on_stream


def stream_of(args: Any) -> Any:
    """A scope in which meta runs on torch's current stream of the device of the first tensor among `args`."""
    tensors = [x for arg in args for x in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    first = next((x for x in tensors if isinstance(x, torch.Tensor)), None)
    where = parse_device(str(first.device)) if first is not None else CPU
    return torch_stream(where)


def torch_stream(where: Device) -> Any:
    """A scope in which meta runs on torch's current stream of a GPU."""
    return streams.use_stream(torch.cuda.current_stream(where.index).cuda_stream, where)


def _kernel(op: Op, overload: TorchOverload, take: Callable[[torch.Tensor], NDArray]) -> Callable[..., Any]:
    """A function with the parameters of an overload. Its source names only what its arguments need, as every
    conversion costs a part of a microsecond."""
    defaults = overload.defaults()
    names = [f"a{i}" for i in range(len(defaults))]
    first_default = next((i for i, p in enumerate(overload.parameters) if p.default), len(names))
    heads = [name if i < first_default else f"{name}=d[{i}]" for i, name in enumerate(names)]
    values: list[str] = []
    for i, parameter in enumerate(overload.parameters):
        name, kind = names[i], parameter.type
        if parameter.is_list:
            values.append(f"[take(x) for x in {name}]")
        elif parameter.is_tensor:
            stand_in = f"p[{i}].arg.default" if parameter.stands_in else "None"
            values.append(f"{stand_in} if {name} is None else take({name})" if kind.endswith("?") else f"take({name})")
        elif kind in ("float", "bool", "str", "SymInt", "Scalar") and not parameter.stands_in:
            values.append(name)
        elif kind == "SymInt[]" and not parameter.stands_in:
            values.append(f"tuple(map(int, {name}))")
        else:
            values.append(f"p[{i}].from_torch({name}, int)")
    scope = {"d": defaults, "p": overload.parameters, "take": take}
    scope |= {"call": result_of(op, overload), "function": function_of(op)}
    return eval(f"lambda {', '.join(heads)}: call(function({', '.join(values)}))", scope)


def undeclared(op: Op) -> RegistryError:
    """The error of an operator that returns several results without saying so."""
    problem = "it returns several tensors, which its definition does not name"
    return RegistryError(op.name, problem, "names of the results", 'define it with outputs=("y", "mask")')


def result_of(op: Op, overload: TorchOverload) -> Callable[[Any], Any]:
    """The results of a call as torch's. Functional operators of torch return new memory, so views are copied."""
    if overload.results == "Tensor":

        def single(y: Any) -> torch.Tensor:
            try:
                return tensor_of(y).clone() if op.view else tensor_of(y)
            except AttributeError:
                raise undeclared(op) from None

        return single
    as_list = overload.results == "Tensor[]"

    def convert(ys: Any) -> Any:
        out = [tensor_of(y) for y in ys]
        return out if as_list else tuple(out)

    return convert
