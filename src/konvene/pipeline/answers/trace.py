"""The trace of one rebalance, step by step: what happened, in order, and which members waited for which.

`trace` joins four tables: the rebalance, its members, the ownership of partitions, and their unavailability.
A step is a time and a sentence. What has no time in the log is not a step; it is listed in
`RebalanceTrace.unknown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from konvene.groups.history import duration
from konvene.pipeline.answers.cost import Cost, GapPart, gap_part
from konvene.pipeline.answers.rebalance import Cause, Rebalance, Selection
from konvene.pipeline.answers.sentences import (
    ROLES,
    cause_text,
    member_name,
    note,
    seconds,
    sentence,
    short,
    title,
)
from konvene.pipeline.row import Row
from konvene.plurals import counted
from konvene.shard import causes

__all__ = ["MemberTrace", "RebalanceSource", "RebalanceTrace", "Step", "find_rebalances", "trace", "units"]

MAX_MEMBERS = 20
"""At most this many members are listed; those with changes come first."""


class RebalanceSource(Protocol):
    """Rebalances and the rows of other gold tables, such as `Gold` reads them from a warehouse."""

    def select(self, wanted: Selection, /) -> Sequence[Rebalance]:
        """Return the selected rebalances, newest first."""

    def rows(self, table: str, groups: Sequence[str], /) -> Iterable[Row]:
        """Return the rows that a table has of these groups."""


class Step(NamedTuple):
    """An event of a rebalance: its time, and a sentence."""

    ms: int
    text: str


class MemberTrace(NamedTuple):
    """One member's part in the rebalance. The field names are those of the JSON output."""

    name: str
    member_id: str
    part: str
    before: int
    after: int
    revoked: int
    added: int
    acknowledged_ms: int | None
    """Time from the start until the member reached its target assignment."""
    gave_up_ms: int | None
    """When the member revoked its last unit."""
    left_ms: int | None
    """When the member departed."""
    came_ms: int | None
    """When the member joined."""
    states: tuple[str, ...]
    waited_for: tuple[str, ...]
    """Names of members."""


@dataclass(frozen=True, slots=True)
class RebalanceTrace:
    """The trace of one rebalance: its sentence, its steps in order, and the part of each member."""

    rebalance: Rebalance
    title: str
    sentence: str
    note: str
    steps: tuple[Step, ...]
    followers: tuple[MemberTrace, ...]
    left_out: int
    """Number of members beyond `MAX_MEMBERS`."""
    unknown: tuple[str, ...]
    """Facts that the log does not record."""

    def __repr__(self) -> str:
        return f"<trace of {self.title}, {len(self.steps)} steps>"


def find_rebalances(source: RebalanceSource, group: str, epoch: int) -> list[Rebalance]:
    """Return the group's rebalances that led to this epoch, newest first.

    There are several if the group was deleted and created again."""
    return [r for r in source.select(Selection((group,))) if r.to_epoch == epoch]


def trace(source: RebalanceSource, rebalance: Rebalance, cost: Cost | None = None) -> RebalanceTrace:
    """Return the trace of a rebalance."""
    r = rebalance
    members = [row for row in source.rows("rebalance_member", (r.group_id,)) if _belongs_to(row, r)]
    owned = [row for row in source.rows("ownership", (r.group_id,)) if row["cluster"] == r.cluster]
    parts = [part for row in source.rows("unavailability", (r.group_id,)) if (part := gap_part(row, r))]
    names = {row["member_id"]: _name(row) for row in members}
    lost = _changes(owned, r, "to_ms")
    got = _changes(owned, r, "from_ms")
    steps = [
        *_silences(r),
        *_causes(r),
        *_start(r),
        *_ownership_steps(_without_role_changes(lost, got), names, "revoked"),
        *_target(r),
        *_ownership_steps(_without_role_changes(got, lost), names, "was assigned"),
        *_role_changes(lost, got, names),
        *_convergence(members, names, r),
        *_gaps(parts, r),
        *_end(r),
    ]  # Steps of the same millisecond keep this order.
    followers = sorted(
        (_member_trace(row, names, r, lost) for row in members),
        key=lambda f: (_unchanged(f), f.part, -(f.acknowledged_ms or 0), f.name),
    )
    return RebalanceTrace(
        rebalance=r,
        title=title(r),
        sentence=sentence(r, cost),
        note=note(r),
        steps=tuple(sorted(steps, key=lambda step: step.ms)),
        followers=tuple(followers[:MAX_MEMBERS]),
        left_out=max(len(followers) - MAX_MEMBERS, 0),
        unknown=tuple(_unknown(r, members)),
    )


def _belongs_to(row: Row, r: Rebalance) -> bool:
    epoch = row["to_epoch"] if "to_epoch" in row else row["epoch"]
    where = (row["cluster"], row["group_id"], row["log_partition"], row["base_offset"], epoch)
    return where == r.key


def _name(row: Row) -> str:
    name: str = row["instance_id"] or short(row["member_id"])
    client: str | None = row["client_id"]
    return f"{client} ({name})" if client and not name.startswith(client) and not row["instance_id"] else name


def _unchanged(f: MemberTrace) -> bool:
    """Return True if the member's assignment did not change."""
    return f.part == "stayed" and not f.revoked and not f.added


# steps ----------------------------------------------------------------------------------------


def _causes(r: Rebalance) -> Iterable[Step]:
    for cause in r.all_causes:
        at_ms = cause.at_ms if cause.at_ms >= 0 else r.start_ms
        if at_ms is not None and at_ms >= 0:
            yield Step(at_ms, _one_cause(cause, r))


def _silences(r: Rebalance) -> Iterable[Step]:
    """Yield a step for the earliest time at which a member whose session expired can have stopped."""
    if not r.silent_ms or r.session_timeout_ms is None:
        return
    for cause in r.all_causes:
        if causes.SESSION_EXPIRED not in cause.kinds or cause.at_ms < 0:
            continue
        member = member_name(cause.member_id, cause.instance_id, cause.client_id, cause.client_host)
        condition = "" if len(cause.kinds) == 1 else ", if its session expired"
        yield Step(
            cause.at_ms - r.session_timeout_ms,
            f"{member or 'a member'} sent its last heartbeat at this time or later{condition}: its session "
            f"timeout is {duration(r.session_timeout_ms)}",
        )


def _one_cause(cause: Cause, r: Rebalance) -> str:
    return cause_text(replace(r, causes=(cause,), causes_left_out=0))


def _start(r: Rebalance) -> Iterable[Step]:
    if r.start_ms is not None and r.group_type == "classic":
        yield Step(r.start_ms, "the group is PreparingRebalance: all members have to rejoin")


def _target(r: Rebalance) -> Iterable[Step]:
    if r.target_ms is not None:
        classic = r.group_type == "classic"
        created = "all members joined, or the rebalance timeout expired: the generation was created"
        yield Step(r.target_ms, created if classic else "the coordinator computed the target assignment")


def _end(r: Rebalance) -> Iterable[Step]:
    if r.end_ms is None:
        return
    if r.superseded_by is not None:
        yield Step(r.end_ms, f"interrupted by {r.epoch_noun} {r.superseded_by}")
    elif r.converged:
        yield Step(r.end_ms, f"completed: the group is {r.state}, {counted(r.members, 'member')}")


def _changes(owned: Iterable[Row], r: Rebalance, at: str) -> dict[tuple[int, str], list[Row]]:
    """Return the rows of `ownership` that began (`at` is `from_ms`) or ended (`to_ms`) within the rebalance,
    by time and member."""
    found: dict[tuple[int, str], list[Row]] = defaultdict(list)
    if r.at_ms < 0:
        return found
    low, high = (r.start_ms if r.start_ms is not None else r.at_ms), r.until_ms
    for row in owned:
        if row[at] is not None and low <= row[at] <= high and row["log_partition"] == r.log_partition:
            found[row[at], row["member_id"]].append(row)
    return found


def _ownership_steps(
    changes: Mapping[tuple[int, str], list[Row]], names: Mapping[str, str], verb: str
) -> Iterable[Step]:
    for (ms, member_id), rows in sorted(changes.items(), key=lambda item: item[0]):
        name = names.get(member_id) or short(member_id)
        yield Step(ms, f"{name} {verb} {units(rows)}")


def _without_role_changes(
    changes: Mapping[tuple[int, str], list[Row]], others: Mapping[tuple[int, str], list[Row]]
) -> dict[tuple[int, str], list[Row]]:
    """Return `changes` without the tasks that `others` has for the same time and member.

    With gains in one and losses in the other, only the role of such a task changed."""
    found = {}
    for at, rows in changes.items():
        also = {(row["topic"], row["partition"]) for row in others.get(at, ())}
        left = [row for row in rows if row["group_type"] != "streams" or _unit(row) not in also]
        if left:
            found[at] = left
    return found


def _role_changes(
    lost: Mapping[tuple[int, str], list[Row]],
    got: Mapping[tuple[int, str], list[Row]],
    names: Mapping[str, str],
) -> Iterable[Step]:
    """Yield a step for the tasks that stay with their member in another role, such as a warm-up that becomes
    active."""
    for (ms, member_id), rows in sorted(got.items(), key=lambda item: item[0]):
        before = {
            _unit(row): row["role"] for row in lost.get((ms, member_id), ()) if row["group_type"] == "streams"
        }
        changed: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in rows:
            if _unit(row) in before:
                changed[before[_unit(row)], row["role"]].append(row)
        name = names.get(member_id) or short(member_id)
        for (was, role), some in sorted(changed.items()):
            ids = ",".join(f"{topic}_{n}" for topic, n in sorted(map(_unit, some)))
            yield Step(ms, f"{name} changed {ids} from {ROLES[was]} to {ROLES[role]}")


def _unit(row: Row) -> tuple[str, int]:
    return row["topic"], row["partition"]


def units(rows: Iterable[Row]) -> str:
    """Format units as text: `orders:0,2-4, payments:1`; tasks as Kafka writes them: `0_1,0_2, standby
    1_0`; in Kafka Connect `connector jdbc, jdbc-0,2`."""
    by_topic: dict[tuple[str, str], list[int]] = defaultdict(list)
    tasks: dict[str, list[tuple[str, int]]] = defaultdict(list)
    listed: list[str] = []
    for row in rows:
        if row["group_type"] == "streams":
            tasks[row["role"]].append((row["topic"], row["partition"]))
        elif row["role"] == "connector":
            listed.append(f"connector {row['topic']}")
        else:
            by_topic[row["role"], row["topic"]].append(row["partition"])
    listed.sort()
    for (role, topic), numbers in sorted(by_topic.items()):
        found = _ranges(sorted(numbers))
        listed.append(f"{topic}:{found}" if role != "task" else f"{topic}-{found}")
    for role, ids in sorted(tasks.items()):
        task_ids = ",".join(f"{subtopology}_{n}" for subtopology, n in sorted(ids))
        listed.append(task_ids if role == "active" else f"{ROLES[role]} {task_ids}")
    return ", ".join(listed)


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _convergence(members: Iterable[Row], names: Mapping[str, str], r: Rebalance) -> Iterable[Step]:
    """Yield a step for each time at which members reached their target assignments."""
    if r.start_ms is None:
        return
    by_ms: dict[int, list[Row]] = defaultdict(list)
    for row in members:
        if row["acknowledged_ms"] is not None and row["part"] != "gone":
            by_ms[r.start_ms + row["acknowledged_ms"]].append(row)
    classic = r.group_type == "classic"
    for ms, rows in sorted(by_ms.items()):
        if len(rows) > 3:
            done = "rejoined" if classic else "reached their target assignments"
            yield Step(ms, f"{counted(len(rows), 'member')} {done}")
            continue
        for row in rows:
            waited = [names.get(each) or short(each) for each in row["waited_for"]]
            after = f", after waiting for {', '.join(waited)}" if waited else ""
            done = "rejoined" if classic else "reached its target assignment"
            yield Step(ms, f"{names[row['member_id']]} {done}{after}")


def _gaps(parts: Sequence[GapPart], r: Rebalance) -> Iterable[Step]:
    """Yield a step for the partitions that had no owner, when they have one again or the rebalance ends."""
    ended = [part for part in parts if part.to_ms is not None]
    if not ended:
        return
    longest = min(ended, key=lambda part: (-part.ms, part.gap["topic"], part.gap["partition"]))
    units_of = {_unit(part.gap) for part in ended}
    left = len({_unit(part.gap) for part in parts if part.to_ms is None or part.to_ms != part.gap["to_ms"]})
    still = f"{counted(left, r.unit)} still {'has' if left == 1 else 'have'} no owner"
    yield Step(
        max(part.to_ms for part in ended if part.to_ms is not None),
        f"{still if left else f'all {r.unit}s have an owner again'}: {counted(len(units_of), r.unit)} had "
        f"none for {seconds(sum(part.ms for part in ended))} {r.unit}-seconds in total; longest: "
        f"{units([longest.gap])}, {duration(longest.ms)}",
    )


def _member_trace(
    row: Row, names: Mapping[str, str], r: Rebalance, lost: Mapping[tuple[int, str], list[Row]]
) -> MemberTrace:
    own_causes = [c for c in r.all_causes if c.member_id == row["member_id"]]
    at_ms = next((c.at_ms for c in own_causes if c.at_ms >= 0), None)
    revoked = [ms for ms, member_id in lost if member_id == row["member_id"]]
    return MemberTrace(
        name=names[row["member_id"]],
        member_id=row["member_id"],
        part=row["part"],
        before=row["units_before"],
        after=row["units_after"],
        revoked=row["revoked"],
        added=row["added"],
        acknowledged_ms=row["acknowledged_ms"],
        gave_up_ms=max(revoked, default=None),
        left_ms=(at_ms if at_ms is not None else r.start_ms) if row["part"] == "gone" else None,
        came_ms=(at_ms if at_ms is not None else r.start_ms) if row["part"] == "joined" else None,
        states=tuple(row["states"]),
        waited_for=tuple(names.get(each) or short(each) for each in row["waited_for"]),
    )


def _unknown(r: Rebalance, members: Sequence[Row]) -> Iterable[str]:
    if r.start_ms is None:
        yield "when the rebalance began"
    if any(c.at_ms < 0 for c in r.all_causes) and r.start_ms is None:
        yield "when its causes occurred"
    if not members and r.members:
        yield "how the assignment of each member changed"
    if r.unavailable_ms is None:
        yield f"how long {r.unit}s had no owner"
    if r.silent_units and r.silent_ms is None:
        yield f"how long {counted(r.silent_units, r.unit)} had no reader before a session expired"
