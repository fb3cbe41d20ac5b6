"""One of several processes that run checks together: `python -m tests.python.distributed.worker FOLDER MODULE,MODULE`.

A module of checks has functions `check_*()` that every rank runs, in the order of the file and of a dict CHECKS. The
outcome of each is written to FOLDER: nothing, or the traceback."""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

import meta


def main(folder: str, modules: str, only: str = "") -> None:
    meta.distributed.init(timeout=240)
    outcomes: dict[str, str] = {}
    loaded = [vars(import_module(f"{__package__}.{name}")) for name in modules.split(",")]
    checks = {name: check for module in loaded for name, check in {**module, **module.get("CHECKS", {})}.items()}
    for name, check in checks.items():
        if name.startswith("check_") and only in name:
            meta.random.seed(0)
            try:
                check()
                outcomes[name] = ""
            except BaseException:  # noqa: BLE001  every outcome is reported
                outcomes[name] = traceback.format_exc()
    Path(folder, f"{meta.distributed.rank()}.json").write_text(json.dumps(outcomes))
    meta.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
