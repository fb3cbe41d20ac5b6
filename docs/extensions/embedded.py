"""Notebooks as pages, and pictures as parts of pages.

A notebook becomes its text, its code and the output that it has. The drawings of docs/pictures are part of the page, so
that they have the colours of the theme, light or dark.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser


def setup(app: Any) -> dict[str, bool]:
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    app.connect("doctree-resolved", _embed)
    return {"parallel_read_safe": True}


class NotebookParser(MystParser):
    """Reads the cells as Markdown; pictures become files beside the build's trees."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: Any) -> None:
        cells = json.loads(inputstring)["cells"]
        env = document.settings.env
        folder = Path(env.doctreedir, "pictures", env.docname)
        super().parse("\n\n".join(_markdown(cells, folder, env.srcdir)), document)


def _markdown(cells: list[dict[str, Any]], folder: Path, source: str) -> Iterator[str]:
    for number, cell in enumerate(cells):
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                folder.mkdir(parents=True, exist_ok=True)
                file = folder / f"cell-{number}.png"
                file.write_bytes(base64.b64decode(data["image/png"]))
                yield f"![The figure of the cell above.](/{_relative(file, source)})"
            else:
                yield "```text\n" + "".join(output.get("text") or data["text/plain"]).rstrip() + "\n```"


def _relative(file: Path, folder: str) -> str:
    """The path of a file from a folder, which need not be above it."""
    return Path(os.path.relpath(file, folder)).as_posix()


def _embed(app: Any, doctree: nodes.document, _docname: str) -> None:
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        path = Path(app.srcdir, image["uri"])
        if path.parent.name == "pictures" and path.suffix == ".svg":
            before, after = re.split('aria-label="[^"]*"', path.read_text(encoding="utf-8"), maxsplit=1)
            drawing = f'{before}aria-label="{escape(image["alt"])}"{after}'
            image.replace_self(nodes.raw("", f'<div class="picture">{drawing}</div>', format="html"))
