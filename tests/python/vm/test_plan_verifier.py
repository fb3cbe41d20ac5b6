"""The verifier of plans finds what makes a plan compute something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meta
from meta.errors import IRError
from meta.vm.lower.choose import WAIT
from meta.vm.plan import pipeline
from meta.vm.plan.kernels import (
    OBJECT,
    OWN,
    PARAMETER,
    PLANNED,
    KernelCall,
    KernelList,
    Memory,
    ObjectCall,
    Operand,
    Tensor,
)
from meta.vm.plan.memory import assign_memory
from meta.vm.plan.verify import expected_values, verify

REDUCE = "meta.torch.all_reduce.0123456789abcdef"


def tensor(name: str, kind: str = PLANNED) -> Tensor:
    return Tensor(name, (8,), "float32", Memory(kind))


def call(name: str, reads: list[Tensor], *results: Tensor, packed: bool = False) -> KernelCall:
    """A call that gets its operands, then its results."""
    writes = {len(reads) + i: t for i, t in enumerate(results)}
    return KernelCall(name, packed, tuple(map(Operand, (*reads, *results))), writes)


class Plan:
    """a = f(x); b, c = g(a); d = h(b, w); v = update(w, c), the new value of w; returns r = last(d, v)."""

    def __init__(self) -> None:
        self.x, self.w = tensor("x", PARAMETER), tensor("w", PARAMETER)
        self.a, self.b, self.c, self.d = (tensor(name) for name in "abcd")
        self.v, self.r = tensor("v"), tensor("r", OWN)
        self.steps: dict[str, Any] = {
            "f": call("f", [self.x], self.a),
            "g": call("g", [self.a], self.b, self.c),
            "h": call("h", [self.b, self.w], self.d),
            "update": call("update", [self.w, self.c], self.v),
            "last": call("last", [self.d, self.v], self.r),
        }
        parameters: Any = [(None, Operand(self.x)), (None, Operand(self.w))]
        self.list = KernelList("main", parameters, list(self.steps.values()), Operand(self.r), None)
        self.list.updates = [(Operand(self.v), self.w)]
        self.expected = expected_values(self.list)
        self.v.memory = self.w.memory
        self.steps["update"] = KernelCall("update", False, tuple(map(Operand, (self.w, self.c))), {0: self.v},
                                          source=self.steps["update"])  # fmt: skip
        self.list.steps = list(self.steps.values())
        assign_memory(self.list, arena=False)

    def verify(self) -> None:
        verify(self.list, self.expected)


def share(p: Plan) -> None:
    p.c.memory = p.b.memory


def overlap(p: Plan) -> None:
    p.c.memory.storage, p.c.memory.offset = p.b.memory.storage, p.b.memory.offset + 16


def reuse(p: Plan) -> None:
    p.d.memory = p.c.memory


def write_over_an_operand(p: Plan) -> None:
    p.d.memory = p.b.memory


def write_over_memory_of_another(p: Plan) -> None:
    p.list.steps[2] = KernelCall("h", False, p.list.steps[2].arguments[:2], {0: p.d}, source=p.steps["h"])


def swap(p: Plan) -> None:
    p.list.steps[2:4] = p.list.steps[3:1:-1]


def come_first(p: Plan) -> None:
    p.list.steps.insert(0, p.list.steps.pop(2))


def repeat(p: Plan) -> None:
    p.list.steps.insert(4, p.steps["update"])


def other_operand(p: Plan) -> None:
    p.list.steps[2] = p.steps["h"].renamed({p.b: p.c})


def other_call(p: Plan) -> None:
    p.list.steps.insert(3, call("h", [p.b, p.x], tensor("e", OWN)))


def forget(p: Plan) -> None:
    p.v.memory = Memory(OWN)
    p.list.steps[3] = call("update", [p.w, p.c], p.v)
    p.list.steps[3].source = next(s for s in p.expected.calls if s.function == "update")


def return_the_parameter(p: Plan) -> None:
    p.list.result = Operand(p.v)


def return_planned_memory(p: Plan) -> None:
    p.r.memory = Memory(PLANNED, 9)


def no_memory(p: Plan) -> None:
    p.a.memory.storage = -1


def in_a_bundle(p: Plan) -> None:
    h, update = p.list.steps[2:4]
    arguments = (*h.arguments, *update.arguments[1:])
    p.list.steps[2:4] = [KernelCall("bundle", False, arguments, {2: p.d, 1: p.v}, (h, update))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (share, "c lies in the memory of another result"),
        (overlap, "c lies in the memory of another result"),
        (reuse, "c is read where its memory has d"),
        (write_over_an_operand, "d lies in the memory of b, which the call reads"),
        (write_over_memory_of_another, "d is written over b, and lies elsewhere"),
        (swap, "w is read where its memory has v"),
        (come_first, "b is read where its memory has nothing yet"),
        (repeat, "w is read where its memory has v"),
        (other_operand, "it reads c in place of b"),
        (other_call, "the program has no such call"),
        (forget, "a parameter does not become v"),
        (return_the_parameter, "v is returned in place of r"),
        (return_planned_memory, "r is returned in memory that is written later"),
        (no_memory, "a has no memory"),
        (in_a_bundle, "a member of the bundle writes what another one uses"),
    ],
)
def test_wrong_plans_are_found(change: Callable[[Plan], None], message: str) -> None:
    plan = Plan()
    plan.verify()
    change(plan)
    with pytest.raises(IRError, match=message):
        plan.verify()


@pytest.mark.parametrize("is_late", [True, False])
def test_objects_may_be_their_operands(is_late: bool) -> None:
    """A conditional that returns w, or what it computes, before w is written."""
    w, y, v, r = tensor("w", PARAMETER), tensor("y", OBJECT), tensor("v"), tensor("r", OWN)
    branch = ObjectCall(None, {"w": Operand(w)}, Operand(y), None)
    update, read = call("update", [w], v), call("read", [y], r)
    main = KernelList("main", [(None, Operand(w))], [branch, read, update], Operand(r), None, [(Operand(v), w)])
    expected = expected_values(main)
    v.memory = w.memory
    changed = KernelCall("update", False, (Operand(w),), {0: v}, source=update)
    main.steps = [branch, read, changed] if is_late else [branch, changed, read]
    if is_late:
        verify(main, expected)
        return
    with pytest.raises(IRError, match="w is read where its memory has v"):
        verify(main, expected)


def start_late(main: KernelList) -> None:
    main.steps[1:3] = main.steps[2:0:-1]


def never_wait(main: KernelList) -> None:
    del main.steps[1]


def write_meanwhile(main: KernelList) -> None:
    main.steps[1:3] = main.steps[2:0:-1]
    main.steps[1].writes[1].memory = main.steps[0].reads[0].tensor.memory


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (start_late, "s is read while a collective writes it"),
        (never_wait, "s is read while a collective writes it"),
        (write_meanwhile, "is read while a collective writes it"),
    ],
)
def test_collectives_are_waited_for(change: Callable[[KernelList], None], message: str) -> None:
    x, s, r = tensor("x", PARAMETER), tensor("s"), tensor("r", OWN)
    whole, read = call(REDUCE, [x], s, packed=True), call("read", [s], r)
    main = KernelList("main", [(None, Operand(x))], [whole, read], Operand(r), None)
    expected = expected_values(main)
    start = KernelCall(f"{REDUCE}.start", True, (0, Operand(x), Operand(s)), {2: s}, source=whole, starts=REDUCE)
    main.steps = [start, KernelCall(WAIT, True, (0, Operand(x), Operand(s)), {}), read]
    assign_memory(main, arena=False)
    verify(main, expected)
    change(main)
    with pytest.raises(IRError, match=message):
        verify(main, expected)


def test_plans_of_programs_are_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """As in compiled training with two results of one kernel over one operand."""
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(pipeline, "update_in_place", lambda *_: None)

    def step(x: Any, w: Any) -> Any:
        w += x
        return w * 2.0

    with pytest.raises(IRError, match="a parameter does not become"):
        meta.vm.compile(step)(meta.ones((3,)), meta.ones((3,)))
