"""A user's program that only pyright reads; test_typing.py compares `reveals` and `reports` with what it says."""

from typing_extensions import reveal_type

import meta
from meta import nn


class Net(meta.Model):
    def build(self, features: int) -> None:
        self.layer = nn.Linear(features, 3)

    @meta.trace
    def forward(self, x: meta.NDArray) -> meta.NDArray:
        return meta.softmax(self.layer(x), axis=-1)


class PlainNet(meta.Model):
    def forward(self, x: meta.NDArray, scale: float = 1.0) -> meta.NDArray:
        return x * scale


net = Net(4)
optimizer = meta.optim.SGD(net.parameters(), learning_rate=0.1)


@meta.trace
def step(x: meta.NDArray, target: meta.NDArray) -> tuple[meta.NDArray, float]:
    optimizer.zero_grad()
    loss = meta.cross_entropy(net(x), target)
    loss.backward()
    optimizer.step()
    return loss, 1.0


x, target = meta.random.normal((2, 4)), meta.array([0, 1])
reveal_type(x)  # reveals: NDArray
reveal_type(step)  # reveals: Traced[(x: NDArray, target: NDArray), tuple[NDArray, float]]
reveal_type(step(x, target))  # reveals: tuple[NDArray, float]
compiled = meta.vm.compile(step)
reveal_type(compiled)  # reveals: Executor[(x: NDArray, target: NDArray), tuple[NDArray, float]]
reveal_type(compiled(x, target)[0])  # reveals: NDArray
reveal_type(net.forward(x))  # reveals: NDArray
reveal_type(meta.softmax(x))  # reveals: NDArray
reveal_type(x.softmax() + 1.0)  # reveals: NDArray
reveal_type(meta.vm.compile(step.record(x, target).module)(x, target))  # reveals: tuple[NDArray, ...]
reveal_type(meta.autograd.grad(x.sum(), [x])[0])  # reveals: NDArray | None
reveal_type(meta.passes.auto_cast("bfloat16")(step.record(x, target).module))  # reveals: Module

compiled(x)  # reports: reportCallIssue
meta.softmax(x, axs=1)  # reports: reportArgumentType
meta.sofmax(x)  # reports: reportAttributeAccessIssue
meta.vm.compil(step)  # reports: reportAttributeAccessIssue
meta.nn.Linea(3, 4)  # reports: reportAttributeAccessIssue
assert meta.optim.SDG  # reports: reportAttributeAccessIssue
meta.amp.autocats("bfloat16")  # reports: reportAttributeAccessIssue
meta.random.norml((2,))  # reports: reportAttributeAccessIssue
assert meta.passes.autocast  # reports: reportAttributeAccessIssue
meta.autograd.gard(x, x)  # reports: reportAttributeAccessIssue
meta.ir.parse("")  # reports: reportAttributeAccessIssue
x.sofmax()  # reports: reportAttributeAccessIssue

with meta.amp.autocast("bfloat16"), meta.with_dialect("tvm"), meta.no_grad():
    meta.random.seed(0)
