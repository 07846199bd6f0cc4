"""The documentation site builds without warnings and loads no resource from another host."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

LOADED = re.compile(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]+)|<link[^>]* href="(https?:[^"]+)')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make site` does: an unknown page, heading or toctree entry is an error."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--quiet", "docs"]
    completed = subprocess.run([*command, str(target)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return target


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert {str(page) for page in pages} <= {
        str(path.relative_to(site).with_suffix("")) for path in site.rglob("*.html")
    }


def test_the_site_works_offline(site: Path) -> None:
    """No page loads a script, style sheet or picture from another host."""
    for page in site.rglob("*.html"):
        assert LOADED.findall(page.read_text("utf-8")) == [], page.name
