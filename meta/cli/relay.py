"""`python -m meta relay MODEL`: `python -m meta import MODEL --run`, the older name of that command."""

from __future__ import annotations

import argparse

from meta.cli import import_model

configure = import_model.configure


def run(options: argparse.Namespace) -> int:
    """Import and run the program."""
    options.run = True
    return import_model.run(options)
