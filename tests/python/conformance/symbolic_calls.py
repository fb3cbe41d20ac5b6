"""Calls of ATen's operators whose arguments and tensors have a symbolic size: x is (n, 6), float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Call = Callable[[Any, Any, Any], Any]
"""A function of the operators (attributes by name), x and n."""

WHOLE = 2**63 - 1

CALLS: Mapping[str, Call] = {
    "view": lambda o, x, n: o.view(x, [n * 2, -1]),
    "view_by_rest": lambda o, x, n: o.view(x, [-1, 2, 3]),
    "view_3d": lambda o, x, n: o.view(x, [n, 2, 3]),
    "unsafe_view": lambda o, x, n: o._unsafe_view(x, [n * 6]),
    "reshape": lambda o, x, n: o.reshape(x, [n, -1]),
    "expand": lambda o, x, n: o.expand(x, [3, n, 6]),
    "expand_rest": lambda o, x, n: o.expand(o.unsqueeze(x, 0), [3, -1, -1]),
    "expand_row": lambda o, x, n: o.expand(o.select(x, 0, 0), [n, 6]),
    "arange": lambda o, x, n: o.arange(n),
    "arange_start": lambda o, x, n: o.arange(0, n, 1, dtype=torch.int64),
    "arange_dtype": lambda o, x, n: o.arange(1, n + 1, dtype=torch.float32),
    "full": lambda o, x, n: o.full([n, 2], 1.0),
    "zeros": lambda o, x, n: o.zeros([n, 2]),
    "new_zeros": lambda o, x, n: o.new_zeros(x, [n, n]),
    "full_like": lambda o, x, n: o.full_like(x, 2),
    "slice": lambda o, x, n: o.slice(x, 0, 0, n),
    "slice1": lambda o, x, n: o.slice(x, 0, 1, WHOLE),
    "slice2": lambda o, x, n: o.slice(x, 0, -2, WHOLE),
    "slice3": lambda o, x, n: o.slice(x, 0, None, -1),
    "slice4": lambda o, x, n: o.slice(x, 0, 1, n),
    "slice5": lambda o, x, n: o.slice(x, 0, 0, WHOLE, 2),
    "slice7": lambda o, x, n: o.slice(o.arange(100), 0, 0, n),
    "slice_scatter": lambda o, x, n: o.slice_scatter(x, o.slice(o.mul(x, 2), 0, 1, WHOLE), 0, 1, WHOLE),
    "slice_backward": lambda o, x, n: o.slice_backward(o.slice(x, 0, 1, WHOLE), [n, 6], 0, 1, WHOLE, 1),
    "select_backward": lambda o, x, n: o.select_backward(o.select(x, 1, 2), [n, 6], 1, 2),
    "select": lambda o, x, n: o.select(x, 0, -1),
    "cat": lambda o, x, n: o.cat([x, x], 0),
    "cat1": lambda o, x, n: o.cat([x, o.mul(x, 2)], 1),
    "stack": lambda o, x, n: o.stack([x, x], 0),
    "permute": lambda o, x, n: o.permute(x, [1, 0]),
    "flatten": lambda o, x, n: o.flatten(x, 0, -1),
    "squeeze": lambda o, x, n: o.squeeze(o.unsqueeze(x, 1), [1]),
    "squeeze0": lambda o, x, n: o.squeeze(x, 0),
    "mean": lambda o, x, n: o.mean(x, [0], True),
    "var": lambda o, x, n: o.var(x, [0], correction=1),
    "var0": lambda o, x, n: o.var(x, [0], correction=0),
    "sum": lambda o, x, n: o.sum(x, [0]),
    "softmax": lambda o, x, n: o._softmax(x, 0, False),
    "cumsum": lambda o, x, n: o.cumsum(x, 0),
    "repeat": lambda o, x, n: o.repeat(x, [2, 1]),
    "repeat1": lambda o, x, n: o.repeat(o.select(x, 0, 0), [n, 1]),
    "tril": lambda o, x, n: o.tril(o.mm(x, o.permute(x, [1, 0]))),
    "triu": lambda o, x, n: o.triu(o.mm(x, o.permute(x, [1, 0])), 1),
    "scalar_tensor": lambda o, x, n: o.scalar_tensor(n, dtype=torch.int64),
    "mul_size": lambda o, x, n: o.mul(x, n),
    "div_size": lambda o, x, n: o.div(x, n),
    "index": lambda o, x, n: o.index(x, [o.arange(n)]),
    "index2": lambda o, x, n: o.index(x, [None, o.arange(3)]),
    "index_put": lambda o, x, n: o.index_put(x, [o.arange(n)], x, True),
    "gather": lambda o, x, n: o.gather(x, 1, o.full([n, 2], 1)),
    "index_select": lambda o, x, n: o.index_select(x, 0, o.arange(n)),
    "embedding": lambda o, x, n: o.embedding(x, o.arange(n)),
    "embedding_dense_backward": lambda o, x, n: o.embedding_dense_backward(x, o.arange(n), 10, -1, False),
    "pad": lambda o, x, n: o.constant_pad_nd(x, [1, 1, 0, 2], 0.5),
    "split": lambda o, x, n: o.split(x, 3, 1)[1],
    "split_ws": lambda o, x, n: o.split_with_sizes(x, [2, 4], 1)[1],
    "chunk": lambda o, x, n: o.chunk(x, 2, 1)[1],
    "unbind": lambda o, x, n: o.unbind(x, 1)[1],
    "topk": lambda o, x, n: o.topk(x, 2, 1)[0],
    "sort": lambda o, x, n: o.sort(x, 1)[0],
    "argmax": lambda o, x, n: o.argmax(x, 1),
    "flip": lambda o, x, n: o.flip(x, [0]),
    "roll": lambda o, x, n: o.roll(x, [1], [0]),
    "where": lambda o, x, n: o.where(o.gt(x, 0), x, o.scalar_tensor(0.0)),
    "masked_fill": lambda o, x, n: o.masked_fill(x, o.gt(x, 0), 0.0),
    "layer_norm": lambda o, x, n: o.native_layer_norm(x, [6], None, None, 1e-5)[0],
    "group_norm": lambda o, x, n: o.native_group_norm(o.view(x, [n, 6, 1]), None, None, n, 6, 1, 2, 1e-5)[0],
    "group_norm_b": lambda o, x, n: o.native_group_norm_backward(
        o.view(x, [n, 6, 1]),
        o.view(x, [n, 6, 1]),
        *o.native_group_norm(o.view(x, [n, 6, 1]), None, None, n, 6, 1, 2, 1e-5)[1:],
        None,
        n,
        6,
        1,
        2,
        [True, False, False],
    )[0],
    "batch_norm": lambda o, x, n: o._native_batch_norm_legit_no_training(
        x, None, None, o.full([6], 0.5), o.full([6], 0.5), 0.1, 1e-5
    )[0],
    "batch_norm_t": lambda o, x, n: o._native_batch_norm_legit_functional(
        x, None, None, o.full([6], 0.5), o.full([6], 0.5), True, 0.1, 1e-5
    )[3],
    "sdpa": lambda o, x, n: o.scaled_dot_product_attention(
        o.view(x, [1, 1, n, 6]), o.view(x, [1, 1, n, 6]), o.view(x, [1, 1, n, 6])
    ),
    "sdpa_causal": lambda o, x, n: o.scaled_dot_product_attention(
        o.view(x, [1, 1, n, 6]), o.view(x, [1, 1, n, 6]), o.view(x, [1, 1, n, 6]), None, 0.0, True
    ),
    "sdpa_mask": lambda o, x, n: o.scaled_dot_product_attention(
        o.view(x, [1, 1, n, 6]), o.view(x, [1, 1, n, 6]), o.view(x, [1, 1, n, 6]), o.zeros([n, n])
    ),
    "flash": lambda o, x, n: o._scaled_dot_product_flash_attention_for_cpu(
        o.view(x, [1, 1, n, 6]), o.view(x, [1, 1, n, 6]), o.view(x, [1, 1, n, 6])
    )[0],
    "safe": lambda o, x, n: o._safe_softmax(x, 0),
    "avg_pool": lambda o, x, n: o.avg_pool2d(o.view(x, [n, 1, 2, 3]), [2, 2]),
    "avg_pool_b": lambda o, x, n: o.avg_pool2d_backward(
        o.full([n, 1, 1, 2], 1.0), o.view(x, [n, 1, 2, 3]), [2, 2], [1, 1], [0, 0], False, True, None
    ),
    "max_pool": lambda o, x, n: o.max_pool2d_with_indices(o.view(x, [n, 1, 2, 3]), [2, 2])[1],
    "max_pool_b": lambda o, x, n: o.max_pool2d_with_indices_backward(
        o.max_pool2d_with_indices(o.view(x, [n, 1, 2, 3]), [2, 2], [1, 1])[0],
        o.view(x, [n, 1, 2, 3]),
        [2, 2],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        o.max_pool2d_with_indices(o.view(x, [n, 1, 2, 3]), [2, 2], [1, 1])[1],
    ),
    "adaptive": lambda o, x, n: o._adaptive_avg_pool2d(o.view(x, [n, 1, 2, 3]), [1, 1]),
    "adaptive7": lambda o, x, n: o._adaptive_avg_pool2d(o.view(x, [n, 1, 2, 3]), [4, 5]),
    "adaptive_b": lambda o, x, n: o._adaptive_avg_pool2d_backward(o.full([n, 1, 1, 1], 1.0), o.view(x, [n, 1, 2, 3])),
    "adaptive_max": lambda o, x, n: o.adaptive_max_pool2d(o.view(x, [n, 1, 2, 3]), [1, 2])[0],
    "upsample": lambda o, x, n: o.upsample_bilinear2d(o.view(x, [n, 1, 2, 3]), [4, 6], False),
    "upsample_vec": lambda o, x, n: o.upsample_bilinear2d(o.view(x, [n, 1, 2, 3]), None, False, [2.0, 2.0]),
    "nearest": lambda o, x, n: o.upsample_nearest2d(o.view(x, [n, 1, 2, 3]), None, [2.0, 2.0]),
    "nearest_b": lambda o, x, n: o.upsample_nearest2d_backward(o.full([n, 1, 4, 6], 1.0), [4, 6], [n, 1, 2, 3]),
    "bilinear_b": lambda o, x, n: o.upsample_bilinear2d_backward(
        o.full([n, 1, 4, 6], 1.0), [4, 6], [n, 1, 2, 3], False
    ),
    "conv": lambda o, x, n: o.convolution(
        o.view(x, [n, 1, 2, 3]), o.full([2, 1, 2, 2], 0.5), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    ),
    "conv_b": lambda o, x, n: o.convolution_backward(
        o.full([n, 2, 1, 2], 1.0),
        o.view(x, [n, 1, 2, 3]),
        o.full([2, 1, 2, 2], 0.5),
        [2],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [True, True, True],
    )[1],
    "nll": lambda o, x, n: o.nll_loss_forward(x, o.full([n], 1), None, 1, -100)[0],
    "vector_norm": lambda o, x, n: o.linalg_vector_norm(x, 2, [0]),
    "as_strided": lambda o, x, n: o.as_strided(x, [n * 6], [1], 0),
    "copy": lambda o, x, n: o.copy(x, o.scalar_tensor(3.0)),
    "reflection": lambda o, x, n: o.reflection_pad1d(x, [1, 2]),
    "scatter": lambda o, x, n: o.scatter(x, 1, o.full([n, 1], 1), 2.0),
    "scatter_add": lambda o, x, n: o.scatter_add(x, 1, o.full([n, 1], 1), o.full([n, 1], 1.0)),
    "index_add": lambda o, x, n: o.index_add(x, 0, o.arange(n), x),
    "sum_to_size": lambda o, x, n: o.sum_to_size(x, [1, 6]),
    "diff": lambda o, x, n: o.diff(x, 1, 0),
    "linspace": lambda o, x, n: o.linspace(0, 1, 5),
    "tri_idx": lambda o, x, n: o.ones([n, n], dtype=torch.bool),
    "eye": lambda o, x, n: o.eye(n),
    "unfold": lambda o, x, n: o.unfold(x, 1, 2, 2),
    "pixel_shuffle": lambda o, x, n: o.pixel_shuffle(o.expand(o.view(x, [n, 1, 2, 3]), [n, 4, 2, 3]), 2),
    "logsumexp": lambda o, x, n: o.logsumexp(x, [0]),
    "prod": lambda o, x, n: o.prod(x, 0),
    "clamp_size": lambda o, x, n: o.clamp(x, 0, n),
    "ge_size": lambda o, x, n: o.ge(x, n),
    "std": lambda o, x, n: o.std(x, [0], correction=1),
    "repeat_interleave": lambda o, x, n: o.repeat_interleave(x, 2, 0),
    "unflatten": lambda o, x, n: o.unflatten(x, 1, [2, 3]),
    "movedim": lambda o, x, n: o.movedim(x, 0, 1),
    "cross_entropy": lambda o, x, n: o.cross_entropy_loss(x, o.full([n], 1)),
    "mse": lambda o, x, n: o.mse_loss(x, o.mul(x, 2)),
    "mse_b": lambda o, x, n: o.mse_loss_backward(o.scalar_tensor(1.0), x, o.mul(x, 2), 1),
    "bce": lambda o, x, n: o.binary_cross_entropy_with_logits(x, x),
    "addmm": lambda o, x, n: o.addmm(o.full([2], 1.0), x, o.full([6, 2], 0.5)),
    "bmm": lambda o, x, n: o.bmm(o.view(x, [n, 2, 3]), o.view(x, [n, 3, 2])),
    "baddbmm": lambda o, x, n: o.baddbmm(o.full([n, 2, 2], 1.0), o.view(x, [n, 2, 3]), o.view(x, [n, 3, 2])),
    "matmul": lambda o, x, n: o.matmul(o.view(x, [n, 2, 3]), o.full([3, 2], 0.5)),
    "linear": lambda o, x, n: o.linear(o.view(x, [n, 2, 3]), o.full([2, 3], 0.5), o.full([2], 0.5)),
    "einsum": lambda o, x, n: o.einsum("ij,kj->ik", [x, x]),
    "embedding_bag": lambda o, x, n: o._embedding_bag(o.full([5, 3], 1.0), o.full([n], 1), o.full([2], 0))[0],
    "instance_norm": lambda o, x, n: o.instance_norm(
        o.view(x, [n, 2, 3]), None, None, None, None, True, 0.1, 1e-5, False
    ),
    "masked_scatter": lambda o, x, n: o.index_put(x, [o.gt(x, 0)], o.scalar_tensor(1.0)),
}
