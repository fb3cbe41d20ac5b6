"""The kernels of a program, which tuning computes, fuses and schedules with any choices of their knobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import compute_key, schedule_key
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.patterns import schedule
from meta.backend.tvm.spec import KernelSpec
from meta.backend.tvm.target import Knob, Knobs, Value
from meta.errors import MetaError
from meta.modes import scoped
from meta.records import record
from meta.vm.lower.choose import Source
from meta.vm.lower.translate import lower, prim_func
from meta.vm.plan.fusion import grouped, sequence
from meta.vm.plan.relax import is_group

SCHEDULE: Final = ""
"""In place of the key of a compute, for knobs of the schedule."""
Place = tuple[str, str]
"""The key of the compute that asks, or `SCHEDULE`, and the name of the knob."""
State = Mapping[Place, Value]
"""Choices, for the knobs that do not have their defaults."""


@record(eq=False)
class KernelVariant:
    """A kernel with some choices. function: scheduled, over (operands..., results...).  knobs: those it asked for.
    values: what these are.  key: the key of the choices of the schedule.  code: a hash of the function.
    work: an estimate of its time, in elements that are read or written."""

    state: State
    function: Any
    knobs: Mapping[Place, Knob]
    values: Mapping[Place, Value]
    key: str
    code: int
    work: float

    def neighbours(self, place: Place) -> Iterator[State]:
        """The states that differ from this one in the value of one knob."""
        for option in self.knobs[place].options:
            if option != self.values[place]:
                yield {**self.state, place: option}

    def choices(self) -> dict[str, dict[str, Value]]:
        """What differs from the defaults, by the keys under which a program looks for it."""
        found: dict[str, dict[str, Value]] = {}
        for (scope, name), value in self.values.items():
            if value != self.knobs[scope, name].default:
                found.setdefault(scope or self.key, {})[name] = value
        return found


@dataclass(slots=True, eq=False)
class TunableKernel:
    """A kernel of a program. calls: in a run, without repetitions by loops.  group: the function of Relax that calls
    several PrimFuncs, None for one alone.  parts: the specification of each PrimFunc, by its variable."""

    name: str
    operators: tuple[str, ...]
    calls: int
    group: Any
    parts: Mapping[Any, tuple[KernelSpec, bool]]
    target: Any
    computed: dict[Any, tuple[Any, Knobs]] = field(default_factory=dict[Any, "tuple[Any, Knobs]"])

    @property
    def scopes(self) -> frozenset[str]:
        """The keys of its computes."""
        return frozenset(compute_key(spec) for spec, _ in self.parts.values())

    def variant(self, state: State) -> KernelVariant | None:
        """The kernel with these choices, None where they do not give one."""
        functions: dict[Any, Any] = {}
        asked: dict[Place, Knob] = {}
        used: dict[Place, Value] = {}
        try:
            for variable, (spec, is_fed) in self.parts.items():
                scope = compute_key(spec)
                functions[variable], knobs = self._computed(scope, spec, is_fed, state)
                _enter(scope, knobs, asked, used)
            unscheduled = self._fused(functions)
            knobs = Knobs({name: value for (scope, name), value in state.items() if scope == SCHEDULE})
            with scoped(knobs=knobs):
                function = schedule(unscheduled, "", self.target)
        except (MetaError, tvm.ScheduleError, tvm.TVMError, ValueError):
            return None
        _enter(SCHEDULE, knobs, asked, used)
        code = tvm.structural_hash(function)
        return KernelVariant(state, function, asked, used, schedule_key(unscheduled), code, _work(unscheduled))

    def _computed(self, scope: str, spec: KernelSpec, is_fed: bool, state: State) -> tuple[Any, Knobs]:
        chosen = {name: value for (place, name), value in state.items() if place == scope}
        key = (scope, is_fed, tuple(sorted(chosen.items())))
        if key not in self.computed:
            knobs = Knobs(chosen)
            with scoped(knobs=knobs):
                self.computed[key] = prim_func(spec, is_fed), knobs
        return self.computed[key]

    def _fused(self, functions: Mapping[Any, Any]) -> Any:
        """The PrimFunc of the group, whose parts are `functions`."""
        if self.group is None:
            (function,) = functions.values()
            return function
        variable, group = self.group
        params = [tvm.RelaxVar(p.name, p.ty) for p in group.params]
        result = tvm.RelaxVar("result", group.ret_ty)
        block = tvm.BindingBlock([tvm.VarBinding(result, tvm.RelaxCall(variable, params))])
        main = tvm.RelaxFunction(params, tvm.SeqExpr([block], result), group.ret_ty)
        main = main.with_attr("global_symbol", "main")
        module = tvm.IRModule({tvm.GlobalVar("main"): main, variable: group, **functions})
        fused = sequence("FuseTIR")(tvm.relax_transform.Normalize()(module))
        return next(f for v, f in fused.functions.items() if v.name_hint == variable.name_hint)


def _enter(scope: str, knobs: Knobs, asked: dict[Place, Knob], used: dict[Place, Value]) -> None:
    asked.update({(scope, name): knob for name, knob in knobs.asked.items()})
    used.update({(scope, name): value for name, value in knobs.used.items()})


def tunable_kernels(source: Source, *, fuse: bool) -> list[TunableKernel]:
    """The kernels of a program for the CPU that TVM compiles, without regard to choices that the program has."""
    with scoped(cpu=source.cpu, tuning=None):
        lowered = lower(source)
        target = source.target
        with target:
            module, operators = grouped(lowered, fuse, on_gpu=False)
    calls = Counter(_callee(call) for f in module.functions.values() if not is_group(f) for call in _calls(f))
    kernels: list[TunableKernel] = []
    for variable, function in module.functions.items():
        if is_group(function):
            members = dict.fromkeys(_callee(call) for call in _calls(function))
            group = variable, function
        elif isinstance(function, tvm.PrimFunc):
            members, group = {variable: None}, None
        else:
            continue
        name = str(variable.name_hint)
        specs = {v: lowered.specs[v.name_hint] for v in members if v is not None and v.name_hint in lowered.specs}
        if calls[variable] and len(specs) == len(members):
            kernels.append(TunableKernel(name, operators.get(name, ()), calls[variable], group, specs, target))
    return kernels


def _calls(function: Any) -> list[Any]:
    """The calls in a function of Relax."""
    found: list[Any] = []
    if isinstance(function, tvm.RelaxFunction):
        tvm.structural_walk(function, (tvm.RelaxCall, found.append))
    return found


def _callee(call: Any) -> Any:
    """The variable of the kernel or group that a call runs, None for others."""
    if isinstance(call.op, tvm.GlobalVar):
        return call.op
    operands: Sequence[Any] = call.args
    is_tir = str(getattr(call.op, "name", "")) == "relax.call_tir"
    return operands[0] if is_tir and isinstance(operands[0], tvm.GlobalVar) else None


def _work(function: Any) -> float:
    """An estimate of the time of a function, in elements of memory: steps of sums are taken by vectors."""
    volumes: list[float] = []

    def visit(block: Any) -> None:
        volume = blocks.volume([blocks.as_int(v.dom.extent) for v in block.iter_vars]) or 0
        is_sum = any(int(v.iter_type) == blocks.REDUCE for v in block.iter_vars)
        volumes.append(volume / (targets.lanes(32) if is_sum else 1))

    tvm.structural_walk(function.body, (tvm.SBlock, visit))
    return sum(volumes)
