"""Results over operands: at the peak of memory, a kernel writes its result over an operand that it reads last.

b = alloc_tensor(...); kernel(a, b)      =>      kernel(a)          where the kernel may (see `overlap`)
"""

from __future__ import annotations

import heapq
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.vm.relax.lifetimes import KernelCall, Lifetimes, lifetimes
from meta.vm.relax.overlap import may_share, merged

Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""


def write_over_operands(module: Any, kernels: Kernels) -> tuple[Any, Kernels]:
    """`module` with "main" writing results over operands where that lowers its peak; the kernels, new ones added."""
    lives = lifetimes(module)
    if lives is None or not lives.kernels:
        return module, kernels
    reuse = _Reuse(module, lives, kernels)
    if not reuse.run():
        return module, kernels
    return tvm.relax_transform.Normalize()(reuse.builder.get()), reuse.kernels


class _Reuse:
    def __init__(self, module: Any, lives: Lifetimes, kernels: Kernels) -> None:
        self.lives = lives
        self.main = module["main"]
        self.functions: dict[Any, Any] = dict(module.functions.items())
        self.named = {name.name_hint: name for name in self.functions}
        self.kernels = dict(kernels)
        self.builder = tvm.BlockBuilder(module)
        self.spans = lives.spans()
        self.shared: dict[str, bool] = {}
        self.replaced: dict[Any, Any] = {}

    def run(self) -> bool:
        """Change the kernels with the most living bytes, until one cannot be changed. Returns whether any was."""
        pending = [(-live, i) for i, live in enumerate(self.lives.live())]
        heapq.heapify(pending)
        while pending:
            live, i = pending[0]
            saved = self.shared_bytes(self.lives.kernels[i])
            if not saved:
                break
            heapq.heapreplace(pending, (live + saved, i))
        if not self.replaced:
            return False
        bindings = self.lives.renamed(self.replaced)
        body = tvm.SeqExpr([tvm.BindingBlock(bindings)], self.main.body.body)
        main = tvm.RelaxFunction(self.main.params, body, self.main.ret_ty, self.main.is_pure, self.main.attrs)
        self.builder.update_func(self.named["main"], main)
        return True

    def shared_bytes(self, kernel: KernelCall) -> int:
        """Make a kernel write one more result over an operand; the bytes that this saves, 0 if it is not possible."""
        for written in sorted(kernel.writes, key=lambda t: -self.lives.sizes[t]):
            result = self.lives.tensors[written]
            for read in kernel.reads:
                size = self.lives.sizes[written]
                last = self.spans[read][1] == kernel.index
                if last and size and self.lives.sizes[read] == size and result not in self.replaced:
                    operand = self.operand(kernel, read, result)
                    target = None if operand is None else self.merged_kernel(kernel.step.value, operand, result)
                    if target is not None:
                        call = kernel.step.value
                        rest = [a for a in call.args if a != result]
                        kernel.step.value = tvm.RelaxCall(target, rest, ty_args=call.ty_args)
                        self.replaced[result] = operand
                        return size
        return 0

    def operand(self, kernel: KernelCall, read: int, result: Any) -> Any | None:
        """The argument that is the tensor `read`, or a view of it, with the type of `result`; None if there are several
        arguments or another type."""
        root = self.lives.steps.root
        operands = [v for v in kernel.step.uses if root(v) == self.lives.tensors[read]]
        if len(operands) != 1 or not tvm.structural_equal(operands[0].ty, result.ty):
            return None
        args = [a for a in kernel.step.value.args if isinstance(a, tvm.RelaxVar) and a == operands[0]]
        return operands[0] if len(args) == 1 else None

    def merged_kernel(self, call: Any, operand: Any, result: Any) -> Any | None:
        """A kernel that writes `result` over `operand`, None where that is not safe."""
        func = self.functions.get(call.op) if isinstance(call.op, tvm.GlobalVar) else None
        if func is None:
            return None
        source, target = (next(i for i, a in enumerate(call.args) if a == v) for v in (operand, result))
        name = f"{call.op.name_hint}_{target}_over_{source}"
        if name not in self.shared:
            self.shared[name] = may_share(func, func.params[source], func.params[target])
        if not self.shared[name]:
            return None
        if name not in self.named:
            new = merged(func, func.params[source], func.params[target])
            self.named[name] = self.builder.add_func(new, name)
            self.functions[self.named[name]] = new
            self.kernels[self.named[name].name_hint] = self.kernels.get(call.op.name_hint, ())
        return self.named[name]
