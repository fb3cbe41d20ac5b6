"""Mutates `.pt2` files and imports them: the outcome may only be a model or an error of meta.

    python -m scripts.fuzz_pt2 100000

Bytes of the archive are changed, and values of the JSON in it, after which the archive is written again. A run is
determined by --seed. An input that does anything else, or takes longer than --slow seconds, is reported, and written to
--failures; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import resource
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from meta.device import CPU
from meta.errors import MetaError
from scripts.fuzz_relay import Report, mutate_bytes, mutate_json, mutate_tokens

_MEMORY = 8 << 30


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


def fuzz(
    archives: Sequence[bytes], count: int, seed: int, slow: float = 10.0, failed: Callable[[bytes], None] | None = None
) -> Report:
    """`count` mutations of `archives`, determined by `seed`."""
    rng = random.Random(seed)
    report = Report()
    for number in range(count):
        data = mutated(rng.choice(archives), rng)
        report.runs += 1
        start, problem = time.process_time(), ""
        try:
            read(data)
            report.outcomes["accepted"] += 1
        except MetaError as error:
            report.outcomes[type(error).__name__] += 1
        except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - whatever it is, it is what this looks for
            problem = traceback.format_exc(limit=-3)
        taken = time.process_time() - start
        report.worst = max(report.worst, (taken, f"mutation {number}"))
        if problem or taken > slow:
            report.failures.append(f"mutation {number}: {problem or f'took {taken:.1f} s'}")
            if failed is not None:
                failed(data)
    return report


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
    parser = argparse.ArgumentParser(prog="scripts.fuzz_pt2", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("count", type=int, help="how many mutations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=10.0, help="seconds of processor time that one input may take")
    parser.add_argument("--failures", type=Path, default=None, help="where inputs that fail are written")
    options = parser.parse_args(arguments)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def failed(data: bytes) -> None:
        if options.failures is not None:
            options.failures.mkdir(parents=True, exist_ok=True)
            (options.failures / f"{len(list(options.failures.iterdir())):04}.pt2").write_bytes(data)

    start = time.perf_counter()
    report = fuzz(examples(), options.count, options.seed, options.slow, failed)
    for failure in report.failures[:20]:
        print(failure)
    print(f"{report.runs} mutations in {time.perf_counter() - start:.0f} s, {len(report.failures)} failures; "
          f"slowest {report.worst[0]:.2f} s ({report.worst[1]})")  # fmt: skip
    for outcome, times in sorted(report.outcomes.items()):
        print(f"  {outcome}: {times}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
