"""Compaction turns evidence into missing, but never yields a wrong row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from tests.groups.history.logs import Batch, compacted, golden
from tests.groups.history.walking import Walk
from tests.groups.history.writing import Writer
from tests.pipeline.reduce.reading import LOGS_OF_GROUPS, Rows, names_of, reduced


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, frozen(each)) for name, each in value.items())
    return tuple(frozen(each) for each in value) if isinstance(value, list) else value


def frozen_rows(rows: Rows) -> dict[str, set[Any]]:
    return {table: {frozen(row) for row in some} for table, some in rows.items()}


POSITION = ("group_id", "to_epoch", "log_partition", "last_offset")
OF_THE_CAUSE = (
    "cause", "member_id", "instance_id", "client_id", "client_host", "reason", "cause_topic", "causes",
    "silent_units", "silent_ms", "session_timeout_ms",
)  # fmt: skip


def wrong_rows(fewer: Rows, full: Rows) -> list[Any]:
    """Return rows that contradict the full log and are not marked as missing.

    A rebalance may have fewer causes, or a less exact departure cause; the causes of gaps follow from
    that."""
    known = frozen_rows(full)
    by_position = {tuple(row[name] for name in POSITION): row for row in full["rebalance"]}
    found = []
    for table, rows in fewer.items():
        for row in rows:
            if row["evidence"] == "missing" or frozen(row) in known[table]:
                continue
            if table == "rebalance" and is_less_exact(
                row, by_position.get(tuple(row[name] for name in POSITION))
            ):
                continue
            if table == "unavailability" and any(
                frozen(row | {"cause": true["cause"]}) in known[table] for true in full["rebalance"]
            ):
                continue
            found.append((table, row))
    return found


def is_less_exact(row: dict[str, Any], true: dict[str, Any] | None) -> bool:
    """Return True if a row differs from the full log's in its causes alone, and these are compatible.

    A departure that may be an expired session leaves it open for how long partitions had no reader."""
    if true is None or any(row[name] != true[name] for name in row if name not in OF_THE_CAUSE):
        return False
    if row["silent_units"] < true["silent_units"]:
        return False
    for cause in row["causes"]:
        kinds = set(cause["kind"].split("|"))
        alike = [c for c in true["causes"] if set(c["kind"].split("|")) <= kinds]
        if cause["kind"] != "unknown" and all(c | {"kind": cause["kind"]} != cause for c in alike):
            return False
    return True


def covered_epochs(rows: Rows, *, all_before: bool = False) -> Counter[tuple[str, int]]:
    """Count the epochs that rows cover, one row possibly several.

    Where the previous epoch is unknown, a row covers only its own; with `all_before`, all from epoch 1."""
    found: Counter[tuple[str, int]] = Counter()
    for row in rows["rebalance"]:
        first = row["from_epoch"] + 1 if row["from_epoch"] >= 0 else 1 if all_before else row["to_epoch"]
        found.update((row["group_id"], epoch) for epoch in range(first, row["to_epoch"] + 1))
    return found


def assert_no_wrong_rows(log: Sequence[Batch], full: Rows, names: dict[str, str]) -> int:
    """Check the reduction of a compacted log, and return how many of its rows are not missing."""
    rows = reduced(log, 0, (), names)
    assert wrong_rows(rows, full) == []
    if len(covered_epochs(full)) == covered_epochs(full).total():  # No group was created again.
        assert [each for each, times in covered_epochs(rows).items() if times > 1] == []
    return sum(row["evidence"] != "missing" for row in rows["rebalance"])


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
@pytest.mark.parametrize("tombstones", [True, False])
def test_each_prefix_of_a_golden_log_may_be_compacted(name: str, tombstones: bool) -> None:
    certain = 0
    for log in golden(name).values():
        full = reduced(log, 0, (), names_of(name))
        for end in range(len(log) + 1):
            certain += assert_no_wrong_rows(compacted(log, 0, end, tombstones), full, names_of(name))
    assert certain


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_any_range_of_a_golden_log_may_be_compacted(name: str) -> None:
    """Compaction may run while the log is read."""
    for log in golden(name).values():
        full = reduced(log, 0, (), names_of(name))
        for begin in range(0, len(log), 5):
            for end in range(begin + 1, len(log) + 1, 9):
                assert_no_wrong_rows(compacted(log, begin, end), full, names_of(name))


@pytest.mark.parametrize("seed", range(30))
def test_any_range_of_a_random_log_may_be_compacted(seed: int) -> None:
    """Random logs of classic, consumer and streams groups."""
    writer, walk, random = Writer(seed), Walk(seed), Random(seed)
    writer.write(120)
    walk.walk(80)
    for log in (writer.log, walk.log):
        full = reduced(log)
        for end in range(1, len(log) + 1, 9):
            assert_no_wrong_rows(compacted(log, 0, end, tombstones=end % 2 == 0), full, {})
            assert_no_wrong_rows(compacted(log, random.randrange(end), end), full, {})


@pytest.mark.parametrize("name", ["classic", "consumer", "streams"])
def test_epochs_of_removed_records_are_covered_once(name: str) -> None:
    """After a removed range, each epoch up to the last known one is covered by exactly one row."""
    for log in golden(name).values():
        whole = covered_epochs(reduced(log))
        for begin in range(len(log) - 4):
            rows = reduced([*log[:begin], *log[begin + 3 :]])
            in_order = sorted(rows["rebalance"], key=lambda row: row["last_offset"])
            last = {row["group_id"]: row["to_epoch"] for row in in_order}
            expected = {each: 1 for each in whole if each[1] <= last.get(each[0], 0)}
            covered = covered_epochs(rows, all_before=True)
            assert {each: covered[each] for each in covered if each in whole} == expected, begin


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_truncated_log_has_open_rows_at_its_end(name: str) -> None:
    """Unfinished rebalances and ownerships have no end; finished ones equal those of the full log."""
    for log in golden(name).values():
        full = frozen_rows(reduced(log, 0, (), names_of(name)))
        for end in range(len(log)):
            rows = reduced(log[:end], 0, (), names_of(name))
            for row in rows["rebalance"]:
                assert (frozen(row) in full["rebalance"]) is (row["end_ms"] is not None)
            for row in rows["ownership"]:
                assert row["to_ms"] is None or frozen(row) in full["ownership"]
