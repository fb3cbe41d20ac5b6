"""Collectives while other kernels run, in the plans of training steps of ranks that do not exist."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import meta
from meta import distributed, nn, optim
from meta._generated import limits
from meta.device import CPU
from meta.ir.type import tensor_type
from meta.passes import auto_cast
from meta.passes.standard import standard
from meta.vm import executor
from meta.vm.build.generate import plan_source
from meta.vm.lower.choose import prepare
from meta.vm.plan.kernels import PARAMETER, PLANNED, KernelCall, KernelList, Memory

GROUP = distributed.Group("dp", 2)


def _planned(wrap: Callable[[Any], Any], arena: bool = False) -> KernelList:
    """The planned calls of a step of three dense layers."""
    model = nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(8, 8), nn.Tanh())))
    step = wrap(optim.TrainStep(model, optim.SGD(model, 0.1), loss=meta.mse_loss))
    source = prepare(standard()(step.record(meta.ones((4, 8)), meta.ones((4, 8))).module), CPU)
    return plan_source(source, fuse=True, arena=arena).main


def _name(call: KernelCall) -> str:
    """The function that a call calls; of a collective the operator, what part of it, and its number."""
    match = re.fullmatch(r"meta\.(?:torch\.(\w+)\.\w+\.)?(start|wait)", call.function)
    if match is None:
        return re.sub(r"(_\d+_over_\d+)+$", "", call.function)
    return " ".join(filter(None, (match[2], match[1], str(call.arguments[0]))))


def _text(main: KernelList) -> str:
    return "\n".join(map(_name, main.calls))


DATA_PARALLEL = """\
fused_dense_tanh
fused_dense_tanh
fused_dense_tanh
mse_loss
fused_ones_mse_loss_dx_tanh_dx
matmul1
sum_to
start all_reduce 0
fused_matmul_tanh_dx
matmul1
sum_to
start all_reduce 1
fused_matmul_tanh_dx
matmul1
sum_to
start all_reduce 2
concatenate
start all_reduce 3
wait 0
sgd
wait 1
sgd
wait 2
sgd
wait 3
split
fused_sgd1
fused_sgd1
fused_sgd1"""


def test_gradients_are_sent_while_the_backward_pass_runs() -> None:
    text = _text(_planned(distributed.data_parallel(GROUP, bucket_bytes=256, broadcast=False)))
    assert text == DATA_PARALLEL, text


ZERO_3 = """\
start all_gather 0
concatenate
start all_gather 1
wait 1
split
start all_gather 2
wait 0
fused_dense_tanh
start all_gather 3
wait 2
fused_dense_tanh
start all_gather 4
wait 3
fused_dense_tanh
mse_loss
fused_ones_mse_loss_dx_tanh_dx
matmul1
sum_to
start reduce_scatter 5
fused_matmul_tanh_dx
wait 4
fused_matmul_tanh_dx
sum_to
matmul1
start reduce_scatter 6
matmul1
sum_to
start reduce_scatter 7
wait 5
fused_divide_sgd
concatenate1
start reduce_scatter 8
wait 6
fused_divide_sgd
wait 7
fused_divide_sgd
wait 8
split1
fused_divide1_sgd1
fused_divide1_sgd1
fused_divide1_sgd1"""
"""Collective 4 gathers the weight of the second layer again: the third, and the biases, were read in between."""


def test_parameters_are_gathered_ahead_of_use() -> None:
    text = _text(_planned(distributed.zero(3, GROUP, bucket_bytes=256, broadcast=False)))
    assert text == ZERO_3, text


def test_collectives_in_flight_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "IN_FLIGHT_BYTES", 1)
    text = _text(_planned(distributed.data_parallel(GROUP, bucket_bytes=256, broadcast=False)))
    assert text.index("wait 0") < text.index("start all_reduce 2"), text
    text = _text(_planned(distributed.zero(3, GROUP, bucket_bytes=256, broadcast=False)))
    assert text.index("start all_gather 3") > text.index("wait 0"), text


def _parameter_reads(main: KernelList) -> list[tuple[str, Memory]]:
    """The kernels of a planned program that gather or write each shard, in order."""
    used = [(_name(call), o.tensor.memory) for call in main.calls for o in call.operands]
    return [(name, memory) for name, memory in used if memory.kind == PARAMETER and "wait" not in name]


class Transformer(meta.Model):
    """As in BERT or, if causal, in GPT."""

    def build(self, is_causal: bool) -> None:
        self.is_causal = is_causal
        self.embedding, self.head = nn.Embedding(100, 64), nn.Linear(64, 100)
        self.layers = [
            nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=is_causal)
            for _ in range(6)
        ]

    def forward(self, x: Any) -> Any:
        h = self.embedding(x)
        for layer in self.layers:
            h = layer(h, is_causal=self.is_causal)
        return self.head(h).reshape(-1, 100)


@pytest.mark.parametrize("is_causal", [False, True], ids=["bert", "gpt"])
def test_zero_3_needs_half_of_the_memory_of_one_process(is_causal: bool) -> None:
    """Parameters, gradients and the optimizer's state, and all that the step computes on the way for one row."""
    model = Transformer(is_causal)
    whole = sum(x.nbytes for x in model.parameters())
    step = optim.TrainStep(model, optim.AdamW(model, 0.1), loss=meta.cross_entropy)
    step = distributed.zero(3, GROUP, broadcast=False)(step)
    tokens = tensor_type((1, 4), "int64"), tensor_type((4,), "int64")
    source = prepare(standard()(step.record(*tokens).module), CPU)
    planned = plan_source(source, fuse=True)
    state_bytes = sum(x.nbytes for _, x in step.named_state())
    assert state_bytes + planned.memory.intermediates < 0.55 * 4 * whole
    gathered = [v for name, v in _parameter_reads(planned.main) if name.startswith(("start", "concatenate"))]
    reads = Counter(gathered)
    assert max(reads.values()) == 2
    assert sum(n == 2 for n in reads.values()) > len(reads) / 2


WRAPS = [
    distributed.data_parallel(GROUP, bucket_bytes=256, broadcast=False),
    *(distributed.zero(stage, GROUP, bucket_bytes=256, broadcast=False) for stage in (2, 3)),
]


@pytest.mark.parametrize("wrap", WRAPS, ids=["data_parallel", "zero 2", "zero 3"])
def test_memory_in_flight_is_not_reused(wrap: Callable[[Any], Any]) -> None:
    in_flight: dict[int, dict[Memory, int]] = {}
    compared = 0
    for call in _planned(wrap, arena=True).calls:
        used = {o.tensor.memory: o.bytes for o in call.operands if o.tensor.memory.kind == PLANNED}
        name, number = _name(call), call.arguments[0]
        if name.startswith("wait"):
            assert in_flight.pop(number).keys() <= used.keys()
        others = {memory: size for each in in_flight.values() for memory, size in each.items()}
        for mine in used.keys() - others.keys():
            compared += len(others)
            first, last = mine.offset, mine.offset + used[mine]
            assert not [m for m, size in others.items() if first < m.offset + size and m.offset < last], name
        if name.startswith("start"):
            in_flight[number] = used
    assert compared
    assert not in_flight


def test_explain_says_what_a_collective_overlaps_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "agree_on", lambda _: None)  # there is no other rank
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    step = optim.TrainStep(model, optim.SGD(model, 0.1), loss=meta.mse_loss)
    run = meta.vm.compile(distributed.data_parallel(GROUP, bucket_bytes=256, broadcast=False)(step), device="cpu")
    lines = run.explain(meta.ones((4, 8)), meta.ones((4, 8))).splitlines()
    assert lines[-4].split() == ["collective", "group", "bytes", "kernels", "meanwhile", "their", "bytes"]
    first, _, last = (line.split() for line in lines[-3:])
    assert first[:3] == ["torch.all_reduce(float32[64])", "dp", "256"]
    assert int(first[3]) > int(last[3])


def test_explain_says_where_each_parameter_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "agree_on", lambda _: None)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 6))
    step = optim.TrainStep(model, optim.SGD(model, 0.1, momentum=0.9), loss=meta.mse_loss)
    plan = {"layers.0.w": distributed.shard(0)}
    step = distributed.tensor_parallel(plan, distributed.Group("tp", 2), broadcast=False)(step)
    step = distributed.zero(3, distributed.Group("dp", 2), broadcast=False)(step)
    text = meta.vm.compile(step, device="cpu").explain(meta.ones((2, 4)), meta.ones((2, 6)))
    rows = {name: rest for name, *rest in (line.split(maxsplit=3) for line in text.splitlines())}
    assert rows["array"] == ["share", "bytes", "of a rank  where"]
    assert rows["layers.0.w"] == ["0.25", "32", "axis 0 over tp, elements over dp"]
    assert rows["layers.1.w"] == ["0.5", "96", "elements over dp"]
    assert rows["layers.0.w.shard.velocity"] == ["0.25", "32", "axis 0 over tp, elements over dp"]
    model = nn.Linear(4, 6)
    of_one_process = meta.vm.compile(optim.TrainStep(model, optim.SGD(model, 0.1), loss=meta.mse_loss), device="cpu")
    assert "share" not in of_one_process.explain(meta.ones((2, 4)), meta.ones((2, 6)))


def test_items_of_many_tuples_are_joined() -> None:
    """Gradients of layer_norm are items of tuples."""
    model = nn.Sequential(*(part for _ in range(12) for part in (nn.Linear(8, 8), nn.LayerNorm(8))))
    step = optim.TrainStep(model, optim.SGD(model, 0.1), loss=meta.mse_loss)
    step = distributed.data_parallel(GROUP, broadcast=False)(step)
    module = auto_cast("bfloat16")(step.record(meta.ones((4, 8)), meta.ones((4, 8))).module)
    text = _text(plan_source(prepare(standard()(module), CPU), fuse=True).main)
    assert "concatenate" in text


def test_accumulated_gradients_are_sent_while_the_backward_pass_runs() -> None:
    model = nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(8, 8), nn.Tanh())))
    step = optim.TrainStep(model, optim.SGD(model, 0.1), loss=meta.mse_loss, accumulate=2)
    step = distributed.data_parallel(GROUP, bucket_bytes=256, broadcast=False)(step)
    source = prepare(standard()(step.record(meta.ones((4, 8)), meta.ones((4, 8))).module), CPU)
    assert source.reads_values
    text = _text(plan_source(source, fuse=True).main)
    products = [line for line in text.splitlines() if "matmul" in line or line.startswith(("start", "wait"))]
    total, dx = "fused_matmul1_multiply_add1", "fused_matmul_tanh_dx"  # the sum of a weight's gradients, and dx
    assert products[:3] == [total, "start all_reduce_when 0", dx], text
    assert products[3:6] == [total, "start all_reduce_when 1", dx], text
    assert products[6:9] == [total, "start all_reduce_when 2", "start all_reduce_when 3"], text
    (gradients,) = distributed.plan(step, meta.ones((4, 8)), meta.ones((4, 8))).collectives
    assert (gradients.operator, gradients.calls) == ("all_reduce_when", 4)
    assert gradients.meanwhile > 2 * 2 * 8 * 8 * 4


def test_programs_that_branch_keep_whole_collectives() -> None:
    def total(x: Any, when: Any) -> Any:
        return meta.cond(when, lambda y: meta.all_reduce(y, "sum", *GROUP), lambda y: y, x)

    module = meta.trace(total).record(meta.ones(3), meta.array(True)).module
    source = prepare(standard()(module), CPU)
    text = str(plan_source(source, fuse=True).module)
    assert "meta.torch.all_reduce" in text
    assert ".start" not in text
