"""`python -m scripts.pictures.examples [NAME ...]`: run the examples, and record what they print and their losses in
docs/pictures/examples.json, which the gallery's pictures are drawn from. All of them take some minutes."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

RECORD = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "examples.json"
EXAMPLES: Mapping[str, str] = {
    "mlp": "",
    "lenet": "",
    "lstm": "",
    "relay": "",
    "resnet": "--width 8 --size 16",
    "bert": "",
    "unet": "",
    "gpt": "--plot build/gpt.png",
}
"""The examples of the gallery, with the options of their runs."""


class Run(TypedDict):
    """What an example printed, and the loss of each step."""

    printed: str
    losses: list[float]


def runs() -> dict[str, Run]:
    """The recorded runs by the names of examples."""
    return cast("dict[str, Run]", json.loads(RECORD.read_text(encoding="utf-8"))) if RECORD.exists() else {}


def main(names: Sequence[str]) -> None:
    """Run examples, all if no names are given, and record them."""
    Path("build").mkdir(exist_ok=True)
    for name in names or EXAMPLES:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            losses = importlib.import_module(f"examples.{name}").main(EXAMPLES[name].split())
        run: Run = {"printed": printed.getvalue(), "losses": [float(f"{loss:.3g}") for loss in losses]}
        record = {key: value for key, value in {**runs(), name: run}.items() if key in EXAMPLES}
        RECORD.write_text(json.dumps(record, indent=None, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{name}: {printed.getvalue()}")


if __name__ == "__main__":
    main(sys.argv[1:])
