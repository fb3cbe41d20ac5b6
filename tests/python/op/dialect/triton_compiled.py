"""`python -m tests.python.op.dialect.triton_compiled` compiles generated Triton kernels for an NVIDIA GPU of compute
capability 9.0, which need not be there, and prints the kinds of code that it got."""

import sys
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from meta.backend.triton import attention
from meta.backend.triton.kernel_text import Operands, source
from meta.backend.triton.pointwise import _Kernels


@triton.jit
def _expression(x1, x2, by, exponent: tl.constexpr):
    for _ in tl.static_range(exponent):
        x1 = x1 * x1
    return x1 * tl.sigmoid(by * x2), x1 > x2


def _compile(rank: int, pointer: str, cast: str, wide: bool) -> None:
    operands = Operands(("v0", "v1", "number0", "2"), (cast, cast), (0.5,), 2)
    kernel = _Kernels(_expression, 1024, 4).kernel(source(operands, rank, wide=wide))
    types = {"x0": pointer, "x1": pointer, "y0": pointer, "y1": "*i1", "number0": "fp32", "BLOCK": "constexpr"}
    signature = {name: types.get(name, "i64" if name == "count" and wide else "i32") for name in kernel.arg_names}
    compiled = triton.compile(
        ASTSource(kernel, signature, {"BLOCK": 1024}), target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}
    )
    sys.stdout.write(f"{rank} {sorted({'ptx', 'cubin'} & set(compiled.asm))}\n")


def _compile_attention(kernel: Any, **constants: Any) -> None:
    pointers = "q", "k", "v", "y", "lse", "dy", "dq", "dk", "dv"
    sizes = {"CAUSAL": True, "QUERIES": 64, "KEYS": 64, "FEATURES": 64, "VALUES": 64, "PRECISION": "tf32", **constants}
    signature = {
        name: "constexpr" if name in sizes else "*fp32" if name in pointers else "fp32" if name == "scale" else "i32"
        for name in kernel.arg_names
    }
    target = GPUTarget("cuda", 90, 32)
    compiled = triton.compile(ASTSource(kernel, signature, sizes), target=target, options={"num_warps": 4})
    sys.stdout.write(f"{kernel.fn.__name__} {sorted({'ptx', 'cubin'} & set(compiled.asm))}\n")


if __name__ == "__main__":
    _compile(1, "*bf16", ".to(tl.float32)", False)
    _compile(3, "*fp32", "", True)
    _compile(2, "*i32", ".to(tl.float32)", False)
    _compile_attention(attention.forward_kernel)
    _compile_attention(attention.keys_kernel, WRITES_DQ=False)
    _compile_attention(attention.queries_kernel)
