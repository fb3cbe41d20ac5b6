"""Small independent kernels as one: the updates of many parameters, or the casts of many weights.

A training step has a few such kernels for each parameter. Each is too small to fill a GPU, and starting it takes longer
than its work. A bundle is one kernel whose blocks of threads are divided among its members:

    if block < 40: update x1        (by blocks 0 to 39)
    else:          update x2        (by blocks 40 to 55, as blocks 0 to 15)

Kernels that write only parameters are put off until the last of them, and kernels that read only parameters run with
the first of them; a step that needs their results, or changes their operands, ends a bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.vm.relax.overlap import takes_addresses
from meta.vm.relax.steps import Step, Steps, elements, is_kernel, op_name, step_of

Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""

_MEMBER_BYTES: Final = 32 << 20
"""Bytes of the operands and results of a member, at most: larger kernels fill the GPU."""
_BUNDLE_BYTES: Final = 128 << 20
"""Bytes of a bundle, at most, because its operands and results are in memory at the same time."""
_BUNDLE_PARAMS: Final = 240
"""Parameters of a bundle, at most: CUDA passes 4 KiB of them."""


def bundle_kernels(module: Any, kernels: Kernels, cache: BundleCache) -> tuple[Any, Kernels]:
    """`module` with small kernels of "main" bundled, and the operators in each kernel.

    cache: receives what further modules can use."""
    bundler = _Bundler(module, kernels, cache)
    bundler.builder.update_func(bundler.name, bundler.run())
    return tvm.relax_transform.Normalize()(bundler.builder.get()), bundler.kernels


@dataclass(frozen=True, slots=True)
class _BundledKernel:
    """A PrimFunc. reads, writes: the positions of the parameters that it reads and writes.  bytes: those of all.

    launch: its loops over the blocks and over the threads of a block, if it is one launch with static sizes and without
    memory of its own."""

    func: Any
    reads: frozenset[int]
    writes: frozenset[int]
    bytes: int
    launch: tuple[Any, Any] | None


@dataclass(frozen=True, slots=True)
class BundleCache:
    """What several modules with the same PrimFuncs share. kernels: by PrimFunc, None for one that takes addresses.
    bundles: by the PrimFuncs of the members and the positions of their arguments."""

    kernels: dict[Any, _BundledKernel | None] = field(default_factory=dict[Any, _BundledKernel | None])
    bundles: dict[Any, Any] = field(default_factory=dict[Any, Any])


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """A step that may be bundled. args: its tensors.  reads, writes: those that it reads and writes."""

    step: Step
    kernel: _BundledKernel
    grid: Any
    threads: Any
    args: tuple[Any, ...]
    reads: frozenset[Any]
    writes: frozenset[Any]


@dataclass(slots=True)
class _Bundle:
    """members: in order.  bytes: of all their tensors.  params, reads, writes: of all members.  threads: of a block."""

    members: list[_Member] = field(default_factory=list[_Member])
    bytes: int = 0
    params: set[Any] = field(default_factory=set[Any])
    reads: set[Any] = field(default_factory=set[Any])
    writes: set[Any] = field(default_factory=set[Any])
    threads: int = 0

    def has_room(self, member: _Member) -> bool:
        return (
            self.bytes + member.kernel.bytes <= _BUNDLE_BYTES
            and len(self.params.union(member.args)) <= _BUNDLE_PARAMS
            and (not self.members or int(member.threads.extent) == self.threads)
        )

    def add(self, member: _Member) -> None:
        self.members.append(member)
        self.bytes += member.kernel.bytes
        self.params.update(member.args)
        self.reads |= member.reads
        self.writes |= member.writes
        self.threads = int(member.threads.extent)

    def conflicts(self, reads: frozenset[Any], writes: frozenset[Any]) -> bool:
        """Whether a step with these operands and results must run after the members."""
        return not (self.writes.isdisjoint(reads) and self.writes.isdisjoint(writes) and self.reads.isdisjoint(writes))


class _Bundler:
    def __init__(self, module: Any, kernels: Kernels, cache: BundleCache) -> None:
        self.builder = tvm.BlockBuilder(module)
        self.functions: dict[Any, Any] = dict(module.functions.items())
        self.name = next(name for name in self.functions if name.name_hint == "main")
        self.main = self.functions[self.name]
        self.kernels = dict(kernels)
        self.steps = Steps(self.main)
        self.params = frozenset(map(self.steps.unique, elements(self.main.params)))
        self.cache = cache
        self.members: dict[Step, _Member | None] = {}

    def run(self) -> Any:
        for find, late in ((self.updates, True), (self.preparations, False)):
            for bundle in find():  # preparations are found among the moved updates, whose results they may read
                if len(bundle.members) > 1:
                    self.replace(bundle, late)
        bindings = [s.binding for s in self.steps.list]
        body = tvm.SeqExpr([tvm.BindingBlock(bindings)], self.main.body.body)
        return tvm.RelaxFunction(self.main.params, body, self.main.ret_ty, self.main.is_pure, self.main.attrs)

    # --- grouping ----------------------------------------------------------------------------------------------------

    def updates(self) -> list[_Bundle]:
        """Kernels that write only parameters. They are put off until the last of them, or until a step needs one."""
        bundles: list[_Bundle] = []
        current: _Bundle | None = None
        for step in self.steps.list:
            member = self.member(step)
            if member is not None and member.writes <= self.params:
                if current is None or not current.has_room(member) or current.conflicts(member.reads, member.writes):
                    current = _Bundle()
                    bundles.append(current)
                current.add(member)
            elif current is not None and current.conflicts(*self.touched(step)):
                current = None
        return bundles

    def preparations(self) -> list[_Bundle]:
        """Kernels that read only parameters and write new tensors. They run with the first of them."""
        bundles: list[_Bundle] = []
        current = _Bundle()
        changed: set[Any] = set()  # the tensors that other steps wrote since the bundle's first member
        for step in self.steps.list:
            member = self.member(step)
            if member is None or not (member.reads <= self.params and all(map(self.steps.is_new, member.writes))):
                changed |= self.touched(step)[1]
                continue
            if not bundles or not current.has_room(member) or member.reads & changed:
                current = _Bundle()
                bundles.append(current)
                changed = set()
            current.add(member)
        return bundles

    def touched(self, step: Step) -> tuple[frozenset[Any], frozenset[Any]]:
        """The tensors that a step may read, and those that it may write."""
        value = step.value
        if op_name(value) == "relax.reshape":
            return frozenset(), frozenset()
        tensors = frozenset(self.steps.root(v) for v in step.uses)
        kernel = self.kernel(value)
        if kernel is None:
            return tensors, tensors
        args = value.args
        return tensors, frozenset(self.steps.root(self.steps.unique(args[i])) for i in kernel.writes)

    def member(self, step: Step) -> _Member | None:
        """The step as a member of a bundle; None if it is another kind of step, or too large."""
        if step not in self.members:
            self.members[step] = self.find_member(step)
        return self.members[step]

    def find_member(self, step: Step) -> _Member | None:
        kernel = self.kernel(step.value)
        if kernel is None or kernel.launch is None or kernel.bytes > _MEMBER_BYTES:
            return None
        args = elements(step.value.args)
        if not all(isinstance(a, tvm.RelaxVar) for a in args):
            return None
        args = tuple(map(self.steps.unique, args))
        if not all(self.steps.root(a) is a for a in args):
            return None
        reads, writes = (frozenset(args[i] for i in positions) for positions in (kernel.reads, kernel.writes))
        return _Member(step, kernel, *kernel.launch, args, reads, writes)

    def kernel(self, value: Any) -> _BundledKernel | None:
        """The PrimFunc that a value calls; None for other values and for one that takes addresses."""
        if not is_kernel(value) or not isinstance(value.op, tvm.GlobalVar):
            return None
        func = self.functions.get(value.op)  # None for a bundle
        if func not in self.cache.kernels:
            self.cache.kernels[func] = _kernel(func) if isinstance(func, tvm.PrimFunc) else None
        return self.cache.kernels[func]

    # --- rewriting ---------------------------------------------------------------------------------------------------

    def replace(self, bundle: _Bundle, late: bool) -> None:
        """One step in place of those of a bundle."""
        args = list(dict.fromkeys(a for m in bundle.members for a in m.args))
        first = bundle.members[0].step.value
        call = tvm.RelaxCall(self.add(bundle, args), args, ty_args=first.ty_args)
        new = step_of(bundle.members[0].step.var, call)
        old = {m.step for m in bundle.members}
        allocations = [] if late else [self.steps.allocation(v) for m in bundle.members for v in m.writes]
        place = self.steps.list.index(bundle.members[-1 if late else 0].step)
        old.update(allocations)
        before = [s for s in self.steps.list[:place] if s not in old]
        after = [s for s in self.steps.list[place:] if s not in old]
        self.steps.list = [*before, *allocations, new, *after]

    def add(self, bundle: _Bundle, args: Sequence[Any]) -> Any:
        """The function of a bundle, added to the module."""
        ops = tuple(op for m in bundle.members for op in self.kernels.get(m.step.value.op.name_hint, ()))
        numbers = {arg: i for i, arg in enumerate(args)}
        key = tuple((m.kernel.func, *(numbers[a] for a in m.args)) for m in bundle.members)
        func = self.cache.bundles.get(key)
        if func is None:
            func = self.cache.bundles[key] = _bundled(bundle.members, args)
        name = "bundle_" + "_".join(dict.fromkeys(ops)).replace(".", "_").replace(":", "_")[:60]
        target = self.builder.add_func(func, name)
        self.kernels[target.name_hint] = ops
        return target


def _bytes(buffer: Any) -> int:
    return (blocks.volume([blocks.as_int(d) for d in buffer.ty.shape]) or 0) * blocks.element_bits(buffer) // 8


def _kernel(func: Any) -> _BundledKernel | None:
    if takes_addresses(func):
        return None
    loads: list[Any] = []
    stores: list[Any] = []
    tvm.structural_walk(func.body, (tvm.TensorLoad, lambda load: loads.append(load.source)))
    tvm.structural_walk(func.body, (tvm.BufferStore, lambda store: stores.append(store.buffer)))
    launch = _launch(func)
    volume = 0 if launch is None else sum(map(_bytes, func.params))
    return _BundledKernel(func, _positions(func, loads), _positions(func, stores), volume, launch)


def _launch(func: Any) -> tuple[Any, Any] | None:
    if not isinstance(func.body, tvm.SBlockRealize):
        return None
    grid = func.body.block.body
    if not _is_bound(grid, "blockIdx.x") or not _is_bound(grid.body, "threadIdx.x") or _binds_threads(grid.body.body):
        return None
    threads = grid.body
    static = all(hasattr(p.ty, "shape") and _bytes(p) for p in func.params)
    has_memory = len(blocks.list_buffers(func)) > len(func.params)
    if not static or has_memory or not all(isinstance(loop.extent, tvm.IntImm) for loop in (grid, threads)):
        return None
    return grid, threads


def _positions(func: Any, buffers: Iterable[Any]) -> frozenset[int]:
    """The positions of the parameters among `buffers`."""
    addresses = {b.__chandle__() for b in buffers}
    return frozenset(i for i, p in enumerate(elements(func.params)) if p.__chandle__() in addresses)


def _is_bound(loop: Any, thread: str) -> bool:
    return isinstance(loop, tvm.For) and loop.thread_binding is not None and loop.thread_binding.thread_tag == thread


def _binds_threads(body: Any) -> bool:
    bound: list[Any] = []
    tvm.structural_walk(body, (tvm.For, lambda loop: bound.append(loop) if loop.thread_binding is not None else None))
    return bool(bound)


def _bundled(members: Sequence[_Member], args: Sequence[Any]) -> Any:
    """A function of `args` with the members as branches over the index of the block of threads."""
    params: dict[Any, Any] = {}
    for member in members:
        for arg, param in zip(member.args, elements(member.kernel.func.params), strict=True):
            params.setdefault(arg, tvm.Var(f"p{len(params)}", param.ty))
    block, thread = tvm.Var("block", "int32"), tvm.Var("thread", "int32")
    parts: list[tuple[int, Any]] = []
    total = 0
    for member in members:
        parts.append((total, _placed(member, params, block - total, thread)))
        total += int(member.grid.extent)
    threads = _bound("threadIdx.x", thread, int(members[0].threads.extent), _branches(block, parts))
    grid = _bound("blockIdx.x", block, total, threads)
    root = tvm.SBlock([], [], [], "root", grid)
    attrs = members[0].kernel.func.attrs
    return tvm.PrimFunc([params[a] for a in args], tvm.SBlockRealize([], True, root), None, attrs)


def _placed(member: _Member, params: dict[Any, Any], block: Any, thread: Any) -> Any:
    """The work of a thread of a member, with variables of its own."""
    args = zip(member.args, elements(member.kernel.func.params), strict=True)
    values = {param.__chandle__(): params[arg] for arg, param in args}
    for loop, value in ((member.grid, block), (member.threads, thread)):
        values[loop.loop_var.__chandle__()] = value.astype(str(loop.loop_var.ty.dtype))

    def renamed(var: Any) -> Any:
        address = var.__chandle__()
        if address not in values:
            values[address] = tvm.Var(var.name, var.ty)
        return values[address]

    return tvm.structural_map(member.threads.body, (tvm.Var, renamed))


def _branches(block: Any, parts: Sequence[tuple[int, Any]]) -> Any:
    """The part of a block of threads, found by halving."""
    if len(parts) == 1:
        return parts[0][1]
    middle = len(parts) // 2
    condition = block < parts[middle][0]
    return tvm.tirx.IfThenElse(condition, _branches(block, parts[:middle]), _branches(block, parts[middle:]))


def _bound(tag: str, var: Any, extent: int, body: Any) -> Any:
    """A loop that is bound to a thread index."""
    binding = tvm.IterVar(tvm.Range(0, extent), tvm.Var(tag, "int32"), tvm.tirx.IterVar.ThreadIndex, tag)
    zero = tvm.tirx.const(0, "int32")
    return tvm.For(var, zero, tvm.tirx.const(extent, "int32"), tvm.tirx.ForKind.THREAD_BINDING, body, binding)
