"""Mutates `.pt2` files and imports them: the outcome may only be a model or an error of meta.

    python -m scripts.fuzz_pt2 100000

Bytes of the archive are changed, and values of the JSON in it, after which the archive is written again.
scripts/fuzzing.py has what every fuzzer of readers does.
"""

from __future__ import annotations

import io
import random
import sys
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from meta.device import CPU
from scripts import fuzzing
from scripts.fuzzing import Format, mutate_bytes, mutate_json, mutate_tokens


def contents(archive: bytes) -> dict[str, bytes]:
    """The members of an archive."""
    return dict(_members(archive))


@cache
def _members(archive: bytes) -> Mapping[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {member.filename: file.read(member) for member in file.infolist()}


def packed(members: Mapping[str, bytes]) -> bytes:
    """An archive with these members, stored as torch stores them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def mutated(archive: bytes, rng: random.Random) -> bytes:
    """A mutation of an archive: of its bytes, of a member's bytes or name, or of JSON by values or by tokens."""
    choice = rng.random()
    if choice < 0.1:
        return mutate_bytes(archive, rng)
    members = contents(archive)
    if choice < 0.2:
        name = rng.choice(list(members))
        members[_renamed(name, members, rng) if rng.random() < 0.3 else name] = mutate_bytes(members[name], rng)
        return packed(members)
    names = [name for name in members if name.endswith(".json")]
    name = rng.choice([*names, *[n for n in names if n.endswith("model.json")] * 4])
    text = members[name].decode()
    changed = mutate_json(text, rng) if choice < 0.85 else mutate_tokens(text, rng)
    members[name] = changed.encode("utf-8", "replace")
    return packed(members)


def _renamed(name: str, members: Mapping[str, bytes], rng: random.Random) -> str:
    """The name of another member, or a strange one."""
    return rng.choice((rng.choice(list(members)), f"{name}x", f"../{name}", f"/{name}", "é", "a" * 5000))


def read(data: bytes) -> Any:
    """A model of the file; raises MetaError, and nothing else, for what is refused."""
    from meta.frontend.torch.archive import read_archive
    from meta.frontend.torch.model import ExportedModel

    model = ExportedModel(read_archive(data), CPU)
    model.check()
    return model


ARCHIVES: Final = Format("program.pt2", mutated, lambda data: "accepted" if read(data) else "")


def examples() -> list[bytes]:
    """Small programs, as torch saves them."""
    torch: Any = import_module("torch")
    module: Any = torch.nn.Module

    class Example(module):
        def __init__(self) -> None:
            module.__init__(self)
            self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
            self.scale = torch.ones(4)

        def forward(self, x: Any, *, more: Any) -> Any:
            y = self.norm(self.linear(x)) * self.scale
            y[:, 0] = more["a"][:, 0]
            first, *_ = y.relu_().split(2, 1)
            with torch.no_grad():
                y = y.view(x.shape[0] * 2, -1).sum(-1, keepdim=True)
            return {"first": first.to(torch.float64), "rest": (y, x.shape[0])}

    size = {0: torch.export.Dim.AUTO}
    archives: list[bytes] = []
    for shapes in (None, {"x": size, "more": {"a": size}}):
        x = torch.ones(6, 4)
        program: Any = torch.export.export(Example(), (x,), {"more": {"a": x}}, dynamic_shapes=shapes)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        archives.append(buffer.getvalue())
    return archives


def main(arguments: Sequence[str] | None = None) -> int:
    options = fuzzing.parser("scripts.fuzz_pt2", __doc__ or "").parse_args(arguments)
    fuzzing.limit_memory()
    return ARCHIVES.run(options, examples())


if __name__ == "__main__":
    sys.exit(main())
