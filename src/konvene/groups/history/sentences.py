"""Rows of the audit as sentences, for the CLI and for log lines alike.

A classic group rebalances in one go: its row has a start, an end, and members that were waited for in
between. Groups of other types move in two: a row for each epoch that says why it was raised, and a row once
all members have what was made of it. The first has no duration and no members, the second tells who came
last; of a streams group, how many tasks moved as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.shard import causes

__all__ = ["describe", "duration", "headline", "sentences", "word"]

SLOW_MS = 500
"""A member that comes later than this is named as the one that was waited for."""

ROLES = ("active", "standby", "warm-up")
"""Of tasks, as a row counts them."""

AT_ONCE = ("Assigning", "Empty")
"""States that a group of the new protocols comes to with the very record that raises its epoch."""


def describe(value: RebalanceValue) -> str:
    """A rebalance on one line: what came out, and why."""
    return f"{headline(value)}: {'; '.join(sentences(value)) or 'no cause is recorded'}"


def word(value: RebalanceValue) -> str:
    """What a group of this type counts: generations or epochs."""
    return "generation" if value.group_type == "classic" else "epoch"


def headline(value: RebalanceValue) -> str:
    """What came out, such as `generation 3 is Stable with 2 members after 279 ms`."""
    count = len(value.members) + value.members_left_out
    members = f" with {count} member{'' if count == 1 else 's'}" if count else ""
    took = ""
    if 0 <= value.started_ms <= value.ended_ms and not _at_once(value):
        took = f" after {duration(value.ended_ms - value.started_ms)}"
    inferred = ", inferred" if value.inferred else ""
    return f"{word(value)} {value.epoch} is {value.state}{members}{took}{inferred}"


def _at_once(value: RebalanceValue) -> bool:
    return value.group_type != "classic" and value.state in AT_ONCE


def sentences(value: RebalanceValue) -> list[str]:
    """One sentence per cause, one for what moved, and one for the member that was waited for longest."""
    assigns = value.group_type != "classic"
    return [*(_sentence(c, assigns) for c in value.causes), *_moved(value), *_waited_for(value)]


def _sentence(cause: Cause, assigns: bool) -> str:
    who = _who(cause.member_id, cause.instance_id, cause.client_id, cause.client_host)
    what = causes.SENTENCES.get(cause.kind, "")
    if assigns:
        what = causes.WHERE_IT_ASSIGNS.get(cause.kind, what)
    if not who:
        what = causes.OF_THE_GROUP.get(cause.kind, what)
    text = f"{cause.kind}: {' '.join(part for part in (who, what) if part) or 'no member is named'}"
    if cause.topic:
        text += f" (topic {cause.topic})"
    if cause.reason:
        text += f" ({cause.reason})" if cause.kind in causes.DETAILED else f"; its words: {cause.reason}"
    return text


def _moved(value: RebalanceValue) -> Iterator[str]:
    """How many tasks members have that they had not, or not in that role."""
    told = [f"{count} {role}" for role, count in zip(ROLES, value.moved, strict=False) if count]
    if told:
        yield f"tasks moved: {', '.join(told)}"
    elif value.moved:
        yield "tasks moved: none"


def _waited_for(value: RebalanceValue) -> Iterator[str]:
    """The member that came last, if it was late."""
    classic = value.group_type == "classic"
    last, since_ms = _last_to_rejoin(value) if classic else _last_to_follow(value)
    if last is None or last.joined_ms - since_ms < SLOW_MS:
        return
    who = _who(last.member_id, last.instance_id, last.client_id, last.client_host)
    late = duration(last.joined_ms - since_ms)
    if classic:
        yield f"slow to rejoin: {who} was the last to be back, after {late}"
    else:
        yield f"slow to follow: {who} was the last to have its assignment, {late} after it was made"


def _last_to_rejoin(value: RebalanceValue) -> tuple[RebalancedMember | None, int]:
    """Of those that were there before: who only just joined was not waited for."""
    new = {c.member_id for c in value.causes if c.kind == causes.MEMBER_JOINED}
    return _last([m for m in value.members if m.member_id not in new], value.started_ms)


def _last_to_follow(value: RebalanceValue) -> tuple[RebalancedMember | None, int]:
    """Of all: it gave up late what it had, or waited for one that did. Nothing is late before the target."""
    return _last(value.members, value.joined_ms)


def _last(members: Iterable[RebalancedMember], since_ms: int) -> tuple[RebalancedMember | None, int]:
    known = [m for m in members if m.joined_ms >= since_ms]
    if since_ms < 0 or not known:
        return None, since_ms
    return max(known, key=lambda m: (m.joined_ms, m.member_id)), since_ms


def _who(
    member_id: str | None, instance_id: str | None, client_id: str | None, client_host: str | None
) -> str:
    name = instance_id or member_id or ""
    if not name or not client_id:
        return name
    return f"{name} (client {client_id} at {client_host})" if client_host else f"{name} (client {client_id})"


def duration(ms: int) -> str:
    """A time that a person can read: `279 ms`, `4.2 s`, `2 min 3 s`."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms // 60_000} min {ms % 60_000 // 1000} s"
