"""What holds for every page: accessible, fits a phone, silent, and the same by link."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.browser.console.cluster import LiveCluster
from tests.browser.console.pages import Visit, all_paths, group_path, violations, wide_elements

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_every_page_is_accessible_in_light_and_dark(prepared: LiveCluster, visit: Visit) -> None:
    rules_by_scheme: dict[str, tuple[str, ...]] = {"light": (), "dark": ("color-contrast",)}
    for scheme, rules in rules_by_scheme.items():
        page = visit(prepared, "/", scheme=scheme)
        for path, selector in all_paths(prepared):
            page.goto(prepared.url + path)
            page.locator(selector).first.wait_for()
            assert violations(page, rules) == [], (scheme, path)


def test_violations_would_be_found(prepared: LiveCluster, visit: Visit) -> None:
    page = visit(prepared, "/")
    page.evaluate("document.getElementById('filter').removeAttribute('aria-label')")
    page.evaluate("document.getElementById('filter').removeAttribute('placeholder')")
    page.evaluate("document.querySelector('h1').style.color = '#eee'")
    found = [each.partition(" ")[0] for each in violations(page)]
    assert found == ["color-contrast", "label"]
    assert [each.partition(" ")[0] for each in violations(page, ["color-contrast"])] == ["color-contrast"]


def test_no_page_scrolls_sideways_on_a_phone(prepared: LiveCluster, visit: Visit) -> None:
    page = visit(prepared, "/", width=400, height=800)
    for path, selector in all_paths(prepared):
        page.goto(prepared.url + path)
        page.locator(selector).first.wait_for()
        assert wide_elements(page) == [], path
    for button in page.locator("nav a").all():
        assert button.is_visible()


def test_dialogs_are_accessible_and_fit_a_phone(prepared: LiveCluster, visit: Visit) -> None:
    dialogs = [
        (group_path("billing"), "Reset offsets …"), (group_path("billing"), "Remove members …"),
        (group_path("billing"), "Change a setting …"), (group_path("billing"), "Delete group …"),
        ("/topics/orders/messages", "Produce a record …"),
    ]  # fmt: skip
    for scheme, width in (("light", 400), ("dark", 1280)):
        page = visit(prepared, "/", scheme=scheme, width=width)
        for path, button in dialogs:
            page.goto(prepared.url + path)
            page.get_by_role("button", name=button).click()
            page.locator("dialog[open]").wait_for()
            assert violations(page) == [] and wide_elements(page) == [], button
            page.keyboard.press("Escape")
            page.locator("dialog").wait_for(state="detached")


def test_dark_is_dark(prepared: LiveCluster, visit: Visit) -> None:
    def brightness(scheme: str) -> float:
        page = visit(prepared, "/", scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(float(part) for part in colour.strip("rgba()").split(",")[:3]) / 3

    assert brightness("dark") < 64 < 192 < brightness("light")


def test_a_rebalance_is_reached_with_the_keyboard_alone(prepared: LiveCluster, visit: Visit) -> None:
    page = visit(prepared, "/")
    page.locator("#groups .grid-row").first.wait_for()
    focus_by_tab(page, ".grid-row")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.textContent").startswith("billing")
    page.keyboard.press("Enter")
    page.locator("#page h1", has_text="billing").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
    focus_by_tab(page, "[role=tab]")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator("#rebalances .grid-row").first.wait_for()
    assert page.evaluate("document.activeElement.id") == "tab-rebalances"
    focus_by_tab(page, ".grid-row")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".steps li").first.wait_for()
    assert "/groups/billing/rebalances/" in page.url
    page.go_back()
    page.locator("#rebalances .grid-row").first.wait_for()
    assert page.url.endswith("tab=rebalances")


def test_the_timeline_is_stepped_through_with_the_keyboard(prepared: LiveCluster, visit: Visit) -> None:
    page = visit(prepared, group_path("billing"))
    page.locator(".chart svg").first.wait_for()
    focus_by_tab(page, "svg")
    page.keyboard.press("ArrowLeft")
    page.locator(".details b").wait_for()
    first = page.locator(".details").inner_text()
    page.keyboard.press("ArrowLeft")
    page.locator(".details b").wait_for()
    assert page.locator(".details").inner_text() != first
    page.locator(".details a").click()
    page.locator(".steps li").first.wait_for()


def test_the_timeline_of_a_young_group_begins_with_it(prepared: LiveCluster, visit: Visit) -> None:
    """It is not the last hour, in which its owners would be a sliver."""
    page = visit(prepared, group_path("billing"))
    page.locator(".chart svg text").first.wait_for()
    ticks = [
        [int(part) for part in text.split(":")]
        for text in page.locator(".chart svg text").all_text_contents()
        if re.fullmatch(r"\d\d:\d\d(:\d\d)?", text)
    ]
    seconds = [(60 * hour + minute) * 60 + sum(rest) for hour, minute, *rest in ticks]
    assert len(seconds) > 2 and (seconds[-1] - seconds[0]) % 86_400 <= 600


def focus_by_tab(page: Page, selector: str) -> None:
    """Press Tab until an element is reached."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached with Tab")


def test_the_skip_link_leads_to_the_content(prepared: LiveCluster, visit: Visit) -> None:
    page = visit(prepared, "/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "page"


def test_slash_leads_to_the_filter_which_is_kept_in_the_link(prepared: LiveCluster, visit: Visit) -> None:
    page = visit(prepared, "/")
    page.locator("#groups .grid-row").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("mail")
    page.locator("#groups .grid-row").nth(1).wait_for(state="detached")
    assert page.locator("#groups .grid-row a.name").all_inner_texts() == ["mailer"]
    page.get_by_label("Type").wait_for()
    page.reload()
    page.locator("#groups .grid-row").first.wait_for()
    assert page.locator("#groups .grid-row a.name").all_inner_texts() == ["mailer"]
    assert page.locator("#filter").input_value() == "mail"
