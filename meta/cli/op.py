"""`python -m meta op NAME`: every part of an operator, with the lines where they are.

`python -m meta op new NAME` writes a new one, into a new or an existing package (meta.cli.op_new)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from meta.cli import op_new
from meta.cli.modules import add_import_option, import_modules
from meta.cli.text import beside, wrapped
from meta.errors import ArgumentError
from meta.inspect.checklist import checklist
from meta.inspect.description import Description, describe
from meta.inspect.gradient import Called, Gradient, GradientFormula
from meta.inspect.implementation import DialectKernel


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    new = f"{parser.prog} new NAME [--inputs 2] [--package DIR]"
    parser.usage = f"{parser.prog} NAME ... [--json] [--import MODULE]\n       {new}"
    parser.add_argument("names", nargs="+", metavar="NAME", help="operators to describe, or `new` and a new name")
    parser.add_argument("--inputs", type=int, default=1, metavar="N", help="with `new`: how many tensors it takes")
    package = "with `new`: the folder of a project, or of a new one (default: this folder if it is one, or NAME_ops)"
    parser.add_argument("--package", metavar="DIR", help=package)
    parser.add_argument("--json", action="store_true", help="print the description as JSON")
    add_import_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print the description of each operator. Raises RegistryError for an unknown one."""
    modules = import_modules(options.modules)
    if options.names[0] == "new":
        if len(options.names) != 2:
            usage = "python -m meta op new NAME [--inputs 2] [--package DIR]"
            raise ArgumentError("op new", f"got {len(options.names) - 1} names", usage)
        return op_new.run(options.names[1], options.inputs, options.package)
    described = [describe(name, modules=modules) for name in options.names]
    if options.json:
        print(json.dumps([as_data(d) for d in described], indent=2))
    else:
        print("\n\n".join("\n".join(_lines(d)) for d in described))
    return 0


def as_data(d: Description) -> dict[str, object]:
    """A description with its checklist, for JSON."""
    return {**asdict(d), "parts": {name: asdict(part) for name, part in checklist(d).items()}}


def _lines(d: Description) -> Iterator[str]:
    yield beside(wrapped(d.signature, 0, 4), d.declaration, "bold")
    yield wrapped(d.doc, 2)
    yield from _section("arguments", d.schema)
    for a in d.arguments:
        default = "" if a.default is None else f" = {a.default}"
        yield wrapped(f"{a.name}: {a.type}{default}. {a.doc}", 2, 4)
    yield from _section("type function", d.type_function)
    if d.results:
        yield wrapped(f"results: {', '.join(d.results)}", 2)
    yield from _gradient(d.gradient)
    yield from _kernels(d)
    yield from _section("facts")
    yield from (wrapped(fact, 2, 4) for fact in _facts(d))
    if d.relay:
        yield from _section("Relay operators whose converters call it")
        by_location: dict[str | None, list[str]] = {}
        for converted in d.relay:
            by_location.setdefault(converted.location, []).append(converted.name)
        yield from (beside(wrapped(", ".join(names), 2, 4), where) for where, names in by_location.items())
    yield from _section("samples", d.samples.location)
    count = d.samples.problem if d.samples.count is None else f"{d.samples.count} rows of the generic tests"
    yield wrapped(count, 2)
    yield from _section("reference page", d.reference_page or "none")
    yield from _missing(d)


def _section(title: str, location: str | None = None) -> Iterator[str]:
    yield ""
    yield beside(title, location, "bold")


def _gradient(g: Gradient) -> Iterator[str]:
    yield from _section("gradient", g.location)
    if g.state != "differentiable":
        yield wrapped(f"{g.state.replace('_', ' ')}{f': {g.reason}' if g.reason else ''}", 2)
        return
    yield from map(_formula, g.formulas)
    yield wrapped(f"kept for the backward pass: {', '.join(g.saved) or 'nothing but types'}", 2)
    if g.calls:
        yield wrapped(f"calls {', '.join(map(_called, g.calls))}", 2, 4)


def _formula(formula: GradientFormula) -> str:
    return beside(wrapped(f"{', '.join(formula.arguments)}: {formula.text}", 2, 4), formula.location)


def _called(called: Called) -> str:
    if called.state == "differentiable":
        return called.name
    return f"{called.name} ({called.state.replace('_', ' ')}{f': {called.reason}' if called.reason else ''})"


def _kernels(d: Description) -> Iterator[str]:
    yield from _section("dialects")
    if d.without_kernel:
        yield wrapped("needs no kernel", 2)
    for kernel in d.kernels:
        yield beside(wrapped(_kernel(kernel), 2, 4), kernel.location)
        for refusal in kernel.refusals:
            yield beside(wrapped(f"refuses: {'; '.join(refusal.texts)}", 4, 4), refusal.location)
        yield from (wrapped(f"costs less on {text}", 4, 4) for text in kernel.limits)
    if d.samples.candidates:
        yield wrapped(f"on the first sample, cpu: {'; '.join(d.samples.candidates)}", 2, 4)


def _kernel(kernel: DialectKernel) -> str:
    plevel = "" if kernel.plevel is None else f", plevel {kernel.plevel}"
    only = ", eager calls only" if kernel.eager_only else ""
    off = f"; off: {kernel.off}" if kernel.off else ""
    return f"{kernel.dialect}{plevel}, for {' and '.join(kernel.devices)}{only}{off}"


def _facts(d: Description) -> Iterator[str]:
    yield f"family {d.family}; pattern {d.pattern}"
    cast = f"; casts {', '.join(d.amp_args)}" if d.amp_args and d.amp != "keep" else ""
    yield f"mixed precision: {d.amp}, runs {d.amp_effect}{cast}"
    yield from d.inplace
    if d.view:
        yield "view: the result is the memory of its first argument"
    if d.resolve:
        yield "the shape of the result depends on values"
    if d.recorded_as:
        yield f"recorded as {d.recorded_as} where gradients are recorded"
    if d.names:
        yield f"other names: {', '.join(d.names)}"


def _missing(d: Description) -> Iterator[str]:
    missing = {name: part for name, part in checklist(d).items() if part.state == "missing"}
    yield from _section("missing" if missing else "nothing is missing")
    yield from (wrapped(f"{name}: {part.note}. To add it: {part.remedy}", 2, 4) for name, part in missing.items())
