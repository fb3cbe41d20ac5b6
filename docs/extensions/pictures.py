"""Pictures of docs/pictures become part of the page, so that they have the colours of the theme, light or dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-resolved", _embed)
    return {"parallel_read_safe": True}


def _embed(app: Any, doctree: nodes.document, _docname: str) -> None:
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        path = Path(app.srcdir, image["uri"])
        if path.parent.name == "pictures" and path.suffix == ".svg":
            drawing = path.read_text(encoding="utf-8").replace("<svg ", f'<svg aria-label="{image["alt"]}" ', 1)
            image.replace_self(nodes.raw("", f'<div class="picture">{drawing}</div>', format="html"))
