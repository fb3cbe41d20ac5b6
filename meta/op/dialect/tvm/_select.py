"""A choice between two values that are both computed.

`tirx.Select` is one, too, but TVM simplifies each side of it as if it were computed only where it is chosen, and so
takes away the bounds that keep an index inside memory. This one is unknown to TVM until the end of lowering.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from meta.op.dialect.tvm import _adapter as tvm

_NAME: Final = "meta.select"


def select(condition: Any, value: Any, otherwise: Any) -> Any:
    """`value` where the condition holds, else `otherwise`. Both may read memory, at indices that always exist."""
    dtype = str(value.dtype if hasattr(value, "dtype") else value.ty)
    return tvm.tirx.call_intrin(dtype, _operator(), condition, value, otherwise)


@cache
def _operator() -> Any:
    """Our operator, registered with TVM on first use."""
    if _NAME not in set(tvm.Op.list_op_names()):
        tvm.register_op(_NAME, "select, expanded by meta")
        op = tvm.Op.get(_NAME)
        op.set_num_inputs(3)
        op.set_attr("TCallEffectKind", tvm.Op.get("tirx.exp").get_attr("TCallEffectKind"))
        op.set_attr("TVectorizable", True)
        op.set_attr("TScriptPrinterName", _NAME)
        op.set_attr("default.FLowerIntrinsic", lambda call: tvm.tirx.Select(*call.args))
    return tvm.Op.get(_NAME)
