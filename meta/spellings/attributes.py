"""Attributes: names of modules, and methods of arrays, models and optimizers.

A missing attribute is looked for in the rows of NAMES, then at other places of this package, then among similar names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from opcode import opmap
from typing import Any, Final, NoReturn

from meta.errors import MissingAttribute, did_you_mean
from meta.spellings.arguments import DTYPES

SETUP: Final = """
import numpy as np
import meta
from meta import nn

x = meta.array(np.linspace(-1.0, 1.0, 32).reshape(4, 8), dtype="float32")
w = meta.array(np.linspace(0.0, 1.0, 24).reshape(8, 3), dtype="float32", requires_grad=True)
labels, image, kernel = meta.array([0, 1, 2, 1]), meta.ones((2, 3, 8, 8)), meta.ones((3, 4, 3, 3))
model = nn.Linear(8, 3)
optimizer = meta.optim.SGD(model, learning_rate=0.1)
f = meta.tanh
"""
"""The names that the rows of NAMES are about."""

NAMES: Final[Mapping[str, str]] = {
    "Arrays": """
        meta.tensor([1.0, 2.0])                 =>  meta.array([1.0, 2.0])
        meta.Tensor([1.0, 2.0])                 =>  meta.array([1.0, 2.0])
        meta.from_torch(np.ones(3))             =>  meta.from_dlpack(np.ones(3))
        meta.as_tensor([1.0, 2.0])              =>  meta.asarray([1.0, 2.0])
        meta.FloatTensor([1.0, 2.0])            =>  meta.array([1.0, 2.0], dtype="float32")
        meta.LongTensor([1, 2])                 =>  meta.array([1, 2], dtype="int64")
        meta.constant([1.0, 2.0])               =>  meta.array([1.0, 2.0])
        meta.Variable([1.0, 2.0])               =>  meta.array([1.0, 2.0], requires_grad=True)
        meta.ndarray                            =>  meta.NDArray
        meta.asnumpy(x)                         =>  x.numpy()
        meta.is_tensor(x)                       =>  isinstance(x, meta.NDArray)
        meta.numel(x)                           =>  x.size
        meta.identity(3)                        =>  meta.eye(3)
        meta.newaxis                            =>  None
        meta.pi                                 =>  np.pi
        meta.e                                  =>  np.e
        meta.inf                                =>  float("inf")
        meta.nan                                =>  float("nan")
        meta.version                            =>  meta.__version__
        meta.set_printoptions(precision=2)      =>  np.set_printoptions(precision=2)
        meta.set_default_dtype("float64")       =>  meta.array([1.0], dtype="float64")
        meta.set_default_device("cuda")         =>  meta.zeros((2, 3), device="cuda")
        """,
    "Random numbers": """
        meta.randn(3, 3)                        =>  meta.random.normal((3, 3))
        meta.rand(3, 3)                         =>  meta.random.uniform((3, 3))
        meta.randn_like(x)                      =>  meta.random.normal(x.shape)
        meta.rand_like(x)                       =>  meta.random.uniform(x.shape)
        meta.randperm(8)                        =>  meta.random.permutation(8)
        meta.manual_seed(0)                     =>  meta.random.seed(0)
        meta.set_seed(0)                        =>  meta.random.seed(0)
        meta.random.manual_seed(0)              =>  meta.random.seed(0)
        meta.random.set_seed(0)                 =>  meta.random.seed(0)
        meta.random.randn(3, 3)                 =>  meta.random.normal((3, 3))
        meta.random.rand(3, 3)                  =>  meta.random.uniform((3, 3))
        meta.random.random((3, 3))              =>  meta.random.uniform((3, 3))
        meta.random.standard_normal((3, 3))     =>  meta.random.normal((3, 3))
        meta.random.integers(0, 10, (3,))       =>  meta.random.randint((3,), 0, 10)
        meta.random.shuffle(x)                  =>  x[meta.random.permutation(x.shape[0])]
        meta.random.choice(x)                   =>  x[meta.random.randint((1,), 0, x.shape[0])]
        meta.random.default_rng(0)              =>  meta.random.Generator(0)
        meta.random.PRNGKey(0)                  =>  meta.random.Generator(0)
        meta.random.key(0)                      =>  meta.random.Generator(0)
        meta.random.split(0)                    =>  meta.random.next_key()
        """,
    "Functions": """
        meta.inverse(x[:, :4])                  =>  meta.linalg.inv(x[:, :4])
        meta.pinverse(x)                        =>  meta.linalg.pinv(x)
        meta.bce_loss(x * x, x * x)             =>  meta.binary_cross_entropy(x * x, x * x)
        meta.linear(x, model.w, model.b)        =>  meta.dense(x, model.w, model.b)
        meta.batch_norm(image)                  =>  nn.BatchNorm2d(3)(image)
        meta.conv_transpose2d(image, kernel)    =>  meta.conv2d_transpose(image, kernel)
        meta.take_along_axis(x, labels, 1)      =>  meta.take_along_dim(x, labels[:, None], 1)
        meta.permute_dims(x, (1, 0))            =>  meta.transpose(x, (1, 0))
        meta.vdot(x[0], x[1])                   =>  meta.dot(x[0], x[1])
        meta.row_stack((x, x))                  =>  meta.vstack((x, x))
        meta.fix(x)                             =>  meta.trunc(x)
        meta.rint(x)                            =>  meta.round(x)
        meta.around(x)                          =>  meta.round(x)
        meta.swapdims(x, 0, 1)                  =>  meta.swapaxes(x, 0, 1)
        meta.percentile(x, 50)                  =>  meta.quantile(x, 0.5)
        meta.average(x)                         =>  meta.mean(x)
        meta.append(x, x)                       =>  meta.concatenate([x, x])
        meta.reduce_sum(x, 0)                   =>  meta.sum(x, 0)
        meta.reduce_mean(x, 0)                  =>  meta.mean(x, 0)
        meta.reduce_max(x, 0)                   =>  meta.max(x, 0)
        """,
    "Arrays' methods": """
        x.cpu()                                 =>  x.to("cpu")
        x.cuda()                                =>  x.to("cuda")
        x.data                                  =>  x.detach()
        x.nelement()                            =>  x.size
        x.ndimension()                          =>  x.ndim
        x.itemsize                              =>  x.nbytes // x.size
        x.contiguous()                          =>  x
        x.is_contiguous()                       =>  True
        x.is_cuda                               =>  x.device.kind == "cuda"
        x.is_floating_point()                   =>  x.dtype.startswith("float")
        x.device.type                           =>  x.device.kind
        x.retain_grad()                         =>  meta.autograd.grad(f(w).sum(), w)
        x.grad_fn                               =>  x.requires_grad
        x.requires_grad_()                      =>  x.requires_grad = True
        x.detach_()                             =>  x.detach()
        x.zero_()                               =>  x[...] = 0.0
        x.fill_(1.0)                            =>  x[...] = 1.0
        x.fill(1.0)                             =>  x[...] = 1.0
        x.copy_(x * 2.0)                        =>  x.update(x * 2.0)
        x.normal_()                             =>  x.update(meta.random.normal(x.shape))
        x.uniform_()                            =>  x.update(meta.random.uniform(x.shape))
        x.bernoulli_(0.5)                       =>  x.update(meta.random.bernoulli(x.shape, 0.5))
        x.random_(0, 10)                        =>  x.update(meta.random.randint(x.shape, 0, 10).cast(x.dtype))
        x.unsqueeze_(0)                         =>  x = x.unsqueeze(0)
        x.squeeze_()                            =>  x = x.squeeze()
        x.transpose_(0, 1)                      =>  x = x.transpose(0, 1)
        x.t_()                                  =>  x = x.t()
        x.resize_(2, 16)                        =>  x = x.reshape(2, 16)
        x.get_device()                          =>  x.device
        x.add_(1.0)                             =>  x += 1.0
        x.sub_(1.0)                             =>  x -= 1.0
        x.mul_(2.0)                             =>  x *= 2.0
        x.div_(2.0)                             =>  x /= 2.0
        x.view_as(x)                            =>  x.reshape(x.shape)
        x.reshape_as(x)                         =>  x.reshape(x.shape)
        x.expand_as(x)                          =>  x.broadcast_to(x.shape)
        x.byte()                                =>  x.cast("uint8")
        x.char()                                =>  x.cast("int8")
        x.type_as(w)                            =>  x.to(dtype=w.dtype)
        x.new_zeros((2, 3))                     =>  meta.zeros((2, 3), x.dtype, x.device)
        x.new_ones((2, 3))                      =>  meta.ones((2, 3), x.dtype, x.device)
        x.new_full((2, 3), 1.0)                 =>  meta.full((2, 3), 1.0, x.dtype, x.device)
        x.new_tensor([1.0])                     =>  meta.array([1.0], x.dtype, x.device)
        x.mm(w)                                 =>  x @ w
        x.mv(w[:, 0])                           =>  x @ w[:, 0]
        x.dot(w)                                =>  x @ w
        x.bmm(w)                                =>  x @ w
        x.block_until_ready()                   =>  meta.synchronize(x.device)
        x.at[0].set(1.0)                        =>  x[0] = 1.0
        x.values                                =>  x.numpy()
        """,
    "Dtypes": "\n".join(f'meta.{theirs}  =>  "{ours}"' for theirs, ours in DTYPES.items()),
    "Layers and models": """
        nn.Module                               =>  meta.Model
        nn.Parameter(x)                         =>  meta.array(x, requires_grad=True)
        nn.Buffer(x)                            =>  model.buffer("name", x)
        nn.MultiheadAttention(8, 2)             =>  nn.MultiHeadAttention(8, 2)
        nn.ParameterList([x])                   =>  [meta.array(x, requires_grad=True)]
        nn.ParameterDict({"x": x})              =>  {"x": meta.array(x, requires_grad=True)}
        nn.Dense(8, 3)                          =>  nn.Linear(8, 3)
        nn.LazyLinear(3)                        =>  nn.Linear(8, 3)
        nn.BatchNorm(3)                         =>  nn.BatchNorm2d(3)
        nn.Conv(3, 4, 3)                        =>  nn.Conv2d(3, 4, 3)
        model.train()                           =>  model.train_mode()
        model.train(False)                      =>  model.infer_mode()
        model.eval()                            =>  model.infer_mode()
        model.cuda()                            =>  model.to("cuda")
        model.cpu()                             =>  model.to("cpu")
        model.half()                            =>  model.to(dtype="float16")
        model.bfloat16()                        =>  model.to(dtype="bfloat16")
        model.float()                           =>  model.to(dtype="float32")
        model.double()                          =>  model.to(dtype="float64")
        model.device                            =>  model.parameters()[0].device
        model.modules()                         =>  model.models()
        model.buffers()                         =>  model.named_buffers()
        model.register_buffer("n", x)           =>  model.buffer("n", x)
        model.register_parameter("p", x)        =>  model.p = x
        model.get_parameter("w")                =>  model.w
        model.add_module("m", model)            =>  model.m = nn.Linear(8, 3)
        model.requires_grad_(False)             =>  for p in model.parameters(): p.requires_grad = False
        model.compile()                         =>  meta.vm.compile(model)
        model.predict(x)                        =>  model(x)
        model.fit(x, labels)                    =>  meta.optim.with_optimizer(meta.optim.SGD, learning_rate=0.1)(model)
        model.summary()                         =>  print(model)
        model.save("m.safetensors")             =>  meta.save("m.safetensors", model)
        model.load("m.safetensors")             =>  meta.load("m.safetensors", into=model)
        model.freeze()                          =>  for p in model.parameters(): p.requires_grad = False
        model.load_weights("m.safetensors")     =>  meta.load("m.safetensors", into=model)
        """,
    "Training": """
        meta.grad(f)                            =>  meta.autograd.grad(f(w).sum(), w)
        meta.value_and_grad(f)                  =>  meta.autograd.grad(f(w).sum(), w)
        meta.autograd.value_and_grad(f)         =>  meta.autograd.grad(f(w).sum(), w)
        meta.autograd.set_grad_enabled(False)   =>  meta.no_grad()
        meta.autograd.inference_mode()          =>  meta.no_grad()
        meta.inference_mode()                   =>  meta.no_grad()
        meta.set_grad_enabled(False)            =>  meta.no_grad()
        meta.stop_grad(x)                       =>  meta.stop_gradient(x)
        meta.data.DataLoader(x, 2)              =>  meta.data.batches(x, 2)
        meta.data.TensorDataset(x, labels)      =>  (x, labels)
        meta.data.Dataset                       =>  object
        meta.data.random_split(x, [3, 1])       =>  x[meta.random.permutation(4)].split([3])
        meta.optim.AdamOptimizer(model)         =>  meta.optim.Adam(model)
        nn.utils.parameters_to_vector(w)        =>  meta.concatenate([p.reshape(-1) for p in model.parameters()])
        meta.optim.clip_grad_norm_(w, 1.0)      =>  meta.optim.clip_grad_norm(model, 1.0)
        meta.optim.clip_grad_value_(w, 1.0)     =>  meta.optim.clip_grad_value(model, 1.0)
        optimizer.backward(f(w).sum())          =>  f(w).sum().backward()
        optimizer.set_lr(0.1)                   =>  optimizer.learning_rate = 0.1
        optimizer.get_lr()                      =>  optimizer.learning_rate
        optimizer.get_last_lr()                 =>  optimizer.learning_rate
        optimizer.minimize(w)                   =>  optimizer.step()
        optimizer.apply_gradients(w)            =>  optimizer.step()
        """,
    "Compiling, devices": """
        meta.compile(f)                         =>  meta.vm.compile(meta.trace(f))
        meta.jit(f)                             =>  meta.vm.compile(meta.trace(f))
        meta.function(f)                        =>  meta.vm.compile(meta.trace(f))
        meta.cuda.is_available()                =>  meta.is_available("cuda")
        meta.cuda.synchronize()                 =>  meta.synchronize(x.device)
        meta.cuda.empty_cache()                 =>  meta.empty_cache("cuda")
        meta.cuda.max_memory_allocated()        =>  meta.device_memory_stats("cuda")
        meta.cuda.memory_allocated()            =>  meta.device_memory_stats("cuda")
        meta.cuda.reset_peak_memory_stats()     =>  meta.reset_peak_memory("cuda")
        meta.cuda.manual_seed(0)                =>  meta.random.seed(0)
        meta.cuda.manual_seed_all(0)            =>  meta.random.seed(0)
        meta.device_put(x, "cpu")               =>  x.to("cpu")
        meta.onnx.export(model, x)              =>  meta.frontend.onnx.to_onnx(model.infer_mode(), x, path="m.onnx")
        meta.autocast("bfloat16")               =>  meta.amp.autocast("bfloat16")
        meta.profile()                          =>  meta.profiler.profile()
        """,
}
"""What a user of another library writes => what it is here, by topic."""

NAMESPACES: Final[Mapping[str, str]] = {
    "meta.nn.functional": "meta", "meta.nn.modules": "meta.nn", "meta.numpy": "meta", "meta.math": "meta",
    "meta.optim.lr_scheduler": "meta.optim", "meta.optimizers": "meta.optim", "meta.layers": "meta.nn",
    "meta.func": "meta.autograd", "meta.keras": "meta.nn", "meta.autograd.functional": "meta.autograd",
    "meta.np": "meta", "meta.lax": "meta", "meta.cuda": "meta", "meta.cuda.amp": "meta.amp", "meta.torch": "meta",
    "meta.utils": "meta", "meta.utils.data": "meta.data", "meta.nn.utils": "meta.optim", "meta.nn.parameter": "meta.nn",
}  # fmt: skip
"""Modules of other libraries => the module here that has their names."""

_PLACES: Final = (
    "meta", "meta.nn", "meta.optim", "meta.amp", "meta.autograd", "meta.linalg", "meta.random", "meta.vm", "meta.fft",
    "meta.special", "meta.nn.init", "meta.distributed",
)  # fmt: skip
"""Modules in which a name is looked for that is missing elsewhere."""

Key = tuple[str, str]


def rows(topic: str) -> list[tuple[str, str]]:
    """The rows of a topic of NAMES: (theirs, ours)."""
    lines = (line.split("  =>  ") for line in NAMES[topic].strip().splitlines())
    return [(theirs.strip(), ours.strip()) for theirs, ours in lines]


@cache
def _by_key() -> Mapping[Key, list[tuple[str, str]]]:
    """The rows by the attributes that they read: `nn.utils.clip(...)` by ("meta.nn", "utils") and one more."""
    out: dict[Key, list[tuple[str, str]]] = {}
    for row in (row for topic in NAMES for row in rows(topic)):
        path: str = re.findall(r"[\w.]+", row[0])[0]
        names = (f"meta.{path}" if path.startswith("nn.") else path).split(".")
        for count, name in enumerate(names[1:], 1):
            out.setdefault((".".join(names[:count]), name), []).append(row)
    return out


def attribute_hint(owner: str, name: str, known: Sequence[str]) -> str:
    """What to write for the missing attribute `name`, "" without an idea.

    owner: the module ("meta.nn"), or what the rows of NAMES call an object ("x", "model", "optimizer").
    known: the attributes that it has."""
    if name.startswith("_"):  # libraries ask for protocols, such as __array_interface__, often
        return ""
    row = row_hint(owner, name)
    if row:
        return row
    public = [each for each in known if not each.startswith("_")]
    return _elsewhere(owner, name, public) or did_you_mean(name, public)


def row_hint(owner: str, name: str) -> str:
    """What the rows of NAMES say about an attribute, "" without a row."""
    return ", ".join(f"write {ours} for {theirs}" for theirs, ours in _by_key().get((owner, name), ())[:3])


def _elsewhere(owner: str, name: str, known: Sequence[str]) -> str:
    """The same name in a module or among methods; for a method that writes in place, the method that does not."""
    if owner == "x":
        functions, stem = dir(import_module("meta")), name.removesuffix("_")
        call = f"x.{stem}(...)" if stem in known else f"meta.{stem}(x, ...)" if stem in functions else ""
        if not call:
            place = next((place for place in _PLACES if name in dir(import_module(place))), "")
            return f"write {place}.{name}(x, ...) for x.{name}(...)" if place else ""
        return f"write x.update({call}) for x.{name}(...)" if stem != name else f"write {call} for x.{name}(...)"
    if not owner.startswith("meta"):
        return ""
    for place in _PLACES:
        if place != owner and name in dir(import_module(place)):
            return f"write {place}.{name}"
    is_method = name in dir(import_module("meta").NDArray)
    return f"write x.{name}(...) for meta.{name}(x, ...)" if is_method else ""


class _Namespace:
    """A module of another library, whose errors say where its names are here."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        place = NAMESPACES[self._path]
        if f"{self._path}.{name}" in NAMESPACES:
            return _Namespace(f"{self._path}.{name}")

        def hint() -> str:
            names = dir(import_module(place))
            own = f"write {place}.{name}" if name in names else ""
            return row_hint(self._path, name) or own or attribute_hint(place, name, names)

        raise MissingAttribute(f"there is no {self._path}; its names are in {place}", hint, name, self)


def missing_name(package: str, name: str) -> Any:
    """The stand-in of another library's module. Raises AttributeError, with what to write, for other names."""
    path = f"{package}.{name}"
    if path in NAMESPACES:
        return _Namespace(path)
    module = import_module(package)
    problem = f"module {package!r} has no attribute {name!r}"
    if _is_from_import():
        hint = attribute_hint(package, name, dir(module))
        raise ImportError("; ".join(filter(None, (f"cannot import {name!r} from {package!r}", hint))), name=package)
    raise MissingAttribute(problem, lambda: attribute_hint(package, name, dir(module)), name, module)


def _is_from_import() -> bool:
    """Whether a statement such as `from meta import Tensor` asks, which replaces the text of an AttributeError."""
    frame, getters = sys._getframe(), ("_is_from_import", "missing_name", "missing", "get", "_operator", "_import")
    while frame.f_back is not None and frame.f_code.co_name in getters:
        frame = frame.f_back
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def refuse_module(path: str) -> None:
    """Raise ModuleNotFoundError, with what to import, for a module that only another library has."""
    places = [place for theirs, place in NAMESPACES.items() if f"{theirs}.".startswith(f"{path}.")]
    if places:
        problem = f"there is no module {path!r}; its names are in {' and '.join(places)}"
        raise ModuleNotFoundError(f"{problem}; write import {', '.join(places)}", name=path)


def missing_member(instance: object, owner: str, name: str) -> NoReturn:
    """Raise AttributeError, with what to write, for an attribute that an instance lacks. owner: see attribute_hint."""
    problem = f"{type(instance).__name__!r} object has no attribute {name!r}"
    raise MissingAttribute(problem, lambda: attribute_hint(owner, name, dir(instance)), name, instance)
