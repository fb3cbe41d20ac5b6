"""Calls of ATen's operators as exported and training graphs make them, for rows that OpInfo has no samples of, and with
the arguments that only graphs have; and calls whose sizes are symbolic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from meta.frontend.torch import aten
from tests.python.conformance.rows_in_traces import problem

A = torch.ops.aten
Call = tuple[Any, ...]
"""An overload of an operator and its arguments; keyword arguments are a dict at the end."""

CALLS: dict[str, Callable[[], Iterator[Call]]] = {}
RANDOM = frozenset({"bernoulli", "empty_permuted", "native_dropout", "new_empty_strided", "rand", "randperm"})
"""Operators whose results are compared in shape and dtype."""


def family(function: Callable[[], Iterator[Call]]) -> Callable[[], Iterator[Call]]:
    CALLS[function.__name__] = function
    return function


def failures(name: str) -> list[str]:
    """The calls of a family whose results in a trace are not torch's."""
    torch.manual_seed(0)
    names: list[str] = []
    for overload, *args in CALLS[name]():
        kwargs: dict[str, Any] = args.pop() if args and isinstance(args[-1], dict) else {}
        text = difference(overload, args, kwargs)
        if text:
            names.append(f"{overload}: {text}")
    return names


def difference(overload: Any, args: list[Any], kwargs: dict[str, Any]) -> str:
    operator = overload._schema.name.removeprefix("aten::")
    row = aten.find(operator)
    assert row is not None, operator
    return problem(row, tuple(args), kwargs, overload(*args, **kwargs), operator not in RANDOM)


def _normal(*sizes: int) -> Tensor:
    return torch.randn(*sizes)


@family
def attention() -> Iterator[Call]:
    q, k, v, mask = _normal(1, 4, 3, 8), _normal(1, 4, 5, 8), _normal(1, 4, 5, 8), _normal(1, 1, 3, 5)
    mask[..., 1, :] = -torch.inf
    mask[..., 2, :2] = -torch.inf
    forward = A._scaled_dot_product_flash_attention_for_cpu
    backward = A._scaled_dot_product_flash_attention_for_cpu_backward
    for keys, causal, bias in (((k, v), False, None), ((k, v), False, mask), ((k[:, :, :3], v[:, :, :3]), True, None)):
        options = {"attn_mask": bias, "scale": 0.3}
        y, lse = forward(q, *keys, 0.0, causal, **options)
        yield forward.default, q, *keys, 0.0, causal, options
        yield backward.default, _normal(*y.shape), q, *keys, y, lse, 0.0, causal, options
    yield A._scaled_dot_product_attention_math.default, q, k, v, mask[..., :1, :], 0.0, False
    norms = [_normal(8) for _ in range(4)]
    weights = _normal(24, 8), _normal(24), _normal(8, 8), _normal(8)
    hidden = _normal(16, 8), _normal(16), _normal(8, 16), _normal(8)
    for is_gelu, is_first in ((True, False), (False, True)):
        layer = A._transformer_encoder_layer_fwd.default
        yield layer, _normal(2, 3, 8), 8, 2, *weights, is_gelu, is_first, 1e-5, *norms, *hidden
    yield A._safe_softmax.default, mask, -1


@family
def normalisation() -> Iterator[Call]:
    x, dy, (w, b), (mean, var) = _normal(4, 3, 5), _normal(4, 3, 5), torch.rand(2, 3), torch.rand(2, 3) + 0.5
    for train in (True, False):
        functional = A._native_batch_norm_legit_functional
        _, save_mean, save_invstd, *_ = functional(x, w, b, mean, var, train, 0.1, 1e-5)
        yield functional.default, x, w, b, mean, var, train, 0.1, 1e-5
        saved = (mean, var, save_mean, save_invstd, train, 1e-5)
        yield A.native_batch_norm_backward.default, dy, x, w, *saved, [True, True, True]
        yield A.native_batch_norm_backward.default, dy, x, None, *saved, [True, False, False]
    yield A._native_batch_norm_legit.no_stats, x, w, b, True, 0.1, 1e-5
    yield A._native_batch_norm_legit_no_training.default, x, None, None, mean, var, 0.1, 1e-5
    half = x.bfloat16()
    yield A._native_batch_norm_legit_functional.default, half, w, b, mean, var, True, 0.1, 1e-5
    rows, scale, shift = _normal(2, 4, 6), torch.rand(6), torch.rand(6)
    _, centre, rstd = A.native_layer_norm(rows, [6], scale, shift, 1e-5)
    yield A.native_layer_norm.default, rows, [6], scale, shift, 1e-5
    layer = (_normal(2, 4, 6), rows, [6], centre, rstd, scale, shift)
    yield A.native_layer_norm_backward.default, *layer, [True, True, True]
    yield A.native_layer_norm_backward.default, *layer[:-2], None, None, [True, False, False]
    v, g = _normal(3, 4), torch.rand(3, 1)
    weight, norms = A._weight_norm_interface(v, g, 0)
    yield A._weight_norm_interface.default, v, g, 0
    yield A._weight_norm_interface_backward.default, _normal(*weight.shape), v, g, norms, 0


@family
def bags() -> Iterator[Call]:
    weight, indices = _normal(10, 3), torch.tensor([1, 2, 2, 5, 7, 2, 9])
    bag_of = torch.tensor([0, 0, 2, 2, 3, 3, 3])
    for mode in range(3):
        for padding, last in ((-1, False), (2, True)):
            offsets = torch.tensor([0, 2, 2, 4, 7] if last else [0, 2, 2, 4])
            args = (weight, indices, offsets, False, mode, False, None, last, padding)
            y, _, sizes, largest = A._embedding_bag(*args)
            yield A._embedding_bag.default, *args
            embedded = (indices, offsets, bag_of, sizes, largest, 10, False, mode, False, None, padding)
            yield A._embedding_bag_backward.default, _normal(*y.shape), *embedded
    per_sample = (_normal(4, 3), weight, indices, torch.tensor([0, 2, 2, 4]), bag_of, 0, 2)
    yield A._embedding_bag_per_sample_weights_backward.default, *per_sample


@family
def losses() -> Iterator[Call]:
    x, target, weight = torch.log_softmax(_normal(4, 3), 1), torch.tensor([0, 2, -100, 1]), torch.rand(3)
    for reduction, w in ((0, None), (1, weight), (2, None)):
        y, total = A.nll_loss_forward(x, target, w, reduction, -100)
        yield A.nll_loss_forward.default, x, target, w, reduction, -100
        yield A.nll_loss_backward.default, torch.ones_like(y), x, target, w, reduction, -100, total
    labels = torch.tensor([[3, 0, -1, 1], [1, -1, 0, 0]])
    yield A.multilabel_margin_loss_forward.default, _normal(2, 4), labels, 1
    yield A.log_sigmoid_forward.default, _normal(4)
    steps, sequences = torch.log_softmax(_normal(4, 2, 3), -1), torch.tensor([[1, 2], [1, 1]])
    lengths = ([4, 3], [2, 1])
    y, alpha = A._ctc_loss(steps, sequences, *lengths, 0, True)
    yield A._ctc_loss_backward.default, torch.rand(2), steps, sequences, *lengths, y, alpha, 0, True


@family
def memory() -> Iterator[Call]:
    x = _normal(4, 6)
    strides = (([24], [1], 0), ([2, 3], [6, 1], 4), ([6, 4], [1, 6], 0), ([2, 2, 1], [4, 1, 99], None))
    for size, stride, offset in strides:
        yield A.as_strided.default, x, size, stride, offset
        yield A.as_strided_scatter.default, x, _normal(*size), size, stride, offset
    yield A.as_strided.default, x, [3, 4], [1, 1], 0
    yield A.copy.default, x.bool(), torch.ones(6)
    yield A.empty_permuted.default, [2, 3], [1, 0], {"dtype": torch.int64}
    yield A.new_empty_strided.default, x, [2, 3], [3, 1]
    yield A._to_copy.default, x, {"dtype": torch.bool, "memory_format": torch.contiguous_format}
    yield A.lift_fresh_copy.default, x


@family
def indexing() -> Iterator[Call]:
    x, i = _normal(4, 6), torch.tensor([0, 3, 1])
    for start, end, step in ((None, None, 2), (-3, 2**63 - 1, 1), (1, -1, 1), (5, 2, 1)):
        yield A.slice.Tensor, x, 0, start, end, step
        yield A.slice_scatter.default, x, _normal(*x[start:end:step].shape), 0, start, end, step
        yield A.slice_backward.default, x[start:end:step].contiguous(), [4, 6], 0, start or 0, end or 4, step
    yield A.index.Tensor, x, [None, i]
    yield A._unsafe_index.Tensor, x[None], [None, i[:, None], i]
    yield A.index_put.default, x, [i], _normal(3, 6), True
    mask = torch.tensor([True, False, True, True])
    yield A.index_put.default, x, [x > 0], torch.tensor(0.0)
    yield A.index_put.default, x, [mask], _normal(6), True
    yield A.index_put.default, x, [mask], _normal(3, 6)
    yield A.index_put.default, x, [None, torch.arange(6) > 2], torch.tensor(1.0)
    yield A.select_backward.default, _normal(6), [4, 6], 0, -1
    yield A.embedding_dense_backward.default, _normal(3, 2), i, 5, 3, False
    yield A.scatter.value, x, 1, i[None], 2.0
    yield A.split_with_sizes.default, x, [1, 5], 1


@family
def arithmetic() -> Iterator[Call]:
    x, n = _normal(2, 3), torch.tensor([[5, -7, 3], [2, 1, -1]])
    yield A.sub.Tensor, 1, x
    yield A.add.Tensor, x, n, {"alpha": 2}
    yield A.div.Tensor_mode, n, 2, {"rounding_mode": "floor"}
    yield A.div.Tensor_mode, x, n, {"rounding_mode": "trunc"}
    yield A.fmod.Scalar, x, 2
    yield A.mul.Scalar, n, 2.5
    yield A.scalar_tensor.default, 3, {"dtype": torch.int64}
    yield A.full_like.default, n, 2.0, {"dtype": torch.float64}
    yield A._prelu_kernel.default, x, torch.rand(1, 3)
    yield A.native_dropout.default, x, 0.5, True
    yield A.native_dropout_backward.default, x, x > 0, 2.0
    yield A.bernoulli.p, x, 0.5
    yield A.randperm.default, 5
