"""`python -m meta op new NAME --like OTHER [--package DIR]`: the parts of a new operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meta.cli.text import table
from meta.errors import ArgumentError
from meta.template.package import write_package
from meta.template.repository import add_operator


def run(names: Sequence[str], like: str | None, package: str | None) -> int:
    """Write the parts and print the lines to edit. Raises ArgumentError without a name and `--like`."""
    if len(names) != 1 or not like:
        problem = f"{len(names)} names" + ("" if like else " and no --like")
        raise ArgumentError("op new", f"got {problem}", "python -m meta op new NAME --like OTHER [--package DIR]")
    (name,) = names
    if package:
        steps = write_package(Path(package), name, like)
        then = [f"pip install -e {package}", f"python -m pytest {package}"]
    else:
        steps = add_operator(name, like)
        then = ["python -m scripts.src_codegen", "ruff format", f"python -m pytest tests/python/op -k {name}"]
    print(f"{name} computes what {like} computes. Edit:")
    print(table(("", ""), [(f"  {step.location}", step.text) for step in steps]).lstrip("\n"))
    print("\n  ".join(["Then:", *then]))
    return 0
