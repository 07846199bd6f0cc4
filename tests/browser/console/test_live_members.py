"""Members join, leave and die while a page shows their group: it follows without being loaded again.

The members are processes of `konvene consume` and of confluent-kafka; killed ones end with SIGKILL.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.browser.console.cluster import LiveCluster
from tests.browser.console.pages import Visit, cell, group_path, row, shown
from tests.console.running import running_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

GROUPS: dict[str, str] = {"classic": "mailer", "consumer": "billing"}

EXPIRED = "sent no heartbeat within its session timeout"


@pytest.fixture(scope="module")
def busy(cluster: LiveCluster) -> Iterator[LiveCluster]:
    """A classic and a consumer group with one member each."""
    cluster.broker.create("orders", 10, 10, 10, 10)
    cluster.join_classic("mailer-1", "orders", "mailer")
    cluster.join_consumer("billing-1", "orders", "billing")
    cluster.until_members("mailer", 1)
    cluster.until_members("billing", 1)
    yield cluster


def mark(page: Page) -> None:
    """Remember this load of the page."""
    page.evaluate("window.isTheSame = true")


def assert_same_load(page: Page) -> None:
    assert page.evaluate("window.isTheSame") is True


def test_members_that_die_are_shown_with_the_expiry_of_their_session(busy: LiveCluster, visit: Visit) -> None:
    """The list of groups and the pages of a classic and a consumer group, opened before."""
    pages = {protocol: visit(busy, group_path(group)) for protocol, group in GROUPS.items()}
    overview = visit(busy, "/")
    for page in (*pages.values(), overview):
        mark(page)
    busy.join_classic("mailer-2", "orders", "mailer")
    busy.join_consumer("billing-2", "orders", "billing")
    for protocol, page in pages.items():
        page.locator("#tab-members", has_text="Members 2").wait_for()
        page.locator("#tab-members").click()
        member = f"{GROUPS[protocol]}-2"
        row(page, "members", member).first.wait_for()
        row(page, "members", member).get_by_text("2", exact=True).first.wait_for()
    for group in GROUPS.values():
        busy.until_members(group, 2)
        assert cell(pages["consumer"], "members", "billing-2", "State") in ("stable", "at its target")
        until_cell(overview, "groups", group, "Members", "2")
    for member in ("mailer-2", "billing-2"):
        busy.kill(member)
    for protocol, page in pages.items():
        page.locator("#tab-members", has_text="Members 1").wait_for()
        assert row(page, "members", f"{GROUPS[protocol]}-2").count() == 0
        page.locator("#tab-rebalances").click()
        expiry = row(page, "rebalances", f"{GROUPS[protocol]}-2").filter(has_text=EXPIRED)
        expiry.first.wait_for()
        assert "2 of 4 partitions moved, 2 stayed" in expiry.first.inner_text()
    for group in GROUPS.values():
        until_cell(overview, "groups", group, "Members", "1")
        last = row(overview, "groups", group).filter(has_text=EXPIRED)
        last.first.wait_for()
        assert last.locator("svg").count() == 1  # the rebalances by hour
    for page in (*pages.values(), overview):
        assert_same_load(page)


def until_cell(page: Page, grid: str, text: str, column: str, expected: str) -> None:
    """Wait until a cell has a text."""
    heads = page.locator(f"#{grid} [role=columnheader]").all_inner_texts()
    at = next(i for i, head in enumerate(heads) if head.rstrip(" ↑↓").strip() == column)
    cells = f"#{grid} .grid-row:has-text('{text}') [role=gridcell]:nth-child({at + 1})"
    page.locator(cells, has_text=re.compile(f"^{expected}$")).wait_for()


def test_the_steps_of_an_expiry_by_click_and_by_link(busy: LiveCluster, visit: Visit) -> None:
    page = visit(busy, group_path("billing", "rebalances"))
    expiry = row(page, "rebalances", "billing-2").filter(has_text=EXPIRED).first
    expiry.wait_for()
    expiry.click()
    page.locator(".steps li").first.wait_for()
    heading, steps = page.locator("#page h1").inner_text(), page.locator(".steps").inner_text()
    assert heading.startswith("billing (consumer), epoch") and "billing-1" in steps
    assert row(page, "members", "billing-2").count() == 1
    page.locator(".lanes svg rect").first.wait_for()
    link = page.url
    again = visit(busy, link.removeprefix(busy.url))
    again.locator(".steps li").first.wait_for()
    assert again.locator("#page h1").inner_text() == heading
    again.get_by_role("link", name="← Previous").click()
    again.wait_for_function("(former) => document.querySelector('h1').innerText !== former", arg=heading)
    again.go_back()
    again.wait_for_function("(former) => document.querySelector('h1').innerText === former", arg=heading)


def test_a_client_of_another_library_joins_and_leaves(busy: LiveCluster, visit: Visit) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    page = visit(busy, group_path("librd", "members"))
    page.locator(".grid-empty, .notice").first.wait_for()
    mark(page)
    consumer = confluent.Consumer(
        {"bootstrap.servers": busy.broker.address, "group.id": "librd", "client.id": "librd-1",
         "auto.offset.reset": "earliest"}
    )  # fmt: skip
    try:
        consumer.subscribe(["orders"])
        poll_until(consumer, lambda: row(page, "members", "librd-1").count() > 0)
        poll_until(consumer, lambda: row(page, "members", "orders:0-3").count() > 0)
    finally:
        consumer.close()
    row(page, "members", "librd-1").wait_for(state="detached")
    assert_same_load(page)


def poll_until(consumer: object, condition: Callable[[], bool]) -> None:
    for _ in range(600):
        consumer.poll(0.1)  # type: ignore[attr-defined]
        if condition():
            return
    raise AssertionError("the page does not show it")


def test_new_groups_are_added_filtered_and_sorted(busy: LiveCluster, visit: Visit) -> None:
    page = visit(busy, "/")
    row(page, "groups", "billing").wait_for()
    busy.broker.commit("aaa-later", "orders", p0=3)
    row(page, "groups", "aaa-later").wait_for()
    names = page.locator("#groups a.name")
    assert names.first.inner_text() == "aaa-later"
    until_cell(page, "groups", "aaa-later", "Lag", "7")
    page.locator("#groups [role=columnheader] button", has_text="Group").click()
    page.wait_for_function("document.querySelector('#groups a.name').innerText !== 'aaa-later'")
    assert "sort=-group" in page.url
    page.locator("#choice-type").select_option("consumer")
    page.wait_for_function("document.querySelectorAll('#groups a.name').length === 1")
    assert names.all_inner_texts() == ["billing"]
    page.reload()
    shown(page)
    row(page, "groups", "billing").wait_for()
    page.wait_for_function("document.querySelectorAll('#groups a.name').length === 1")
    page.locator("#choice-type").select_option("")
    page.locator("#filter").fill("LATER")
    page.wait_for_function("document.querySelectorAll('#groups a.name').length === 1")
    assert names.all_inner_texts() == ["aaa-later"]


def test_the_page_follows_a_console_that_was_restarted(busy: LiveCluster, visit: Visit) -> None:
    """What changed meanwhile is shown after the page has connected again."""
    with running_console(busy.broker.address) as console:
        port = console.address[1]
        page = visit(console, "/", tolerate="Failed to load resource: net::")
        row(page, "groups", "billing").wait_for()
        mark(page)
    page.locator("#connection[data-state=reconnecting]").wait_for()
    assert row(page, "groups", "billing").count() == 1
    busy.broker.commit("met-later", "orders", p0=3)
    with running_console(busy.broker.address, port=port):
        row(page, "groups", "met-later").wait_for()
        page.locator("#connection[data-state=live]").wait_for()
        assert_same_load(page)
        page.close()


def test_the_page_shows_which_member_waits_for_which(busy: LiveCluster, visit: Visit) -> None:
    """A member that is stopped does not revoke what another one is to get, until it goes on."""
    busy.configure("stuck", {"consumer.session.timeout.ms": "60000"})
    busy.join_consumer("stuck-1", "orders", "stuck")
    busy.until_members("stuck", 1)
    page = visit(busy, group_path("stuck", "members"))
    busy.members["stuck-1"].send_signal(signal.SIGSTOP)
    busy.join_consumer("stuck-2", "orders", "stuck")
    page.locator(".now", has_text="stuck-2 is waiting for orders:").wait_for()
    assert "owned by stuck-1" in page.locator(".now").inner_text()
    row(page, "members", "stuck-1").locator(".dot.busy").wait_for()
    busy.members["stuck-1"].send_signal(signal.SIGCONT)
    page.locator(".now", has_text="is waiting for").wait_for(state="detached")
    page.locator("#tab-units").click()
    row(page, "units", "stuck-2").first.wait_for()
