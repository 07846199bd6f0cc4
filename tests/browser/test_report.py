"""The page of `konvene explain report` in a browser: it opens without messages and every control works."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.answers.sample import Client, Model, day, filled, gold, queue, together

from konvene.pipeline.answers.rebalance import Selection
from konvene.pipeline.answers.report import MAX_BYTES, MAX_REBALANCES, page

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    Open = Callable[..., Page]

HOSTILE = """</script><script>alert(1)</script><img src=x onerror=alert(2)>&lt;"'`{{7*7}}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(day(), Selection(), source="/var/kafka"), "utf-8")
    return path


def column(page: Page, table: str, n: int) -> list[str]:
    return page.locator(f"#{table} tbody td:nth-child({n})").all_inner_texts()


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_it_opens_in_light_and_in_dark(opened: Open, report: Path, scheme: str, dark: bool) -> None:
    """Nothing is fetched, there are no console messages (the fixture checks both), and text is readable."""
    shown = opened(report, scheme)
    assert shown.title() == "Why groups rebalanced"
    assert shown.locator("h1").inner_text() == "Why groups rebalanced"
    assert shown.locator(".figure b").all_inner_texts() == ["82", "4", "4,695", "4"]
    ground, ink = (
        shown.evaluate(f"getComputedStyle(document.body).{what}") for what in ("backgroundColor", "color")
    )
    assert (brightness(ground) < 128, brightness(ink) < 128) == (dark, not dark)
    assert abs(brightness(ground) - brightness(ink)) > 150
    assert shown.locator("#group svg path").count() > 5


def brightness(colour: str) -> float:
    return sum(int(part) for part in colour.strip("rgb()").split(",")[:3]) / 3


def test_tables_sort_both_ways_and_set_aria_sort(opened: Open, report: Path) -> None:
    shown = opened(report)
    assert column(shown, "groups", 1) == ["orders-app", "invoices", "wordcount", "payments"]
    head = shown.locator("#groups th").nth(0)
    for order, names in (("ascending", ["invoices", "orders-app", "payments", "wordcount"]),
                         ("descending", ["wordcount", "payments", "orders-app", "invoices"])):  # fmt: skip
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        assert column(shown, "groups", 1) == names
    shown.locator("#groups th").nth(2).locator("button").click()
    assert column(shown, "groups", 3) == ["66", "10", "3", "3"]
    assert head.get_attribute("aria-sort") is None


def test_tables_are_filtered_by_words_and_by_kind(opened: Open, report: Path) -> None:
    shown = opened(report)
    shown.locator("#groups-filter").fill("PAY")
    assert column(shown, "groups", 1) == ["payments"]
    assert shown.locator("#groups [role=status]").inner_text() == "1 of 4 groups"
    shown.locator("#groups-filter").fill("")
    shown.locator("#groups-choice").select_option("streams")
    assert column(shown, "groups", 1) == ["wordcount"]
    shown.locator("#rebalances-choice").select_option("session-expired")
    assert shown.locator("#rebalances [role=status]").inner_text() == "4 of 66 rebalances"


def test_another_group_is_drawn_when_it_is_chosen(opened: Open, report: Path) -> None:
    shown = opened(report)
    shown.locator("#groups tbody button", has_text="invoices").click()
    assert shown.locator("#group h2").inner_text().startswith("invoices")
    assert len(column(shown, "rebalances", 1)) == 10
    assert shown.locator("#groups tr[aria-current=true]").count() == 1
    shown.locator("#groups tbody button", has_text="wordcount").click()
    lanes = shown.locator("#group svg text.lane").all_text_contents()
    assert [name for name in lanes if name.endswith("(warm-up)")], (
        "warm-up lanes are drawn beside active ones"
    )


def test_a_group_is_drawn_as_soon_as_it_is_chosen(opened: Open, report: Path) -> None:
    """Not with the next frame: right after a click the new group is drawn."""
    shown = opened(report)
    lanes = shown.locator("#groups tbody button", has_text="wordcount").evaluate(
        "button => { button.click(); return document.querySelectorAll('#group svg text.lane').length }"
    )
    assert lanes == shown.locator("#group svg text.lane").count() > 0


def test_a_chart_takes_the_width_that_there_is(opened: Open, report: Path) -> None:
    shown = opened(report)
    wide = shown.locator("#group svg").get_attribute("viewBox")
    shown.set_viewport_size({"width": 640, "height": 900})
    shown.wait_for_function(
        "was => document.querySelector('#group svg').getAttribute('viewBox') !== was", arg=wide
    )


def test_keys_step_through_rebalances_and_zoom(opened: Open, report: Path) -> None:
    """The timeline has the focus: what a mouse can do, keys can."""
    shown = opened(report)
    details = shown.locator("#group .details")
    shown.locator("#group svg").focus()
    shown.keyboard.press("End")
    assert "65 → 66" in details.inner_text() and "partitions moved" in details.inner_text()
    assert shown.locator("#rebalances tr[aria-current=true] td:nth-child(2)").inner_text() == "66"
    shown.keyboard.press("ArrowLeft")
    assert "64 → 65" in details.inner_text()
    shown.keyboard.press("Home")
    assert "0 → 1" in details.inner_text()
    shown.keyboard.press("ArrowRight")
    assert "1 → 2" in details.inner_text()
    ticks = shown.locator("#group svg text:not(.lane)").all_text_contents()
    shown.keyboard.press("+")
    shown.keyboard.press("+")
    assert shown.locator("#group svg text:not(.lane)").all_text_contents() != ticks
    shown.keyboard.press("0")
    assert shown.locator("#group svg text:not(.lane)").all_text_contents() == ticks
    assert details.get_attribute("aria-live") == "polite"


def test_everything_can_be_reached_by_tab(opened: Open, report: Path) -> None:
    shown = opened(report)
    reached = []
    for _ in range(40):
        shown.keyboard.press("Tab")
        reached.append(
            shown.evaluate(
                "document.activeElement.tagName + ' ' + document.activeElement.textContent.slice(0, 20)"
            )
        )
    assert any(each.lower().startswith("svg") for each in reached), reached
    assert "BUTTON Rebalances" in reached and "BUTTON orders-app" in reached


def test_hovering_shows_the_owner_of_a_partition_and_why_it_moved(opened: Open, report: Path) -> None:
    shown = opened(report)
    shown.locator("#group svg").scroll_into_view_if_needed()
    box = shown.locator("#group svg").bounding_box()
    assert box is not None
    shown.mouse.move(box["x"] + 132 + (box["width"] - 146) * 0.3, box["y"] + 100)
    tip = shown.locator(".tip").inner_text()
    assert "orders:" in tip and "orders-" in tip.partition("orders:")[2]
    before = shown.locator("#group svg text:not(.lane)").all_text_contents()
    shown.mouse.move(box["x"] + 300, box["y"] + 60)
    shown.mouse.down()
    shown.mouse.move(box["x"] + 420, box["y"] + 60)
    shown.mouse.up()
    assert shown.locator("#group svg text:not(.lane)").all_text_contents() != before
    shown.get_by_role("button", name="Show all").click()
    assert shown.locator("#group svg text:not(.lane)").all_text_contents() == before


def test_names_from_the_log_are_text_and_never_markup(opened: Open, tmp_path: Path) -> None:
    """A dialog, a request or a message on the console would fail this test."""
    model = Model(HOSTILE, "consumer", {HOSTILE: 3})
    model.join(Client(HOSTILE, HOSTILE))
    model.wait(90_000)
    model.join(Client(HOSTILE + "2", HOSTILE))
    path = tmp_path / "hostile.html"
    path.write_text(page(together(model), Selection(), title=HOSTILE, source=HOSTILE), "utf-8")
    shown = opened(path)
    shown.locator("#group svg").focus()
    shown.keyboard.press("End")
    assert shown.title() == shown.locator("h1").inner_text() == HOSTILE
    assert column(shown, "groups", 1) == [HOSTILE]
    assert HOSTILE in shown.locator("#group .details").inner_text()
    assert shown.locator("img, #page script").count() == 0


def test_deliveries_of_share_groups_are_listed_and_drawn(opened: Open, tmp_path: Path) -> None:
    """Problems first, with their sentences; a bar for each minute with redeliveries."""
    path = tmp_path / "queue.html"
    path.write_text(page(queue(), Selection()), "utf-8")
    shown = opened(path)
    assert shown.locator(".figure b").all_inner_texts()[-2:] == ["13", "10"]
    assert [each.splitlines()[0] for each in column(shown, "deliveries", 2)] == [
        "jobs:1stuck",
        "jobs:0",
        "jobs:2",
    ]
    assert "blocked at offset 7 for 1 min 30 s" in column(shown, "deliveries", 2)[0]
    assert column(shown, "deliveries", 5) == ["9", "4", "0"]
    assert column(shown, "deliveries", 1)[-1] == "jobs-app *"
    assert (
        "* the log is incomplete: these figures count only the records that remain."
        in shown.locator("#records").inner_text()
    )
    shown.locator("#deliveries-filter").fill("archived")
    assert shown.locator("#deliveries [role=status]").inner_text() == "1 of 3 share partitions"
    assert column(shown, "minutes", 5) == ["0", "4", "5", "4"]
    assert column(shown, "minutes", 6) == ["8", "2", "0", "0"]
    bars = shown.locator("#group svg rect.redelivered"), shown.locator("#group svg rect.archived")
    assert [bar.count() for bar in bars] == [3, 2]
    assert shown.locator(".legend", has_text="redelivered").count() == 1
    bars[1].last.hover()
    assert "5 redelivered, 8 archived" in shown.locator(".tip").inner_text()


def test_names_of_share_groups_are_text_too(opened: Open, tmp_path: Path) -> None:
    """A group that has deliveries but no rebalances."""
    row = {"group_id": HOSTILE, "topic": HOSTILE, "evidence": "observed", "redelivered": 1}
    rows = [filled("share_delivery", row)]
    minutes = [filled("share_progress", row)]
    path = tmp_path / "hostile.html"
    path.write_text(page(gold(share_delivery=rows, share_progress=minutes), Selection()), "utf-8")
    shown = opened(path)
    assert column(shown, "deliveries", 1) == column(shown, "minutes", 2) == [HOSTILE]
    assert shown.locator("img, #page script").count() == 0


def test_without_share_groups_there_is_no_section_about_them(opened: Open, report: Path) -> None:
    shown = opened(report)
    assert shown.locator("#records").count() == 0
    assert "redelivered" not in shown.locator("#page").inner_text()


def test_thousands_of_rebalances_stay_small_and_quick(opened: Open, tmp_path: Path) -> None:
    """Two hundred partitions, three thousand rebalances: below three megabytes, drawn within moments."""
    model = Model("big", "consumer", {"orders": 200})
    clients = [Client(f"c{i:02}", f"/10.0.0.{i}") for i in range(12)]
    model.join(*clients)
    for i in range(1_500):
        model.at_ms += 20_000
        model.leave(clients[i % 12].client_id, took_ms=500)
        model.at_ms += 5_000
        model.join(clients[i % 12], took_ms=500)
    made = page(together(model), Selection())
    path = tmp_path / "big.html"
    path.write_text(made, "utf-8")
    assert path.stat().st_size < MAX_BYTES
    began = time.monotonic()
    shown = opened(path)
    assert shown.locator("#rebalances tbody tr").count() == 100, "the others follow on demand"
    assert time.monotonic() - began < 120
    assert f"{3_001 - MAX_REBALANCES:,} older rebalances not listed" in shown.locator("#group").inner_text()
    assert "104 partitions not drawn" in shown.locator("#group").inner_text()
    shown.get_by_role("button", name="Show more").click()
    assert shown.locator("#rebalances tbody tr").count() == 500


@pytest.mark.parametrize("width", [420, 1600])
def test_it_fits_small_and_large_windows(opened: Open, report: Path, width: int) -> None:
    """Tables scroll within their frames; the page itself never scrolls sideways."""
    shown = opened(report, width=width)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width


def test_empty_selection_shows_a_notice(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    path.write_text(page(together(), Selection()), "utf-8")
    shown = opened(path)
    assert "No rebalance was found." in shown.locator("header").inner_text()


# --- steps of a rebalance, and links ---


def opened_details(page: Page) -> list[str]:
    return page.locator("#rebalances .detail .bar b").all_inner_texts()


def toggle(page: Page, epoch: int) -> Locator:
    """Return the button of the row with this epoch."""
    row = page.locator("#rebalances tbody tr.pick").filter(
        has=page.locator(f"td:nth-child(2):text-is('{epoch}')")
    )
    return row.locator("button.toggle")


def test_a_row_opens_the_steps_of_its_rebalance(opened: Open, report: Path) -> None:
    """By click anywhere in the row, by key on its button; a second time closes it."""
    shown = opened(report)
    button = toggle(shown, 65)
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    shown.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert button.evaluate("button => button === document.activeElement"), "the focus stays"
    assert opened_details(shown)[0].endswith("generation 64 → 65")
    steps = shown.locator("#rebalances .steps li").all_inner_texts()
    assert steps[0].startswith("+0 ms") and "left" in steps[0]
    assert "completed: the group is Stable" in steps[-1]
    members = shown.locator("#rebalances .members tbody tr")
    assert members.first.locator("td").nth(1).inner_text() == "departed"
    assert members.count() == 6
    assert "64 → 65" in shown.locator("#group .details").inner_text(), "the timeline marks it too"
    shown.keyboard.press("Enter")
    assert opened_details(shown) == []
    shown.locator("#rebalances tbody tr.pick td.wide").first.click()
    assert opened_details(shown)[0].endswith("generation 65 → 66")


def test_members_are_listed_with_what_they_waited_for(opened: Open, report: Path) -> None:
    shown = opened(report.with_name("report.html"))
    shown.goto(report.as_uri() + "#group=invoices&rebalance=4")
    cells = shown.locator("#rebalances .members tbody tr").first.locator("td").all_inner_texts()
    assert cells[0].startswith("inv-x2-") and cells[1:6] == ["joined", "0", "2", "0", "2"]
    assert cells[6] == "35.0 s" and cells[7].startswith("inv-b-") and cells[8] == "STABLE"
    departed = shown.goto(report.as_uri() + "#group=invoices&rebalance=5")
    assert departed is None, "the page is not loaded again"
    shown.locator("#rebalances .members td", has_text="departed").wait_for()
    cells = shown.locator("#rebalances .members tbody tr").first.locator("td").all_inner_texts()
    assert cells[6:8] == ["none", "none"]


def test_a_link_opens_a_rebalance(opened: Open, report: Path) -> None:
    """The link that a row offers, and one with an epoch alone; the row is in sight and has the focus."""
    shown = opened(report)
    shown.locator("#groups tbody button", has_text="payments").click()
    toggle(shown, 2).click()
    href = shown.get_by_role("link", name="Link to this rebalance").get_attribute("href")
    assert href is not None and href.startswith("#group=payments&rebalance=2-")
    assert shown.evaluate("location.hash") == href
    for fragment in (href, "#group=payments&rebalance=2"):
        other = opened(Path(report), height=500)
        other.goto("about:blank")
        other.goto(report.as_uri() + fragment)
        assert other.locator("#group h2").inner_text().startswith("payments")
        assert opened_details(other)[0].endswith("epoch 1 → 2")
        button = toggle(other, 2)
        assert button.evaluate("button => button === document.activeElement")
        box = button.bounding_box()
        assert box is not None and 0 <= box["y"] <= 500


def test_back_and_forward_follow_what_was_open(opened: Open, report: Path) -> None:
    shown = opened(report)
    shown.locator("#groups tbody button", has_text="invoices").click()
    toggle(shown, 5).click()
    toggle(shown, 7).click()
    assert len(opened_details(shown)) == 2, "several rows may be open"
    for move, group, epochs in (
        ("back", "invoices", ["4 → 5"]), ("back", "invoices", []), ("back", "orders-app", []),
        ("forward", "invoices", []), ("forward", "invoices", ["4 → 5"]),
    ):  # fmt: skip
        before = shown.evaluate("location.hash")
        shown.evaluate(f"history.{move}()")
        shown.wait_for_function("before => location.hash !== before", arg=before)
        heading = shown.locator("#group h2", has_text=group)
        heading.wait_for()
        shown.wait_for_function(
            "count => document.querySelectorAll('#rebalances .detail').length === count", arg=len(epochs)
        )
        assert [each.partition("epoch ")[2] for each in opened_details(shown)] == epochs


def test_a_link_shows_a_row_that_a_filter_hides(opened: Open, report: Path) -> None:
    shown = opened(report)
    shown.locator("#rebalances-filter").fill("no such text")
    assert shown.locator("#rebalances tbody tr").count() == 0
    shown.goto(report.as_uri() + "#group=orders-app&rebalance=3")
    shown.locator("#rebalances .detail").wait_for()
    assert shown.locator("#rebalances-filter").input_value() == ""


@pytest.mark.parametrize(("fragment", "text"), [
    ("#group=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
     "This report has no group <img src=x onerror=alert(1)>."),
    ("#group=payments&rebalance=999", "Rebalance 999 of payments is not listed in this report."),
    ("#group=%", "This report has no group %."),
])  # fmt: skip
def test_a_link_to_a_missing_group_or_rebalance_shows_a_message(
    opened: Open, report: Path, fragment: str, text: str
) -> None:
    """The text of the address is text, never markup."""
    shown = opened(report)
    shown.goto(report.as_uri() + fragment)
    missing = shown.locator(".missing:not([hidden])")
    missing.wait_for()
    assert missing.inner_text() == text
    assert shown.locator("#group h2").count() == 1, "a group is shown all the same"
    assert shown.locator("img").count() == 0


def test_a_link_with_any_name_leads_back_to_it(opened: Open, tmp_path: Path) -> None:
    """Names with every special character of an address, as markup would need them."""
    name = HOSTILE + " /?#&=%+;:@'\u00e9\u2028\U0001f600"
    models = [Model("first", "consumer", {"orders": 2}), Model(name, "consumer", {name: 3})]
    for model in models:
        model.join(Client(HOSTILE, HOSTILE))
        model.wait(90_000)
    models[0].leave(HOSTILE)
    path = tmp_path / "names.html"
    path.write_text(page(together(*models), Selection()), "utf-8")
    shown = opened(path)
    shown.locator("#groups tbody button").nth(1).click()
    toggle(shown, 1).click()
    href = shown.get_by_role("link", name="Link to this rebalance").get_attribute("href")
    assert href is not None and href.isascii()
    shown.goto("about:blank")
    shown.goto(path.as_uri() + href)
    assert shown.locator("#group").get_attribute("aria-label") == f"Group {name}"
    assert HOSTILE in shown.locator("#rebalances .steps").inner_text()
    assert shown.locator("img, #page script").count() == 0


def test_rebalances_without_room_for_steps_name_the_command(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konvene.pipeline.answers.report.TRACE_BYTES", 0)
    path = tmp_path / "few.html"
    path.write_text(page(day(), Selection()), "utf-8")
    shown = opened(path)
    toggle(shown, 66).click()
    assert "konvene explain LOGS --group GROUP --why 66" in shown.locator("#rebalances .detail").inner_text()


# --- costs and colours ---


def test_unknown_costs_are_not_shown_as_none(opened: Open, tmp_path: Path) -> None:
    model = Model("app", "classic", {"orders": 2})
    ann, bob = Client("ann", "/a"), Client("bob", "/b")
    model.join(ann)
    model.wait(30_000)
    model.join(bob)
    model.wait(30_000)
    model.leave("bob")
    rows = model.rows["rebalance"]
    rows[1] |= {"duration_ms": None, "unavailable_ms": None, "start_ms": None, "from_epoch": -1}
    model.rows["unavailability"] = [row for row in model.rows["unavailability"] if row["epoch"] != 2]
    for row in model.rows["lag"]:
        row["log_end_offset"] = None
    path = tmp_path / "unknown.html"
    path.write_text(page(together(model), Selection()), "utf-8")
    shown = opened(path)
    took, unit_seconds, lag = (column(shown, "rebalances", n) for n in (4, 6, 7))
    assert took == ["2.0 s", "unknown", "2.0 s"]
    assert unit_seconds == ["4.0", "unknown", "none"]
    assert lag == ["unknown", "unknown", "none"]
    assert "–" not in shown.locator("#rebalances").inner_text()
    toggle(shown, 2).click()
    detail = shown.locator("#rebalances .detail")
    assert "generation ? → 2" in detail.inner_text()
    assert "The log does not record" in detail.locator(".unknown").inner_text()


def test_a_total_without_any_known_part_is_unknown(opened: Open, tmp_path: Path) -> None:
    model = Model("app", "consumer", {"orders": 2})
    model.join(Client("ann", "/a"))
    model.rows["rebalance"][0] |= {"unavailable_ms": None}
    path = tmp_path / "unknown.html"
    path.write_text(page(together(model), Selection()), "utf-8")
    shown = opened(path)
    assert shown.locator(".figure b").nth(2).inner_text() == "unknown"
    assert column(shown, "groups", 7) == ["unknown"]


def test_legends_explain_every_colour(opened: Open, report: Path) -> None:
    shown = opened(report)
    legends = {
        legend.get_attribute("aria-label"): legend.inner_text() for legend in shown.locator(".legend").all()
    }
    assert list(legends) == ["Causes", "Health", "Members"]
    for text in ("joined", "left or removed", "timed out or fenced", "storm"):
        assert text in legends["Causes"]
    for text in ("good (90–100)", "fair (70–89)", "poor (40–69)", "bad (below 40)"):
        assert text in legends["Health"]
    colours = shown.locator(".legend i").evaluate_all(
        "patches => patches.map(patch => getComputedStyle(patch).backgroundColor)"
    )
    assert "rgba(0, 0, 0, 0)" not in colours


@pytest.mark.parametrize("fragment", ["", "#group=orders-app&rebalance=60", "#group=wordcount&rebalance=2"])
def test_a_phone_never_scrolls_sideways(opened: Open, report: Path, fragment: str) -> None:
    """Wide tables scroll within their frames, and an opened rebalance is as wide as its frame."""
    shown = opened(report, width=400)
    shown.goto("about:blank")
    shown.goto(report.as_uri() + fragment)
    assert shown.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    frame = shown.locator("#rebalances > .frame")
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
    if fragment:
        detail, room = shown.locator("#rebalances .detail").bounding_box(), frame.bounding_box()
        assert detail is not None and room is not None
        assert room["x"] <= detail["x"] and detail["x"] + detail["width"] <= room["x"] + room["width"]
    drawing = shown.locator("#group svg").bounding_box()
    assert drawing is not None and drawing["width"] > 300
