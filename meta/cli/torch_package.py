"""`python -m meta torch PACKAGE -o DIR [--check]`: a package of a package's operators for users of torch."""

from __future__ import annotations

import argparse
from keyword import iskeyword
from pathlib import Path

from meta.cli.codegen import compare, importable, operators_of
from meta.cli.modules import declared_in
from meta.errors import ArgumentError, RegistryError
from meta.inspect.sources import shown

_SUBJECT = "torch"


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("package", metavar="PACKAGE", help="a package that defines operators, or its distribution")
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=Path, help="the folder of the new package; PACKAGE_torch if unset"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; print what differs, exit status 1 if any")


def run(options: argparse.Namespace) -> int:
    """Write the package, or compare it with `--check`; returns 1 if that differs.

    Raises ArgumentError for an unknown package and for files that were not generated, RegistryError for a package
    without operators that torch can call."""
    from meta.frontend.torch.operators.package import MARK, TESTS, files

    package = importable(options.package)
    ops = operators_of(package)
    folder: Path = options.output or Path(f"{package.rpartition('.')[2]}_torch")
    module = folder.resolve().name.replace("-", "_")
    if not module.isidentifier() or iskeyword(module) or module == package:
        problem = f"{folder.name!r} is not a name for the new module"
        raise ArgumentError(_SUBJECT, problem, "a folder with the name of a new module", "pass -o DIR")
    inside = sorted({op.declare.__module__ for op in ops if declared_in(op, package)})
    texts, refused = files(package, module, inside or [package], ops)
    for name, reason in refused.items():
        print(f"left out: {name}: {reason}")
    if not texts:
        raise RegistryError(_SUBJECT, f"torch can call no operator of '{package}'", "functional operators of tensors")
    before = {path: file.read_text(encoding="utf-8") for path in texts if (file := folder / path).exists()}
    foreign = [path for path, text in before.items() if text and MARK not in text]
    if foreign:
        problem = f"{shown(folder / foreign[0])} exists and was not generated"
        raise ArgumentError(_SUBJECT, problem, "a new folder, or one that this command wrote", "pass -o DIR")
    # Tests that exist are kept: their owner may have added samples.
    texts = {path: text for path, text in texts.items() if path not in before or not path.startswith(TESTS)}
    if options.check:
        return max(compare(folder / path, before.get(path, ""), text) for path, text in texts.items())
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    count = len(ops) - len(refused)
    print(f"wrote {shown(folder)}: {count} operator{'s' if count > 1 else ''} of {package}")
    print("\n  ".join(["Then:", f"pip install -e {folder}", f"python -m pytest {folder}"]))
    return 0
