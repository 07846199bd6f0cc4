"""Rebalances in words: one sentence for each, and what is said of its evidence.

A sentence says who did what, how long it took, what moved, what stayed, what it cost. It says nothing that
the row does not: what is not known is left out, and where the log cannot tell two causes apart both are
named. `note` then says what would settle it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from konvene.groups.history import duration
from konvene.pipeline.answers.cost import Cost
from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.shard import causes

__all__ = ["ROLES", "cause_words", "counted", "note", "seconds", "sentence", "short", "title", "who"]

WHERE_MANY = 3
"""So many causes are told one by one; of more, how many of each kind."""

ROLES = {"active": "active", "standby": "standby", "warmup": "warm-up"}
"""Of tasks, in words."""

EITHER = {
    "member-left": "left",
    "session-expired": "its session expired",
    "rebalance-timeout": "it did not rejoin in time",
    "removed-by-admin": "it was removed by an administrator",
    "fenced": "it was fenced",
    "sync-timeout": "it did not ask for its assignment in time",
}
"""How a kind is said where it is one of several that it may have been."""

PLURALS = {
    causes.MEMBER_JOINED: "joined",
    causes.MEMBER_LEFT: "left",
    causes.MEMBER_DEPARTED: "are gone",
    causes.SESSION_EXPIRED: "sent no heartbeat for their session timeout",
    causes.STATIC_MEMBER_REJOINS: "came back under their instance ids",
    causes.COOPERATIVE_FOLLOW_UP: "gave up partitions that others wait for",
    causes.SUBSCRIPTION_CHANGED: "subscribed to other topics",
    causes.WARMUP_CAUGHT_UP: "have caught up with tasks that they warm up",
    "member-left|session-expired": "left, or their sessions expired",
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_RANDOM = re.compile(r"[\w-]{22}$")


def short(member_id: str) -> str:
    """A member id without most of what is random in it: `bob-a334…`, `7nAl…`."""
    found = _UUID.search(member_id)
    if found:
        return member_id[: found.start() + 4] + "…"
    if _RANDOM.fullmatch(member_id):
        return member_id[:4] + "…"
    return member_id


def who(member_id: str | None, instance_id: str | None, client_id: str | None, host: str | None) -> str:
    """A member by what an operator knows it by; empty where none is named."""
    name = instance_id or (short(member_id) if member_id else "")
    if not name:
        return f"client {client_id}" if client_id else ""
    if not client_id:
        return name
    return f"{name} (client {client_id} at {host})" if host else f"{name} (client {client_id})"


def counted(count: int, noun: str) -> str:
    """`1 partition`, `1,204 partitions`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def seconds(ms: int) -> str:
    """Partition-seconds: `0.024`, `0.3`, `12.5`, `1,204`."""
    if ms < 100:
        return f"{ms / 1000:.3f}"
    return f"{ms / 1000:,.1f}" if ms < 100_000 else f"{ms / 1000:,.0f}"


def title(rebalance: Rebalance) -> str:
    """`orders-app (classic), generation 12 → 13`."""
    before = rebalance.from_epoch if rebalance.from_epoch >= 0 else "?"
    return f"{rebalance.group_id} ({rebalance.group_type}), {rebalance.word} {before} → {rebalance.to_epoch}"


def sentence(rebalance: Rebalance, cost: Cost | None = None) -> str:
    """What happened, in one sentence. Without a `cost` it does not say how much stood still."""
    parts = [_took(rebalance), _moved(rebalance), _cost(rebalance, cost)]
    told = "; ".join(part for part in parts if part)
    cause = cause_words(rebalance)
    return f"{cause[:1].upper() if rebalance.member_id is None else cause[:1]}{cause[1:]}: {told}."


# the cause ------------------------------------------------------------------------------------


def cause_words(rebalance: Rebalance) -> str:
    """Why it happened: each cause where they are few, else how many of each kind."""
    told = rebalance.all_causes
    more = rebalance.causes_left_out
    if len(told) + more <= WHERE_MANY:
        return "; ".join(_one_by_one(rebalance)).replace("; and ", ", and ")
    kinds = Counter(c.kind for c in told)
    words = [_many(kind, count, told, rebalance) for kind, count in kinds.most_common()]
    return "; ".join([*words, *([f"and {more:,} more causes"] if more else [])])


def _one_by_one(rebalance: Rebalance) -> Iterator[str]:
    """Each cause; what a member did besides is not said with its name again."""
    before = ""
    for cause in dict.fromkeys(rebalance.all_causes):
        text = _cause(cause, rebalance)
        member = who(cause.member_id, cause.instance_id, cause.client_id, cause.client_host)
        yield f"and {text.removeprefix(member).strip()}" if member and member == before else text
        before = member


def _many(kind: str, count: int, told: Iterable[Cause], rebalance: Rebalance) -> str:
    if count == 1 or kind not in PLURALS:
        return _cause(next(c for c in told if c.kind == kind), rebalance)
    return f"{count:,} members {PLURALS[kind]}"


def _cause(cause: Cause, rebalance: Rebalance) -> str:
    member = who(cause.member_id, cause.instance_id, cause.client_id, cause.client_host)
    text = _either(cause.kinds, member) if len(cause.kinds) > 1 else _plain(cause.kind, member, rebalance)
    if cause.topic:
        text += f" (topic {cause.topic})"
    if not cause.reason:
        return text
    return (
        f"{text} ({cause.reason})"
        if cause.kind in causes.WITH_COORDINATOR_DETAIL
        else f"{text}, in its words “{cause.reason}”"
    )


def _plain(kind: str, member: str, rebalance: Rebalance) -> str:
    predicate = causes.predicate(kind, rebalance.group_type)
    if not member or not predicate:
        return causes.GROUP_SENTENCES.get(kind) or f"a member {predicate or kind}"
    return f"{member} {predicate}"


def _either(kinds: tuple[str, ...], member: str) -> str:
    first, *others = [EITHER.get(kind, kind) for kind in kinds]
    return f"{member or 'a member'} {', or '.join([first, *others])}"


# the rest -------------------------------------------------------------------------------------


def _took(r: Rebalance) -> str:
    if r.superseded_by is not None:
        later = (
            "then"
            if r.duration_ms is None
            else f"{duration(r.duration_ms)} later"
            if r.duration_ms
            else "at once"
        )
        return f"{r.word} {r.superseded_by} came {later}, before it was done"
    if r.state == "Empty":
        return "the group is empty"
    if not r.converged and r.state != "NotReady":
        return "the log ends before it is done"
    if r.duration_ms is None:
        return f"{counted(r.members, 'member')} came out of it"
    if r.state == "NotReady":
        return f"{duration(r.duration_ms)} until the group was not ready"
    if r.duration_ms == 0:
        return "done at once"
    followed = "back" if r.group_type == "classic" else "done with it"
    members = "its one member was" if r.members == 1 else f"all {r.members:,} members were"
    return f"{duration(r.duration_ms)} until {members} {followed}"


def _moved(r: Rebalance) -> str:
    if r.group_type == "share":
        return _shared(r)
    told = []
    if r.moved:
        told.append(f"{r.moved:,} of {counted(r.units, r.unit)} moved")
    if r.kept:
        what = "" if r.moved else f" {r.unit}{'' if r.kept == 1 else 's'}"
        all_of = "all " if not r.moved and r.kept == r.units and r.kept > 1 else ""
        where = "" if r.moved else f" where {'it was' if r.kept == 1 else 'they were'}"
        told.append(f"{all_of}{r.kept:,}{what} stayed{where}")
    if r.added:
        what = "" if told else f" {r.unit}{'' if r.added == 1 else 's'}"
        told.append(f"{r.added:,}{what} had nobody before")
    lost = max(r.revoked - r.moved, 0)
    if lost and (not r.units or r.superseded_by is not None):
        has = "has" if lost == 1 else "have"
        told.append(f"{counted(lost, r.unit)} {has} nobody {'yet' if r.units else 'now'}")
    for count, role in ((r.standby_moved, "standby"), (r.warmup_moved, "warm-up")):
        if count:
            told.append(f"{counted(count, f'{role} task')} moved")
    return ", ".join(told) or (f"no {r.unit}s to have" if r.members else "")


def _shared(r: Rebalance) -> str:
    """The same of a share group, where several members may have a partition: it counts for each of them."""
    told = []
    if r.moved:
        told.append(f"{r.moved:,} of {counted(r.units, r.unit)} moved")
    if r.kept:
        what = "" if r.moved else f" {r.unit}{'' if r.kept == 1 else 's'}"
        all_of = "all " if not r.moved and r.kept == r.units and r.kept > 1 else ""
        told.append(f"{all_of}{r.kept:,}{what} stayed")
    less = max(r.revoked - r.moved, 0)
    for count, has in ((r.added, "a member more"), (less, "a member less" if r.units else "nobody now")):
        if count:
            told.append(f"{counted(count, r.unit)} {'has' if count == 1 else 'have'} {has}")
    return ", ".join(told) or (f"no {r.unit}s to have yet" if r.members else "")


def _cost(r: Rebalance, cost: Cost | None) -> str:
    if r.unavailable_ms is None:
        return ""
    if r.unavailable_ms == 0:
        stopped = (cost is not None and cost.stopped) or r.duration_ms is None
        return f"no {r.unit} stood still" if (r.kept or r.moved) and not stopped else ""
    parts = [f"{seconds(r.unavailable_ms)} {r.unit}-seconds"]
    if cost is not None and cost.waiting is not None:
        parts.append(f"about {counted(cost.waiting, 'record')} of lag")
    if cost is None:
        return f"it cost {', '.join(parts)}"
    return f"{counted(cost.stopped, r.unit)} stood still meanwhile: {', '.join(parts)}"


def note(r: Rebalance) -> str:
    """What the evidence is worth, where it is not the coordinator's own word; else empty."""
    if r.evidence == "observed":
        return ""
    if r.evidence == "missing":
        return "Part of the log is gone: the cleaner took records that would tell more."
    undecided = [c.kinds for c in r.all_causes if len(c.kinds) > 1]
    if undecided:
        words = [EITHER.get(kind, kind) for kind in undecided[0]]
        words[0] = words[0] if words[0].startswith("it") else f"it {words[0]}"
        listed = f"{', '.join(words[:-1])}{',' if len(words) > 2 else ''} or {words[-1]}"
        of_each = " of each" if len(undecided) > 1 else ""
        return f"The log cannot tell{of_each} whether {listed}; the audit topic would."
    if r.cause == causes.UNKNOWN:
        return "Nothing in the log says why; the audit topic would."
    if r.cause == causes.WARMUP_CAUGHT_UP:
        return (
            "No log says how far a warm-up is; that nothing else moved the epoch does. The audit topic would."
        )
    if r.cause == causes.MEMBER_DEPARTED:
        return "The log cannot tell whether it left or its session expired; the audit topic would."
    if r.start_ms is None:
        return "Inferred from the log, which does not say when it began; the audit topic would."
    return "Inferred from the records of the log."
