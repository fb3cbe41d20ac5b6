"""The tables of all readers and writers: every name in them resolves, and no row hides another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import meta
from meta.frontend.onnx.export_ops._table import table as onnx_nodes
from meta.frontend.onnx.ops._row import domain_of, qualified
from meta.frontend.onnx.ops._row import table as onnx_table
from meta.frontend.relay.convert.call import converters
from meta.frontend.relay.ops import one_to_one
from meta.frontend.rows import RowTable
from meta.frontend.torch import aten
from meta.frontend.torch.aten._row import table as aten_table
from meta.op.decomposition import all_decompositions
from meta.op.registry import names

PACKAGES = [
    "meta.op.decompose", "meta.frontend.onnx.export_ops", "meta.frontend.onnx.ops",
    "meta.frontend.relax.export_ops", "meta.frontend.relax.ops", "meta.frontend.relay.ops", "meta.frontend.torch.aten",
]  # fmt: skip


def modules(package: str) -> Iterator[str]:
    yield from (f"{package}.{m.name}" for m in iter_modules(import_module(package).__path__))


def names_of_meta(source: str) -> Iterator[tuple[int, str]]:
    """The lines and names of `meta.<name>` in a module's code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "meta":
            yield node.lineno, node.attr


@pytest.mark.parametrize("package", PACKAGES)
def test_every_function_that_rows_call_exists(package: str) -> None:
    wrong, count = [], 0
    for name in modules(package):
        path = Path(str(import_module(name).__file__))
        for line, attribute in names_of_meta(path.read_text(encoding="utf-8")):
            count += 1
            if not hasattr(meta, attribute):
                wrong.append(f"{path.name}:{line} meta.{attribute}")
    assert wrong == []
    assert count > 40 or package.endswith("export_ops")


def test_missing_names_are_noticed() -> None:
    names_in_row = [
        name for _, name in names_of_meta("def row(call):\n    return meta.no_such_operator(meta.relu(call))")
    ]
    assert names_in_row == ["no_such_operator", "relu"]
    assert [hasattr(meta, name) for name in names_in_row] == [False, True]


def test_operators_that_tables_name_are_in_the_registry() -> None:
    entries = names()
    assert set(one_to_one.OPERATORS.values()) <= entries
    assert set(onnx_nodes.names()) | set(all_decompositions()) <= entries
    assert not set(onnx_nodes.names()) & {"no_such_operator"}


def test_operators_of_relay_have_one_converter() -> None:
    assert len(converters.names()) > 250
    for name in ("nn.conv2d", "add"):
        with pytest.raises(AssertionError, match=name):
            converters.row(name)(lambda call: call)


def test_a_table_has_one_row_for_an_operator() -> None:
    table = RowTable("meta.frontend.relax.ops")
    table.row("abs")(len)
    with pytest.raises(AssertionError, match="abs"):
        table.row("abs")(len)


def test_a_table_finds_the_row_of_a_version() -> None:
    table = RowTable("meta.frontend.relax.ops", lambda name, since, function, **options: (name, since, options))
    table.enter({"abs": len, "exp": len}, since=2, folds=True)
    table.row("abs", since=5)(len)
    assert [table.find("abs", version) for version in (1, 4, 5)] == [
        None, ("abs", 2, {"folds": True}), ("abs", 5, {}),
    ]  # fmt: skip
    assert (list(table.versions("abs")), list(table.versions("log"))) == ([5, 2], [])
    assert table.rows() == {"abs": ("abs", 5, {}), "exp": ("exp", 2, {"folds": True})}
    assert table.names() == ["abs", "exp"]


def test_operators_of_onnx_have_one_row_for_an_opset() -> None:
    assert len(onnx_table.names()) > 150
    for name in onnx_table.names():
        opsets = [row.since for row in onnx_table.versions(name).values()]
        assert opsets == sorted(set(opsets), reverse=True), name
    with pytest.raises(AssertionError, match="two rows for version"):
        onnx_table.row("Relu")(lambda node, x: x)


def test_rows_of_onnx_are_operators_of_the_standard() -> None:
    defs = pytest.importorskip("onnx.defs")
    lines: dict[str, set[str]] = {}
    for schema in defs.get_all_schemas_with_history():
        lines.setdefault(qualified(schema.name, domain_of(schema.domain)), set()).update(schema.attributes)
    others = ("ai.onnx.preview::", "com.microsoft::")
    standard = [name for name in onnx_table.names() if not name.startswith(others)]
    rows = [row for name in standard for row in onnx_table.versions(name).values()]
    shared: dict[object, set[str]] = {}  # one function may serve several operators
    for row in rows:
        assert row.name in lines, row.name
        assert row.since <= defs.onnx_opset_version(), row.name
        shared.setdefault(row.function.__code__, set()).update(lines[row.name])
    for row in rows:
        assert row.attributes <= shared[row.function.__code__], row.name


def test_operators_of_aten_have_one_row() -> None:
    assert len(aten.names()) > 300
    with pytest.raises(AssertionError, match="addmm"):
        aten_table.row("addmm")(len)


def test_rows_are_called_as_their_functions_where_no_name_is_given() -> None:
    table = RowTable("meta.frontend.relax.ops")
    table.row()(len)
    assert table.rows() == {"len": len}
