"""Records: filters, formats, more of them, producing; and changes with a typed confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.browser.console.cluster import LiveCluster
from tests.browser.console.pages import Visit, confirm, group_path, row
from tests.console.running import running_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

MESSAGES = "/topics/events/messages"


@pytest.fixture(scope="module")
def filled(cluster: LiveCluster) -> LiveCluster:
    """The topic `events` with 120 records in partition 0; `orders` with offsets of the group `app`."""
    cluster.broker.create("events", 0, 0)
    rows = [
        (f"user-{i % 7}".encode(), f'{{"n":{i},"big":12345678901234567890}}'.encode()) for i in range(119)
    ]
    cluster.produce("events", *rows)
    cluster.produce(
        "events", (b"\x00\x00\x00\x00\x00\x00\x00\x2a", b"\xff\x00"), headers=(("trace", b"abc"),)
    )
    cluster.broker.create("orders", 10)
    cluster.broker.commit("app", "orders", p0=4)
    return cluster


def status(page: Page, text: str) -> None:
    page.locator("[role=status]", has_text=text).wait_for()


def test_records_are_listed_and_more_are_loaded(filled: LiveCluster, visit: Visit) -> None:
    page = visit(filled, MESSAGES)
    status(page, "50 records.")
    assert page.locator(".record .where").first.inner_text() == "0:119"
    page.get_by_role("button", name="Load more").click()
    status(page, "100 records.")
    page.get_by_role("button", name="Load more").click()
    status(page, "120 records, no more.")
    assert page.locator(".record .where").last.inner_text() == "0:0"
    assert page.get_by_role("button", name="Load more").is_hidden()


def test_a_record_is_opened(filled: LiveCluster, visit: Visit) -> None:
    page = visit(filled, f"{MESSAGES}?from=offset:5&limit=100")
    record = page.locator(".record").first
    record.locator("summary").click()
    value = record.get_by_label("Value").locator("pre").inner_text()
    assert value == '{\n  "n": 5,\n  "big": 12345678901234567890\n}'
    assert record.get_by_label("Key").locator("pre").inner_text() == "user-5"
    assert "No headers." in record.inner_text()


def test_formats_and_headers(filled: LiveCluster, visit: Visit) -> None:
    page = visit(filled, f"{MESSAGES}?from=offset:119&key_format=long&value_format=hex")
    record = page.locator(".record")
    record.locator("summary").click()
    assert record.locator(".key").inner_text() == "42"
    assert record.locator(".value").inner_text() == "ff00"
    assert "trace" in record.inner_text() and "abc" in record.inner_text()
    page.get_by_label("Value as").select_option("json")
    page.get_by_role("button", name="Show", exact=True).click()
    page.locator(".record .value .problem").wait_for()
    assert "value_format=json" in page.url


def test_filters_are_in_the_link(filled: LiveCluster, visit: Visit) -> None:
    page = visit(filled, MESSAGES)
    status(page, "50 records.")
    page.get_by_label("Key contains").fill("user-3")
    page.get_by_label("Value contains").fill('"n":1')
    page.get_by_label("From", exact=True).select_option("earliest")
    page.get_by_role("button", name="Show", exact=True).click()
    status(page, "120 searched, no more.")
    numbers = [10, 17, 101, 108, 115]
    assert page.locator(".record .where").all_inner_texts() == [f"0:{n}" for n in numbers]
    page.reload()
    status(page, "120 searched, no more.")
    assert page.locator(".record").count() == len(numbers)
    assert page.get_by_label("Key contains").input_value() == "user-3"


def test_a_wrong_request_is_shown_as_a_sentence(filled: LiveCluster, visit: Visit) -> None:
    page = visit(filled, "/topics/nowhere/messages", tolerate="Failed to load resource")
    page.locator(".notice", has_text="The cluster has no topic of this name.").wait_for()
    page.locator(".problem", has_text="nowhere").wait_for()


def test_a_record_is_produced(filled: LiveCluster, visit: Visit) -> None:
    page = visit(filled, "/topics/events/messages?partition=1&from=earliest")
    page.get_by_role("button", name="Produce a record …").click()
    dialog = page.locator("dialog")
    dialog.locator("#produce-partition").select_option("1")
    dialog.locator("#produce-key-null").uncheck()
    dialog.locator("#produce-key").fill("ключ")
    dialog.locator("#produce-value").fill("line 1\nline 2")
    dialog.locator("#produce-headers").fill("no colon")
    dialog.get_by_role("button", name="Produce").click()
    dialog.locator(".problem", has_text="has no colon").wait_for()
    dialog.locator("#produce-headers").fill("a: b: c\n\nd:")
    dialog.get_by_role("button", name="Produce").click()
    dialog.locator(".outcome", has_text="Written to partition 1 at offset 0.").wait_for()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Show", exact=True).click()
    status(page, "1 record")
    record = page.locator(".record")
    record.locator("summary").click()
    assert record.get_by_label("Value").locator("pre").inner_text() == "line 1\nline 2"
    assert record.get_by_label("Key").locator("pre").inner_text() == "ключ"
    assert record.locator("tbody tr").all_inner_texts() == ["a\tb: c", "d\t"]


# actions --------------------------------------------------------------------------------------


def test_offsets_are_reset_after_a_preview(filled: LiveCluster, visit: Visit) -> None:
    page = visit(filled, group_path("app", "units"))
    row(page, "units", "orders:0").wait_for()
    page.get_by_role("button", name="Reset offsets …").click()
    dialog = page.locator("dialog")
    confirm(page, "app", "Reset offsets")
    dialog.locator(".problem", has_text="Show the preview").wait_for()
    dialog.get_by_role("button", name="Preview").click()
    dialog.locator(".plan tbody tr").wait_for()
    assert dialog.locator(".plan td").all_inner_texts() == ["orders:0", "4", "0", "10"]
    assert filled.broker.committed("app") == {"orders-0": 4}
    dialog.get_by_role("button", name="Reset offsets", exact=True).click()
    dialog.locator(".outcome", has_text="1 partition reset.").wait_for()
    assert filled.broker.committed("app") == {"orders-0": 0}
    dialog.get_by_role("button", name="Close").click()
    row(page, "units", "orders:0").filter(has_text="10").first.wait_for()


def test_members_are_removed(filled: LiveCluster, visit: Visit) -> None:
    filled.broker.join("static", ["orders"], "one", "two")
    page = visit(filled, group_path("static", "members"))
    page.locator("#tab-members", has_text="Members 2").wait_for()
    page.get_by_role("button", name="Remove members …").click()
    page.locator("dialog label", has_text="one").click()
    confirm(page, "static", "Remove members")
    page.locator("dialog .outcome", has_text="1 member removed.").wait_for()
    page.get_by_role("button", name="Close").click()
    row(page, "members", "one").wait_for(state="detached")
    assert row(page, "members", "two").count() == 1


def test_a_group_is_deleted(filled: LiveCluster, visit: Visit) -> None:
    name = "to delete/ä"
    filled.broker.commit(name, "orders", p0=1)
    overview = visit(filled, "/")
    row(overview, "groups", name).click()
    overview.locator("#page h1", has_text=name).wait_for()
    overview.get_by_role("button", name="Delete group …").click()
    confirm(overview, name, "Delete group")
    overview.locator("dialog .outcome", has_text="The group was deleted.").wait_for()
    overview.get_by_role("button", name="Close").click()
    overview.locator("nav a", has_text="Groups").click()
    row(overview, "groups", "app").wait_for()
    row(overview, "groups", name).wait_for(state="detached")


def test_a_setting_of_a_topic_is_changed_and_removed(filled: LiveCluster, visit: Visit) -> None:
    page = visit(filled, "/topics/orders?tab=settings&q=max.message")
    setting = row(page, "settings", "max.message.bytes")
    setting.click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Value", exact=True).fill("2000000")
    confirm(page, "orders", "Apply")
    dialog.locator(".outcome", has_text="max.message.bytes is 2000000 now.").wait_for()
    page.get_by_role("button", name="Close").click()
    setting.locator(".changed", has_text="2000000").wait_for()
    setting.click()
    dialog.get_by_label("Remove the value").check()
    confirm(page, "orders", "Apply")
    page.get_by_role("button", name="Close").click()
    setting.locator(".changed").wait_for(state="detached")


def test_without_permission_there_are_no_changes(filled: LiveCluster, visit: Visit) -> None:
    with running_console(filled.broker.address) as console:
        page = visit(console, group_path("app", "units"))
        row(page, "units", "orders:0").wait_for()
        assert page.locator(".actions button").count() == 0
        page.goto(console.url + "topics/events/messages")
        status(page, "50 records.")
        assert page.get_by_role("button", name="Produce a record …").is_hidden()
        page.goto(console.url + "topics/orders?tab=settings&q=max.message")
        row(page, "settings", "max.message.bytes").click()
        assert page.locator("dialog").count() == 0
        page.close()
