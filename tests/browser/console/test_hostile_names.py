"""Names and records from the cluster are text, however they look: on every page, and in every message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from tests.browser.console.cluster import LiveCluster
from tests.browser.console.pages import Visit, group_path, row, wide_elements

from konvene.client.consumer.classic_member import Member, MemberSettings
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGE = "<img src=x onerror=alert(1)>"
BREAKOUT = "\"'></code></title><script>alert(1)</script>"
LINK = "javascript:alert(1)//"
ODD = [
    "../../etc",
    "a/b?c#d&e=%2F",
    "__proto__",
    "constructor",
    "..",
    "\u202egnp.exe",
    "ab\tc",
    "{{7*7}}${7*7}",
]
HOSTILE = [IMAGE, BREAKOUT, LINK, *ODD]
SOURCE = "<script>alert(2)</script>"


@pytest.fixture(scope="module")
def hostile(cluster: LiveCluster) -> LiveCluster:
    """Groups, members, records and a topology with hostile names."""
    cluster.broker.create("orders", 3, 3)
    for name in HOSTILE:
        cluster.broker.commit(name, "orders", p0=1)
    cluster.produce("orders", *((name.encode(), name.encode()) for name in HOSTILE))
    headers = tuple((name, name.encode()) for name in HOSTILE)
    cluster.produce("orders", (b"headers", b'{"' + IMAGE.encode() + b'": [1]}'), headers=headers)
    cluster.background.run(join(cluster, "hostile", (IMAGE, BREAKOUT), (LINK, IMAGE), (BREAKOUT, LINK)))
    return cluster


async def join(cluster: LiveCluster, group: str, *identities: tuple[str, str]) -> None:
    """Join classic members with these client ids and instance ids, and let them stay."""
    members = [
        Member(
            Cluster(cluster.broker.address, ClientSettings(client_id=client_id)), group, ["orders"],
            settings=MemberSettings(group_instance_id=instance_id),
        )
        for client_id, instance_id in identities
    ]  # fmt: skip
    while any(m.rejoin for m in members) or len({m.generation for m in members}) > 1:
        await asyncio.gather(*(m.join() for m in members))


def assert_no_markup(page: Page) -> None:
    """No element of the page comes from a name."""
    assert page.locator("#page img, #page script, dialog img, dialog script").count() == 0
    hrefs = page.evaluate("[...document.querySelectorAll('[href]')].map((each) => each.href)")
    assert not [each for each in hrefs if each.startswith("javascript:")]
    assert "alert" not in page.evaluate("[...document.querySelectorAll('*')].map((e) => e.tagName).join()")


def test_groups_are_listed_and_opened_by_their_names(hostile: LiveCluster, visit: Visit) -> None:
    page = visit(hostile, "/")
    for name in HOSTILE:
        page.locator("#filter").fill(name.strip())
        link = page.locator("#groups a.name").filter(has_text=name.split("\t")[0]).first
        link.wait_for()
        assert link.evaluate("each => each.textContent") == name
        link.click()
        page.locator("#page h1").filter(has_text=name.split("\t")[0]).wait_for()
        assert page.locator("#page h1").evaluate("each => each.textContent") == name
        page.locator("#tab-units", has_text="Partitions 1").wait_for()
        assert_no_markup(page)
        page.reload()
        page.locator("#tab-units", has_text="Partitions 1").wait_for()
        assert page.locator("#page h1").evaluate("each => each.textContent") == name
        page.goto(hostile.url + "/")
        row(page, "groups", "hostile").wait_for()


def test_members_with_hostile_identities(hostile: LiveCluster, visit: Visit) -> None:
    for width in (1280, 400):
        page = visit(hostile, group_path("hostile", "members"), width=width)
        for name in (IMAGE, BREAKOUT, LINK):
            row(page, "members", name).first.wait_for()
        assert_no_markup(page)
        for tab in ("units", "rebalances", "timeline"):
            page.locator(f"#tab-{tab}").click()
            page.locator(f"#panel-{tab}").wait_for()
            assert_no_markup(page)
            assert wide_elements(page) == []
        page.locator(".chart svg").wait_for()
        page.locator("#tab-rebalances").click()
        page.locator("#rebalances .grid-row").first.click()
        page.locator(".steps li").first.wait_for()
        assert_no_markup(page)
        assert wide_elements(page) == []


def test_dialogs_with_hostile_names(hostile: LiveCluster, visit: Visit) -> None:
    page = visit(hostile, group_path("hostile"))
    page.get_by_role("button", name="Remove members …").click()
    for name in (IMAGE, BREAKOUT, LINK):
        page.locator("dialog label", has_text=name).first.wait_for()
    assert_no_markup(page)
    page.goto(hostile.url + group_path(BREAKOUT))
    page.get_by_role("button", name="Delete group …").click()
    assert page.locator("dialog code").inner_text() == BREAKOUT
    assert_no_markup(page)


def test_records_with_hostile_contents(hostile: LiveCluster, visit: Visit) -> None:
    for form in ("text", "json"):
        page = visit(hostile, f"/topics/orders/messages?partition=0&from=offset:3&value_format={form}")
        page.locator(".record").first.wait_for()
        records = page.locator(".record")
        assert records.count() == len(HOSTILE) + 1
        for record in records.all():
            record.locator("summary").click()
            record.locator(".opened").wait_for()
        if form == "text":
            values = page.locator("section[aria-label=Value] pre")
            shown = values.evaluate_all("all => all.map((each) => each.textContent)")
            assert shown == [*HOSTILE, '{\n  "' + IMAGE + '": [\n    1\n  ]\n}']
        cells = page.locator("section[aria-label=Headers] td")
        texts = cells.evaluate_all("all => all.map((each) => each.textContent)")
        assert texts == [name for name in HOSTILE for _ in ("key", "value")]
        assert_no_markup(page)


def test_hostile_links_are_shown_as_text(hostile: LiveCluster, visit: Visit) -> None:
    """Parts of the URL itself: the group, the key, the tab, the filter and the sorting."""
    for name in (IMAGE, BREAKOUT):
        part = quote(name, safe="")
        for path in (
            f"/groups/{part}/rebalances/{part}", f"/topics/{part}", f"/?q={part}&type={part}&sort={part}",
            f"/groups/hostile?tab={part}&owner={part}", f"/{part}",
        ):  # fmt: skip
            page = visit(hostile, path)
            page.locator("#page h1").wait_for()
            assert_no_markup(page)
            page.close()


def test_topology_with_hostile_names(hostile: LiveCluster, visit: Visit) -> None:
    """As far as the broker accepts them: topics have strict names, subtopologies have not."""
    topology = Topology(
        (
            Subtopology(IMAGE, ("orders",), ("app-again",)),
            Subtopology(SOURCE, (), (), (InternalTopic("app-changelog"),), (InternalTopic("app-again", 2),)),
        )
    )
    hostile.run_streams("app", "orders", IMAGE, topology=topology)
    page = visit(hostile, "/groups/app?tab=topology")
    page.locator("#panel-topology", has_text=IMAGE).wait_for()
    assert SOURCE in page.locator("#panel-topology").inner_text()
    assert_no_markup(page)
    page.locator("#tab-units").click()
    row(page, "units", IMAGE).first.wait_for()
    assert_no_markup(page)
