"""The passes that every program goes through before it is compiled."""

from __future__ import annotations

from meta.passes.align_products import align_products
from meta.passes.channels_last import channels_last
from meta.passes.cse import cse
from meta.passes.dce import dce
from meta.passes.expand_losses import expand_losses
from meta.passes.expand_norms import expand_norms
from meta.passes.fold_batch_norm import fold_batch_norm
from meta.passes.fold_const import fold_const
from meta.passes.fuse_concatenations import fuse_concatenations
from meta.passes.fuse_epilogues import fuse_epilogues
from meta.passes.inline_calls import inline_calls
from meta.passes.join_gradients import join_gradients
from meta.passes.join_updates import join_updates
from meta.passes.manager import Pipeline
from meta.passes.narrow_gathers import narrow_gathers
from meta.passes.outline_loops import outline_loops
from meta.passes.separate_biases import separate_biases
from meta.passes.simplify import drop_stop_gradient, simplify
from meta.passes.split_joins import split_joins


def standard() -> Pipeline:
    """inline_calls, outline_loops, drop_stop_gradient, simplify, fold_batch_norm, fold_const, align_products,
    expand_losses, channels_last, expand_norms, cse, simplify, narrow_gathers, fuse_epilogues, join_gradients,
    join_updates, fuse_concatenations, separate_biases, split_joins, dce, for a program whose gradients are taken:
    results stay the same up to rounding."""
    prepared = (inline_calls, outline_loops, drop_stop_gradient, simplify)
    expanded = (fold_batch_norm, fold_const, align_products, expand_losses, channels_last, expand_norms)
    fused = (narrow_gathers, fuse_epilogues, join_gradients, join_updates, fuse_concatenations, separate_biases)
    return Pipeline((*prepared, *expanded, cse, simplify, *fused, split_joins, dce))
