"""Errors about names of other libraries hold the code to write, and that code runs.

The rows of the tables are the cases: the left side of each is run, its message searched for the right side, and the
right side run in its place.
"""

from __future__ import annotations

import inspect
import math
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import meta
from meta._generated.table import FAMILIES, FUNCTIONS
from meta.errors import ArgumentError, TypeInferenceError
from meta.spellings import attributes
from meta.spellings.arguments import ARGUMENTS, LEFT_OUT
from meta.testing.samples import Sample
from tests.python.op.samples import samples

ROWS = [row for topic in attributes.NAMES for row in attributes.rows(topic)]


def run(code: str) -> None:
    names: dict[str, Any] = {}
    exec(attributes.SETUP, names)
    exec(code, names)


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[theirs for theirs, _ in ROWS])
def test_a_name_of_another_library(
    theirs: str, ours: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # some rows write files
    run('meta.save("m.safetensors", model)')
    with pytest.raises(AttributeError) as caught:
        run(theirs)
    assert f"write {ours} for {theirs}" in str(caught.value)
    if '"cuda")' not in ours or meta.is_available("cuda"):
        run(ours)


@pytest.mark.parametrize(("theirs", "ours"), attributes.NAMESPACES.items())
def test_modules_of_other_libraries(theirs: str, ours: str) -> None:
    module: Any = meta
    for name in ours.split(".")[1:]:
        module = getattr(module, name)
    name = next(each for each in dir(module) if not each.startswith("_"))
    with pytest.raises(AttributeError, match=re.escape(f"write {ours}.{name}")):
        exec(f"{theirs}.{name}", {"meta": meta})


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("nn.LayerNrom(8)", "did you mean 'LayerNorm'?"),
        ("meta.optim.Adma(model)", "did you mean 'Adam'"),
        ("nn.Relu()", "did you mean 'ReLU'?"),
        ("x.norm()", "write meta.linalg.norm(x, ...) for x.norm(...)"),
        ("meta.amp.GradScalar()", "did you mean 'GradScaler'?"),
        ("meta.random.unifrom((2,))", "did you mean 'uniform'"),
        ("nn.init.kaiming_normal(model.w)", "did you mean 'kaiming_normal_'"),
        ("meta.functional.relu(x)", "write meta.relu"),
        ("meta.linalg.slove(x, x)", "did you mean 'solve'"),
        ("x.reshpe(4)", "did you mean 'reshape'"),
        ("meta.trace(lambda x: x.reshpe(4)).record(x)", "did you mean 'reshape'"),
        ("model.paramters()", "did you mean 'parameters'"),
        ("optimizer.zero_grads()", "did you mean 'zero_grad'"),
        ("nn.functional.gelu(x)", "write meta.gelu"),
        ("nn.functional.linear(x, w)", "write meta.dense"),
        ("meta.optim.lr_scheduler.StepLR", "write meta.optim.StepLR"),
        ("meta.vmap(f)", "write meta.autograd.vmap"),
        ("meta.norm(x)", "write meta.linalg.norm"),
        ("meta.nn.relu(x)", "write meta.relu"),
        ("meta.detach(x)", "write x.detach(...) for meta.detach(x, ...)"),
        ("x.masked_fill(x > 0.0, 1.0)", "write meta.masked_fill(x, ...) for x.masked_fill(...)"),
        ("x.clamp_(0.0, 1.0)", "write x.update(x.clamp(...)) for x.clamp_(...)"),
        ("x.masked_fill_(x > 0.0, 1.0)", "write x.update(meta.masked_fill(x, ...)) for x.masked_fill_(...)"),
    ],
)
def test_names_that_are_elsewhere_or_misspelt(code: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(hint)):
        run(code)


def test_the_hint_is_looked_up_when_the_message_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries ask for attributes that a value may have, and drop the error."""
    monkeypatch.setattr(attributes, "attribute_hint", None)
    assert not hasattr(meta.ones((2,)), "cpu")
    assert not hasattr(meta, "randn")
    monkeypatch.undo()
    with pytest.raises(AttributeError) as caught:
        meta.ones((2,)).cpu()  # type: ignore[attr-defined]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(AttributeError, match=r"has no attribute '__wrapped__'$"):
        meta.__wrapped__  # type: ignore[attr-defined] # noqa: B018


def public_functions() -> Iterator[tuple[str, Callable[..., Any], list[str]]]:
    """The functions that explain unknown keywords, with the names of their parameters."""
    operators = list(FAMILIES)
    for module, names in ((meta, [*operators, *FUNCTIONS]), (meta.linalg, dir(meta.linalg)), (meta.fft, dir(meta.fft)),
                          (meta.nn, dir(meta.nn)), (meta.random, dir(meta.random))):  # fmt: skip
        for name in (each for each in names if each in operators or each not in FAMILIES):
            function = getattr(module, name)
            called = function.build if inspect.isclass(function) and issubclass(function, meta.Model) else function
            listed = inspect.signature(called).parameters.values() if callable(function) else ()
            named = [p.name for p in listed if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]
            if named and (function.__module__ or "").startswith("meta."):
                yield f"{module.__name__}.{name}", function, named


def test_every_keyword_of_another_library_is_translated() -> None:
    """For each function and each keyword that the table translates to one of its parameters."""
    wrong: list[str] = []
    translated: set[str] = set()
    for path, function, named in public_functions():
        required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        count = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in required)
        for theirs, candidates in ARGUMENTS.items():
            ours = next((name for name in candidates if name in named), "")
            if not ours or theirs in named:
                continue
            try:
                function(*[None] * count, **{theirs: 1})
            except ArgumentError as error:
                if f"write {ours}=1" in str(error):
                    translated.add(theirs)
                    continue
                wrong.append(f"{path}({theirs}=1): {error}")
            except TypeError as error:
                wrong.append(f"{path}({theirs}=1): {error}")
    assert wrong == []
    assert {"dim", "keepdim", "size", "input", "steps", "unbiased", "index", "units"} <= translated


OPERATOR_KEYWORDS = [
    (sample, theirs, ours)
    for sample in samples()
    for ours in sample.kwargs
    for theirs, candidates in ARGUMENTS.items()
    if theirs not in sample.operator.schema.index
    and next((name for name in candidates if name in sample.operator.schema.index), "") == ours
]


@pytest.mark.parametrize(("sample", "theirs", "ours"), OPERATOR_KEYWORDS[::7], ids=repr)
def test_the_keyword_that_the_error_names_runs(sample: Sample, theirs: str, ours: str) -> None:
    args, kwargs = sample.map(lambda t, path: meta.array(t.values("", path)))
    value = kwargs.pop(ours)
    function = getattr(meta, sample.op)
    with pytest.raises(ArgumentError, match=f"unknown argument '{theirs}'") as caught:
        function(*args, **kwargs, **{theirs: value})
    found = re.search(r"write (\w+)=(.*?)( \(at|$)", str(caught.value))
    assert found is not None
    assert found[1] == ours
    shown = value if found[2] == "..." else eval(found[2], {"nan": math.nan, "inf": math.inf})
    function(*args, **kwargs, **{ours: shown})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x.mean(dim=1, keepdim=True)", "unknown arguments 'dim', 'keepdim'"),
        ("x.mean(dim=1, keepdim=True)", "write axis=1, write keepdims=True"),
        ("x.unsqueeze(dim=0)", "write axis=0"),
        ("x.split(split_size_or_sections=2)", "list(range(2, x.shape[axis], 2))"),
        ("x.transpose(dim0=0, dim1=1)", "x.swap_axis(dim0, dim1)"),
        ("meta.linspace(0.0, 1.0, steps=5)", "write num=5"),
        ("meta.zeros(size=(2, 3))", "write shape=(2, 3)"),
        ("x.std(unbiased=False)", "write correction=0"),
        ("meta.ones((2,), requires_grad=True)", "meta.array(y, requires_grad=True)"),
        ("nn.ReLU(inplace=True)", "leave out inplace="),
        ("nn.Linear(8, 3, device='cpu')", ".to('cpu')"),
        ("meta.optim.Adam(model, leraning_rate=0.1)", "learning_rate"),
        ("meta.vm.compile(model, mode='max-autotune')", "leave out mode="),
        ("meta.amp.autocast(device_type='cuda')", "leave out device_type="),
        ("meta.load('m.safetensors', map_location='cpu')", "write device='cpu'"),
        ("model(input=x)", "write x=..."),
        ("nn.Softmax(axis=1)", "write dim=1"),
        ("x.to('cpu', non_blocking=True)", "leave out non_blocking="),
        ("model.to('cpu', non_blocking=True)", "leave out non_blocking="),
        ("meta.arange(start=0, end=4)", "write stop=4"),
        ("model(x, x)", "expected at most 1: x"),
    ],
)
def test_keywords(code: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        run(code)


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        ("meta.softmax(x, 1, 2, 3)", "meta.softmax(x, 1)"),
        ("x.softmax(1, 2)", "meta.softmax(x, 1)"),
        ("meta.split(x, 2, 1, 3)", "meta.split(x, 2, 1)"),
        ("meta.randint(0, 10, (3,))", "meta.random.randint((3,), 0, 10)"),
        ("meta.uniform(-1.0, 0.0, (3,))", "meta.random.uniform((3,), -1.0, 0.0)"),
        ("meta.random.uniform(-1.0, 0.0, (3,))", "meta.random.uniform((3,), -1.0, 0.0)"),
        ("meta.dropout(x, 0.1)", "meta.dropout(x, meta.random.next_key(), 0.1)"),
        ("meta.dropout(x, p=0.1)", "meta.dropout(x, meta.random.next_key(), 0.1)"),
        ("meta.dropout(x)", "meta.dropout(x, meta.random.next_key())"),
        ('meta.einsum(x, w, "ij,jk->ik")', 'meta.einsum("ij,jk->ik", x1, x2)'),
        ('x.type("float16")', 'x.cast("float16")'),
        ("x.size(0)", "x.shape[0]"),
        ("x.size(dim=1)", "x.shape[1]"),
        ("optimizer.step(lambda: 0.0)", "step()"),
        ("nn.Linear(8, out=3)", "out_features=3"),
        ("nn.Linear(8, 3, True, 'cpu')", "Linear(8, 3, True)"),
        ("meta.optim.Adam(model, beta1=0.8)", "betas=(0.8, 0.999)"),
        ("meta.data.batches(x, batch_size=2)", "batch=2"),
        ("meta.cross_entropy(logits=x, labels=labels)", "x=..., write target=..."),
        ("meta.optim.TrainStep(model, optimizer, loss_fn=f)", "loss="),
        ("meta.amp.autocast('cuda', dtype='float16')", "autocast(dtype='float16')"),
        ("meta.amp.autocast('cuda').__enter__()", '"bfloat16", for all devices'),
        ("meta.no_grad.__enter__()", "with meta.no_grad():"),
        ("nn.Sequential([model])", "Sequential(*layers)"),
        ("meta.dot(x, x)", "meta.matmul(x1, x2)"),
        ("nn.Linear(4, 3)(labels)", 'x.cast("float32")'),
        ("meta.optim.TrainStep(model, optimizer, lambda y: y)(x, labels)", "loss=lambda y, target: ..."),
    ],
)
def test_the_call_to_write_instead(code: str, ours: str) -> None:
    with pytest.raises((ArgumentError, TypeInferenceError)) as caught:
        run(code)
    assert re.search(rf"(write|cast it:|cast one:|,) {re.escape(ours)}", str(caught.value)), str(caught.value)
    if ours.startswith(("meta.", "x.")):
        run(f"x1, x2 = (x, w) if 'einsum' in {code!r} else (x, x.T)\n{ours}")


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("nn.MSELoss(x, x)", "call the layer: MSELoss()(x, target)"),
        ("nn.ReLU(x)", "call the layer: ReLU()(x)"),
        ("meta.optim.TrainStep(model, f, optimizer)", "the order is TrainStep(model, optimizer, loss)"),
        ("model([x, x])", "stack it: meta.stack(...)"),
        ("meta.cond(x.sum() > 0.0, x, -x)", "meta.where(predicate, then, otherwise)"),
        ("meta.vm.compile(model(x))", "meta.vm.compile(model)(x)"),
        ("meta.ones(4, 8, dtype='int64')", "argument 'dtype' given twice"),
        ("meta.ones(4, 8, dtype='int64')", "write shape=(4, 8)"),
        ("meta.optim.Adam(lr=0.1)", "argument 'parameters' is missing"),
        ("meta.conv2d(image, meta.ones((4, 3, 3, 3)), padding='same')", "kernel_size // 2"),
        ("meta.relu(3.0)", "wrap it: meta.array(...)"),
        ("nn.MaxPool2d(2)(x)", "add the batch and channels: x[None, None]"),
        ("meta.schema.Schema('f', 'x')", "write Arg('x', Tensor)"),
        ("meta.schema.Schema('f', meta.schema.Arg('x', 'Tensor'))", "write Arg('x', Tensor)"),
        ("meta.register_dialect('mine')", "argument 'plevel' is missing"),
        ("model.load_state_dict('m.safetensors')", "write meta.load('m.safetensors', into=...)"),
        ("meta.cross_entropy(labels, x)", "scores come first: meta.cross_entropy(x, target)"),
    ],
)
def test_calls_in_the_habits_of_other_libraries(code: str, hint: str) -> None:
    with pytest.raises((ArgumentError, TypeInferenceError), match=re.escape(hint)):
        run(code)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("from meta import Tensor", "write meta.array([1.0, 2.0]) for meta.Tensor"),
        ("from meta.data import DataLoader", "write meta.data.batches(x, 2)"),
        ("from meta.nn import Module", "write meta.Model for nn.Module"),
        ("import meta.nn.functional as F", "its names are in meta; write import meta"),
        ("from meta.optim.lr_scheduler import StepLR", "write import meta.optim"),
        ("from meta.utils.data import DataLoader", "write import meta, meta.data"),
    ],
)
def test_imports_of_other_libraries(line: str, hint: str) -> None:
    with pytest.raises(ImportError, match=re.escape(hint)):
        run(line)
    with pytest.raises(ImportError, match="cannot import name '_x' from 'meta'"):
        run("from meta import _x")


def test_names_of_torch_in_states() -> None:
    layers = meta.nn.Sequential(meta.nn.Linear(2, 3))
    for state, name, hint in (
        (meta.nn.Linear(2, 3).state_dict(), "weight", 'write state["w"]'),
        (meta.nn.Linear(2, 3).state_dict(), "bias", 'write state["b"]'),
        (layers.state_dict(), "0.weight", 'write state["layers.0.w"]'),
        (layers.state_dict(), "layers.0.wieght", "did you mean"),
    ):
        with pytest.raises(KeyError, match=re.escape(hint)):
            state[name]
    assert layers.state_dict().get("0.weight") is None
    assert pickle.loads(pickle.dumps(layers.state_dict())).keys() == layers.state_dict().keys()


def test_functions_of_torch_on_arrays() -> None:
    pytest.importorskip("torch")
    for code, hint in (
        ("torch.relu(x)", "write meta.relu(x)"),
        ("torch.nn.functional.softmax(x, 1)", "write meta.softmax(x, axis=1)"),
        ("torch.nn.functional.linear(x, w)", "write meta.dense(x, model.w, model.b)"),
        ("torch.nn.Linear(8, 3)(x)", "write meta.dense(x, model.w, model.b)"),
        ("torch.zeros(4, 8).copy_(x)", "write torch.from_dlpack(x)"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(hint)) as caught:
            run(f"import torch\n{code}")
        assert "torch/" not in caught.value.location
    run("import torch\nassert torch.equal(torch.from_dlpack(x), torch.tensor(x.tolist()))")


def test_no_argument_is_both_translated_and_left_out_by_the_same_function() -> None:
    assert all(re.search(r"leave out|write|call|pass|move|cast|multiply", text) for text in LEFT_OUT.values())
    assert all(theirs not in ours for theirs, ours in ARGUMENTS.items())
