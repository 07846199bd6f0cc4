"""Alerts are a function of groups and time; messages about them come once for each occurrence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.answers.sample import START_MS, Client, Model, gold, together

from konvene.pipeline.answers import Advice, Rebalance
from konvene.pipeline.monitoring.alerts import RULES, Alert, Limits, alerts_of
from konvene.pipeline.monitoring.current import (
    Awaited,
    GroupNow,
    PartitionLag,
    current_groups,
    in_progress,
    lag_now,
)
from konvene.pipeline.monitoring.firing import MAX_PENDING, Fired, Firing, changes

# rules --------------------------------------------------------------------------------------------


def rebalances() -> tuple[Rebalance, ...]:
    """Of three members that joined one after the other; oldest first."""
    model = Model("app", "consumer", {"orders": 6})
    for name in ("ann", "bob", "cid"):
        model.join(Client(name, name))
        model.wait(60_000)
    return tuple(reversed(together(model).rebalances))


ROWS = rebalances()
LAST_MS = ROWS[-1].at_ms
OPEN = replace(ROWS[-1], converged=False, state="Reconciling", end_ms=None)
ADVICE = Advice("app", "churn", "Move less.", 5, numbers={"moved": 9})


def group(**values: Any) -> GroupNow:
    return GroupNow("c", "app", "consumer", **values)


@pytest.mark.parametrize(
    ("values", "after_ms", "expected"),
    [
        ({"rebalances": ROWS}, 0, []),
        ({"rebalances": ROWS * 4}, 0, ["rebalances"]),
        ({"rebalances": ROWS * 4}, 10_000_000, []),
        ({"open": OPEN}, 300_000, []),
        ({"open": OPEN}, 300_001, ["not-converging"]),
        ({"open": OPEN, "awaited": (Awaited("m1", "ann"), Awaited("m2", "bob"))}, 300_001,
         ["not-converging", "stuck-client ann", "stuck-client bob"]),
        ({"lags": (PartitionLag("t", 0, 9, 60_000),)}, 0, []),
        ({"lags": (PartitionLag("t", 0, 9, 60_001), PartitionLag("t", 1, 5, None))}, 0, ["lag"]),
        ({"advice": (ADVICE,)}, 0, ["advice churn"]),
    ],
)  # fmt: skip
def test_rules(values: dict[str, Any], after_ms: int, expected: list[str]) -> None:
    found = alerts_of([group(**values)], LAST_MS + after_ms, Limits(lag_ms=60_000))
    assert [f"{alert.rule} {alert.detail}".strip() for alert in found] == expected
    assert all(alert.text.endswith(".") and json.dumps(alert.numbers) for alert in found)


def test_texts_have_the_numbers() -> None:
    lags = (PartitionLag("orders", 0, 4, 90_000), PartitionLag("orders", 3, 1200, 61_000))
    found = alerts_of(
        [group(open=OPEN, awaited=(Awaited("m", "ann"),), lags=lags)],
        LAST_MS + 360_000,
        Limits(lag_ms=60_000),
    )
    assert [alert.text for alert in found] == [
        "app has not converged for 6 min 0 s, epoch 3: waiting for ann.",
        "Other members of app have waited for ann for 6 min 0 s.",
        "app has not read 1,204 records of 2 partitions, the oldest for 1 min 30 s (orders-0).",
    ]


def test_limits_of_none_disable_rules() -> None:
    everything = group(rebalances=ROWS * 9, open=OPEN, lags=(PartitionLag("t", 0, 9, 10**9),))
    assert alerts_of([everything], LAST_MS + 10**6, Limits(None, 0, None, None)) == []
    assert list(RULES) == ["rebalances", "not-converging", "stuck-client", "lag", "advice"]


def test_a_rebalance_is_in_progress_until_it_has_ended() -> None:
    assert in_progress((*ROWS[:-1], OPEN)) == OPEN
    for ended in ({"converged": True}, {"superseded_by": 9}, {"state": "Empty"}, {"evidence": "missing"}):
        assert in_progress([replace(OPEN, **ended)]) is None  # type: ignore[arg-type]
    assert in_progress([]) is None


# messages -----------------------------------------------------------------------------------------

NAMES = st.sampled_from("abc")
ALERTS = st.builds(Alert, st.sampled_from(["lag", "advice"]), st.just("c"), NAMES, st.just("text"), NAMES)


@given(st.lists(st.lists(ALERTS, max_size=5), max_size=12))
def test_each_occurrence_has_one_message_and_one_recovery(polls: list[list[Alert]]) -> None:
    """Messages of an alert alternate; the last one is about what applies now. Ids are unique."""
    firing: dict[Any, Fired] = {}
    messages = []
    for number, alerts in enumerate(polls):
        made, firing = changes(firing, alerts, number, is_first=number == 0)
        messages += made
        assert set(firing) == {alert.key for alert in alerts}
    assert len({message["id"] for message in messages}) == len(messages)
    by_alert: dict[Any, list[str]] = {}
    for message in messages:
        key = tuple(message[name] for name in ("rule", "cluster", "group", "detail"))
        by_alert.setdefault(key, []).append(message["status"])
    for key, statuses in by_alert.items():
        assert statuses == ["firing", "resolved"] * (len(statuses) // 2) + ["firing"] * (len(statuses) % 2)
        assert (statuses[-1] == "firing") == (key in firing and firing[key].informed)


def test_advice_that_applied_before_the_first_poll_is_not_new() -> None:
    old = Alert("advice", "c", "g", "text", "churn")
    made, firing = changes({}, [old], 1, is_first=True)
    assert made == [] and changes(firing, [], 2)[0] == []
    assert [each["status"] for each in changes({}, [old], 1)[0]] == ["firing"]


def test_alerts_and_undelivered_messages_survive_a_restart(tmp_path: Path) -> None:
    lag, storm = Alert("lag", "c", "g", "late"), Alert("rebalances", "c", "g", "often")
    first = Firing(tmp_path, ["a", "b"])
    (message,) = first.update([lag], 1)
    first.delivered("a", message)
    second = Firing(tmp_path, ["a", "b", "new"])
    assert (second.pending("a"), second.pending("b"), second.pending("new")) == ([], [message], [])
    assert second.update([lag], 2) == []
    assert [(each["rule"], each["status"]) for each in second.update([storm], 3)] == [
        ("rebalances", "firing"), ("lag", "resolved")
    ]  # fmt: skip
    (tmp_path / "_alerts.json").write_text("{}")
    assert Firing(tmp_path, ["a"]).pending("a") == []


def test_undelivered_messages_are_bounded(tmp_path: Path) -> None:
    firing = Firing(tmp_path, ["a"])
    for number in range(MAX_PENDING + 5):
        firing.update([Alert("lag", "c", str(number), "late")], number)
    assert len(firing.pending("a")) == MAX_PENDING


# groups -------------------------------------------------------------------------------------------


def test_lag_is_that_of_the_last_known_log_end() -> None:
    ends = [(0, 10, 1_000, 2_000), (10, 30, 3_000, 5_000), (30, 31, 9_000, 9_000)]
    assert lag_now(31, ends, 20_000) == (0, 0)
    assert lag_now(30, ends, 20_000) == (1, 11_000)
    assert lag_now(10, ends, 20_000) == (21, 17_000)
    assert lag_now(11, ends, 20_000) == (20, 15_000)
    assert lag_now(0, [], 20_000) is None and lag_now(50, ends, 20_000) == (0, 0)


def test_current_groups_have_members_or_offsets() -> None:
    """An empty group without offsets is not current; its lag is that of its newest commit."""
    model = Model("app", "consumer", {"orders": 2})
    ann = Client("ann", "/a")
    model.join(ann)
    model.wait(60_000)
    lag = [
        {"group_id": "idle", "topic": "t", "partition": 0, "minute_ms": START_MS + ms,
         "commit_ms": START_MS + ms, "committed_offset": offset}
        for ms, offset in ((60_000, 7), (0, 3))
    ]  # fmt: skip
    found = current_groups(gold(**model.rows | {"lag": lag}), START_MS + 200_000)
    assert [(each.group_id, each.members) for each in found] == [("app", 1)]
    assert found[0].rebalances and found[0].open is None
