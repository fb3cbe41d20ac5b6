"""Run notebooks as `run_blocks` runs pages: the output of each cell is compared with the notebook.

The value of a cell's last expression is shown by its `repr`, figures of matplotlib are shown as pictures. Of pictures
only their number is compared.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from tests.docs.outputs import matches, portable

Output = dict[str, Any]


class Notebook:
    """A notebook, whose cells run in one namespace."""

    def __init__(self, path: Path, with_lines: bool = False) -> None:
        self.path = path
        self.with_lines = with_lines
        self.content = json.loads(path.read_text(encoding="utf-8"))
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.different: list[tuple[int, str, str]] = []

    def run(self) -> None:
        """Run the cells. Those that print something else are in `different`: number, expected and printed text."""
        for number, cell in enumerate(self.content["cells"], 1):
            if cell["cell_type"] != "code":
                continue
            expected, printed = cell["outputs"], self._outputs("".join(cell["source"]), number)
            if len(expected) != len(printed) or not matches(_text(expected), _text(printed), self.with_lines):
                self.different.append((number, _text(expected), _text(printed)))
                cell["outputs"] = printed

    def _outputs(self, source: str, number: int) -> list[Output]:
        """What a cell prints, then the value of its last expression, then figures."""
        name = f"cell_{number}.py"
        body = ast.parse(source).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
        printed = io.StringIO()
        value = None
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module(body, []), name, "exec"), self.namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), name, "eval"), self.namespace)
        outputs: list[Output] = []
        if printed.getvalue():
            outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(portable(printed.getvalue()))})
        if value is not None:
            shown = {"data": {"text/plain": _lines(repr(value))}, "metadata": {}, "execution_count": None}
            outputs.append({"output_type": "execute_result", **shown})
        return outputs + [
            {"output_type": "display_data", "data": {"image/png": picture}, "metadata": {}} for picture in _figures()
        ]

    def report(self) -> str:
        """The differences, for a reader of a failed test."""
        return "".join(
            f"{self.path}, cell {number}:\nExpected:\n{expected}\nGot:\n{printed}\n"
            for number, expected, printed in self.different
        )

    def written(self) -> str:
        """The text of the notebook, with the output that was printed."""
        return json.dumps(self.content, indent=1, ensure_ascii=False) + "\n"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _text(outputs: list[Output]) -> str:
    """The text of outputs, with a word for each picture."""
    texts = (each.get("text") or each.get("data", {}).get("text/plain") or ["<picture>"] for each in outputs)
    return "\n".join("".join(text) for text in texts)


def _figures() -> list[str]:
    """The open figures of matplotlib as PNG in base64; they are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    pictures: list[str] = []
    for number in pyplot.get_fignums():
        stream = io.BytesIO()
        pyplot.figure(number).savefig(stream, format="png", dpi=80)
        pictures.append(base64.b64encode(stream.getvalue()).decode())
    pyplot.close("all")
    return pictures
