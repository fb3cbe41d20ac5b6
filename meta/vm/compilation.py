"""`meta.vm.compile`: what to compile, for which device and CPU, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypedDict, TypeVar, overload

from meta import spellings
from meta.backend.tvm.cpu import CpuTarget, chosen_target
from meta.device import Device
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.files.atomic import Path
from meta.ir.builder import Module
from meta.tracing.open_sizes import Dynamic
from meta.vm.arguments import Frozen, Recordable, compiled_device, recorder_of
from meta.vm.executor import Executor, Transform

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class CompileOptions(TypedDict, total=False):
    """The options of `compile`."""

    fuse: bool
    passes: Transform | Iterable[Transform] | None
    graphs: bool
    dynamic: Dynamic | None
    memory_budget: int | str | None
    target: str | CpuTarget | None
    cpu: str | None
    tuning: Path | None
    constants: bool


@overload
def compile(
    what: Module, device: Device | str = "cpu", **options: Unpack[CompileOptions]
) -> Executor[..., tuple[NDArray, ...]]: ...
@overload
def compile(
    what: Callable[P, R], device: Device | str = "cpu", **options: Unpack[CompileOptions]
) -> Executor[P, R]: ...
@overload
def compile(
    what: Recordable, device: Device | str = "cpu", **options: Unpack[CompileOptions]
) -> Executor[..., Any]: ...
def compile(
    what: Module | Recordable | Callable[..., Any], device: Device | str = "cpu", *, fuse: bool = True,
    passes: Transform | Iterable[Transform] | None = None, graphs: bool = True, dynamic: Dynamic | None = None,
    memory_budget: int | str | None = None, target: str | CpuTarget | None = None, cpu: str | None = None,
    tuning: Path | None = None, constants: bool = False, **unknown: NoReturn,
) -> Executor[..., Any]:  # fmt: skip
    """Compile a Model, a function (traced or not), a training step or an IR Module.

    executor = meta.vm.compile(model)
    y = executor(x)                       # or by name: executor(x=x)

    The program is traced and compiled at the first call with inputs of new shapes and dtypes (a Module: of any shapes
    where its sizes are symbolic), kept on disk, and reused. It returns what the eager call returns; arrays that the
    eager call writes in place (parameters, buffers, optimizer state) keep their memory.

    device: where it runs; inputs and parameters must be there.
    fuse: let neighbouring operators share a kernel.
    passes: module -> module transformations to apply before the standard ones, such as `meta.passes.auto_cast(...)`.
    graphs: on CUDA, record programs of known sizes as CUDA graphs (see docs/gpu.md).
    dynamic: sizes that one program leaves open: input -> axis -> a name, as in `{"x": {0: "n"}}`. Sizes of one name are
        equal. Inputs inside of containers are called by their paths (`batch.0`). Without it, the first call has a
        program for its sizes, and calls of other sizes share one that leaves open what differs, if the function allows
        that (eight programs without it lead to a SpecialisationWarning); `{}` leaves no size open. A model with
        `open_sizes` (one that torch exported with dynamic sizes) leaves those open.
    memory_budget: the most bytes that a call may need, as `Executor.memory` counts them: a number, or a text such as
        "2GiB". Tensors are then computed again where they are read next, in place of being kept, until it fits;
        `Executor.memory` and `explain` report what that costs. The first call raises ArgumentError, with the least
        number, if the program needs more, and NotSupportedError if it has branches, loops or symbolic sizes.
    target: the CPU that it is compiled for, where that is another machine's: "aarch64-linux-gnu", "riscv64-linux-gnu",
        ... (see docs/compile.md). All kernels are TVM's then, and calls raise NotSupportedError where this machine does
        not run the code.  cpu: its processor by LLVM's name, such as "cortex-a72".
    tuning: a file of choices for the kernels' schedules, which `Executor.tune` has found and its report saved (see
        docs/performance.md). Raises FileError for a malformed one, and for one without choices for the CPU.
    constants: make the parameters and buffers that are only read constants, with the values that they have when the
        program is compiled: batch norms and layouts of weights are then computed once. Later writes to them do not
        change the program.
    A `with_dialect` around this call holds for the program."""
    if unknown:
        spellings.refuse_unknown("compile", unknown, ("what", "device", *CompileOptions.__annotations__))
    what = Frozen(recorder_of(what), what) if constants and not isinstance(what, Module) else what
    on = compiled_device(device)
    machine = chosen_target(on, target, cpu) if target or cpu else None
    if tuning is None:
        return Executor(what, on, fuse, passes, graphs, dynamic, memory_budget, machine)
    from meta.backend.tvm import choices

    if on.kind != "cpu":
        raise ArgumentError("compile", f"tuning is {tuning!r:.80}, and the device is {on}", "tuning on the CPU alone")
    table = choices.read(tuning)
    table.check(machine)
    return Executor(what, on, fuse, passes, graphs, dynamic, memory_budget, machine, table)
