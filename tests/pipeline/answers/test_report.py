"""The report page without a browser: its contents, and the injections that it prevents."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.answers.damaged_logs import changed, explained, flip, kafkas_log
from tests.pipeline.answers.sample import START_MS, Client, Model, day, gold, queue, together

from konvene.pipeline.answers import report
from konvene.pipeline.answers.damage import sentence as damage_sentence
from konvene.pipeline.answers.page import SHARED_SCRIPTS, as_json, file_text
from konvene.pipeline.answers.rebalance import Selection
from konvene.pipeline.answers.report import SEVERAL, collect, page
from konvene.pipeline.answers.report_traces import MEMBER_COLUMNS, rebalance_key
from konvene.pipeline.answers.trace import trace


def data_of(made: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', made, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def detail(model: Model) -> Any:
    (found,) = collect(together(model), Selection())["details"]
    return found


def test_page_is_deterministic_and_self_contained() -> None:
    made = page(day(), Selection(), source="/var/kafka")
    assert made == page(day(), Selection(), source="/var/kafka")
    assert not re.search(r"""(?:src|href)=["'](?!data:,)""", made)
    assert "http://www.w3.org/2000/svg" in made and made.count("http") == 2
    assert len(data_of(made)["groups"]) == 4


def test_content_security_policy_allows_one_script() -> None:
    """The content security policy lists the script's digest."""
    made = page(day(), Selection())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', made)
    assert policy is not None and policy[1].startswith("default-src 'none';")
    script = made.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy[1]
    assert "innerHTML" not in script and "eval(" not in script and "document.write" not in script


@pytest.mark.parametrize("name", ["</script><b>", "<!--", "a&b", "\u2028", "@@DATA@@", "\\", "\x00", "Ω"])
def test_names_are_escaped_in_json(name: str) -> None:
    model = Model(name, "consumer", {name: 2})
    model.join(Client(name, name))
    made = page(together(model), Selection(), title=name, source=name)
    data = data_of(made)
    assert data["groups"][0]["id"] == data["details"][0]["id"] == data["title"] == data["source"] == name
    assert data["details"][0]["names"] == [name]
    assert f"<title>{html.escape(name)}</title>" in made
    assert made.count("</script>") == page(day(), Selection()).count("</script>")


def test_lanes_have_the_owners_over_time() -> None:
    model = Model("app", "consumer", {"orders": 2})
    model.join(Client("ann", "/a"), took_ms=1_000)
    model.wait(599_000)
    model.join(Client("bob", "/b"), took_ms=5_000)
    model.wait(300_000)
    found = detail(model)
    ends = found["to_ms"]
    at = START_MS
    assert found["names"] == ["ann", "bob"]
    assert found["lanes"] == [
        ("orders:0", [at + 1_000, ends, 0], []),
        ("orders:1", [at + 1_000, at + 600_000, 0, at + 605_000, ends, 1], [at + 600_000, at + 605_000]),
    ]


def test_concurrent_owners_of_a_share_partition_have_lanes_side_by_side() -> None:
    """In a share group; the lane of a departed member is reused."""
    owned = [
        {"topic": "jobs", "partition": 0, "role": "shared", "group_type": "share", "member_id": name,
         "instance_id": None, "client_id": name, "from_ms": from_ms, "to_ms": to_ms}
        for name, from_ms, to_ms in (("ann", 0, 60), ("bob", 10, None), ("cyd", 70, 90), ("dan", 80, None))
    ]  # fmt: skip
    gaps = [{"topic": "jobs", "partition": 0, "role": "shared", "from_ms": 95, "to_ms": 99}]
    names, lanes, left_out = report._lanes(owned, gaps, 0, 100)
    assert (names, left_out) == (["ann", "bob", "cyd", "dan"], 0)
    assert lanes == [
        ("jobs:0", [0, 60, 0, 70, 90, 2], [95, 99]),
        ("jobs:0 (2)", [10, 100, 1], []),
        ("jobs:0 (3)", [80, 100, 3], []),
    ]


def test_members_that_share_a_client_id_have_names_of_their_own() -> None:
    model = Model("app", "consumer", {"orders": 4})
    model.join(Client("app", "/a"), Client("app", "/b"))
    assert [name[:4] for name in detail(model)["names"]] == ["app-", "app-"]


def test_very_short_intervals_are_merged() -> None:
    model = Model("app", "consumer", {"orders": 1})
    for i in range(30):
        model.join(Client(f"c{i:02}", "/x"), took_ms=0)
        model.leave(f"c{i:02}", took_ms=0)
        model.at_ms += 1
    model.join(Client("last", "/x"), took_ms=0)
    model.at_ms += 10_000_000
    model.leave("last", took_ms=0)
    (lane,) = detail(model)["lanes"]
    assert lane[1][2] == SEVERAL and len(lane[1]) < 12


def test_curves_keep_the_maximum_of_each_interval() -> None:
    model = Model("app", "consumer", {"orders": 1})
    model.join(Client("ann", "/a"))
    model.wait(90_000_000)
    model.rows["lag"][700]["lag"] = 123_456
    found = detail(model)
    assert len(model.rows["lag"]) > 1_400 and len(found["lag"]) <= report.POINTS + 1
    assert max(value for _, value in found["lag"]) == 123_456


def test_details_are_limited_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DETAIL_BYTES", 30_000)
    monkeypatch.setattr(report, "MAX_GROUPS", 3)
    data = collect(day(), Selection())
    assert [each["id"] for each in data["details"]] == ["orders-app"], "the worst always"
    assert (len(data["groups"]), data["groups_left_out"]) == (3, 1)


def test_a_page_without_rebalances_is_valid() -> None:
    data = data_of(page(gold(), Selection()))
    assert (data["groups"], data["details"], data["from_ms"]) == ([], [], -1)


def test_deliveries_are_listed_problems_first() -> None:
    data = collect(queue(), Selection())
    some = data["deliveries"]
    assert (some["redelivered"], some["archived"], some["stuck"], some["left_out"]) == (13, 10, 1, 0)
    assert [(row["name"], row["stuck"], row["blocked_ms"], row["start"]) for row in some["partitions"]] == [
        ("jobs:1", True, 90_000, 7), ("jobs:0", False, None, 90), ("jobs:2", False, None, None),
    ]  # fmt: skip
    assert [row["whole"] for row in some["partitions"]] == [True, True, False]
    assert some["partitions"][0]["trouble"][-1] == (
        "blocked at offset 7 for 1 min 30 s: 3 records in flight, delivered up to 4 times"
    )
    first = START_MS // 60_000 * 60_000
    assert [row[:3] + row[4:6] for row in data["minutes"]] == [
        [first + 120_000, "jobs-app", "jobs:0", 0, 8],
        [first + 60_000, "jobs-app", "jobs:0", 4, 2],
        [first + 120_000, "jobs-app", "jobs:1", 5, 0],
        [first + 300_000, "jobs-app", "jobs:1", 4, 0],
    ]
    assert data["details"][0]["redeliveries"] == {
        "interval_ms": 60_000,
        "sums": [[first + 60_000, 4, 2], [first + 120_000, 5, 8], [first + 300_000, 4, 0]],
    }


def test_records_of_other_groups_are_left_out() -> None:
    data = collect(queue(), Selection(("other",)))
    assert data["deliveries"]["partitions"] == data["minutes"] == []


def test_records_are_added_up_where_time_is_long() -> None:
    rows = [{"minute_ms": 60_000 * n, "redelivered": 1, "archived": n % 2} for n in range(10_000)]
    found = report._redeliveries(rows, 0, 600_000_000)
    assert len(found["sums"]) <= report.POINTS and found["interval_ms"] % 60_000 == 0
    assert [sum(each[i] for each in found["sums"]) for i in (1, 2)] == [10_000, 5_000]


def test_share_partitions_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_PARTITIONS", 1)
    some = collect(queue(), Selection())["deliveries"]
    assert [row["name"] for row in some["partitions"]] == ["jobs:1"]
    assert (some["left_out"], some["redelivered"]) == (2, 13)


def test_rebalances_have_their_traces() -> None:
    """As `konvene explain --why` prints them, by the rebalance's key."""
    model = Model("app", "consumer", {"orders": 4})
    model.join(Client("ann", "/a"), took_ms=100)
    model.wait(59_900)
    model.join(Client("bob", "/b"), took_ms=3_000, slow="ann")
    found = detail(model)
    keys = [row[report.COLUMNS.index("key")] for row in found["rebalances"]]
    assert keys == ["2-3-20", "1-3-10"] == list(found["traces"])
    traced = found["traces"]["2-3-20"]
    assert [after_ms for after_ms, _ in traced["steps"]] == [0, 0, 1_500, 3_000, 3_000, 3_000, 3_000, 3_000]
    assert traced["steps"][-1][1] == "completed: the group is Stable, 2 members"
    joined = dict(zip(MEMBER_COLUMNS, traced["members"][0], strict=True))
    assert (joined["part"], joined["before"], joined["after"], joined["added"]) == ("joined", 0, 2, 2)
    assert joined["waited_for"][0].startswith("ann-") and joined["acknowledged_ms"] == 3_000
    assert (traced["left_out"], traced["unknown"], traced["converged"]) == (0, (), True)


def test_the_newest_rebalances_of_each_group_have_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "TRACE_BYTES", 20_000)
    details = collect(day(), Selection())["details"]
    counts = [len(each["traces"]) for each in details]
    assert 3 < counts[1] <= counts[0] <= counts[1] + 1 and counts[2:] == [3, 3], "all that the others have"
    for each, count in zip(details, counts, strict=True):
        assert list(each["traces"]) == [row[0] for row in each["rebalances"][:count]]
    assert 17_000 < len(as_json([each["traces"] for each in details]).encode()) < 20_100


def test_long_logs_leave_less_room_for_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page stays below its limit."""
    whole = len(page(day(), Selection()).encode())
    monkeypatch.setattr(report, "CODE_BYTES", whole - len(as_json(collect(day(), Selection())).encode()))
    monkeypatch.setattr(report, "MAX_BYTES", whole - 50_000)
    made = page(day(), Selection())
    assert len(made.encode()) <= whole - 50_000
    assert data_of(made)["details"][0]["traces"]


@pytest.mark.parametrize("name", ["</script><b>", "<!--", "\u2028", "@@DATA@@"])
def test_names_in_traces_are_escaped(name: str) -> None:
    model = Model(name, "consumer", {name: 2})
    model.join(Client(name, name, instance_id=name))
    made = page(together(model), Selection())
    (traced,) = data_of(made)["details"][0]["traces"].values()
    assert traced["members"][0][0] == name and any(name in text for _, text in traced["steps"])
    assert made.count("</script>") == page(day(), Selection()).count("</script>")


def test_an_unknown_total_is_null() -> None:
    model = Model("app", "consumer", {"orders": 2})
    model.join(Client("ann", "/a"))
    model.rows["rebalance"][0] |= {"unavailable_ms": None}
    assert collect(together(model), Selection())["unavailable_ms"] is None
    assert collect(gold(), Selection())["unavailable_ms"] == 0


def test_scripts_set_no_style_attribute_and_no_markup() -> None:
    """Pages with a strict content security policy use them too."""
    for name in (*SHARED_SCRIPTS, "report.js"):
        text = file_text(name)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(|document\.write", text), name
        assert not re.search(r"""setAttribute\(["']style|style: [`"']""", text), name
        assert max(map(len, text.splitlines())) <= 110, name


def test_traces_of_the_page_are_those_of_explain_why() -> None:
    """Although the page's traces are made from fewer rows."""
    found = day()
    for each in collect(found, Selection())["details"]:
        for rebalance in found.select(Selection((each["id"],))):
            whole = trace(found, rebalance)
            shown = each["traces"][rebalance_key(rebalance)]
            assert [text for _, text in shown["steps"]] == [step.text for step in whole.steps]
            assert [values[0] for values in shown["members"]] == [f.name for f in whole.followers]
            assert shown["unknown"] == whole.unknown


def test_damage_of_the_logs_is_listed(tmp_path: Path) -> None:
    """Also beside each rebalance that it may have changed; a page about whole logs has no such section."""
    changed(kafkas_log(tmp_path / "logs", "classic"), flip((2, 75)))
    gold = explained(tmp_path / "w", tmp_path / "logs")
    data = collect(gold, Selection())
    assert data["damage"] == [damage_sentence(each) for each in gold.damage]
    notes = {row[0]: row[-1] for each in data["details"] for row in each["rebalances"]}  # type: ignore
    beside = {rebalance_key(r) for r in gold.rebalances if r.key in gold.damaged}
    assert {key for key, text in notes.items() if text.endswith(report.DAMAGED)} == beside != set()
    assert collect(day(), Selection())["damage"] == []
