"""Pages of a console in a browser. Whatever a page complains of fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from tests.browser.console.cluster import LiveCluster, live_cluster, prepare
from tests.browser.console.pages import Visit, shown
from tests.console.running import RunningConsole

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens a page of a console in a window of its own. A message on the page's console (violations of the
    content security policy are such), an uncaught error, a dialog of the browser, or a request to another
    host fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_page(
        console: LiveCluster | RunningConsole, path: str, *, scheme: str = "light", width: int = 1280,
        height: int = 900, tolerate: str | None = None,
    ) -> Page:  # fmt: skip
        """`tolerate` is a part of the messages that may occur."""

        def take(message: ConsoleMessage) -> None:
            if tolerate is None or tolerate not in message.text:
                complaints.append(f"{message.type}: {message.text}")

        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}, reduced_motion="reduce"
        )
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        origin = urlsplit(console.url).netloc
        page.on("console", take)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: _check_host(request.url, origin, complaints))
        page.goto(console.url.rstrip("/") + path)
        shown(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _check_host(url: str, origin: str, complaints: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob") and parts.netloc != origin:
        complaints.append(f"request for {url}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """An empty cluster, in which the page may change everything."""
    with live_cluster(tmp_path_factory.mktemp("data"), allow_changes=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def prepared(cluster: LiveCluster) -> LiveCluster:
    """A cluster with topics, and a group of each type."""
    prepare(cluster)
    return cluster
