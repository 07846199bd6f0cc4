"""Renders the screenshot of a report for the docs: `python -m tests.browser.picture docs/images/report.png`.

The page shows the synthetic day of `tests/pipeline/answers/sample.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from tests.browser.chromium import chromium
from tests.pipeline.answers.sample import day

from konvene.pipeline.answers.rebalance import Selection
from konvene.pipeline.answers.report import page

WIDTH, MAX_BYTES = 1120, 200_000
STEPS_BACK = 12
"""Number of key presses from the last rebalance to the selected one."""


def render(target: Path) -> None:
    """Save a screenshot from the top of the page to the details of the selected rebalance."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder, "report.html")
        path.write_text(page(day(), Selection(), source="/var/kafka"), "utf-8")
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": WIDTH, "height": 2000}, color_scheme="light")
        shown.goto(path.as_uri())
        shown.locator("#group svg").focus()
        for _ in range(STEPS_BACK):
            shown.keyboard.press("ArrowLeft")
        shown.evaluate("document.activeElement.blur(), window.scrollTo(0, 0)")
        box = shown.locator("#group .details").bounding_box()
        assert box is not None
        height = box["y"] + box["height"] + 20
        shown.screenshot(path=target, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        browser.close()
    few = Image.open(target).quantize(160, dither=Image.Dither.NONE)
    few.save(target, optimize=True)
    assert target.stat().st_size <= MAX_BYTES, target.stat().st_size


if __name__ == "__main__":
    render(Path(sys.argv[1]))
