"""The browser that the tests use."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Return the path of the system's Chromium, or of the one in `KONVENE_CHROMIUM`; None if absent."""
    named = os.environ.get("KONVENE_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)
