"""Headless Chromium of the system, driven by Playwright.

Without it the tests are skipped with a message; `KONVENE_CHROMIUM` names another executable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.chromium import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a file."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install 'konvene[dev]'"
    )
    path = chromium()
    if path is None:
        pytest.skip("no Chromium: apt install chromium, or name one with KONVENE_CHROMIUM")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skips here are loud: a page that no browser has opened must not look like one that works."""
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "browser/" in report.nodeid]
    if skipped:
        terminalreporter.section(f"browser: {len(skipped)} tests were NOT run", yellow=True)
        reasons = {r.longrepr[2] if isinstance(r.longrepr, tuple) else str(r.longrepr) for r in skipped}
        for reason in sorted(reasons):
            terminalreporter.write_line(reason)


Open = Callable[..., "Page"]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens a file in a window of its own; whatever the page complains of fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_page(path: Path, scheme: str = "light", width: int = 1180, height: int = 900) -> Page:
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: _only_the_file(request.url, complaints))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _only_the_file(url: str, complaints: list[str]) -> None:
    if not url.startswith(("file:", "data:")):
        complaints.append(f"asked for {url}")
