"""The library of a large program, whose kernels several processes compile (see `meta.backend.tvm.parallel`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm import target as targets
from meta.backend.tvm.lowering import pipeline
from meta.backend.tvm.parallel import processes
from meta.backend.tvm.parallel.serialization import UntransferableError, to_bytes
from meta.backend.tvm.parallel.worker import compile_functions
from meta.vm.lower.dispatched import Source
from meta.vm.lower.first_calls import run_first_calls
from meta.vm.relax.pipeline import Planned, finish

FEWEST: Final = 24
"""Kernels from which on several processes compile: they take two seconds to start, in which one compiles about ten."""
_SAVED: Final = 72
"""The same, times the processes beyond the first: two processes compile programs of 72 kernels, three those of 36."""
_SHARE: Final = 4
"""Requests for each process, so that those with small kernels take more of them."""


def worth_processes(kernels: int, device: str) -> bool:
    """Whether several processes should compile a program of as many kernels, or operators before they are fused."""
    fewest = max(FEWEST, _SAVED // max(processes.jobs() - 1, 1))
    loads = device == "cpu" or tvm.get_global_func(_LOADER.format(device), allow_missing=True) is not None
    return processes.jobs() > 1 and kernels >= fewest and loads and library.linker() is not None


_LOADER: Final = "ffi.Module.load_from_bytes.{}"
"""TVM's function from the code of kernels for a GPU to a module; its runtime for that GPU registers it."""


def linked(source: Source, planned: Planned) -> bytes | None:
    """The shared library of a program, compiled by several processes; None if one process should compile it.

    A part whose process dies or fails is compiled by this process, which raises its error."""
    kernels = {str(name.name_hint): f for name, f in planned.module.functions.items() if isinstance(f, tvm.PrimFunc)}
    if not worth_processes(len(kernels), source.device.kind):
        return None
    processes.start(len(kernels))
    if not processes.running():
        return None
    progress.stage("send kernels to processes")
    target = targets.target(source.device.kind)
    module = finish(planned, target, static=source.static)
    kernels = {str(name.name_hint): f for name, f in module.functions.items() if name.name_hint in kernels}
    try:
        written = {name: to_bytes(f) for name, f in kernels.items()}
    except UntransferableError:
        return None
    asserts = source.device.kind != "cuda"
    text = str(tvm.save_json(target))
    requests = [(text, asserts, share) for share in _shares(written, _SHARE * max(processes.running(), 1))]
    codes: list[Any] = [None] * len(requests)

    def meanwhile() -> None:
        progress.stage("choose plans of libraries")
        run_first_calls(source)
        progress.stage("generate code", total=len(kernels))

    for number, code in processes.compile_all(requests, meanwhile):
        codes[number] = compile_functions(*requests[number]) if code is None else code
        for _ in requests[number][2]:
            progress.advance()
    progress.stage("link")
    return _link(module, kernels, codes, target)


def _shares(written: dict[str, bytes], count: int) -> list[list[tuple[str, bytes]]]:
    """Functions divided among requests of similar sizes, the largest request first."""
    shares: list[list[tuple[str, bytes]]] = [[] for _ in range(min(count, len(written)))]
    sizes = [0] * len(shares)
    for name, data in sorted(written.items(), key=lambda item: (-len(item[1]), item[0])):
        smallest = sizes.index(min(sizes))
        shares[smallest].append((name, data))
        sizes[smallest] += len(data)
    order = sorted(range(len(shares)), key=lambda i: -sizes[i])
    return [shares[i] for i in order]


def _link(module: Any, kernels: Iterable[str], codes: list[Any], target: Any) -> bytes | None:
    """The library of a program and of the codes of its kernels.

    Bytecode calls the kernels: TVM declares a kernel of another module once for each call that it compiles, and all
    declarations but the first have names that no code defines. It costs such programs 3 % at the most."""
    builder, compiled = tvm.ExecBuilder(), set(kernels)
    rest = {
        name: f
        for name, f in tvm.vm_bytecode(builder, module).functions.items()
        if isinstance(f, tvm.PrimFunc) and name.name_hint not in compiled
    }
    host = tvm.build_tir(tvm.IRModule(rest or {_EMPTY: _empty()}), target, pipeline())
    for _, imports in codes:
        for kind, data in imports:
            host.import_module(tvm.get_global_func(_LOADER.format(kind))(data))
    executable = tvm.vm_link(builder, target, host, [], {})
    return library.link(executable, [code for code, _ in codes])


_EMPTY: Final = "meta_empty"


def _empty() -> Any:
    """A function that does nothing: TVM finds the code of the library, and so of the kernels, by that of a module."""
    body = tvm.tirx.Evaluate(tvm.tirx.const(0, "int32"))
    return tvm.PrimFunc([], body).with_attr("global_symbol", _EMPTY)
