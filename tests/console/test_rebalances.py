"""The console's rebalances are those that the pipeline finds in the same logs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.console.logs import golden_history
from tests.pipeline.reduce.playing import Played
from tests.pipeline.reduce.reading import LOGS_OF_GROUPS, golden_rows
from tests.pipeline.streaming import audit_records

from konvene.codec.batches import Record
from konvene.console.rebalances import HOLD_MS, MAX_REBALANCES, RebalanceHistory, key_of
from konvene.pipeline.answers.rebalance import Rebalance, Selection
from konvene.pipeline.answers.trace import trace


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_rows_of_recorded_logs_are_the_pipelines(name: str) -> None:
    """Rebalances, members, ownership and gaps, with what is open at the end, of Apache Kafka's own logs."""
    history, _ = golden_history(name)
    expected = golden_rows(name)
    assert set(history.select(Selection())) == {Rebalance.from_row(row) for row in expected["rebalance"]}
    for table in ("rebalance_member", "ownership", "unavailability"):
        assert sorted_rows(history.rows(table)) == sorted_rows(expected[table])


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_each_rebalance_can_be_traced_and_has_a_key_of_its_own(name: str) -> None:
    history, _ = golden_history(name)
    found = history.select(Selection())
    assert found
    assert all(trace(history, each).sentence for each in found)
    keys = {(each.group_id, key_of(each)) for each in found}
    assert len(keys) == len(found)


def played(kind: str) -> tuple[Played, RebalanceHistory]:
    """Return a simulated run, and the history of a console that followed its log live: audit rows of a batch
    arrive after it, but before it is released."""
    run = Played(kind, seed=3, steps=600)
    history = RebalanceHistory("c")
    history.has_audit = True
    history.learn_topics({}, 1)
    audit = list(audit_records(run))
    rows = iter(zip(audit, run.rebalances, strict=True))
    following = next(rows, None)
    now_ms = 0
    for batch, base in zip(run.batches, run.first, strict=False):
        records = [Record(at, batch.timestamp_ms, *pair) for at, pair in enumerate(batch.pairs, base)]
        history.hold(0, base, base + batch.size - 1, records, now_ms)
        while following is not None and _is_due(following[1], run, base + batch.size):
            history.add_audit(0, [following[0]])
            following = next(rows, None)
        now_ms += HOLD_MS
        history.release(now_ms)
    return run, history


def _is_due(explained: Any, run: Played, end: int) -> bool:
    """Return True if the records that an audit row explains are before `end`."""
    return explained.last_offset < 0 or run.first[explained.last_offset + 1] <= end


@pytest.mark.parametrize("kind", ["static", "consumer", "streams"])
def test_audit_rows_that_arrive_after_their_records_explain_them(kind: str) -> None:
    """A live history has the causes that coordinators recorded, as if the audit had been read before."""
    run, history = played(kind)
    expected = {Rebalance.from_row(row).key: row["cause"] for row in run.rows(audit=True)["rebalance"]}
    found = {each.key: each for each in history.select(Selection())}
    assert found.keys() <= expected.keys()
    kept = {key for key in expected if key in found}
    assert len(kept) >= min(len(expected), MAX_REBALANCES // 2)
    differing = {key for key in kept if found[key].cause != expected[key]}
    assert not differing
    assert {each.evidence for each in found.values()} <= {"observed", "missing"}


def test_batches_wait_for_their_audit_rows() -> None:
    history = RebalanceHistory("c")
    history.has_audit = True
    history.hold(0, 0, 0, (), now_ms=1_000)
    history.hold(1, 0, 0, (), now_ms=1_100)
    assert history.release(1_000) == 1_000 + HOLD_MS
    assert history.release(1_000 + HOLD_MS) == 1_100 + HOLD_MS
    assert history.release(1_100 + HOLD_MS) is None


def test_without_an_audit_topic_batches_do_not_wait() -> None:
    history = RebalanceHistory("c")
    history.hold(0, 0, 0, (), now_ms=1_000)
    assert history.release(1_000) is None


def test_versions_change_with_the_group_alone() -> None:
    history, _ = golden_history("consumer")
    first, *others = history.group_ids
    assert all(history.version_of(group) > 0 for group in (first, *others))
    assert len({history.version_of(group) for group in history.group_ids}) == len(history.group_ids)
    assert history.version_of("no such group") == 0
    assert history.rebalances_of("no such group") == [] and history.last_of("no such group") is None


def test_damaged_audit_records_are_counted() -> None:
    history = RebalanceHistory("c")
    history.add_audit(0, [Record(0, 0, b"\x00\x00", b"\x00"), Record(1, 0, None, None)])
    assert history.undecoded == 2
