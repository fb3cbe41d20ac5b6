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
from meta.vm.plan.functions import Functions
from meta.vm.plan.kernels import PARAMETER, KernelCall, KernelList, Memory, Operand, Step, Tensor
from meta.vm.plan.overlap import takes_addresses
from meta.vm.plan.read import elements

_MEMBER_BYTES: Final = 32 << 20
"""Bytes of the operands and results of a member, at most: larger kernels fill the GPU."""
_BUNDLE_BYTES: Final = 128 << 20
"""Bytes of a bundle, at most, because its operands and results are in memory at the same time."""
_BUNDLE_PARAMS: Final = 240
"""Parameters of a bundle, at most: CUDA passes 4 KiB of them."""


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel that is one launch with static sizes and without memory of its own. grid, threads: its loops over the
    blocks, and over the threads of a block.  bytes: of its parameters."""

    func: Any
    grid: Any
    threads: Any
    bytes: int


@dataclass(frozen=True, slots=True)
class BundleCache:
    """What several lists with the same kernels share. launches: by name.  bundles: the name of a bundle by its members
    and the positions of their arguments."""

    launches: dict[str, _Launch | None] = field(default_factory=dict[str, "_Launch | None"])
    bundles: dict[Any, str] = field(default_factory=dict[Any, str])


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """A call that may be bundled. args: the memory of its arguments."""

    call: KernelCall
    launch: _Launch
    args: tuple[Memory, ...]
    reads: frozenset[Memory]
    writes: frozenset[Memory]


@dataclass(slots=True)
class _Bundle:
    """members: in order.  bytes: of all their arguments.  params, reads, writes: of all members.
    threads: of a block."""

    members: list[_Member] = field(default_factory=list[_Member])
    bytes: int = 0
    params: set[Memory] = field(default_factory=set[Memory])
    reads: set[Memory] = field(default_factory=set[Memory])
    writes: set[Memory] = field(default_factory=set[Memory])
    threads: int = 0

    def has_room(self, member: _Member) -> bool:
        return (
            self.bytes + member.launch.bytes <= _BUNDLE_BYTES
            and len(self.params.union(member.args)) <= _BUNDLE_PARAMS
            and (not self.members or int(member.launch.threads.extent) == self.threads)
        )

    def add(self, member: _Member) -> None:
        self.members.append(member)
        self.bytes += member.launch.bytes
        self.params.update(member.args)
        self.reads |= member.reads
        self.writes |= member.writes
        self.threads = int(member.launch.threads.extent)

    def conflicts(self, reads: Iterable[Memory], writes: Iterable[Memory]) -> bool:
        """Whether a call with these operands and results must run after the members."""
        return not (self.writes.isdisjoint(reads) and self.writes.isdisjoint(writes) and self.reads.isdisjoint(writes))


def bundle_kernels(function: KernelList, functions: Functions, cache: BundleCache) -> None:
    """Bundle small kernels of a straight list. cache: receives what further lists can use."""
    _Bundler(function, functions, cache).run()


class _Bundler:
    def __init__(self, function: KernelList, functions: Functions, cache: BundleCache) -> None:
        self.function = function
        self.functions = functions
        self.cache = cache
        self.members = {call: self.member(call) for call in function.calls}

    def run(self) -> None:
        for find, late in ((self.updates, True), (self.preparations, False)):
            for bundle in find():  # preparations are found among the moved updates, whose results they may read
                if len(bundle.members) > 1:
                    self.replace(bundle, late)

    # --- grouping ----------------------------------------------------------------------------------------------------

    def updates(self) -> list[_Bundle]:
        """Kernels that write only parameters. They are put off until the last of them, or until a call needs one."""
        bundles: list[_Bundle] = []
        current: _Bundle | None = None
        for call in self.function.calls:
            member = self.members.get(call)
            if member is not None and all(m.kind == PARAMETER for m in member.writes):
                if current is None or not current.has_room(member) or current.conflicts(member.reads, member.writes):
                    current = _Bundle()
                    bundles.append(current)
                current.add(member)
            elif current is not None and current.conflicts(*_touched(call)):
                current = None
        return bundles

    def preparations(self) -> list[_Bundle]:
        """Kernels that read only parameters and write new tensors. They run with the first of them."""
        bundles: list[_Bundle] = []
        current = _Bundle()
        changed: set[Memory] = set()  # what other calls wrote since the bundle's first member
        for call in self.function.calls:
            member = self.members.get(call)
            if member is None or not (
                all(m.kind == PARAMETER for m in member.reads) and all(m.kind != PARAMETER for m in member.writes)
            ):
                changed |= _touched(call)[1]
                continue
            if not bundles or not current.has_room(member) or member.reads & changed:
                current = _Bundle()
                bundles.append(current)
                changed = set()
            current.add(member)
        return bundles

    def member(self, call: KernelCall) -> _Member | None:
        """The call as a member of a bundle; None if it is another kind of call, or too large."""
        launch = None if call.packed else self.launch(call.function)
        if launch is None or launch.bytes > _MEMBER_BYTES:
            return None
        operands = call.operands
        if len(operands) != len(call.arguments) or any(o.view is not None for o in operands):
            return None
        reads = frozenset(o.tensor.memory for o in call.reads)
        writes = frozenset(t.memory for t in call.results)
        return _Member(call, launch, tuple(o.tensor.memory for o in operands), reads, writes)

    def launch(self, name: str) -> _Launch | None:
        if name not in self.cache.launches:
            self.cache.launches[name] = _launch(self.functions.functions[name])
        return self.cache.launches[name]

    # --- rewriting ---------------------------------------------------------------------------------------------------

    def replace(self, bundle: _Bundle, late: bool) -> None:
        """Put one call in the place of the members' calls: at the last of them, or at the first."""
        operands: dict[Memory, Operand] = {}
        written: dict[Memory, Tensor] = {}
        for member in bundle.members:
            written |= {t.memory: t for t in member.call.results}
            for operand in member.call.operands:
                operands.setdefault(operand.tensor.memory, operand)
        memory = list(operands)
        writes = {memory.index(m): t for m, t in written.items()}
        calls = tuple(m.call for m in bundle.members)
        new = KernelCall(self.add(bundle, memory), False, tuple(operands.values()), writes, calls)
        place = calls[-1 if late else 0]
        dropped = set(calls) - {place}
        steps: list[Step] = [new if s is place else s for s in self.function.steps if s not in dropped]
        self.function.steps = steps

    def add(self, bundle: _Bundle, memory: Sequence[Memory]) -> str:
        """The name of the kernel of a bundle."""
        numbers = {m: i for i, m in enumerate(memory)}
        key = tuple((m.call.function, *(numbers[a] for a in m.args)) for m in bundle.members)
        if key not in self.cache.bundles:
            ops = tuple(op for m in bundle.members for op in self.functions.kernels.get(m.call.function, ()))
            name = "bundle_" + "_".join(dict.fromkeys(ops)).replace(".", "_").replace(":", "_")[:60]
            self.cache.bundles[key] = self.functions.add(name, _bundled(bundle.members, memory), ops)
        return self.cache.bundles[key]


def _touched(call: KernelCall) -> tuple[set[Memory], set[Memory]]:
    """The memory that a call reads, and what it writes."""
    return {o.tensor.memory for o in call.reads}, {t.memory for t in call.results}


def _bytes(buffer: Any) -> int:
    return (blocks.volume([blocks.as_int(d) for d in buffer.ty.shape]) or 0) * blocks.element_bits(buffer) // 8


def _launch(func: Any) -> _Launch | None:
    if takes_addresses(func) or not isinstance(func.body, tvm.SBlockRealize):
        return None
    grid = func.body.block.body
    if not _is_bound(grid, "blockIdx.x") or not _is_bound(grid.body, "threadIdx.x") or _binds_threads(grid.body.body):
        return None
    threads = grid.body
    static = all(hasattr(p.ty, "shape") and _bytes(p) for p in func.params)
    has_memory = len(blocks.list_buffers(func)) > len(func.params)
    if not static or has_memory or not all(isinstance(loop.extent, tvm.IntImm) for loop in (grid, threads)):
        return None
    return _Launch(func, grid, threads, sum(map(_bytes, func.params)))


def _is_bound(loop: Any, thread: str) -> bool:
    return isinstance(loop, tvm.For) and loop.thread_binding is not None and loop.thread_binding.thread_tag == thread


def _binds_threads(body: Any) -> bool:
    bound: list[Any] = []
    tvm.structural_walk(body, (tvm.For, lambda loop: bound.append(loop) if loop.thread_binding is not None else None))
    return bool(bound)


def _bundled(members: Sequence[_Member], args: Sequence[Memory]) -> Any:
    """A function of `args` with the members as branches over the index of the block of threads."""
    params: dict[Any, Any] = {}
    for member in members:
        for arg, param in zip(member.args, elements(member.launch.func.params), strict=True):
            params.setdefault(arg, tvm.Var(f"p{len(params)}", param.ty))
    block, thread = tvm.Var("block", "int32"), tvm.Var("thread", "int32")
    parts: list[tuple[int, Any]] = []
    total = 0
    for member in members:
        parts.append((total, _placed(member, params, block - total, thread)))
        total += int(member.launch.grid.extent)
    threads = _bound("threadIdx.x", thread, int(members[0].launch.threads.extent), _branches(block, parts))
    grid = _bound("blockIdx.x", block, total, threads)
    root = tvm.SBlock([], [], [], "root", grid)
    attrs = members[0].launch.func.attrs
    return tvm.PrimFunc([params[a] for a in args], tvm.SBlockRealize([], True, root), None, attrs)


def _placed(member: _Member, params: dict[Any, Any], block: Any, thread: Any) -> Any:
    """The work of a thread of a member, with variables of its own."""
    args = zip(member.args, elements(member.launch.func.params), strict=True)
    values = {param.__chandle__(): params[arg] for arg, param in args}
    for loop, value in ((member.launch.grid, block), (member.launch.threads, thread)):
        values[loop.loop_var.__chandle__()] = value.astype(str(loop.loop_var.ty.dtype))

    def renamed(var: Any) -> Any:
        address = var.__chandle__()
        if address not in values:
            values[address] = tvm.Var(var.name, var.ty)
        return values[address]

    return tvm.structural_map(member.launch.threads.body, (tvm.Var, renamed))


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
