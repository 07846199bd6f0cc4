"""The page of `konvene console` in a browser, on a server without a cluster: what it shows of a view."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.browser.console_stub import NOW_MS, Console

pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'konvene[dev]'")

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    Open = Callable[..., Page]

HOSTILE = """</script><script>alert(1)</script><img src=x onerror=alert(2)>&lt;"'`{{7*7}}"""
EMPTY = {"lag": None, "members": None, "last": None, "hours": [0] * 24, "rebalances": None}
PARTITIONS = 5_000


@pytest.fixture
def console() -> Iterator[Console]:
    server = Console()
    yield server
    server.close()


@pytest.fixture
def show(browser: Browser, console: Console) -> Iterator[Open]:
    """Opens a page of the console; whatever the page complains of fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_page(path: str, width: int = 1180, scheme: str = "light") -> Page:
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: _only_of(console.url, request.url, complaints))
        page.goto(console.url + path)
        return page

    expect.set_options(timeout=60_000)
    yield open_page
    for context in contexts:
        context.close()
    assert [each for each in complaints if "409 (Conflict)" not in each] == []


def _only_of(url: str, requested: str, complaints: list[str]) -> None:
    if not requested.startswith((url, "data:")):
        complaints.append(f"requested {requested}")


def group(name: str, **values: Any) -> dict[str, Any]:
    return {"id": name, "type": "consumer", "state": "Stable", **EMPTY, **values}


def groups(*rows: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"groups": {row["id"]: row for row in rows}}


def rebalance(key: str, **values: Any) -> dict[str, Any]:
    row = {
        "key": key, "epoch": 4, "from_epoch": 3, "at_ms": NOW_MS - 60_000, "until_ms": NOW_MS - 59_000,
        "duration_ms": 1_000, "cause": "member-joined", "who": "ann", "members": 2, "units": 6, "moved": 3,
        "kept": 3, "unavailable_ms": None, "stopped": None, "lag_records": None, "evidence": "observed",
        "state": "Stable", "open": False, "sentence": f"ann joined: {key}.", "note": "",
    }  # fmt: skip
    return {**row, **values}


def member(name: str, **values: Any) -> dict[str, Any]:
    return {
        "id": f"{name}-id", "name": name, "client_id": name, "host": "/10.0.0.1", "owned": 1, "units": "t:0",
        "reached": True, "epoch": 4, **values,
    }  # fmt: skip


def unit(i: int, **values: Any) -> dict[str, Any]:
    return {
        "name": f"t:{i}", "topic": "t", "partition": i, "owner": "ann-id", "owner_name": "ann",
        "committed": i, "end": i + 7, "lag": 7, **values,
    }  # fmt: skip


def group_view(**sections: Any) -> dict[str, Any]:
    facts = {
        "id": "g", "type": "consumer", "state": "Stable", "epoch": 4, "assignment_epoch": 4,
        "assignor": "uniform", "coordinator": "b:1 (id 1)", "exists": True, "members": 1, "lag": 7,
        "evidence": None, "unit": "partition", "lanes_left_out": 0,
    }  # fmt: skip
    return {"members": {"ann-id": member("ann")}, "units": {"t:0": unit(0)}, "rebalances": {}, **sections,
            "facts": {**facts, **sections.get("facts", {})}}  # fmt: skip


VIEWS = {
    "groups": groups(group(HOSTILE, state=HOSTILE), group("a/b c")),
    "group": group_view(
        members={"m": member(HOSTILE)}, rebalances={"k": rebalance("k", sentence=HOSTILE)},
        waits={"w": {"sentence": HOSTILE}},
        lanes={"l": {"name": HOSTILE, "role": "active", "order": 0, "spans": [[NOW_MS, None, HOSTILE]],
                     "gaps": []}},
    ),
    "rebalance": {
        "facts": {"title": HOSTILE, "sentence": HOSTILE, "exists": True, "start_ms": NOW_MS,
                  "duration_ms": 900, "epoch": 4, "from_epoch": 3, "open": False, "left_out": 0},
        "steps": {"0": {"ms": NOW_MS, "after_ms": 0, "text": HOSTILE}},
        "members": {"m": {"name": HOSTILE, "part": "joined", "before": 0, "after": 2, "revoked": 0,
                          "added": 2, "joined_ms": 0, "acknowledged_ms": 800, "waited_for": [HOSTILE],
                          "states": []}},
        "unknown": {"0": HOSTILE},
    },
    "topics": {"topics": {HOSTILE: {"name": HOSTILE, "id": HOSTILE, "partitions": 1, "internal": False}}},
    "topic": {
        "facts": {"name": HOSTILE, "exists": True, "internal": False},
        "partitions": {"0": {"partition": 0, "leader": None, "replicas": [1], "isr": [], "offline": [1]}},
        "configs": {"c": {"name": HOSTILE, "value": HOSTILE, "source": HOSTILE, "is_default": False}},
        "groups": {HOSTILE: {"id": HOSTILE, "lag": None, "partitions": 1}},
    },
}  # fmt: skip
RECORD = {
    "partition": 0, "offset": 5, "timestamp_ms": NOW_MS, "timestamp_type": "CreateTime", "key": HOSTILE,
    "value": '{"n":12345678901234567890}', "key_size": 3, "value_size": 26, "key_error": None,
    "value_error": None, "headers": [{"key": HOSTILE, "value": None}],
}  # fmt: skip
NAME = quote(HOSTILE, safe="")
PAGES = [
    "/", f"/groups/{NAME}", f"/groups/{NAME}?tab=members", f"/groups/{NAME}?tab=units",
    f"/groups/{NAME}?tab=rebalances", f"/groups/{NAME}/rebalances/{NAME}", "/topics", f"/topics/{NAME}",
    f"/topics/{NAME}?tab=settings", f"/topics/{NAME}?tab=groups", f"/topics/{NAME}/messages", "/no/such/page",
]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1180, "light"), (400, "dark")])
def test_pages_show_hostile_strings_as_text(
    show: Open, console: Console, path: str, width: int, scheme: str
) -> None:
    """No string becomes an element, nothing is requested elsewhere, and no page scrolls sideways."""
    console.views = VIEWS
    console.answers["/api/messages"] = 200, {"records": [RECORD], "scanned": 1, "next": None, "ended": True}
    page = show(path, width, scheme)
    expect(page.locator("h1")).to_have_count(1)
    if path != "/no/such/page":
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("main")).to_contain_text("<img src=x onerror=alert(2)>")
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.title().endswith("– konvene")


@pytest.mark.parametrize("name", ["a/b c?d#e%2F", "..", ".", "", "naïve – グループ", HOSTILE])
def test_a_link_to_a_group_leads_to_it_again_after_a_reload(show: Open, console: Console, name: str) -> None:
    console.views = {"groups": groups(group(name)), "group": group_view()}
    page = show("/")
    page.locator(".grid-row a.name").click()
    shown = name or "(empty id)"
    expect(page.locator("h1")).to_have_text(shown)
    assert page.evaluate("document.activeElement.tagName") == "H1", "the focus moves to the new page"
    page.reload()
    expect(page.locator("h1")).to_have_text(shown)
    page.go_back()
    expect(page.locator("h1")).to_have_text("Groups")


def test_unknown_values_are_not_zero(show: Open, console: Console) -> None:
    console.views = {"groups": groups(group("g"))}
    page = show("/")
    cells = page.locator(".grid-row > div")
    expect(cells).to_have_text(["g", "consumer", "Stable", "unknown", "unknown", "none known", "–"])


def test_filter_and_order_are_in_the_url(show: Open, console: Console) -> None:
    console.views = {"groups": groups(*(group(f"app-{i}", lag=i) for i in range(12)))}
    page = show("/")
    names = page.locator(".grid-row a.name")
    expect(names.first).to_have_text("app-0")
    page.get_by_role("button", name="Lag").click()
    expect(names.first).to_have_text("app-11")
    page.keyboard.press("/")
    page.keyboard.type("app-1")
    expect(names).to_have_text(["app-11", "app-10", "app-1"])
    page.reload()
    expect(names).to_have_text(["app-11", "app-10", "app-1"])
    assert page.locator("[aria-sort=descending]").inner_text().startswith("Lag")


WATCH = """
selector => {
  window.touched = new Set();
  const cell = (node) => (node.closest ? node : node.parentNode).closest('.grid-row > div');
  const note = (node) => { if (cell(node)) window.touched.add(cell(node).textContent); };
  new MutationObserver((records) => { for (const each of records) note(each.target); })
    .observe(document.querySelector(selector), { childList: true, subtree: true, characterData: true });
}
"""


def test_only_rows_in_sight_are_elements_and_only_changed_cells_are_touched(
    show: Open, console: Console
) -> None:
    console.views = {"group": group_view(units={f"t:{i}": unit(i) for i in range(PARTITIONS)})}
    page = show("/groups/g?tab=units")
    rows = page.locator("#units .grid-row")
    expect(rows.first).to_contain_text("t:0")
    assert rows.count() < 60
    expect(page.locator("#units .grid")).to_have_attribute("aria-rowcount", str(PARTITIONS + 1))
    page.evaluate(WATCH, "#units .grid-body")
    console.change("group", set={"units": {"t:4000": unit(4000, lag=1), "t:1": unit(1, lag=99)}})
    expect(rows.nth(1)).to_contain_text("99")
    assert page.evaluate("[...window.touched]") == ["99"]
    rows.first.focus()
    page.keyboard.press("End")
    expect(page.locator(".grid-row:focus")).to_contain_text(f"t:{PARTITIONS - 1}")
    expect(page.locator(".grid-row:focus")).to_have_attribute("aria-rowindex", str(PARTITIONS + 1))
    console.change("group", remove={"units": [f"t:{PARTITIONS - 1}"]})
    expect(page.locator("#panel-units .count")).to_have_text("4,999 partitions")


def test_a_connection_that_was_lost_begins_with_the_whole_state(show: Open, console: Console) -> None:
    console.views = {"groups": groups(group("old"), group("kept"))}
    page = show("/")
    names = page.locator(".grid-row a.name")
    expect(names).to_have_text(["kept", "old"])
    console.views = {"groups": groups(group("kept"), group("new"))}
    console.disconnect("groups")
    expect(names).to_have_text(["kept", "new"])
    expect(page.locator("#connection")).to_have_text("live")


def test_a_hidden_tab_draws_nothing_until_it_is_shown(show: Open, console: Console) -> None:
    console.views = {"groups": groups(group("g", lag=1))}
    page = show("/")
    cell = page.locator(".grid-row > div").nth(4)
    expect(cell).to_have_text("1")
    page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })")
    page.evaluate(
        "() => { window.seen = new Promise(done => { const parse = JSON.parse;"
        " JSON.parse = text => { setTimeout(done, 0); return parse(text); } }); }"
    )
    console.change("groups", set={"groups": {"g": group("g", lag=2)}})
    page.evaluate("window.seen")
    assert cell.inner_text() == "1"
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    expect(cell).to_have_text("2")


def test_new_rebalances_are_announced_and_known_ones_are_not(show: Open, console: Console) -> None:
    console.views = {"group": group_view(rebalances={"1": rebalance("1")})}
    page = show("/groups/g?tab=rebalances")
    expect(page.locator("#rebalances .grid-row")).to_have_count(1)
    expect(page.locator("#announcer")).to_have_text("")
    console.change("group", set={"rebalances": {
        "2": rebalance("2", at_ms=NOW_MS, duration_ms=None, open=True, evidence="inferred")}})  # fmt: skip
    expect(page.locator("#announcer")).to_have_text("New rebalance. ann joined: 2.")
    newest = page.locator("#rebalances .grid-row").first
    expect(newest).to_contain_text("in progress")
    expect(newest.locator(".tag[role=note]")).to_have_attribute(
        "aria-label", re.compile("^inferred. Inferred")
    )
    expect(page.locator(".now")).to_contain_text("ann joined: 2.")


def test_tabs_follow_arrow_keys_and_the_url(show: Open, console: Console) -> None:
    console.views = {"group": group_view()}
    page = show("/groups/g")
    page.get_by_role("tab", name="Timeline").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Members 1")).to_be_focused()
    expect(page.locator("#members .grid-row")).to_have_count(1)
    assert page.url.endswith("?tab=members")
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Rebalances")).to_be_focused()


def test_a_member_opens_its_partitions(show: Open, console: Console) -> None:
    units = {"t:0": unit(0), "t:1": unit(1, owner="bob-id", owner_name="bob")}
    console.views = {"group": group_view(units=units)}
    page = show("/groups/g?tab=members")
    page.locator("#members .grid-row").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#units .grid-row")).to_have_count(1)
    page.locator(".chip").click()
    expect(page.locator("#units .grid-row")).to_have_count(2)


def test_a_topology_is_a_graph_with_a_text_of_the_same(show: Open, console: Console) -> None:
    nodes = [
        {"name": "source", "kind": "source", "topics": ["lines"], "stores": [], "successors": ["count"]},
        {"name": "count", "kind": "processor", "topics": [], "stores": ["counts"], "successors": ["count"]},
    ]
    sub = {"id": "0", "source_topics": ["lines"], "sink_topics": [], "changelogs": [], "repartition": [],
           "tasks": 1, "nodes": nodes}  # fmt: skip
    task = {"name": "0_0", "owner_name": "ann", "standbys": ["bob"], "warmups": ["cas"], "restore_lag": 12}
    console.views = {"group": group_view(
        facts={"type": "streams", "unit": "task"}, topology={"0": sub}, units={"0_0": task})}  # fmt: skip
    page = show("/groups/g?tab=topology")
    expect(page.locator("svg.topology .node")).to_have_count(3)
    page.locator("details summary").click()
    expect(page.locator("details li")).to_have_text(
        ["Source topics: lines", "source source: reads lines; forwards to count",
         "processor count: uses store counts; forwards to count"]
    )  # fmt: skip
    expect(page.locator(".tasks li")).to_have_text(
        "0_0 ann · standby bob · warm-up cas · 12 records to restore"
    )


def test_changes_are_not_offered_unless_they_are_allowed(show: Open, console: Console) -> None:
    console.views = {"group": group_view(), "topic": VIEWS["topic"]}
    console.answers["/api/messages"] = 200, {"records": [], "scanned": 0, "next": None, "ended": True}
    page = show("/groups/g")
    expect(page.locator(".facts")).to_contain_text("uniform")
    assert page.get_by_role("button", name="Delete group").count() == 0
    page = show("/topics/t/messages")
    expect(page.locator("[role=status]", has_text="0 records")).to_be_visible()
    assert page.get_by_role("button", name="Produce").count() == 0


def test_a_change_needs_the_name_of_the_group(show: Open, console: Console) -> None:
    """The request has the header and the confirmation; the server's error and hint are shown."""
    console.facts["allow_changes"] = True
    console.views = {"group": group_view()}
    console.answers["/api/actions/delete-group"] = 409, {"error": "g has members", "hint": "Stop them."}
    page = show("/groups/g")
    page.get_by_role("button", name="Delete group").click()
    submit = page.locator("dialog button[type=submit]")
    expect(submit).to_be_disabled()
    page.locator("dialog .confirm input").fill("g")
    submit.click()
    expect(page.locator("dialog [role=alert]")).to_have_text("g has membersStop them.")
    assert console.requests == [("/api/actions/delete-group", {"group": "g", "confirm": "g"}, "1")]
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_offsets_are_reset_only_as_previewed(show: Open, console: Console) -> None:
    console.facts["allow_changes"] = True
    console.views = {"group": group_view()}
    plan = [{"partition": "t:0", "current": None, "new": 0, "end": 7, "lag_after": 7}]
    console.answers["/api/actions/reset-offsets/preview"] = 200, {"plan": plan, "problems": ["no committed"]}
    console.answers["/api/actions/reset-offsets"] = 200, {"done": ["t:0"], "failed": []}
    page = show("/groups/g")
    page.get_by_role("button", name="Reset offsets").click()
    page.locator("dialog .confirm input").fill("g")
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog [role=alert]")).to_have_text("Show the preview of this reset first.")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("dialog td")).to_have_text(["t:0", "none", "0", "7"])
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog [role=alert]")).to_have_text("1 partition reset.")
    wanted = {"group": "g", "topics": None, "to": "earliest"}
    assert [body for _, body, _ in console.requests] == [wanted, {**wanted, "confirm": "g"}]


def test_records_keep_their_numbers_and_more_are_loaded_by_cursor(show: Open, console: Console) -> None:
    console.views = {"topic": VIEWS["topic"]}
    console.answers["/api/messages"] = 200, {
        "records": [RECORD], "scanned": 9, "next": {"0": 6}, "ended": False}  # fmt: skip
    page = show("/topics/t/messages?from=offset:5&value_filter=n&value_format=json")
    page.locator(".record summary").click()
    expect(page.locator(".record pre").nth(1)).to_have_text('{\n  "n": 12345678901234567890\n}')
    page.get_by_role("button", name="Load more").click()
    expect(page.locator(".record")).to_have_count(2)
    first, second = (body for _, body, _ in console.requests)
    assert first == {"topic": "t", "from": "offset:5", "limit": 50, "key_filter": "", "value_filter": "n",
                     "key_format": "text", "value_format": "json"}  # fmt: skip
    assert second == {**first, "cursor": {"0": 6}}
