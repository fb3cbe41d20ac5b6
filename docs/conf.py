"""Sphinx configuration of the documentation site; `make docs` builds it into build/docs with warnings as errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import meta
from scripts.pictures.svg import theme_variables

project = "meta"
author = "the authors of meta"
release = version = meta.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "extensions.docstrings",
    "extensions.embedded",
    "extensions.public_api",
]
if tags.has("source"):  # noqa: F821  # Sphinx defines it; `make docs` sets it, tests have no need of so many pages
    extensions.append("sphinx.ext.viewcode")
exclude_patterns = ["extensions"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme = "furo"
html_title = f"meta {version}"
html_theme_options = {
    "light_css_variables": theme_variables(is_dark=False),
    "dark_css_variables": theme_variables(is_dark=True),
}

# Links such as (gpu.md#memory) name headings as Markdown viewers do.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# Files outside of this folder, such as CONTRIBUTING.md, are links to the repository's files, not pages.
suppress_warnings = ["myst.xref_missing"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
