"""Audit rows as sentences, for the CLI and for log lines.

A classic group rebalances in one step: its row has a start, an end, and the members that it waited for.
Groups of the other types rebalance in two steps: one row for each epoch bump, with its causes, and one row
once all members have reached their target assignment. The first row has no duration and no members; the
second names the member that converged last and, for a streams group, counts the tasks that moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from konvene.plurals import counted
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.shard import causes

__all__ = ["describe", "duration", "epoch_noun", "headline", "sentences"]

SLOW_MS = 500
"""A member that takes longer than this is reported as slow."""

ROLES = ("active", "standby", "warm-up")
"""Task roles, in the order in which a row counts them."""

AT_ONCE = ("Assigning", "Empty")
"""States of the rows that report an epoch bump of a consumer, share or streams group, which takes no time."""


def describe(value: RebalanceValue) -> str:
    """Return a rebalance on one line: its result and its causes."""
    return f"{headline(value)}: {'; '.join(sentences(value)) or 'no cause is recorded'}"


def epoch_noun(value: RebalanceValue) -> str:
    """Return `generation` for a classic group, and `epoch` for a group of any other type."""
    return "generation" if value.group_type == "classic" else "epoch"


def headline(value: RebalanceValue) -> str:
    """Return the result of a rebalance, such as `generation 3 is Stable with 2 members after 279 ms`."""
    count = len(value.members) + value.members_left_out
    members = f" with {counted(count, 'member')}" if count else ""
    took = ""
    if 0 <= value.started_ms <= value.ended_ms and not _at_once(value):
        took = f" after {duration(value.ended_ms - value.started_ms)}"
    inferred = ", inferred" if value.inferred else ""
    return f"{epoch_noun(value)} {value.epoch} is {value.state}{members}{took}{inferred}"


def _at_once(value: RebalanceValue) -> bool:
    """Return whether the row only reports an epoch bump, which takes no time, and not a whole rebalance."""
    return value.group_type != "classic" and value.state in AT_ONCE


def sentences(value: RebalanceValue) -> list[str]:
    """Return one sentence per cause, one for the moved tasks, and one for the slowest member."""
    return [*(_sentence(c, value.group_type) for c in value.causes), *_moved(value), *_waited_for(value)]


def _sentence(cause: Cause, group_type: str) -> str:
    member = _member_name(cause.member_id, cause.instance_id, cause.client_id, cause.client_host)
    what = causes.predicate(cause.kind, group_type)
    if not member:
        what = causes.GROUP_SENTENCES.get(cause.kind, what)
    text = f"{cause.kind}: {' '.join(part for part in (member, what) if part) or 'no member is named'}"
    if cause.topic:
        text += f" (topic {cause.topic})"
    if cause.reason:
        text += (
            f" ({cause.reason})"
            if cause.kind in causes.WITH_COORDINATOR_DETAIL
            else f"; reason: {cause.reason}"
        )
    return text


def _moved(value: RebalanceValue) -> Iterator[str]:
    """Yield a sentence that counts the tasks that members gained, or kept in another role."""
    moved = [f"{count} {role}" for role, count in zip(ROLES, value.moved, strict=False) if count]
    if moved:
        yield f"tasks moved: {', '.join(moved)}"
    elif value.moved:
        yield "tasks moved: none"


def _waited_for(value: RebalanceValue) -> Iterator[str]:
    """Yield a sentence about the slowest member, if it took longer than `SLOW_MS`."""
    classic = value.group_type == "classic"
    last, since_ms = _last_to_rejoin(value) if classic else _last_to_converge(value)
    if last is None or last.joined_ms - since_ms < SLOW_MS:
        return
    member = _member_name(last.member_id, last.instance_id, last.client_id, last.client_host)
    late = duration(last.joined_ms - since_ms)
    if classic:
        yield f"slow to rejoin: {member} rejoined last, after {late}"
    else:
        yield f"slow to converge: {member} converged last, {late} after the new target assignment"


def _last_to_rejoin(value: RebalanceValue) -> tuple[RebalancedMember | None, int]:
    """Return the classic member that rejoined last, and when the rebalance started.

    New members do not count."""
    new = {c.member_id for c in value.causes if c.kind == causes.MEMBER_JOINED}
    return _last([m for m in value.members if m.member_id not in new], value.started_ms)


def _last_to_converge(value: RebalanceValue) -> tuple[RebalancedMember | None, int]:
    """Return the member that reached its target assignment last, and when the target was computed."""
    return _last(value.members, value.joined_ms)


def _last(members: Iterable[RebalancedMember], since_ms: int) -> tuple[RebalancedMember | None, int]:
    """Return the member with the latest time since `since_ms` (None if there is none), and `since_ms`."""
    known = [m for m in members if m.joined_ms >= since_ms]
    if since_ms < 0 or not known:
        return None, since_ms
    return max(known, key=lambda m: (m.joined_ms, m.member_id)), since_ms


def _member_name(
    member_id: str | None, instance_id: str | None, client_id: str | None, client_host: str | None
) -> str:
    name = instance_id or member_id or ""
    if not name or not client_id:
        return name
    return f"{name} (client {client_id} at {client_host})" if client_host else f"{name} (client {client_id})"


def duration(ms: int) -> str:
    """Return a duration for people: `279 ms`, `4.2 s`, `2 min 3 s`."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms // 60_000} min {ms % 60_000 // 1000} s"
