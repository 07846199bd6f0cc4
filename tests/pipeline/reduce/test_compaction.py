"""What a cleaner has taken is told as missing, and nothing else is told otherwise because of it."""

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


def all_of(rows: Rows) -> dict[str, set[Any]]:
    return {table: {frozen(row) for row in some} for table, some in rows.items()}


PLACE = ("group_id", "to_epoch", "log_partition", "last_offset")
OF_THE_CAUSE = (
    "cause", "member_id", "instance_id", "client_id", "client_host", "reason", "cause_topic", "causes",
)  # fmt: skip


def wrong(fewer: Rows, full: Rows) -> list[Any]:
    """Rows that the whole log does not have and that do not say that they are missing.

    Of the causes of a rebalance it may know less: fewer of them, or less exactly how a member went. What is
    said of them by gaps follows from that."""
    known = all_of(full)
    by_place = {tuple(row[name] for name in PLACE): row for row in full["rebalance"]}
    found = []
    for table, rows in fewer.items():
        for row in rows:
            if row["evidence"] == "missing" or frozen(row) in known[table]:
                continue
            if table == "rebalance" and knows_less(row, by_place.get(tuple(row[name] for name in PLACE))):
                continue
            if table == "unavailability" and any(
                frozen(row | {"cause": true["cause"]}) in known[table] for true in full["rebalance"]
            ):
                continue
            found.append((table, row))
    return found


def knows_less(row: dict[str, Any], true: dict[str, Any] | None) -> bool:
    """Whether a row differs in its causes alone, and says nothing of them that is not so."""
    if true is None or any(row[name] != true[name] for name in row if name not in OF_THE_CAUSE):
        return False
    for cause in row["causes"]:
        kinds = set(cause["kind"].split("|"))
        alike = [c for c in true["causes"] if set(c["kind"].split("|")) <= kinds]
        if cause["kind"] != "unknown" and all(c | {"kind": cause["kind"]} != cause for c in alike):
            return False
    return True


def told_epochs(rows: Rows, *, all_before: bool = False) -> Counter[tuple[str, int]]:
    """All generations and epochs that a row stands for, be it one for many. Where it is not known what came
    before, a row stands for its own; with `all_before`, for all of that."""
    found: Counter[tuple[str, int]] = Counter()
    for row in rows["rebalance"]:
        first = row["from_epoch"] + 1 if row["from_epoch"] >= 0 else 1 if all_before else row["to_epoch"]
        found.update((row["group_id"], epoch) for epoch in range(first, row["to_epoch"] + 1))
    return found


def assert_nothing_wrong(log: Sequence[Batch], full: Rows, names: dict[str, str]) -> int:
    """How many rows are told for sure."""
    rows = reduced(log, 0, (), names)
    assert wrong(rows, full) == []
    if len(told_epochs(full)) == told_epochs(full).total():  # No group was made anew.
        assert [each for each, times in told_epochs(rows).items() if times > 1] == []
    return sum(row["evidence"] != "missing" for row in rows["rebalance"])


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
@pytest.mark.parametrize("tombstones", [True, False])
def test_each_prefix_of_a_golden_log_may_be_compacted(name: str, tombstones: bool) -> None:
    sure = 0
    for log in golden(name).values():
        full = reduced(log, 0, (), names_of(name))
        for end in range(len(log) + 1):
            sure += assert_nothing_wrong(compacted(log, 0, end, tombstones), full, names_of(name))
    assert sure


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_so_may_each_stretch_in_the_middle(name: str) -> None:
    """A log that is compacted while it is read."""
    for log in golden(name).values():
        full = reduced(log, 0, (), names_of(name))
        for begin in range(0, len(log), 5):
            for end in range(begin + 1, len(log) + 1, 9):
                assert_nothing_wrong(compacted(log, begin, end), full, names_of(name))


@pytest.mark.parametrize("seed", range(30))
def test_so_may_any_log(seed: int) -> None:
    """Of consumer and of streams groups, as they may be written."""
    writer, walk, random = Writer(seed), Walk(seed), Random(seed)
    writer.write(120)
    walk.walk(80)
    for log in (writer.log, walk.log):
        full = reduced(log)
        for end in range(1, len(log) + 1, 9):
            assert_nothing_wrong(compacted(log, 0, end, tombstones=end % 2 == 0), full, {})
            assert_nothing_wrong(compacted(log, random.randrange(end), end), full, {})


@pytest.mark.parametrize("name", ["classic", "consumer", "streams"])
def test_epochs_whose_records_are_gone_are_told_as_missing(name: str) -> None:
    """Behind a hole, each epoch up to the last that is known is among those of one row, and of one alone."""
    for log in golden(name).values():
        whole = told_epochs(reduced(log))
        for begin in range(len(log) - 4):
            rows = reduced([*log[:begin], *log[begin + 3 :]])
            last = {row["group_id"]: row["to_epoch"] for row in rows["rebalance"]}
            expected = {each: 1 for each in whole if each[1] <= last.get(each[0], 0)}
            told = told_epochs(rows, all_before=True)
            assert {each: told[each] for each in told if each in whole} == expected, begin


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_a_log_may_end_anywhere(name: str) -> None:
    """What is not over is told without an end; what is, as in the whole log."""
    for log in golden(name).values():
        full = all_of(reduced(log, 0, (), names_of(name)))
        for end in range(len(log)):
            rows = reduced(log[:end], 0, (), names_of(name))
            for row in rows["rebalance"]:
                assert (frozen(row) in full["rebalance"]) is (row["end_ms"] is not None)
            for row in rows["ownership"]:
                assert row["to_ms"] is None or frozen(row) in full["ownership"]
