"""The story of one rebalance, step by step: what happened, in order, and who waited for whom.

`tell` puts together what four tables say of it: the rebalance, its members, who had what from when to when,
and what nobody had meanwhile. A step is a time and a sentence. What has no time in the log is no step; it
is said in `Story.unknown` instead of being put somewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from konvene.groups.history import duration
from konvene.pipeline.answers.cost import Cost
from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.answers.rebalance import Cause, Rebalance, Selection
from konvene.pipeline.answers.sentences import (
    ROLES,
    cause_words,
    counted,
    note,
    seconds,
    sentence,
    short,
    title,
)

__all__ = ["Follower", "Step", "Story", "find", "tell", "units"]

Row = Mapping[str, Any]
MOST_MEMBERS = 20
"""So many members are told of one by one: those who did something first."""


class Step(NamedTuple):
    """Something that happened."""

    ms: int
    text: str


class Follower(NamedTuple):
    """A member, and what the rebalance was for it."""

    name: str
    member_id: str
    part: str
    before: int
    after: int
    revoked: int
    added: int
    acknowledged_ms: int | None
    """From the start until it had what it was to have."""
    gave_up_ms: int | None
    """When it had given up the last of what it had to."""
    left_ms: int | None
    """When it was gone."""
    came_ms: int | None
    """When it joined."""
    states: tuple[str, ...]
    waited_for: tuple[str, ...]
    """Names of members."""


@dataclass(frozen=True, slots=True)
class Story:
    rebalance: Rebalance
    title: str
    sentence: str
    note: str
    steps: tuple[Step, ...]
    followers: tuple[Follower, ...]
    left_out: int
    """So many members more there were, of which nothing is to be told."""
    unknown: tuple[str, ...]
    """What the log does not tell."""

    def __repr__(self) -> str:
        return f"<story of {self.title}, {len(self.steps)} steps>"


def find(gold: Gold, group: str, epoch: int) -> list[Rebalance]:
    """The rebalances of a group that came to this epoch, newest first: more than one if it was made anew."""
    return [r for r in gold.select(Selection((group,))) if r.to_epoch == epoch]


def tell(gold: Gold, rebalance: Rebalance, cost: Cost | None = None) -> Story:
    """The story of it."""
    r = rebalance
    members = [row for row in gold.rows("rebalance_member", (r.group_id,)) if _is_of(row, r)]
    owned = [row for row in gold.rows("ownership", (r.group_id,)) if row["cluster"] == r.cluster]
    gaps = [row for row in gold.rows("unavailability", (r.group_id,)) if _is_of(row, r)]
    names = {row["member_id"]: _name(row) for row in members}
    lost = _changes(owned, r, "to_ms")
    got = _changes(owned, r, "from_ms")
    steps = [
        *_caused(r),
        *_begun(r),
        *_handed(_but_for(lost, got), names, "gave up"),
        *_targeted(r),
        *_handed(_but_for(got, lost), names, "got"),
        *_in_place(lost, got, names),
        *_followed(members, names, r),
        *_gaps(gaps, r),
        *_ended(r),
    ]  # Of one moment they stay in this order.
    followers = sorted(
        (_follower(row, names, r, lost) for row in members),
        key=lambda f: (_quiet(f), f.part, -(f.acknowledged_ms or 0), f.name),
    )
    return Story(
        rebalance=r,
        title=title(r),
        sentence=sentence(r, cost),
        note=note(r),
        steps=tuple(sorted(steps, key=lambda step: step.ms)),
        followers=tuple(followers[:MOST_MEMBERS]),
        left_out=max(len(followers) - MOST_MEMBERS, 0),
        unknown=tuple(_unknown(r, members)),
    )


def _is_of(row: Row, r: Rebalance) -> bool:
    epoch = row["to_epoch"] if "to_epoch" in row else row["epoch"]
    where = (row["cluster"], row["group_id"], row["log_partition"], row["base_offset"], epoch)
    return where == r.place


def _name(row: Row) -> str:
    name: str = row["instance_id"] or short(row["member_id"])
    client: str | None = row["client_id"]
    return f"{client} ({name})" if client and not name.startswith(client) and not row["instance_id"] else name


def _quiet(f: Follower) -> bool:
    """Whether the member just stayed what it was."""
    return f.part == "stayed" and not f.revoked and not f.added


# steps ----------------------------------------------------------------------------------------


def _caused(r: Rebalance) -> Iterable[Step]:
    for cause in r.all_causes:
        at_ms = cause.at_ms if cause.at_ms >= 0 else r.start_ms
        if at_ms is not None and at_ms >= 0:
            yield Step(at_ms, _one_cause(cause, r))


def _one_cause(cause: Cause, r: Rebalance) -> str:
    return cause_words(replace(r, causes=(cause,), causes_left_out=0))


def _begun(r: Rebalance) -> Iterable[Step]:
    if r.start_ms is not None and r.group_type == "classic":
        yield Step(r.start_ms, "the group prepares to rebalance: its members are told to join again")


def _targeted(r: Rebalance) -> Iterable[Step]:
    if r.target_ms is not None:
        classic = r.group_type == "classic"
        made = "all had joined, or time was up: the generation was made"
        yield Step(r.target_ms, made if classic else "the coordinator had made the new target")


def _ended(r: Rebalance) -> Iterable[Step]:
    if r.end_ms is None:
        return
    if r.superseded_by is not None:
        yield Step(r.end_ms, f"{r.word} {r.superseded_by} came, before this one was done")
    elif r.converged:
        yield Step(r.end_ms, f"done: the group is {r.state}, {counted(r.members, 'member')}")


def _changes(owned: Iterable[Row], r: Rebalance, at: str) -> dict[tuple[int, str], list[Row]]:
    """What changed hands within it, by time and member."""
    found: dict[tuple[int, str], list[Row]] = defaultdict(list)
    if r.at_ms < 0:
        return found
    low, high = (r.start_ms if r.start_ms is not None else r.at_ms), r.until_ms
    for row in owned:
        if row[at] is not None and low <= row[at] <= high and row["log_partition"] == r.log_partition:
            found[row[at], row["member_id"]].append(row)
    return found


def _handed(
    changes: Mapping[tuple[int, str], list[Row]], names: Mapping[str, str], verb: str
) -> Iterable[Step]:
    for (ms, member_id), rows in sorted(changes.items(), key=lambda item: item[0]):
        name = names.get(member_id) or short(member_id)
        yield Step(ms, f"{name} {verb} {units(rows)}")


def _but_for(
    changes: Mapping[tuple[int, str], list[Row]], others: Mapping[tuple[int, str], list[Row]]
) -> dict[tuple[int, str], list[Row]]:
    """Without tasks that only changed their role there and then."""
    found = {}
    for at, rows in changes.items():
        also = {(row["topic"], row["partition"]) for row in others.get(at, ())}
        left = [row for row in rows if row["group_type"] != "streams" or _unit(row) not in also]
        if left:
            found[at] = left
    return found


def _in_place(
    lost: Mapping[tuple[int, str], list[Row]],
    got: Mapping[tuple[int, str], list[Row]],
    names: Mapping[str, str],
) -> Iterable[Step]:
    """A member goes on with a task in another role, such as who warmed it up and is active now."""
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
            yield Step(
                ms, f"{name} has {ids} as {ROLES[role]}, and had {_THEM[len(some) > 1]} as {ROLES[was]}"
            )


_THEM = ("it", "them")


def _unit(row: Row) -> tuple[str, int]:
    return row["topic"], row["partition"]


def units(rows: Iterable[Row]) -> str:
    """What it is: `orders:0,2-4, payments:1`; tasks as Kafka writes them: `0_1,0_2, standby 1_0`."""
    by_topic: dict[tuple[str, str], list[int]] = defaultdict(list)
    tasks: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in rows:
        if row["group_type"] == "streams":
            tasks[row["role"]].append((row["topic"], row["partition"]))
        else:
            by_topic[row["role"], row["topic"]].append(row["partition"])
    told = [f"{topic}:{_ranges(sorted(numbers))}" for (_, topic), numbers in sorted(by_topic.items())]
    for role, ids in sorted(tasks.items()):
        listed = ",".join(f"{subtopology}_{n}" for subtopology, n in sorted(ids))
        told.append(listed if role == "active" else f"{ROLES[role]} {listed}")
    return ", ".join(told)


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _followed(members: Iterable[Row], names: Mapping[str, str], r: Rebalance) -> Iterable[Step]:
    """When each member had what it was to have; those of one moment in one step."""
    if r.start_ms is None:
        return
    by_ms: dict[int, list[Row]] = defaultdict(list)
    for row in members:
        if row["acknowledged_ms"] is not None and row["part"] != "gone":
            by_ms[r.start_ms + row["acknowledged_ms"]].append(row)
    done = "had joined again" if r.group_type == "classic" else "had what it was to have"
    for ms, rows in sorted(by_ms.items()):
        if len(rows) > 3:
            yield Step(ms, f"{counted(len(rows), 'member')} {done.replace('it was', 'they were')}")
            continue
        for row in rows:
            waited = [names.get(each) or short(each) for each in row["waited_for"]]
            after = f", after it had waited for {', '.join(waited)}" if waited else ""
            yield Step(ms, f"{names[row['member_id']]} {done}{after}")


def _gaps(gaps: Sequence[Row], r: Rebalance) -> Iterable[Step]:
    ended = [gap for gap in gaps if gap["to_ms"] is not None]
    if ended:
        longest = min(ended, key=lambda gap: (-(gap["gap_ms"] or 0), gap["topic"], gap["partition"]))
        total = sum(gap["gap_ms"] or 0 for gap in ended)
        yield Step(
            max(gap["to_ms"] for gap in ended),
            f"every {r.unit} that was without one had an owner again: {counted(len(ended), r.unit)}, "
            f"{seconds(total)} {r.unit}-seconds, {units([longest])} the longest with "
            f"{duration(longest['gap_ms'] or 0)}",
        )


def _follower(
    row: Row, names: Mapping[str, str], r: Rebalance, lost: Mapping[tuple[int, str], list[Row]]
) -> Follower:
    mine = [c for c in r.all_causes if c.member_id == row["member_id"]]
    at_ms = next((c.at_ms for c in mine if c.at_ms >= 0), None)
    gave = [ms for ms, member_id in lost if member_id == row["member_id"]]
    return Follower(
        name=names[row["member_id"]],
        member_id=row["member_id"],
        part=row["part"],
        before=row["units_before"],
        after=row["units_after"],
        revoked=row["revoked"],
        added=row["added"],
        acknowledged_ms=row["acknowledged_ms"],
        gave_up_ms=max(gave, default=None),
        left_ms=(at_ms if at_ms is not None else r.start_ms) if row["part"] == "gone" else None,
        came_ms=(at_ms if at_ms is not None else r.start_ms) if row["part"] == "joined" else None,
        states=tuple(row["states"]),
        waited_for=tuple(names.get(each) or short(each) for each in row["waited_for"]),
    )


def _unknown(r: Rebalance, members: Sequence[Row]) -> Iterable[str]:
    if r.start_ms is None:
        yield "when it began"
    if any(c.at_ms < 0 for c in r.all_causes) and r.start_ms is None:
        yield "when its causes were"
    if not members and r.members:
        yield "what it was for each member"
    if r.unavailable_ms is None:
        yield f"how long {r.unit}s had no owner"
