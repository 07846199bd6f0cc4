"""Render the screenshots of the docs: `python -m tests.browser.console.pictures docs/images`.

They show a cluster with groups of all types, whose members joined, left and were killed before.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import sync_playwright
from tests.browser.chromium import chromium
from tests.browser.console.cluster import LiveCluster, live_cluster, prepare
from tests.browser.console.pages import group_path, shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MAX_BYTES = 250_000
WIDTH, PHONE = 1280, 400
EXPIRED = "sent no heartbeat within its session timeout"


def render(folder: Path) -> None:
    """Save all pictures in `folder`."""
    with (
        tempfile.TemporaryDirectory() as data,
        sync_playwright() as driver,
        live_cluster(Path(data), allow_changes=True) as cluster,
    ):
        prepare(cluster)
        cluster.kill("billing-3")
        rows = cluster.until(expired, "group", group="billing")["rebalances"]
        key = next(key for key, row in rows.items() if EXPIRED in row["sentence"])
        cluster.join_consumer("billing-5", "orders", "billing")
        cluster.until_members("billing", 3)
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        pages = Pictures(browser, cluster, folder)
        pages.save("console-groups", "/", "#groups .grid-row")
        pages.save("console-group", group_path("billing"), ".chart svg", prepare=pick_last)
        pages.save("console-rebalance", f"/groups/billing/rebalances/{key}", ".lanes svg rect")
        pages.save("console-400", group_path("billing", "rebalances"), "#rebalances .grid-row", width=PHONE)
        pages.save("console-dark", group_path("billing", "members"), "#members .grid-row", scheme="dark")
        browser.close()


def expired(state: dict[str, dict[str, dict[str, object]]]) -> bool:
    """Return True if the expiry of a session is among the completed rebalances."""
    return any(EXPIRED in str(row["sentence"]) and not row["open"] for row in state["rebalances"].values())


def pick_last(page: Page) -> None:
    """Show the newest rebalance on the timeline."""
    page.locator(".chart svg").first.focus()
    page.keyboard.press("ArrowLeft")
    page.locator(".details b").wait_for()
    page.evaluate("document.activeElement.blur()")


class Pictures:
    """Opens pages of a cluster and saves what they show."""

    def __init__(self, browser: Browser, cluster: LiveCluster, folder: Path) -> None:
        self._browser = browser
        self._cluster = cluster
        self._folder = folder

    def save(
        self, name: str, path: str, selector: str, *, width: int = WIDTH, scheme: str = "light",
        prepare: object = None,
    ) -> None:  # fmt: skip
        """Save a page from its top to the end of its content."""
        page = self._browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.goto(self._cluster.url + path)
        shown(page)
        page.locator(selector).first.wait_for()
        if callable(prepare):
            prepare(page)
        height = page.evaluate(
            "document.getElementById('page').lastElementChild.getBoundingClientRect().bottom"
        )
        page.set_viewport_size({"width": width, "height": round(height) + 24})
        page.locator(selector).first.wait_for()
        target = self._folder / f"{name}.png"
        page.screenshot(path=target)
        page.close()
        Image.open(target).convert("RGB").save(target, optimize=True)
        assert target.stat().st_size <= MAX_BYTES, target.stat().st_size


if __name__ == "__main__":
    render(Path(sys.argv[1]))
