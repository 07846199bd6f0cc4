"""Rebalances as sentences: one per rebalance, and what the log could not record about it.

A sentence names the cause, the duration, the moved units and the cost. Unknown values of the row are left
out. If the log cannot distinguish two causes, both are named. `note` names the evidence for a row; `caveats`
lists, once for many rebalances, which facts Kafka's log does not contain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from konvene.groups.history import duration
from konvene.pipeline.answers.cost import Cost
from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.plurals import counted, plural
from konvene.shard import causes

__all__ = [
    "LOG_ENDS",
    "ROLES",
    "cause_text",
    "caveats",
    "member_name",
    "note",
    "seconds",
    "sentence",
    "short",
    "title",
]  # fmt: skip

MAX_NAMED_CAUSES = 3
"""More causes than this are counted by kind."""

ROLES = {"active": "active", "standby": "standby", "warmup": "warm-up"}
"""Names of task roles."""

LOG_ENDS = "the log ends before it completed"
"""The clause for a rebalance whose end is not in the log."""

ALTERNATIVES = {
    "member-left": "left",
    "session-expired": "its session expired",
    "rebalance-timeout": "its rebalance timeout expired",
    "removed-by-admin": "it was removed by an administrator",
    "fenced": "it was fenced",
    "sync-timeout": "its SyncGroup timed out",
    "member-joined": "joined",
    "static-member-rejoins": "rejoined with its instance id",
    "member-metadata-changed": "rejoined with other metadata",
    "cooperative-follow-up": "revoked partitions others were waiting for",
    "topic-metadata-changed": "detected a change of its topics",
    "leader-rejoined": "the leader rejoined",
}
"""Clauses for kinds that are one of several possible causes."""

EVENTS = {
    "member-left": "leaving",
    "session-expired": "session expiry",
    "rebalance-timeout": "a rebalance timeout",
    "removed-by-admin": "removal by an administrator",
    "fenced": "fencing",
    "sync-timeout": "a SyncGroup timeout",
}
"""Nouns for kinds of departures."""

PLURALS = {
    causes.MEMBER_JOINED: "joined",
    causes.MEMBER_LEFT: "left",
    causes.MEMBER_DEPARTED: "left, or were removed",
    causes.SESSION_EXPIRED: "sent no heartbeat within their session timeout",
    causes.STATIC_MEMBER_REJOINS: "rejoined with their instance ids",
    causes.COOPERATIVE_FOLLOW_UP: "revoked partitions others were waiting for",
    causes.SUBSCRIPTION_CHANGED: "changed their subscriptions",
    causes.WARMUP_CAUGHT_UP: "have warm-up tasks that caught up",
    "member-left|session-expired": "left, or their sessions expired",
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_RANDOM = re.compile(r"[\w-]{22}$")


def short(member_id: str) -> str:
    """Abbreviate the random part of a member id: `bob-a334…`, `7nAl…`."""
    found = _UUID.search(member_id)
    if found:
        return member_id[: found.start() + 4] + "…"
    if _RANDOM.fullmatch(member_id):
        return member_id[:4] + "…"
    return member_id


def member_name(
    member_id: str | None, instance_id: str | None, client_id: str | None, host: str | None
) -> str:
    """Return the name by which an operator knows a member; empty if the row names none."""
    name = instance_id or (short(member_id) if member_id else "")
    if not name:
        return f"client {client_id}" if client_id else ""
    if not client_id:
        return name
    return f"{name} (client {client_id} at {host})" if host else f"{name} (client {client_id})"


def seconds(ms: int) -> str:
    """Format partition-milliseconds as partition-seconds: `0.024`, `0.3`, `12.5`, `1,204`."""
    if ms < 100:
        return f"{ms / 1000:.3f}"
    return f"{ms / 1000:,.1f}" if ms < 100_000 else f"{ms / 1000:,.0f}"


def title(rebalance: Rebalance) -> str:
    """Return the heading of a rebalance: `orders-app (classic), generation 12 → 13`."""
    before = rebalance.from_epoch if rebalance.from_epoch >= 0 else "?"
    noun = rebalance.epoch_noun
    return f"{rebalance.group_id} ({rebalance.group_type}), {noun} {before} → {rebalance.to_epoch}"


def sentence(rebalance: Rebalance, cost: Cost | None = None, *, unfinished: str = LOG_ENDS) -> str:
    """Describe a rebalance in one sentence. Without a `cost` it does not count the unavailable partitions.

    `unfinished` is the clause for a rebalance that has not ended: another one where the log is followed."""
    parts = [_result(rebalance, unfinished), _moved(rebalance), _cost(rebalance, cost), _silence(rebalance)]
    effects = "; ".join(part for part in parts if part)
    cause = cause_text(rebalance)
    return f"{cause[:1].upper() if rebalance.member_id is None else cause[:1]}{cause[1:]}: {effects}."


# the cause ------------------------------------------------------------------------------------


def cause_text(rebalance: Rebalance) -> str:
    """Describe up to `MAX_NAMED_CAUSES` causes one by one; if there are more, count them by kind."""
    known = rebalance.all_causes
    more = rebalance.causes_left_out
    if len(known) + more <= MAX_NAMED_CAUSES:
        return "; ".join(_each_cause(rebalance)).replace("; and ", ", and ")
    kinds = Counter(c.kind for c in known)
    texts = [_counted_cause(kind, count, rebalance) for kind, count in kinds.most_common()]
    return "; ".join([*texts, *([f"and {counted(more, 'more cause')}"] if more else [])])


def _each_cause(rebalance: Rebalance) -> Iterator[str]:
    """Yield a clause per cause; consecutive causes of one member name it once."""
    previous = ""
    for cause, count in Counter(rebalance.all_causes).items():
        text = _superseded(count) if _is_superseded(cause.kind) else _cause(cause, rebalance)
        member = member_name(cause.member_id, cause.instance_id, cause.client_id, cause.client_host)
        yield f"and {text.removeprefix(member).strip()}" if member and member == previous else text
        previous = member


def _counted_cause(kind: str, count: int, rebalance: Rebalance) -> str:
    if _is_superseded(kind):
        return _superseded(count)
    if count == 1 or kind not in PLURALS:
        return _cause(next(c for c in rebalance.all_causes if c.kind == kind), rebalance)
    return f"{counted(count, 'member')} {PLURALS[kind]}"


def _cause(cause: Cause, rebalance: Rebalance) -> str:
    member = member_name(cause.member_id, cause.instance_id, cause.client_id, cause.client_host)
    text = (
        _alternatives(cause.kinds, member) if len(cause.kinds) > 1 else _plain(cause.kind, member, rebalance)
    )
    if cause.topic:
        text += f" (topic {cause.topic})"
    if not cause.reason:
        return text
    return (
        f"{text} ({cause.reason})"
        if cause.kind in causes.WITH_COORDINATOR_DETAIL
        else f"{text} (client's reason: “{cause.reason}”)"
    )


def _is_superseded(kind: str) -> bool:
    return kind == causes.SUPERSEDED_UNRECORDED


def _superseded(count: int) -> str:
    """Return the clause on generations that left no record; the members that superseded them did neither."""
    if count == 1:
        return causes.GROUP_SENTENCES[causes.SUPERSEDED_UNRECORDED]
    return f"{count:,} generations were superseded before their assignments were stored, and left no record"


def _plain(kind: str, member: str, rebalance: Rebalance) -> str:
    predicate = causes.predicate(kind, rebalance.group_type)
    if not member or not predicate:
        return causes.GROUP_SENTENCES.get(kind) or f"a member {predicate or kind}"
    return f"{member} {predicate}"


def _alternatives(kinds: tuple[str, ...], member: str) -> str:
    first, *others = [ALTERNATIVES.get(kind, kind) for kind in kinds]
    return f"{member or 'a member'} {', or '.join([first, *others])}"


# the result -----------------------------------------------------------------------------------


def _result(r: Rebalance, unfinished: str) -> str:
    """Return a clause on how the rebalance ended, and after how long."""
    if r.superseded_by is not None:
        after = "" if r.duration_ms is None else f" after {duration(r.duration_ms)}"
        return f"interrupted by {r.epoch_noun} {r.superseded_by}{after}"
    if r.state == "Empty":
        return "the group is empty"
    if not r.converged and r.state != "NotReady":
        return unfinished
    if r.duration_ms is None:
        members = counted(r.members, "member")
        return f"the group has {members} now" if r.joined and not r.departed else f"{members} remained"
    if r.state == "NotReady":
        return f"the group became NotReady after {duration(r.duration_ms)}"
    if r.duration_ms == 0:
        return "completed at once"
    verb = "rejoined" if r.group_type == "classic" else "converged"
    members = {1: "its only member", 2: "both members"}.get(r.members, f"all {counted(r.members, 'member')}")
    return f"{members} {verb} in {duration(r.duration_ms)}"


def _moved(r: Rebalance) -> str:
    if r.group_type == "share":
        return _shared(r)
    parts = []
    if r.moved:
        parts.append(f"{r.moved:,} of {counted(r.units, r.unit)} moved")
    if r.kept:
        parts.append(_kept(r, "" if r.moved else f" with {'its owner' if r.kept == 1 else 'their owners'}"))
    if r.added:
        parts.append(f"{r.added:,} newly assigned" if parts else f"{counted(r.added, r.unit)} newly assigned")
    lost = max(r.revoked - r.moved, 0)
    if lost and not r.units:
        parts.append(f"{counted(lost, r.unit)} unassigned now")
    elif lost and (r.superseded_by is not None or r.converged):
        still = "not reassigned yet" if r.superseded_by is not None else "no longer assigned"
        parts.append(f"{counted(lost, r.unit)} {still}")
    for count, role in ((r.standby_moved, "standby"), (r.warmup_moved, "warm-up")):
        if count:
            parts.append(f"{counted(count, f'{role} task')} moved")
    return ", ".join(parts) or (f"no {plural(0, r.unit)} to assign" if r.members else "")


def _shared(r: Rebalance) -> str:
    """Describe the moves of a share group: a partition counts once for each member that it is assigned to."""
    parts = []
    if r.moved:
        parts.append(f"{r.moved:,} of {counted(r.units, r.unit)} moved")
    if r.kept:
        parts.append(_kept(r, ""))
    lost = max(r.revoked - r.moved, 0)
    for count, change in (
        (r.added, "gained a member"),
        (lost, "lost a member" if r.units else "unassigned now"),
    ):
        if count:
            parts.append(f"{counted(count, r.unit)} {change}")
    return ", ".join(parts) or (f"no {plural(0, r.unit)} to assign yet" if r.members else "")


def _kept(r: Rebalance, with_owners: str) -> str:
    all_of = "all " if not r.moved and r.kept == r.units and r.kept > 1 else ""
    kept = f"{r.kept:,}" if r.moved else counted(r.kept, r.unit)
    return f"{all_of}{kept} stayed{with_owners}"


def _cost(r: Rebalance, cost: Cost | None) -> str:
    if r.unavailable_ms is None:
        return ""
    if r.unavailable_ms == 0:
        stopped = (cost is not None and cost.stopped) or r.duration_ms is None or r.silent_units
        stopped = stopped or r.added or r.revoked > r.moved  # They had no owner before, or have none now.
        return f"no {r.unit} was without an owner" if (r.kept or r.moved) and not stopped else ""
    parts = [f"{seconds(r.unavailable_ms)} {r.unit}-seconds"]
    if cost is not None and cost.lag_records is not None:
        parts.append(f"about {counted(cost.lag_records, 'record')} of lag")
    if cost is None:
        return f"{', '.join(parts)} without an owner"
    was = "was" if cost.stopped == 1 else "were"
    return f"{counted(cost.stopped, r.unit)} {was} without an owner: {', '.join(parts)}"


def _silence(r: Rebalance) -> str:
    """Describe how long partitions may have had no reader before a session expired.

    No log records heartbeats: this is an upper bound, or unknown like the session timeout."""
    if not r.silent_units or r.silent_ms == 0:
        return ""
    is_certain = any(cause.kind == causes.SESSION_EXPIRED for cause in r.all_causes)
    condition = "" if is_certain else "if a session expired, "
    what = f"{condition}{counted(r.silent_units, r.unit)} may have had no reader before, for"
    if r.silent_ms is None or r.session_timeout_ms is None:
        return f"{what} an unknown time"
    longest = duration(min(r.session_timeout_ms, r.silent_ms))
    return f"{what} up to {longest}: at most {seconds(r.silent_ms)} {r.unit}-seconds"


# the evidence ---------------------------------------------------------------------------------


def note(r: Rebalance) -> str:
    """Return a remark on the evidence for a rebalance; empty if the audit has it."""
    if r.evidence == "observed":
        return "Observed in the broker's log." if r.by_broker_log else ""
    if r.evidence == "missing":
        return "The log is incomplete: records of this rebalance were compacted, or could not be read."
    sources = ["the records of the log"]
    sources += ["lines of the broker's log"] if r.by_broker_log else []
    sources += ["descriptions of the group"] if r.by_description else []
    return f"Inferred from {' and '.join(sources)}."


def caveats(rebalances: Iterable[Rebalance]) -> list[str]:
    """Return a sentence for each kind of fact about these rebalances that Kafka's log does not contain."""
    inferred = [r for r in rebalances if r.evidence == "inferred"]
    alternatives = {kind for r in inferred for c in r.all_causes if len(c.kinds) > 1 for kind in c.kinds}
    if any(r.cause == causes.MEMBER_DEPARTED for r in inferred):
        alternatives |= {causes.MEMBER_LEFT, causes.SESSION_EXPIRED}
    events = [noun for kind, noun in EVENTS.items() if kind in alternatives]
    found = []
    if len(events) > 1:
        listed = ", ".join(events[1:-1])
        others = f"{listed} or {events[-1]}" if listed else events[-1]
        found.append(
            f"Kafka's log does not distinguish {events[0]} from {others}; konvene's audit topic does."
        )
    if causes.LEADER_REJOINED in alternatives:
        found.append("Kafka's log does not record why a member rejoined; konvene's audit topic does.")
    if any(r.cause == causes.UNKNOWN for r in inferred):
        found.append("Kafka's log does not record the cause of every rebalance; konvene's audit topic does.")
    if any(r.cause == causes.WARMUP_CAUGHT_UP for r in inferred):
        found.append("Kafka's log does not record the progress of warm-up tasks; konvene's audit topic does.")
    if any(r.start_ms is None for r in inferred):
        found.append("Kafka's log does not record when a rebalance began; konvene's audit topic does.")
    return found
