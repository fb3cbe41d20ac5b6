"""Executables from memory, from disk, or newly built.

The passes, schedules and the compiler are imported where a program is built: one from disk does without them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import hooks, library, parallel
from meta.backend.tvm import target as targets
from meta.backend.tvm.compute import TEImplementation, source_key
from meta.backend.tvm.cpu import NotRunnable, runs_here
from meta.backend.tvm.kernel import digest
from meta.backend.tvm.workarounds import heap
from meta.cache import default_cache
from meta.ir.printer import to_text
from meta.locks import new_lock
from meta.progress import without_collection
from meta.records import record
from meta.vm import lower, plan
from meta.vm.lower.choose import Choice, Source, packed_name, register_kernels
from meta.vm.plan.kernels import Destinations, PlannedBytes

if TYPE_CHECKING:
    from meta.vm.lower.translate import Lowered
    from meta.vm.plan.budget import MemoryTrade

MAX_LOADED = 64
"""Most executables that stay loaded for new executors."""


@record(eq=False)
class Loaded:
    """A runnable program. kernels: the operators in each kernel.  memory: what the plan allocates.
    origin: "built", "disk".  destinations: the memory that callers provide, None where the program allocates it.
    key: its name in the cache on disk.  trade: what a budget of memory costs, None without one."""

    module: Any
    kernels: Mapping[str, tuple[str, ...]]
    memory: PlannedBytes
    origin: str
    destinations: Destinations | None = None
    key: str = ""
    trade: MemoryTrade | None = None

    def facts(self) -> dict[str, Any]:
        """The JSON of what is known of the plan."""
        parts = {"memory": self.memory, "destinations": self.destinations, "trade": self.trade}
        return {"kernels": self.kernels} | {n: None if x is None else asdict(x) for n, x in parts.items()}

    @staticmethod
    def from_facts(module: Any, facts: Mapping[str, Any], origin: str, key: str = "") -> Loaded:
        kernels = {name: tuple(ops) for name, ops in facts["kernels"].items()}
        destinations = Destinations.from_dict(facts["destinations"]) if facts["destinations"] else None
        trade = None
        if facts.get("trade"):
            from meta.vm.plan.budget import MemoryTrade

            trade = MemoryTrade.from_dict(facts["trade"])
        return Loaded(module, kernels, PlannedBytes(**facts["memory"]), origin, destinations, key, trade)


_lock = new_lock("executables")
_loaded: OrderedDict[str, Loaded] = OrderedDict()


def load(source: Source, *, fuse: bool, graphs: bool = False) -> Loaded:
    """The executable of a program, with its library kernels registered. One thread builds at a time.

    graphs: the program takes its memory where possible, so that calls can be recorded."""
    with _lock, source.compiling():
        hooks.prepare()
        progress.stage("prepare library kernels")
        register_kernels(source)
        progress.stage("read from disk")
        lowered: Lowered | None = None
        if not _keyed_by_sources(source):
            from meta.vm.lower.translate import lower

            lowered = lower(source)
        key = cache_key(source, fuse, lowered) + ("_graph" if graphs else "")
        foreign = source.cpu is not None and not runs_here(source.cpu)
        loaded = _loaded.get(key) or (_planned(source, lowered, key, fuse) if foreign else _from_disk(key))
        if loaded is None:
            disk = default_cache()
            with contextlib.nullcontext() if disk is None else disk.building(key):
                loaded = _from_disk(key) or _build(source, lowered, key, fuse, graphs)
        _loaded[key] = loaded
        _loaded.move_to_end(key)
        if len(_loaded) > MAX_LOADED:
            while len(_loaded) > MAX_LOADED:
                _loaded.popitem(last=False)
            tvm.clear_pools()  # they have the results of dropped programs, which fit other programs of equal sizes only
    return loaded


def _keyed_by_sources(source: Source) -> bool:
    """Whether the sources of this package decide what all computes of the program are."""
    payloads = (choice.implementation.payload for choice in source.choices.listed())
    return all(source_key(p.source) for p in payloads if isinstance(p, TEImplementation))


def cache_key(source: Source, fuse: bool, lowered: Lowered | None) -> str:
    """A digest of everything the executable depends on: the program, its dialects, our sources, TVM and the machine.

    lowered: the Relax module of a program with computes from outside this package, which are identified by what they
    compute."""
    parts = [
        to_text(source.module, spans=False),
        *map(_choice_text, source.choices.listed()),
        repr((sorted(source.mutates.items()), len(source.constants), fuse, str(source.device), source.budget)),
        targets.identity(source.device.kind),
        _identity(),
        "" if lowered is None else digest(lowered.module),
    ]
    return f"vm_{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:48]}"


def _choice_text(choice: Choice) -> str:
    payload = choice.implementation.payload
    in_program = choice.compiled and isinstance(payload, TEImplementation)
    version = source_key(payload.source) if in_program else packed_name(choice)
    return repr((choice.implementation.name, choice.info.args, choice.info.out, version))


@cache
def _identity() -> str:
    """A digest of the sources that decide what an executable is."""
    digest = hashlib.sha256()
    for path in own_sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def own_sources() -> list[Path]:
    """The sources of lowering, of the Relax passes, and of the processes that compile."""
    folders = (Path(file).parent for file in (lower.__file__, plan.__file__, __file__, parallel.__file__))
    return [path for folder in folders for path in sorted(folder.glob("*.py"))]


_FACTS = ".json"


def _from_disk(key: str) -> Loaded | None:
    disk = default_cache()
    if disk is None:
        return None
    try:
        facts = json.loads(disk.read(key, _FACTS) or "")
    except ValueError:
        return None
    module = library.load(disk, key)
    return None if module is None else Loaded.from_facts(module, facts, "disk", key)


def _planned(source: Source, lowered: Lowered | None, key: str, fuse: bool) -> Loaded:
    """The plan of a program for another machine, which cannot run."""
    from meta.vm.build.generate import plan_source

    planned = plan_source(source, fuse=fuse, lowered=lowered)
    return Loaded(NotRunnable(source.cpu), planned.kernels, planned.memory, "planned", key=key, trade=planned.trade)


@without_collection()
def _build(source: Source, lowered: Lowered | None, key: str, fuse: bool, graphs: bool) -> Loaded:
    """The executable, newly built, by several processes if it is large."""
    from meta.backend.tvm.parallel import processes
    from meta.vm.build.generate import build_module, linked, plan_source, worth_processes

    operators = sum(choice.compiled for choice in source.choices.listed())
    if worth_processes(operators, source.device.kind):
        processes.start(operators)  # they import TVM while this process plans
    heap.keep_tables()
    planned = plan_source(source, fuse=fuse, lowered=lowered, arena=graphs)
    disk = default_cache()
    code = linked(source, planned)
    if code is not None:
        module = (disk and library.store_code(disk, key, code)) or library.load_bytes(code)
    else:
        module = build_module(source, planned)
        module = (disk and library.store(disk, key, module)) or module
    memory, destinations, trade = planned.memory, planned.destinations, planned.trade
    loaded = Loaded(module, planned.kernels, memory, "built", destinations, key, trade)
    if disk is not None:
        disk.put(key, json.dumps(loaded.facts()).encode(), _FACTS)
    return loaded


def shared_library(source: Source, loaded: Loaded, *, fuse: bool) -> bytes:
    """The shared library of an executable, from the cache on disk or built again. Raises NotSupportedError without a
    linker."""
    disk = default_cache()
    code = library.read(disk, loaded.key) if disk is not None else None
    if code is None:
        from meta.vm.build.generate import build_module, linked, plan_source

        with _lock, source.compiling():
            planned = plan_source(source, fuse=fuse, arena=loaded.destinations is not None)
            code = linked(source, planned) or library.link(build_module(source, planned))
    if code is None:
        raise library.missing_linker("save", source.cpu)
    return code
