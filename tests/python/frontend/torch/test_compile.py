"""Models under torch.compile with the backend "meta": values and gradients are those of eager torch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from meta.frontend.torch import compile_backend, explain
from meta.frontend.torch.dynamo import convert as conversion

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)


class Network(nn.Module):
    """Batch norm writes its buffers, dropout draws numbers, attention is one operator of meta."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.batch, self.dropout = nn.BatchNorm1d(8), nn.Dropout(0.5)

    def forward(self, x):
        y = self.dropout(self.batch(self.first(x)))
        return self.last(F.scaled_dot_product_attention(y[None], y[None], y[None])[0])


def compiled(function, **options):
    return torch.compile(function, backend=compile_backend, **options)


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_training_steps_and_a_varying_batch():
    """One pair of programs serves both batch sizes. Masks of dropout are torch's."""
    eager = Network()
    model = copy.deepcopy(eager)
    call = compiled(model, dynamic=True)
    for size in (5, 6):
        x, target = torch.randn(size, 4), torch.randint(0, 3, (size,))
        for run, module in ((call, model), (eager, eager)):
            torch.manual_seed(size)
            module.zero_grad()
            F.cross_entropy(run(x), target).backward()
        for (name, result), expected in zip(model.named_parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(result.grad, expected.grad, rtol=1e-3, atol=1e-5, msg=name)
        for result, expected in zip(model.buffers(), eager.buffers(), strict=True):
            close(result, expected)
    counts = torch._dynamo.utils.counters["stats"]
    assert counts["unique_graphs"] == 1, counts


def test_inference_of_the_same_module():
    model = Network().eval()
    call = compiled(model)
    with torch.no_grad():
        x = torch.randn(3, 4)
        close(call(x), model(x))


def test_inputs_of_other_layouts_and_outputs_that_are_views():
    def f(x, y):
        z = x.t() * 2
        return z.t(), z[1:], x, y.permute(1, 0, 2).contiguous().sum(0), x.clone()

    x, y = torch.randn(6, 4).t(), torch.randn(3, 5, 2).permute(2, 0, 1)[:, 1:]
    for result, expected in zip(compiled(f)(x, y), f(x, y), strict=True):
        close(result, expected)
        assert result.stride() == expected.stride()


def test_results_have_their_own_memory():
    """Programs may return an input, or one value twice, where torch returns copies."""

    def f(x):
        y = x.relu()
        return x.clone(), y, y + 0, y.clone()

    x = torch.randn(3)
    results = compiled(f)(x)
    before = [r.clone() for r in (x, *results)]
    for i, each in enumerate((x, *results)):
        each.add_(1)
        for j, (other, was) in enumerate(zip((x, *results), before, strict=True)):
            torch.testing.assert_close(other, was + (j <= i))


def test_writes_in_place():
    def f(x, state):
        state.mul_(0.5).add_(x.sum(0))
        x[:, 0] = 1.0
        return (x * state).sum()

    result, expected = (torch.ones(3, 2), torch.ones(2)), (torch.ones(3, 2), torch.ones(2))
    close(compiled(f)(*result), f(*expected))
    for a, b in zip(result, expected, strict=True):
        close(a, b)


def test_random_numbers_come_from_torch():
    def f(x):
        noise = torch.randn_like(x) + torch.rand(4)
        masked = F.dropout(x, 0.3)
        turned = F.dropout(x.t(), 0.3), torch.randn_like(x.t()), torch.bernoulli(x.t().sigmoid())
        return noise, masked, torch.randint(0, 9, (3,)), torch.bernoulli(x.sigmoid()), torch.randn(4), *turned

    x = torch.randn(2, 4)
    torch.manual_seed(7)
    result, after = compiled(f)(x), torch.rand(1)
    torch.manual_seed(7)
    for a, b in zip(result, f(x), strict=True):
        close(a, b)
    close(after, torch.rand(1))


def test_a_checkpoint_draws_the_same_numbers_again():
    """Torch saves the state of its generator in the forward graph and draws from it in the backward graph."""
    first, last = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()), nn.Linear(4, 2)
    parameters = [*first.parameters(), *last.parameters()]

    def f(x):
        noisy = checkpoint(lambda x: first(x) + torch.rand_like(x), x, use_reentrant=False)
        return last(checkpoint(first, noisy, use_reentrant=False))

    x = torch.randn(6, 4)
    for _ in range(2):
        steps = [torch.manual_seed(5) and call(x).square().sum() for call in (f, compiled(f))]
        close(steps[1], steps[0])
        for result, expected in zip(*(torch.autograd.grad(s, parameters) for s in reversed(steps)), strict=True):
            close(result, expected)
    text = str(explain(f, x))
    assert "aten::native_dropout x 2" in text
    assert "all by torch" not in text


def test_a_float32_norm_of_bfloat16_under_autocast():
    """Torch's fake kernel and its real one give the saved moments different dtypes."""
    linear, norm = nn.Linear(8, 8), nn.LayerNorm(8)
    parameters = [*linear.parameters(), *norm.parameters()]

    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            return norm(linear(x)).softmax(-1)

    x = torch.randn(4, 8)
    expected, result = f(x), compiled(f, options={"fallback": False})(x)
    assert result.dtype == expected.dtype
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
    both = (torch.autograd.grad(y.float().square().sum(), parameters) for y in (result, expected))
    for a, b in zip(*both, strict=True):
        torch.testing.assert_close(a, b, rtol=5e-2, atol=1e-2)


def test_pooling_windows_in_a_varying_batch():
    pools = nn.AdaptiveAvgPool2d((2, 3)), nn.AvgPool2d(3, 2, 1), nn.AdaptiveMaxPool2d((3, 2))

    def f(x):
        return [pool(x) for pool in pools]

    call = compiled(f, dynamic=True, options={"fallback": False})
    for batch in (2, 3):
        x = torch.randn(batch, 2, 7, 8, requires_grad=True)
        for axis in (1, 2, 3):
            torch._dynamo.mark_static(x, axis)
        sums = [sum(y.square().sum() for y in g(x)) for g in (call, f)]
        close(*(torch.autograd.grad(total, x)[0] for total in sums))


def test_sizes_and_numbers_as_results():
    def f(x, scale: float):
        n = x.shape[0]
        return x.reshape(n // 2, 2 * x.shape[1]) * scale, n + 1, x.new_zeros(n, 3)

    call = compiled(f, dynamic=True)
    for n in (4, 6, 8):
        x = torch.randn(n, 3)
        result, expected = call(x, 0.5), f(x, 0.5)
        close(result[0], expected[0])
        assert result[1] == expected[1]
        assert result[2].shape == expected[2].shape


def test_dtypes():
    """Complex tensors are views of pairs of floats; bool and integers are shared as they are."""

    def f(x, mask, ids, z, half):
        return torch.where(mask, x, -x)[ids], z * 2 + z.conj(), half.float() + 1, mask.sum()

    args = (torch.randn(4), torch.tensor([True, False, True, True]), torch.tensor([3, 0]),
            torch.randn(3, dtype=torch.complex64), torch.randn(2).bfloat16())  # fmt: skip
    for result, expected in zip(compiled(f)(*args), f(*args), strict=True):
        assert result.dtype == expected.dtype
        close(result, expected)


def test_a_single_complex_result():
    x = torch.randn(3, dtype=torch.complex64)
    torch.testing.assert_close(compiled(lambda x: x * 2)(x), x * 2)


def test_options_are_checked():
    def f(x):
        return x + 1

    cases = [
        ({"options": {"fuze": True}}, r"\[torch.compile\] meta has no option 'fuze'; expected .*did you mean 'fuse'"),
        ({"options": {"fuse": 1}}, r"\[torch.compile\] fuse is 1; expected True or False"),
        ({"options": {"partition": "most"}}, r"\[torch.compile\] partition is 'most'; expected 'min_cut' or 'all'"),
        ({"options": {"dialects": 3}}, r"\[torch.compile\] dialects is 3; expected names"),
        ({"options": {"dialects": ["tvn"]}}, r"tvn"),
        ({"mode": "fast"}, r"\[torch.compile\] mode is 'fast'; expected None or one of default"),
    ]
    for options, text in cases:
        with pytest.raises(Exception, match=text):
            compiled(f, **options)(torch.ones(2))
        torch._dynamo.reset()
    x = torch.randn(3)
    close(compiled(f, options={"fuse": False, "dialects": ["tvm"], "partition": "all"})(x), x + 1)


def test_explain_lists_what_torch_runs():
    def f(x, w):
        return F.dropout(x @ w, 0.5).sum()

    report = explain(f, torch.rand(2, 2) / 4, torch.rand(2, 2, requires_grad=True))
    assert [graph.kind for graph in report.graphs] == ["forward", "backward"]
    assert report.fallbacks["aten::bernoulli_"] == 1
    assert "aten::bernoulli_ x 1: it draws random numbers, as torch.manual_seed says" in str(report)


def keeps_the_old_value(x, y):
    old, view = x.clone(), x.view(-1)
    x.add_(y)
    return old, view[0]


def swaps(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return x


def writes_a_part(x, y):
    x[:, 0].mul_(2)
    return x * y


CHANNELS_LAST = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).stride()
WRITES = {
    "old value": (keeps_the_old_value, torch.float32, (2, 3), None),
    "swap": (swaps, torch.float32, (2, 3), None),
    "layout": (writes_a_part, torch.float32, (2, 3, 4, 5), CHANNELS_LAST),
    "strided": (writes_a_part, torch.float32, (2, 3), (7, 2)),
    "complex": (keeps_the_old_value, torch.complex64, (2, 3), None),
}


@pytest.mark.parametrize("name", WRITES)
def test_programs_write_arguments_in_place(name):
    function, dtype, shape, strides = WRITES[name]
    values = [torch.randn(shape, dtype=dtype) for _ in range(2)]
    strides = strides or values[0].stride()
    operands = [[torch.empty_strided(shape, strides, dtype=dtype).copy_(x) for x in values] for _ in range(2)]
    addresses = [x.data_ptr() for x in operands[1]]
    call = compiled(function)
    for _ in range(2):
        expected, result = function(*operands[0]), call(*operands[1])
        close(result, expected)
        close(operands[1], operands[0])
    assert [x.data_ptr() for x in operands[1]] == addresses
    assert all((x._version > 0) == (y._version > 0) for x, y in zip(*operands, strict=True))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_compiled_step_of_an_optimizer_writes_parameters(kind):
    models = [nn.Linear(4, 3), nn.Linear(4, 3)]
    models[1].load_state_dict(models[0].state_dict())
    steps = []
    for module in models:
        optimizer = kind(module.parameters(), lr=0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
        steps.append(optimizer.step if module is models[0] else compiled(optimizer.step))
    for _ in range(3):
        x = torch.randn(5, 4)
        for module, step in zip(models, steps, strict=True):
            module.zero_grad()
            module(x).square().sum().backward()
            step()
    for result, expected in zip(models[1].parameters(), models[0].parameters(), strict=True):
        close(result, expected)


def test_gradients_that_nothing_reads_move_no_others(monkeypatch):
    """Of batch norm on data, whose gradient is left out: torch's fake results have it, neither meta's nor torch's."""
    models = [nn.BatchNorm1d(4) for _ in range(3)]
    x, weights = torch.randn(5, 4), torch.randn(5, 4)
    assert explain(models[0], x).fallbacks == {}

    def gradients(module, call):
        (call(x) * weights).sum().backward()
        return [p.grad for p in module.parameters()]

    expected = gradients(models[0], models[0])
    close(gradients(models[1], compiled(models[1])), expected)
    plain = conversion.find
    left_out = {"aten.native_batch_norm_backward.default"}
    monkeypatch.setattr(conversion, "find", lambda call: None if call.operator in left_out else plain(call))
    torch._dynamo.reset()
    assert explain(models[2], x).fallbacks == {"aten::native_batch_norm_backward": 1}
    close(gradients(models[2], compiled(models[2])), expected)


@pytest.mark.parametrize("partition", ["min_cut", "all"])
def test_the_backward_pass_sees_values_from_before_a_write(partition):
    def f(x, state):
        y = (x * state.clone()).sin()
        with torch.no_grad():
            state.mul_(2)
        return y.sum()

    x, states = torch.randn(3, 4, requires_grad=True), [torch.ones(3, 4), torch.ones(3, 4)]
    call = compiled(f, options={"partition": partition})
    for _ in range(2):
        expected, result = (torch.autograd.grad(run(x, state), x) for run, state in zip((f, call), states, strict=True))
        close(result, expected)
        close(*states)


def _images():
    blocks = [
        [nn.Conv2d(a, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()] for a in (3, 32)
    ]  # without biases, whose gradients would be rounding
    return nn.Sequential(*blocks[0], *blocks[1], nn.Conv2d(32, 8, 3))


def test_activations_are_saved_with_channels_last():
    """Where both programs compute so: otherwise each would transpose them. Results keep the layout of torch."""
    eager = _images()
    model = copy.deepcopy(eager)

    def call(module):
        def run(x):
            hidden = module[:3](x)
            return hidden, module[3:](hidden)

        return run

    x = torch.randn(8, 3, 32, 32)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        hidden, result = compiled(call(model))(x)
    layouts = {t.is_contiguous(memory_format=torch.channels_last) for t in saved if t.shape == hidden.shape}
    assert layouts == {True, False}  # False: `hidden`, which is also a result
    assert hidden.is_contiguous()
    assert result.is_contiguous()
    expected = call(eager)(x)
    for results in ((hidden, result), expected):
        (results[0].square().sum() + results[1].square().sum()).backward()
    close([hidden, result], list(expected))
    for (name, p), q in zip(model.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-3 * q.grad.abs().max().item(), msg=name)
