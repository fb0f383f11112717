"""How the site looks and what it is made of. `docs/site/build.py` stages the sources and runs Sphinx with this."""

from __future__ import annotations

from importlib.metadata import version as installed

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Sealcast"
author = "The Sealcast authors"
copyright = "the Sealcast authors"
version = release = installed("sealcast")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
# What has no page: programs' own files, and what the tests keep.
include_patterns = ["*.md", "docs/**", "examples/**", "src/**", "mqtt-plugin/**", "reference/**"]
exclude_patterns = ["docs/site/**"]

# --- Markdown ----------------------------------------------------------------------------------------

# Headings have the addresses that the tree's own links use.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
# A page begins at whatever level its author chose; Sphinx need not like it.
suppress_warnings = ["myst.header"]
# Anything that a link names must be there: a page, a heading of a page, or a file of the tree.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]

# --- the pages ---------------------------------------------------------------------------------------

html_theme = "furo"
html_title = "Sealcast"
html_copy_source = False
html_show_sourcelink = False
html_static_path: list[str] = []
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#6cb8e6", "color-brand-content": "#6cb8e6"},
}
# Nothing is fetched from elsewhere, neither when the site is built nor when it is read.
html_use_opensearch = ""
intersphinx_mapping: dict[str, object] = {}


def setup(app: Sphinx) -> None:
    """Tags of blocks that no highlighter knows: the tests run them, readers see text."""
    for tag in ("cases", "schema", "example", "promql"):
        app.add_lexer(tag, TextLexer)
