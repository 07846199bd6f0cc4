"""Restore progress of task copies, from the members' reports."""

from __future__ import annotations

from konvene.groups.assignors.tasks.contract import AssignmentMemberSpec
from konvene.groups.assignors.tasks.lags import UNKNOWN, Progress

TASK = ("0", 3)


def member(
    process: str, offset: int | None = None, end: int | None = None, at_ms: int = 0
) -> AssignmentMemberSpec:
    return AssignmentMemberSpec(
        process,
        task_offsets={} if offset is None else {"0": {3: offset}},
        task_end_offsets={} if end is None else {"0": {3: end}},
        reported_ms=at_ms,
    )


def test_the_later_report_of_a_process_counts() -> None:
    """Members of one process share a disk, and the state of an earlier report may have been deleted since."""
    reports = [member("p", 70, at_ms=1), member("p", 40, at_ms=2), member("q", 90)]
    for members in (reports, reports[::-1]):
        progress = Progress.of(members)
        assert (progress.offset("p", TASK), progress.offset("q", TASK)) == (40, 90)


def test_the_end_is_the_one_reported_with_the_offset() -> None:
    """Members report later ends of a busy task by the time of their heartbeats, and no copy would ever have
    caught up. A member without the task knows no end: then the largest one counts."""
    progress = Progress.of([member("p", 100, 100), member("q", 60, 80), member("r", 10)])
    assert [progress.lag(process, TASK) for process in "pqr"] == [0, 20, 90]


def test_a_later_report_brings_its_own_end() -> None:
    """Also none: a thread that found the copy on its disk does not know the end that its mate knew."""
    reports = [member("p", 70, 75, at_ms=1), member("p", 80, at_ms=2), member("q", 100, 100)]
    for members in (reports, reports[::-1]):
        assert Progress.of(members).lag("p", TASK) == 20


def test_an_unreported_task_has_not_caught_up() -> None:
    for known in ([member("p", 5)], [member("p", None, 5)], [member("q", 5, 5)], []):
        assert not Progress.of(known).has_caught_up("p", TASK, 10**9)
    for useless in (-1, -2, UNKNOWN):
        assert Progress.of([member("p", useless, 10)]).lag("p", TASK) is None
        assert Progress.of([member("p", 10, useless)]).lag("p", TASK) is None


def test_a_lag_that_is_acceptable() -> None:
    progress = Progress.of([member("p", 90, 100), member("q", 101, 100)])
    assert progress.has_caught_up("p", TASK, 10)
    assert not progress.has_caught_up("p", TASK, 9)
    assert progress.lag("q", TASK) == 0


def test_a_clock_that_shows_a_time_before_1970() -> None:
    """The simulator's did, an hour before its start: a reported offset counted as none."""
    progress = Progress.of([member("p", 90, 100, at_ms=-5), member("p", 70, at_ms=-6)])
    assert progress.lag("p", TASK) == 10
