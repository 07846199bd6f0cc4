"""The files of the report page: classic scripts, styles and a template.

Each script adds to one global object, `konvene`. `report.js` and `report.html` belong to the report; the
others also serve pages that show a running cluster.
"""

from __future__ import annotations

import json
from importlib import resources

__all__ = ["SHARED_SCRIPTS", "as_json", "file_text"]

SHARED_SCRIPTS = ("dom.js", "formats.js", "table.js", "drawing.js", "chart.js", "trace.js")
"""Scripts that any page can use, in the order in which they are loaded."""


def file_text(name: str) -> str:
    """Return the text of a file of this folder."""
    return (resources.files(__name__) / name).read_text("utf-8")


def as_json(data: object) -> str:
    """Return JSON that is safe within a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
