"""Configuration of the documentation site: `make site` builds it into `site/`."""

from __future__ import annotations

from importlib.metadata import version as installed_version

project = "konvene"
copyright = "the konvene maintainers"
version = release = installed_version("konvene")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["notebooks", "Thumbs.db"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# Fenced blocks hold console sessions and formats that no lexer knows; they are shown as they are.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"
autodoc_default_options = {"members": True, "show-inheritance": True}

html_theme = "furo"
html_title = f"konvene {version}"
html_show_sphinx = False
html_copy_source = False
