"""`python -m scripts.src_codegen [--check]`: write the generated files, or fail if they are stale."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from meta.op.registry import Op, all_ops
from scripts.src_codegen import docs, formulas, functions, gradients, limits, methods, names, table

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS: Mapping[str, Callable[[Sequence[Op]], str]] = {
    "meta/_generated/formulas.py": formulas.render,
    "meta/_generated/functions.py": functions.render,
    "meta/_generated/limits.py": limits.render,
    "meta/_generated/methods.py": methods.render,
    "meta/_generated/table.py": table.render,
}
FAMILIES = ("meta/_generated/operators", "meta/_generated/gradients")
"""Folders with a module for each family."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write every generated file, or compare it with --check. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.src_codegen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with status 1 if a file is stale")
    check = parser.parse_args(argv).check
    ops = tuple(all_ops())
    texts: dict[str, str | None] = {path: render(ops) for path, render in OUTPUTS.items()}
    texts |= {**functions.render_families(ops), **gradients.render_families(ops)}
    texts |= dict.fromkeys(_families_on_disk() - set(texts))  # their family was renamed or removed
    if not check:
        _write(texts)
        docs.record_missing(ops)
    texts |= docs.render(ops)  # reads the modules of gradients
    texts[names.PATH] = names.render()
    if check:
        stale = _stale(texts)
        for path in stale:
            before = (_read(ROOT / path) or "").splitlines()
            fresh = (texts[path] or "").splitlines()
            diff = difflib.unified_diff(before, fresh, f"{path} (on disk)", f"{path} (fresh)", lineterm="")
            print("\n".join(list(diff)[:40]))
        print(f"{len(stale)} of {len(texts)} generated files are stale" if stale else "generated files are fresh")
        return int(bool(stale))
    _write(texts)
    return 0


def _stale(texts: Mapping[str, str | None]) -> list[str]:
    """The paths at which another text is, or a file that should not be there."""
    return [path for path, text in texts.items() if _read(ROOT / path) != text]


def _write(texts: Mapping[str, str | None]) -> None:
    """Write what is stale; remove the files without a text."""
    for path in _stale(texts):
        text = texts[path]
        if text is None:
            (ROOT / path).unlink()
            print(f"removed {path}")
            continue
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, encoding="utf-8")
        print(f"wrote {path}")


def _families_on_disk() -> set[str]:
    """The paths of the modules that have a family each."""
    modules = (path for folder in FAMILIES for path in (ROOT / folder).glob("[!_]*.py"))
    return {path.relative_to(ROOT).as_posix() for path in modules}


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
