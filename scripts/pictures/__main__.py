"""`python -m scripts.pictures [--check]`: write the pictures of docs/pictures, or exit with 1 if one is stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from scripts.pictures import charts, diagrams
from scripts.pictures.examples import runs

FOLDER = charts.ROOT / "docs" / "pictures"
PICTURES: Mapping[str, Callable[[], str]] = {
    "call": diagrams.call,
    "declaration": diagrams.declaration,
    "ratios": charts.ratios,
    "rooms": diagrams.rooms,
    "training": charts.training,
    **{f"example-{name}": partial(charts.losses, name) for name in runs()},
}


def stale() -> list[str]:
    """The pictures whose committed file differs from what is drawn now."""
    paths = {name: FOLDER / f"{name}.svg" for name in PICTURES}
    return [n for n, p in paths.items() if not p.exists() or p.read_text(encoding="utf-8") != PICTURES[n]()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pictures. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.pictures", description="Draw the pictures of docs.")
    parser.add_argument("--check", action="store_true", help="print stale pictures and write nothing")
    is_check = parser.parse_args(arguments).check
    for name in stale():
        print(f"docs/pictures/{name}.svg {'is stale: make pictures' if is_check else 'written'}")
        if is_check:
            continue
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.svg").write_text(PICTURES[name](), encoding="utf-8")
    return int(is_check and bool(stale()))


if __name__ == "__main__":
    sys.exit(main())
