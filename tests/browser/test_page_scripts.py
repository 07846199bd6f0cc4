"""The scripts that pages share, on a page whose data changes while it is used.

The page has a strict content security policy: any style attribute or inline handler would be a message on
the console, which fails the test.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from konvene.pipeline.answers.page import SHARED_SCRIPTS, file_text

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

TABLE = """() => {
  const columns = [
    { head: "Name", toggle: true, key: (row) => row.name, cell: (row) => row.name },
    { head: "Lag", num: true, key: (row) => row.lag, cell: (row) => konvene.number(row.lag) },
  ];
  window.states = [];
  window.list = konvene.table("groups", columns, window.rowsOf(150), {
    noun: "group", rowKey: (row) => row.name, text: (row) => row.name,
    choiceName: "Kind", choice: (row) => row.kind,
    detail: (row) => konvene.h("p", { class: "about" }, `lag of ${row.name}: ${row.lag}`),
    onState: (state) => window.states.push(state),
  });
  document.body.append(window.list.node);
}"""
ROWS = """() => {
  window.rowsOf = (count, lag = 0) => Array.from({ length: count }, (_, i) => ({
    name: `g${String(i).padStart(3, "0")}`, lag: (i * 7) % 150 + lag, kind: i % 2 ? "odd" : "even",
  }));
}"""
CHART = """() => {
  const rebalance = (epoch, at) => ({
    key: `k${epoch}`, at_ms: at, until_ms: at + 1000, from_epoch: epoch - 1, epoch, cause: "member-joined",
    sentence: `sentence ${epoch}`,
  });
  const start = Date.UTC(2026, 0, 1, 12);
  window.detailOf = (epochs, minutes) => ({
    id: "app", from_ms: start, to_ms: start + minutes * 60000,
    rebalances: Array.from({ length: epochs }, (_, i) => rebalance(epochs - i, start + (epochs - i) * 60000)),
    lanes: [
      { name: "orders:0", spans: [[start, start + 120000, "bob"], [start + 121000, null, "ann"]], gaps: [] },
      ...(epochs > 4 ? [{ name: "orders:1", spans: [[start, null, "cyd"]], gaps: [[start, null]] }] : []),
    ],
    lag: [[start, 5], [start + minutes * 60000, 50]],
    health: [[start, 95], [start + 60000, 30]],
  });
  window.clock = start + 600000;
  window.picked = [];
  window.make = (options) => {
    const onPick = (key) => window.picked.push(key);
    window.drawn = konvene.chart(window.detailOf(4, 10), { onPick, ...options });
    document.body.append(window.drawn.controls, window.drawn.node, window.drawn.legend);
    window.drawn.draw();
  };
}"""


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.fixture
def blank(opened: Open, tmp_path: Path) -> Page:
    """An empty page with the shared scripts and styles."""
    scripts = "".join(file_text(name) for name in SHARED_SCRIPTS)
    style = file_text("page.css")
    policy = f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(scripts)}'"
    path = tmp_path / "blank.html"
    path.write_text(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<style>{style}</style><body><script>{scripts}</script></body>",
        "utf-8",
    )
    return opened(path)


def cells(page: Page, n: int) -> list[str]:
    return page.locator(f"#groups tbody tr.pick td:nth-child({n})").all_inner_texts()


def test_a_table_keeps_sorting_filter_and_number_of_rows(blank: Page) -> None:
    blank.evaluate(ROWS)
    blank.evaluate(TABLE)
    assert len(cells(blank, 1)) == 100
    blank.get_by_role("button", name="Show more").click()
    blank.locator("#groups th button", has_text="Lag").click()
    assert cells(blank, 2)[:2] == ["149", "148"]
    blank.evaluate("list.update(rowsOf(152, 1000))")
    assert cells(blank, 2)[:2] == ["1,149", "1,148"] and len(cells(blank, 1)) == 152
    blank.locator("#groups-filter").fill("g00")
    blank.locator("#groups-choice").select_option("odd")
    assert cells(blank, 1) == ["g009", "g007", "g005", "g003", "g001"]
    blank.evaluate("list.update(rowsOf(4, 2000))")
    assert cells(blank, 1) == ["g003", "g001"]
    assert blank.locator("#groups-filter").input_value() == "g00"
    assert blank.locator("#groups-choice").input_value() == "odd"
    assert blank.evaluate("states.at(-1)") == {
        "sort": "Lag", "descending": True, "filter": "g00", "choice": "odd",
    }  # fmt: skip


def test_a_table_keeps_the_focus_and_the_opened_row(blank: Page) -> None:
    """Although the rows change their order and their values; an unchanged row keeps its elements."""
    blank.evaluate(ROWS)
    blank.evaluate(TABLE)
    button = blank.locator("#groups button.toggle", has_text="g004")
    button.click()
    row = blank.locator("#groups tr.pick", has_text="g004")
    row.evaluate("row => { row.isTheSame = true }")
    assert blank.locator(".about").inner_text() == "lag of g004: 28"
    blank.evaluate("list.update(rowsOf(60, 5).reverse())")
    assert button.evaluate("button => button === document.activeElement")
    assert button.get_attribute("aria-expanded") == "true"
    assert row.evaluate("row => row.isTheSame")
    assert blank.locator(".about").inner_text() == "lag of g004: 33"
    assert cells(blank, 1)[0] == "g059"
    blank.evaluate("list.update(rowsOf(3))")
    assert blank.locator(".about").count() == 0


def test_a_table_begins_with_the_given_state(blank: Page) -> None:
    """So that a link shows the same table."""
    blank.evaluate(ROWS)
    blank.evaluate(TABLE.replace("noun:", 'state: {sort: "Lag", descending: true, filter: "G01"}, noun:'))
    assert cells(blank, 1)[0] == "g019" and len(cells(blank, 1)) == 10
    assert blank.locator("#groups-filter").input_value() == "G01"


def ticks(page: Page) -> list[str]:
    return page.locator("svg text[text-anchor=middle]").all_text_contents()


def test_a_chart_keeps_zoom_pick_and_focus(blank: Page) -> None:
    blank.evaluate(CHART)
    blank.evaluate("make({})")
    svg = blank.locator("svg")
    svg.focus()
    blank.keyboard.press("End")
    blank.keyboard.press("ArrowLeft")
    blank.keyboard.press("+")
    blank.keyboard.press("+")
    before, line = ticks(blank), blank.locator("svg .picked").get_attribute("x1")
    colours = (
        blank.locator(".legend", has_text="bob")
        .locator("i")
        .evaluate_all("each => each.map(i => i.outerHTML)")
    )
    blank.evaluate("drawn.update(detailOf(6, 10))")
    assert ticks(blank) == before
    assert blank.locator("svg .picked").get_attribute("x1") == line
    assert svg.evaluate("svg => svg === document.activeElement")
    assert blank.locator("svg text.lane").all_text_contents() == ["orders:0", "orders:1"]
    assert "6 rebalances" in (svg.get_attribute("aria-label") or "")
    members = blank.locator(".legend[aria-label=Members]")
    assert [each for each in ("bob", "ann", "cyd", "unassigned") if each in members.inner_text()] == [
        "bob", "ann", "cyd", "unassigned",
    ]  # fmt: skip
    after = members.locator("i").evaluate_all("each => each.map(i => i.outerHTML)")
    assert after[: len(colours)] == colours, "owners keep their colours"
    blank.keyboard.press("ArrowRight")
    assert blank.evaluate("picked") == ["k4", "k3", "k4"]
    blank.keyboard.press("0")
    assert ticks(blank) != before


def test_a_live_chart_follows_the_clock_until_it_is_zoomed(blank: Page) -> None:
    blank.evaluate(CHART)
    blank.evaluate("make({ live: true, now: () => clock, window_ms: 600000 })")
    before = ticks(blank)
    blank.evaluate("clock += 3600000")
    blank.wait_for_function(
        "before => [...document.querySelectorAll('svg text[text-anchor=middle]')]"
        ".map(each => each.textContent).join() !== before.join()",
        arg=before,
    )
    assert ticks(blank)[-1].startswith("13:")
    blank.get_by_role("button", name="Zoom in").click()
    zoomed = ticks(blank)
    blank.evaluate("clock += 3600000, drawn.update(detailOf(5, 10))")
    assert ticks(blank) == zoomed
    blank.get_by_role("button", name="Show all").click()
    assert ticks(blank)[-1].startswith("14:")
    blank.evaluate("drawn.close()")


def test_what_lasts_is_drawn_until_now(blank: Page) -> None:
    """An owner and a gap without an end reach the right edge."""
    blank.evaluate(CHART)
    blank.evaluate("make({ live: true, now: () => clock })")
    blank.evaluate("drawn.update(detailOf(5, null))")
    edges = blank.locator("svg path").evaluate_all(
        "paths => paths.map(path => Math.round(path.getBBox().x + path.getBBox().width))"
    )
    width = blank.locator("svg").evaluate("svg => svg.viewBox.baseVal.width")
    assert edges.count(round(width - 14)) >= 3


def test_a_trace_without_steps_names_what_is_unknown(blank: Page) -> None:
    blank.evaluate("""() => document.body.append(konvene.trace({
      steps: [], members: [], left_out: 2, unknown: ["when it began", "<b>why</b>"], converged: false,
    }))""")
    assert blank.locator(".trace .note").all_inner_texts() == [
        "No step has a known time.", "2 more members not listed.",
        "The log does not record when it began, <b>why</b>.",
    ]  # fmt: skip


@pytest.mark.parametrize(("part", "converged", "text"), [
    ("stayed", True, "unknown"), ("stayed", False, "not reached"), ("gone", False, "none"),
])  # fmt: skip
def test_a_member_without_a_time_has_a_reason(blank: Page, part: str, converged: bool, text: str) -> None:
    blank.evaluate(
        """([part, converged]) => document.body.append(konvene.trace({
          steps: [{ after_ms: -1500, text: "one" }], left_out: 0, unknown: [], converged,
          members: [{ name: "ann", part, before: 1, after: 1, revoked: 0, added: 0, acknowledged_ms: null,
                      states: [], waited_for: [] }],
        }))""",
        [part, converged],
    )
    assert blank.locator(".members td").nth(6).inner_text() == text
    assert blank.locator(".steps .after").inner_text() == "−1.5 s"
