"""The result dtypes of operators under `meta.amp.autocast` and `torch.autocast`, on the CPU in bfloat16:
`python -m benchmarks.amp_agreement` prints the table of docs/mixed-precision.md, `--write` puts it there."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import meta

PAGE = Path(__file__).parent.parent / "docs" / "mixed-precision.md"
BEGIN, END = "<!-- begin: agreement with torch -->\n", "<!-- end: agreement with torch -->\n"
INPUTS = ("float32", "bfloat16")

ON_CUDA = "on CUDA torch gives float32 as well; its list for CPUs lacks the operator. meta has one rule for all devices"
ROUNDED = "torch computes in float32 inside and rounds the result; meta keeps the float32 result"
BIAS = "torch promotes to the wider dtype; in meta a smaller operand, such as a bias, follows the larger one"


@dataclass(frozen=True, slots=True)
class Case:
    """One operator. ours, theirs: functions of tensors of `shapes`.  why: explains different dtypes, "" if equal."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    why: str = ""
    fixed: int = 0
    """Operands, from the last, that stay float32."""


def _same(name: str, *shapes: tuple[int, ...], why: str = "", **attributes: Any) -> Case:
    """An operator that both libraries call by one name."""
    theirs = getattr(torch, name, None) or getattr(F, name)
    return Case(
        name, lambda *x: getattr(meta, name)(*x, **attributes), lambda *x: theirs(*x, **attributes), shapes, why
    )


def cases() -> Iterator[Case]:
    matrix, image, kernel = (4, 4), (2, 3, 6, 6), (5, 3, 3, 3)
    yield _same("matmul", matrix, matrix)
    yield Case("dense", meta.dense, F.linear, ((4, 6), (5, 6)))
    yield Case("batch_matmul", lambda x, y: meta.matmul(x, y), torch.bmm, ((2, 4, 4), (2, 4, 4)))
    yield Case("conv1d", meta.conv1d, F.conv1d, ((2, 3, 8), (5, 3, 3)))
    yield Case("conv2d", meta.conv2d, F.conv2d, (image, kernel))
    yield Case("conv3d", meta.conv3d, F.conv3d, ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2)))
    yield Case("conv2d_transpose", meta.conv2d_transpose, F.conv_transpose2d, (image, (3, 5, 3, 3)))
    yield Case("scaled_dot_product_attention", lambda q, k, v: meta.scaled_dot_product_attention(q, k, v),
               F.scaled_dot_product_attention, ((1, 2, 4, 8),) * 3)  # fmt: skip
    for name in ("relu", "tanh", "sigmoid", "gelu", "silu", "abs", "sqrt", "neg"):
        ours = {"neg": "negative"}.get(name, name)
        theirs = getattr(torch, name, None) or getattr(F, name)
        yield Case(ours, getattr(meta, ours), theirs, (matrix,))
    for name in ("exp", "log", "rsqrt", "reciprocal"):
        yield _same(name, matrix, why=ON_CUDA)
    yield _same("erf", matrix, why=ROUNDED)
    yield Case("power", lambda x: meta.power(x, 3.0), lambda x: torch.pow(x, 3.0), (matrix,), ON_CUDA)
    for name in ("softmax", "log_softmax"):
        yield Case(name, lambda x, name=name: getattr(meta, name)(x, -1),
                   lambda x, name=name: getattr(torch, name)(x, -1), (matrix,), ON_CUDA)  # fmt: skip
    for name, why in (("sum", ON_CUDA), ("prod", ""), ("cumsum", ON_CUDA)):
        yield Case(name, lambda x, name=name: getattr(meta, name)(x, 0),
                   lambda x, name=name: getattr(torch, name)(x, 0), (matrix,), why)  # fmt: skip
    yield Case("mean", lambda x: meta.mean(x, 0), lambda x: torch.mean(x, 0), (matrix,), ROUNDED)
    yield Case(
        "layer_norm", meta.layer_norm, lambda x, w, b: F.layer_norm(x, (4,), w, b), (matrix, (4,), (4,)), ON_CUDA
    )
    yield Case("batch_norm_train", lambda x, w, b, m, v: meta.batch_norm_train(x, m, v, w, b)[0],
               lambda x, w, b, m, v: F.batch_norm(x, m, v.abs(), w, b, training=True), (image, *((3,),) * 4),
               fixed=4)  # fmt: skip
    for name in ("add", "multiply", "subtract", "maximum"):
        yield _same(name, matrix, matrix)
    yield Case("add of a float32 bias", meta.add, torch.add, (matrix, (4,)), BIAS, fixed=1)
    yield Case("max_pool2d", lambda x: meta.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2), (image,))
    yield Case("avg_pool2d", lambda x: meta.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2), (image,))
    yield Case("concatenate", lambda x, y: meta.concatenate([x, y]), lambda x, y: torch.cat([x, y]), (matrix, matrix))
    yield Case("reshape", lambda x: x.reshape((16,)), lambda x: x.reshape(16), (matrix,))
    target = np.zeros(4, np.int64)
    yield Case("cross_entropy", lambda x: meta.cross_entropy(x, meta.array(target)),
               lambda x: F.cross_entropy(x, torch.from_numpy(target)), (matrix,))  # fmt: skip
    yield Case("nll_loss", lambda x: meta.nll_loss(x, meta.array(target)),
               lambda x: F.nll_loss(x, torch.from_numpy(target)), (matrix,))  # fmt: skip
    yield Case("mse_loss", meta.mse_loss, F.mse_loss, (matrix, matrix))


@dataclass(frozen=True, slots=True)
class Row:
    """ours, theirs: the result dtype for float32 and for bfloat16 operands."""

    case: Case
    ours: tuple[str, ...]
    theirs: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return self.ours != self.theirs


def rows() -> list[Row]:
    """Both libraries run every case, with float32 and with bfloat16 operands."""
    return [Row(c, tuple(_ours(c, d) for d in INPUTS), tuple(_theirs(c, d) for d in INPUTS)) for c in cases()]


def _values(case: Case, dtype: str) -> list[tuple[np.ndarray[Any, Any], str]]:
    generator = np.random.default_rng(0)
    first_fixed = len(case.shapes) - case.fixed
    return [(generator.uniform(0.5, 1.5, shape).astype(np.float32), dtype if i < first_fixed else "float32")
            for i, shape in enumerate(case.shapes)]  # fmt: skip


def _ours(case: Case, dtype: str) -> str:
    arrays = [meta.array(value).cast(kind) for value, kind in _values(case, dtype)]
    with meta.with_dialect("reference"), meta.amp.autocast("bfloat16"):
        return str(case.ours(*arrays).dtype)


def _theirs(case: Case, dtype: str) -> str:
    tensors = [torch.from_numpy(value).to(getattr(torch, kind)) for value, kind in _values(case, dtype)]
    with torch.autocast("cpu", torch.bfloat16):
        return str(case.theirs(*tensors).dtype).removeprefix("torch.")


def table() -> str:
    """The table as Markdown: what differs, with the reason, then the names of what agrees."""
    cases = rows()
    lines = ["| operator | meta | torch | why they differ |", "| --- | --- | --- | --- |"]
    for row in (r for r in cases if r.differs):
        lines.append(f"| {row.case.name} | {' / '.join(row.ours)} | {' / '.join(row.theirs)} | {row.case.why} |")
    equal = [f"`{r.case.name}`" for r in cases if not r.differs]
    return "\n".join(lines) + f"\n\nEqual in both: {', '.join(equal)}.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/mixed-precision.md")
    text = table()
    if not parser.parse_args().write:
        print(text)
        return 0
    page = PAGE.read_text()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(page[:start] + "\n" + text + "\n" + page[end:])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
