"""Structure of konvene.configs: imports, import time, file length and the generated reference page."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import konvene.configs
from konvene.configs.reference import render_reference

PACKAGE = Path(konvene.configs.__file__).parent
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "configs.md"


def test_the_reference_page_is_current() -> None:
    """After changing a row, run `python -m konvene.configs.reference docs/reference/configs.md`."""
    assert REFERENCE.read_text("utf-8") == render_reference()


def test_configs_import_only_leaf_modules() -> None:
    """Configs are the lowest layer."""
    allowed = ("konvene.configs", "konvene.internal_topics", "konvene.properties")
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("konvene"):
                assert (node.module or "").startswith(allowed), file.name


def test_importing_configs_loads_no_heavy_modules() -> None:
    """Startup loads the config tables, but neither difflib nor asyncio nor the reference generator."""
    code = "import sys, konvene.configs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"difflib", "asyncio", "pathlib", "json", "logging", "dataclasses", "konvene.configs.reference"}
    assert not heavy & set(done.stdout.split())


def test_no_file_is_long() -> None:
    """A table of more than 500 lines is split by theme."""
    for file in PACKAGE.rglob("*.py"):
        assert file.read_text("utf-8").count("\n") <= 500, file.name
