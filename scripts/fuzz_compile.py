"""Compares random functions of torch under torch.compile(backend="meta") with eager torch.

    python -m scripts.fuzz_compile 1000 --seed 1          functions 0 to 999 of seed 1
    python -m scripts.fuzz_compile 1 --seed 1 --only 17   one of them, with its text

Functions take views of tensors in many layouts, write in place, break the graph, and return views of their arguments
and of each other. Compared are values, strides, offsets, which results share memory, arguments after the call,
gradients and errors; each function is called twice, where sizes are dynamic with other sizes. What torch's backend
"aot_eager" changes as well is not counted. The exit status is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from meta.frontend.torch import compile_backend

_VIEWS: Final = (
    "{v}.t()", "{v}.mT", "{v}.transpose(0, -1)", "{v}[1:]", "{v}[::2]", "{v}[..., ::2]", "{v}[:, None]", "{v}[-1]",
    "{v}.unsqueeze(0)", "{v}.flatten()", "{v}.reshape(-1)", "{v}.view(-1)", "{v}.expand(3, *{v}.shape)",
    "{v}.squeeze()",
    "{v}.permute(*reversed(range({v}.dim())))", "{v}.narrow(0, {v}.shape[0] // 2, {v}.shape[0] - {v}.shape[0] // 2)",
    "{v}.chunk(2)[1]", "{v}.chunk(3, -1)[0]", "torch.split({v}, {v}.shape[0] // 2)[0]", "{v}[{v}.shape[0] // 2 :]",
    "{v}.diagonal()", "{v}.unfold(0, 2, 1)", "{v}.as_strided((2,), (1,))",
    "torch.as_strided({v}, ({v}.shape[0],), (1,), 0)",
    "{v}.as_strided(({v}.shape[0], 2), (1, 1))", "{v}.movedim(0, -1)", "{v}.detach()", "{v}.contiguous()",
    "{v}.view(torch.int32)", "{v}.unbind(0)[0]", "{v}[None].expand(2, *{v}.shape)[1]", "{v}.conj()",
)  # fmt: skip
_VALUES: Final = (
    "{v} * 2", "{v} + {w}", "{v} * {w}", "torch.cat([{v}, {v}])", "{v}.sum(0)", "{v}.sum(-1, keepdim=True)",
    "{v}.clone()", "{v}.relu()", "torch.where({v} > 0, {v}, -{v})", "torch.empty_like({v}).copy_({v})",
    "{v}.new_ones({v}.shape)", "{v} @ {w}.t()", "{v}.flip(0)", "{v}.cumsum(0)", "torch.stack([{v}, {w}])",
    "{v}[torch.tensor([0, -1])]", "{v}.index_select(0, torch.tensor([0]))", "torch.ops.fuzz.layout({v})",
    "{v}.to(memory_format=torch.channels_last) * 2", "torch.empty_strided({v}.shape, {v}.stride()).copy_({v})",
    "torch.empty_strided(({v}.shape[0], 2), (4, 1)).fill_(1.5)", "{v} * {v}.shape[0]", "{v}.softmax(-1)",
    "torch.as_strided_scatter({v} * 1, torch.ones(2), (2,), (1,))", "torch.complex({v}, {v})", "{v}.real",
)  # fmt: skip
_WRITES: Final = (
    "{v}.mul_(2)", "{v}[0] = 1.0", "{v}[1:].add_(1)", "{v}.t().mul_(2)", "{v}.copy_({w} * 1)",
    "{v}.view(-1)[0].fill_(3.0)",
    "{v}.index_fill_(0, torch.tensor([0]), 2.0)", "{v}.masked_fill_({v} > 0, 0.5)", "{v}.unsqueeze_(0)", "{v}.t_()",
    "{v}.transpose_(0, -1)", "{v}[{v}.shape[0] // 2 :] = {v}[0]", "{v}.as_strided((2,), (1,)).zero_()", "{v}.add_({w})",
)  # fmt: skip
_ERRORS: Final = (
    "{v}[torch.tensor([99])]",
    "{v}.index_select(0, torch.tensor([99]))",
    "{v}.take(torch.tensor([-999]))",
)
_INPUTS: Final = (
    "randn(n, 4)", "randn(4, n).t()", "randn(n + 1, 4)[1:]", "randn(n, 8)[:, ::2]", "randn(n)", "randn(2, 3, n, 2)",
    "randn(2, 3, n, 2).to(memory_format=torch.channels_last)", "randn(n, 1).expand(n, 4)",
    "randn(n, 3, 4).transpose(0, 1)",
)  # fmt: skip


_torch: Any = torch  # whose types are partly unknown


@_torch.library.custom_op("fuzz::layout", mutates_args=())
def _layout(x: torch.Tensor) -> torch.Tensor:
    """A result that depends on the strides of its argument."""
    return x + sum(stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)


@_layout.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@_layout.register_autograd
def _(context: Any, gradient: Any) -> Any:
    del context
    return gradient


@dataclass(frozen=True)
class Function:
    """A random function. inputs: the texts of its arguments, for sizes n.  sizes: of its calls."""

    inputs: tuple[str, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    sizes: tuple[int, int]
    dynamic: bool | None
    tracked: bool

    def source(self) -> str:
        names = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({names}):\n{body}    return {', '.join(self.results)},\n"

    def define(self) -> Callable[..., Any]:
        namespace: dict[str, Any] = {"torch": torch}
        exec(self.source(), namespace)
        return namespace["f"]

    def arguments(self, n: int, seed: int) -> list[torch.Tensor]:
        _torch.manual_seed(seed)
        made: list[torch.Tensor] = [eval(text, {"randn": torch.randn, "torch": torch, "n": n}) for text in self.inputs]
        return [x.requires_grad_() if self.tracked and x.is_leaf else x for x in made]

    def __str__(self) -> str:
        facts = f"inputs {self.inputs}, n {self.sizes}, dynamic {self.dynamic}, gradients {self.tracked}"
        return f"{self.source()}# {facts}\n"


def random_function(rng: random.Random) -> Function:
    """A function whose lines all run in eager torch."""
    inputs = tuple(rng.choices(_INPUTS, k=rng.randint(1, 2)))
    dynamic, tracked = rng.choice([None, True]), rng.random() < 0.4
    sizes = (rng.choice([4, 5, 6]), rng.choice([7, 8]))
    blank = Function(inputs, (), (), sizes, dynamic, tracked)
    values: dict[str, Any] = {f"x{i}": x for i, x in enumerate(blank.arguments(sizes[0], 0))}
    lines: list[str] = []
    for _ in range(rng.randint(1, 7)):
        kind = rng.choices([_VIEWS, _VALUES, _WRITES], [4, 3, 0.5 if tracked else 2])[0]
        v, w = rng.choices(list(values), k=2)
        text = rng.choice(kind).format(v=v, w=w)
        line = text if kind is _WRITES else f"y{len(lines)} = {text}"
        if _runs(line, values):
            lines.append(line)
            lines += ["torch._dynamo.graph_break()"] * (rng.random() < 0.08)
    tensors = [name for name, x in values.items() if isinstance(x, torch.Tensor)]
    results = list(dict.fromkeys(rng.choices(tensors, weights=range(1, len(tensors) + 1), k=rng.randint(1, 4))))
    if rng.random() < 0.05:
        results.append(rng.choice(_ERRORS).format(v=rng.choice(tensors)))
    if rng.random() < 0.2:
        results.append(f"{rng.choice(tensors)}.numel() // 2")
    return Function(inputs, tuple(lines), tuple(results), sizes, dynamic, tracked)


def _runs(line: str, values: dict[str, Any]) -> bool:
    try:
        exec(line, {"torch": torch}, values)
    except Exception:  # noqa: BLE001 - a line that torch refuses is not used
        return False
    return all(x.numel() < 5000 for x in values.values())


# --- comparison ------------------------------------------------------------------------------------------------------

Outcome = dict[str, Any]


def outcome(call: Callable[..., Any], args: Sequence[Any]) -> Outcome:
    """What a call does: facts by name. Values are compared by closeness, other facts exactly."""
    try:
        results = call(*args)
    except (RuntimeError, IndexError, ValueError, NotImplementedError, TypeError):
        return {"error": True}
    facts: Outcome = {"error": False}
    tensors = [(f"result {i}", x) for i, x in enumerate(results)]
    tensors += [(f"argument {i}", x) for i, x in enumerate(args)]
    for name, x in tensors:
        if not isinstance(x, torch.Tensor):
            facts[name] = x
            continue
        facts[f"{name}: type"] = x.dtype, tuple(x.shape), x.requires_grad, x.is_conj()
        if name.startswith("argument"):
            facts[f"{name}: written"] = x._version > 0
        if x.numel():
            facts[f"{name}: strides"] = tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)
            facts[f"{name}: offset"] = x.storage_offset()
        facts[f"{name}: values"] = x.detach().clone()
        shared = [other for other, y in tensors if isinstance(y, torch.Tensor) and _memory(x) == _memory(y)]
        facts[f"{name}: memory"] = shared if x.numel() else []
    tracked: list[Any] = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad and not x.is_complex()]
    leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf]
    if tracked and leaves:
        try:
            total: Any = sum((x * x).sum() for x in tracked)
            gradients: Sequence[Any] = torch.autograd.grad(total, leaves, allow_unused=True)
        except RuntimeError:
            return facts | {"gradients": "error"}
        facts |= {f"gradient {i}: values": g for i, g in enumerate(gradients)}
    return facts


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def differences(expected: Outcome, got: Outcome) -> list[str]:
    """The names of the facts that differ, with both."""
    found: list[str] = []
    for name in expected.keys() | got.keys():
        a, b = expected.get(name), got.get(name)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            same = a.shape == b.shape and torch.allclose(a, b.to(a.dtype), 1e-3, 1e-4, equal_nan=True)
        else:
            same = type(a) is type(b) and a == b
        if not same:
            found.append(f"{name}: {b}, expected {a}")
    return sorted(found)


def judge(function: Function) -> list[str]:
    """The findings about a function, each one line or more."""
    f = function.define()
    found: list[str] = []
    backends: tuple[Any, Literal["aot_eager"]] = compile_backend, "aot_eager"
    expected = [outcome(f, function.arguments(n, n)) for n in function.sizes]
    for backend in backends:
        torch._dynamo.reset()
        call = _torch.compile(f, backend=backend, dynamic=function.dynamic)
        try:
            got = [outcome(call, function.arguments(n, n)) for n in function.sizes]
        except Exception as error:  # noqa: BLE001  # it is a finding
            got = [{"raised": f"{type(error).__name__}: {error}"}]
        now = [d for a, b in zip(expected, got, strict=False) for d in differences(a, b)]
        if backend == "aot_eager":
            names = {d.partition(": ")[0] + d.split(": ")[1] for d in now}
            return [d for d in found if d.partition(": ")[0] + d.split(": ")[1] not in names]
        found = now
        if not found:
            return []
    return found


def run(count: int, seed: int, only: int | None = None) -> list[str]:
    """The findings of functions, with their texts."""
    found: list[str] = []
    for index in range(count) if only is None else [only]:
        function = random_function(random.Random(f"{seed} {index}"))
        problems = judge(function)
        if problems or only is not None:
            text = f"--- seed {seed}, function {index}\n{function}" + "".join(f"  {p}\n" for p in problems)
            sys.stdout.write(text)
            sys.stdout.flush()
            found += [text] * bool(problems)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    found = run(options.count, options.seed, options.only)
    sys.stdout.write(f"{options.count} functions, {len(found)} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
