"""The metadata section of a Relay text: constants and attributes that `meta[relay.Constant][0]` names."""

from __future__ import annotations

import functools
from typing import Any

from meta.frontend.relay.errors import RelayError
from meta.frontend.relay.json.graph import NodeGraph
from meta.frontend.relay.json.node_values import ValueBuilder


class Metadata:
    """Values by class and index, decoded when the text first names one.

    text: the JSON of the section, "" where there is none.  line: the line of the whole text that it starts in."""

    def __init__(self, text: str, line: int) -> None:
        self._text = text
        self._line = line

    def entry(self, key: str, index: int) -> Any:
        """The value of `meta[key][index]`; raises RelayError without such an entry."""
        if not self._text.strip():
            raise RelayError(
                "relay", "the text has no metadata section", remedy="print it with astext(show_meta_data=True)"
            )
        builder, entries = self._section
        nodes = entries.get(key, ())
        if not 0 <= index < len(nodes):
            raise RelayError("relay", f"the metadata section has {len(nodes)} entries {key}")
        return builder.value(nodes[index])

    @functools.cached_property
    def _section(self) -> tuple[ValueBuilder, dict[str, list[int]]]:
        graph = NodeGraph(self._text, "the metadata section", self._line)
        keys = graph.keys(graph.root) if graph.kind(graph.root) in ("Map", "StrMap") else None
        lists = graph.items(graph.root)
        if keys is None or len(keys) != len(lists):
            raise graph.error("the root is not a map from classes to lists", node=graph.root)
        for each in lists:
            graph.kind(each)
        return ValueBuilder(graph), {key: list(graph.items(each)) for key, each in zip(keys, lists, strict=True)}
