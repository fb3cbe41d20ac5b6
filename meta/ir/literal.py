"""Attribute values and constants as text, and constants back from it.

Small constants are written in place (`const([1.0, 2.0], "float32")`), others as `$0`, with the bytes base64-encoded in
a separate section. Either way reading gives the same bits.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from meta.device import CPU
from meta.dtype import is_complex, is_float, to_numpy
from meta.errors import IRError
from meta.ir.type import TensorType

INLINE_LIMIT = 8
"""Most elements of a constant that is written in place."""


def attr_text(value: Any) -> str:
    """The text of an attribute value. Equal texts mean equal values of equal classes: `1`, `1.0` and `True` differ."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return tuple_text(list(map(attr_text, value)))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{attr_text(k)}: {attr_text(v)}" for k, v in value.items()) + "}"  # pyright: ignore[reportUnknownVariableType]
    return f"complex({value.real!r}, {value.imag!r})" if isinstance(value, complex) else repr(value)


def tuple_text(parts: Sequence[str]) -> str:
    """`(a, b)`, `(a,)`, `()`."""
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


def to_array(value: Any) -> Any:
    """The NumPy array of a constant's value, on the host."""
    import numpy as np

    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def encode_inline(value: Any, kind: TensorType) -> str | None:
    """`const(...)` for a small vector or scalar, None when it is too large or its bits would not survive."""
    if kind.ndim > 1 or is_complex(kind.dtype) or not isinstance(kind.size, int) or kind.size > INLINE_LIMIT:
        return None
    array = to_array(value)
    items = [_number_text(x, kind.dtype) for x in array.reshape(-1)]
    values = [float(text) for text in items] if is_float(kind.dtype) else array.reshape(-1).tolist()
    if decode_items(values, kind).tobytes() != array.tobytes():
        return None
    data = items[0] if kind.ndim == 0 else f"[{', '.join(items)}]"
    device = "" if kind.device is CPU else f', "{kind.device}"'
    return f'const({data}, "{kind.dtype}"{device})'


def _number_text(item: Any, dtype: str) -> str:
    """The shortest text that distinguishes `item` from other values of its dtype."""
    if not is_float(dtype):
        return str(item)
    text = str(item)
    return text if any(c in text for c in ".en") else f"{text}.0"


def decode_items(items: list[Any], kind: TensorType) -> Any:
    """The array of `kind` with these elements in row-major order; raises IRError when they do not fit."""
    import numpy as np

    try:
        array: Any = np.array(items, dtype=to_numpy(kind.dtype))
        return array.reshape(kind.shape)
    except (ValueError, OverflowError, TypeError) as error:
        raise IRError("parse", f"the values do not make a {kind!r}: {error}") from None


def encode_data(value: Any) -> str:
    """Base64 of the bytes in row-major order."""
    return base64.b64encode(to_array(value).tobytes()).decode("ascii")


def decode_data(text: str, kind: TensorType) -> Any:
    """The array of `kind` from the text of `encode_data`; raises IRError when the size does not fit."""
    import numpy as np

    from meta.files.into_memory import allocate

    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise IRError("parse", f"the data is not base64: {error}") from None
    if kind.nbytes != len(data):
        raise IRError("parse", f"the data has {len(data)} bytes", f"{kind.nbytes}, the size of a {kind!r}")
    array: Any = allocate(kind.shape, to_numpy(kind.dtype))  # type: ignore[arg-type]  # ints
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return array
