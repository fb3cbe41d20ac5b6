"""place: the same program on another device, checked as IR without a GPU."""

import pytest

import meta
from meta import passes
from meta.errors import DeviceError
from meta.frontend.relay import from_relay, load
from meta.ir.equality import structural_equal
from meta.ir.expr import Call, Constant
from meta.ir.verifier import verify
from meta.ir.visitor import reads, walk
from meta.passes.outline_loops import outline_loops
from tests.python.passes.programs import parse_program, program, random_module, with_named_dialect
from tests.python.passes.test_structure import BRANCHES

RELAY = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32], %b: Tensor[(4), float32]) {
  let %f = fn (%v: Tensor[(2, 4), float32]) { add(tanh(%v), 1.5f) };
  %f(nn.bias_add(nn.dense(%x, %w), %b))
}"""


def create_and_copy(x):
    return meta.device_copy(x, "cpu") + meta.full((2, 3), 2.0) * meta.array([1.0, 2.0, 3.0])


def repeat(x):
    def step(total, row):
        inner, _ = meta.scan(lambda c, _: (c * meta.array([1.0, 2.0, 3.0]), ()), row, length=2)
        return total + inner + meta.full((3,), 2.0), inner

    total, rows = meta.scan(step, meta.zeros((3,)), x)
    return meta.while_loop(lambda t: t.sum() < 10.0, lambda t: t + meta.ones((3,)), total), rows


@pytest.mark.parametrize(
    "module",
    [
        program(create_and_copy, (2, 3)),
        program(repeat, (2, 3)),
        outline_loops(program(repeat, (2, 3))),
        parse_program(BRANCHES),
        from_relay(RELAY),
        *map(random_module, range(8)),
    ],
    ids=["creation", "loops", "bodies", "branches", "closure", *map(str, range(8))],
)
def test_moves_programs_to_a_device_and_back(module):
    moved = passes.place("cuda:1")(module)
    verify(moved)
    text = str(moved)
    assert '"cpu"' not in text
    assert text.count("cuda(1)") > len(module.main.params)
    for binding in walk(moved.main):
        constants = [a for a in reads(binding.value) if isinstance(a, Constant)]
        assert all(c.type.device is meta.device("cuda:1") for c in constants)
    back = passes.place("cpu")(moved)
    verify(back)
    assert all(structural_equal(back[name], f) for name, f in module.functions.items())


def test_bodies_of_loops_are_placed():
    moved = outline_loops(passes.place("cuda:1")(program(repeat, (2, 3))))
    verify(moved)
    text = str(moved)
    assert len(moved.functions) == 4
    assert '"cpu"' not in text
    assert text == str(passes.place("cuda:1")(outline_loops(program(repeat, (2, 3)))))


def test_drops_choices_of_dialects():
    module = with_named_dialect(parse_program(BRANCHES), "reference")
    calls = [b.value for b in walk(passes.place("cuda")(module).main) if isinstance(b.value, Call)]
    assert calls
    assert all(call.dialect is None for call in calls)


def test_relay_programs_are_placed():
    assert str(from_relay(RELAY, device="cuda")) == str(passes.place("cuda")(from_relay(RELAY)))
    model = load(RELAY, {})
    assert model.to("cuda").module.main.params[0].type.device is meta.device("cuda")


def test_rejects_invalid_devices():
    with pytest.raises(DeviceError, match="is not a device"):
        passes.place("gpu")
