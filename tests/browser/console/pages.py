"""Find things on a console's pages, and check what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.browser.console.cluster import LiveCluster

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    Visit = Callable[..., Page]
else:
    Visit = Callable

__all__ = [
    "Visit",
    "all_paths",
    "cell",
    "confirm",
    "group_path",
    "row",
    "shown",
    "violations",
    "wide_elements",
]


def shown(page: Page) -> None:
    """Wait until the page is connected, if it has live data, and has a heading."""
    page.locator("#connection[data-state=live], #connection[hidden]").wait_for(state="attached")
    page.locator("#page h1").wait_for()


def group_path(group: str, tab: str | None = None) -> str:
    return f"/groups/{quote(group, safe='')}" + (f"?tab={tab}" if tab else "")


def all_paths(cluster: LiveCluster) -> Iterator[tuple[str, str]]:
    """Return the path of each kind of page and tab, with a selector that it shows once it has its data."""
    grid = ".grid-row"
    yield "/", f"#groups {grid}"
    yield group_path("billing"), ".chart svg"
    for tab in ("members", "units", "rebalances"):
        yield group_path("billing", tab), f"#{tab} {grid}"
    yield group_path("mailer", "members"), f"#members {grid}"
    yield group_path("word-count", "topology"), "#panel-topology svg"
    yield group_path("word-count", "units"), f"#units {grid}"
    yield group_path("packers", "in-flight"), f"#in-flight {grid}"
    yield group_path("nobody here"), ".notice, .grid-empty, #page h1"
    keys = cluster.until(lambda state: state["rebalances"], "group", group="billing")["rebalances"]
    yield f"/groups/billing/rebalances/{quote(next(iter(keys)), safe='')}", ".steps li"
    yield "/groups/billing/rebalances/none", ".notice"
    yield "/topics", f"#topics {grid}"
    yield "/topics/orders", f"#partitions {grid}"
    yield "/topics/orders?tab=groups", f"#groups {grid}"
    yield "/topics/orders?tab=settings", f"#settings {grid}"
    yield "/topics/orders/messages?from=earliest", ".record"
    yield "/no/such/page", "#page a"


def row(page: Page, grid: str, text: str) -> Locator:
    """Return the rows of a grid that have a text."""
    return page.locator(f"#{grid} .grid-row", has_text=text)


def cell(page: Page, grid: str, text: str, column: str) -> str:
    """Return the text of a cell, by a text of its row and the heading of its column."""
    heads = page.locator(f"#{grid} [role=columnheader]").all_inner_texts()
    at = next(i for i, head in enumerate(heads) if head.rstrip(" ↑↓").strip() == column)
    return row(page, grid, text).locator("[role=gridcell]").nth(at).inner_text()


def confirm(page: Page, name: str, button: str) -> None:
    """Type a name wrongly, check that the button of the dialog stays disabled, type it correctly, submit."""
    dialog = page.locator("dialog[open]")
    action = dialog.get_by_role("button", name=button, exact=True)
    field = dialog.locator("p.confirm input")
    assert action.is_disabled()
    for wrong in (name[:-1], name.upper(), f" {name}", f"{name} "):
        field.fill(wrong)
        assert action.is_disabled(), wrong
    field.fill(name)
    action.click()


def wide_elements(page: Page) -> list[str]:
    """Return a description of what makes the page scroll sideways; none if it does not."""
    found: list[str] = page.evaluate(
        """() => {
          const { scrollWidth, clientWidth } = document.documentElement;
          if (scrollWidth <= clientWidth) return [];
          const wide = [...document.querySelectorAll("body *")].filter((each) =>
            each.getBoundingClientRect().right > clientWidth + 0.5 && !each.closest(".frame"));
          const names = wide.map((each) => `${each.tagName}.${each.className}`);
          return [`${scrollWidth} > ${clientWidth}`, ...names];
        }"""
    )
    return found


def violations(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """Return the serious and critical violations that axe finds, by all rules or by these."""
    from axe_playwright_python.base import AXE_SCRIPT

    page.evaluate(AXE_SCRIPT)  # The content security policy of the page allows no script element.
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    result: Any = page.evaluate("(options) => axe.run(options)", options)
    assert rules or result["passes"], "axe has checked nothing"
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:200]} {node['failureSummary']}"
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
