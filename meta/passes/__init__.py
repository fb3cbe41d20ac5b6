"""Passes: `Module -> Module` transformations and the manager that runs them."""

from __future__ import annotations

from meta.passes.align_products import align_products
from meta.passes.auto_cast import auto_cast
from meta.passes.auto_diff import auto_diff
from meta.passes.channels_last import channels_last
from meta.passes.composites import composites
from meta.passes.cse import cse, dce
from meta.passes.expand_losses import expand_losses
from meta.passes.expand_norms import expand_norms
from meta.passes.expand_quantized import expand_quantized
from meta.passes.fold_batch_norm import fold_batch_norm
from meta.passes.fold_const import fold_const
from meta.passes.fuse_concatenations import fuse_concatenations
from meta.passes.fuse_epilogues import fuse_epilogues, separate_biases
from meta.passes.inline_calls import inline_calls
from meta.passes.integer_products import integer_products
from meta.passes.join_gradients import join_gradients
from meta.passes.join_updates import join_updates
from meta.passes.lift_views import lift_views
from meta.passes.manager import Pass, PassContext, Pipeline, bisect
from meta.passes.move_casts import narrow_gathers, widen_sums
from meta.passes.place import place
from meta.passes.simplify import drop_stop_gradient, simplify
from meta.passes.split_joins import split_joins
from meta.passes.standard import standard

__all__ = [
    "Pass", "PassContext", "Pipeline", "align_products", "auto_cast", "auto_diff", "bisect", "channels_last",
    "composites", "cse", "dce", "drop_stop_gradient", "expand_losses", "expand_norms", "expand_quantized",
    "fold_batch_norm", "fold_const", "fuse_concatenations", "fuse_epilogues", "inline_calls", "integer_products",
    "join_gradients", "join_updates", "lift_views", "narrow_gathers", "place", "separate_biases", "simplify",
    "split_joins", "standard", "widen_sums",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
