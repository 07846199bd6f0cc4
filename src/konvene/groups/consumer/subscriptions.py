"""What a group reads: names, expressions, and the hash by which a change of topics is seen.

The hash is Kafka's, over all topics that are read and exist: id, name, partitions, racks. The log keeps it
with the group's epoch, so after a restart, also of another broker, it is seen whether topics have changed
since; then the epoch moves, once, with the next heartbeat of any member.

An expression is resolved elsewhere (`work`), for all expressions of the group together, and what it matches
is a record. This happens when an expression has not been resolved, when topics were created since, and from
time to time; not more often than every ten seconds. Whoever is first to subscribe by an expression hears
whether it is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

from konvene.codec.hashes import metadata_hash, topic_hash
from konvene.groups.consumer import log, regex
from konvene.groups.consumer.decision import Decision
from konvene.groups.consumer.group import ConsumerGroup, Member, Resolved
from konvene.groups.consumer.work import RESOLVE_REGEXES, RegexesResolved, RegexesToResolve
from konvene.shard import causes
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.image import Topic

REFRESH_PAUSE_MS = 10_000
"""Expressions are not resolved again before this time is over (Kafka's constant)."""


# --- the hash --------------------------------------------------------------------------------------


def hash_of(names: Collection[str], context: Context) -> int:
    """Of these topics, as far as they exist."""
    known = context.topics.by_name
    return metadata_hash({name: _topic_hash(known[name]) for name in names if name in known})


@lru_cache(maxsize=10_000)
def _topic_hash(topic: Topic) -> int:
    return topic_hash(topic.name, topic.id, topic.racks or ((),) * topic.partitions)


def hash_with(
    decision: Decision, old: Member, new: Member, resolved: dict[str, Resolved] | None = None
) -> int:
    """The group's hash with `new` in the place of `old`."""
    group = decision.group
    if _reads_the_same(group, old, new) and decision.soft.seen is decision.context.topics:
        return decision.metadata_hash
    names = names_without(group, [old]) | group.topics_of(new)
    return hash_of(names, decision.context)


def _reads_the_same(group: ConsumerGroup, old: Member, new: Member) -> bool:
    """Whether the group reads what it did, seen at a glance: nothing is new, and nobody was the only one.

    While an expression is looked at, the hash may be of what its members read before it."""
    if len(group.regexes) != len(group.regex_users):
        return False
    if old.regex or new.regex:
        return old.regex == new.regex and old.topics == new.topics
    if old.topics == new.topics:
        return True
    counts = group.subscribers
    return new.topics <= counts.keys() and all(counts[name] > 1 for name in old.topics - new.topics)


def names_without(group: ConsumerGroup, gone: Iterable[Member]) -> set[str]:
    """The names that the group reads without these members, by name or by expression.

    One of them may be under another id than in the group: who takes its place reads what it read so far."""
    names, regexes = dict(group.subscribers), dict(group.regex_users)
    for member in gone:
        for name in member.topics:
            names[name] -= 1
        if member.regex:
            regexes[member.regex] -= 1
    found = {name for name, count in names.items() if count}
    for expression, count in regexes.items():
        resolved = group.regexes.get(expression)
        if count and resolved is not None:
            found |= resolved.topics
    return found


def maybe_bump_epoch(decision: Decision, old: Member, new: Member, *, bump: bool) -> bool:
    """Move the epoch if the subscription did, or if topics are not what they were; whether it has moved."""
    context = decision.context
    if not bump and decision.soft.seen is context.topics:
        return False
    found = hash_with(decision, old, new)
    if decision.soft.seen is not context.topics:
        decision.remember(seen=context.topics)
    changed = found != decision.metadata_hash
    if not bump and not changed:
        return False
    if not bump:
        decision.cause(causes.TOPIC_METADATA_CHANGED)
    decision.bump(found)
    return True


# --- expressions -----------------------------------------------------------------------------------


def update_regex(decision: Decision, old: Member, new: Member) -> tuple[bool, bool]:
    """Whether the member's expression changed, and whether it is known what the new one matches."""
    group = decision.group
    if old.regex == new.regex:
        refresh(decision, old, new)
        return False, False
    if old.regex and group.regex_users[old.regex] == 1:
        decision.record(log.regex_tombstone(group.group_id, old.regex))
    known = not new.regex
    if new.regex:
        if not group.regex_users[new.regex]:
            regex.validate(new.regex)
        else:
            known = new.regex in group.regexes
    refresh(decision, old, new)
    return True, known


def refresh(decision: Decision, old: Member, new: Member) -> None:
    """Have the group's expressions resolved, if it is time."""
    group, context = decision.group, decision.context
    users = set(group.regex_users)
    if old.regex != new.regex:
        if old.regex and group.regex_users[old.regex] == 1:
            users.discard(old.regex)
        if new.regex:
            users.add(new.regex)
    if not users or decision.soft.resolving:
        return
    known = group.regexes.values()
    last_ms = max((resolved.timestamp_ms for resolved in known), default=-REFRESH_PAUSE_MS - 1)
    if last_ms <= context.now_ms <= last_ms + REFRESH_PAUSE_MS:  # Before it is a clock that was set back.
        return
    longest_ms: int = context.config["group.consumer.regex.refresh.interval.ms"]
    unresolved = len(users) != len(group.regexes)
    stale = max((resolved.version for resolved in known), default=-1) < context.topics.version
    if unresolved or stale or context.now_ms > last_ms + longest_ms:
        wanted = RegexesToResolve(group.group_id, tuple(sorted(users)), context.topics, context.principal)
        decision.effects.append(Effect(RESOLVE_REGEXES, wanted))
        decision.remember(resolving=True)


def _hands_on(group: ConsumerGroup, expression: str) -> bool:
    """Whether there is something to hand on even if the expression matches nothing.

    What its members were meant to have when they read something else, or what nobody was since the group was
    a classic one. In Kafka 4.4 it stays where it is."""
    unassigned = group.classic_members > 0 and not group.assignment_timestamp_ms
    return unassigned or any(
        m.regex == expression and group.targets.get(member_id) for member_id, m in group.members.items()
    )


def regexes_resolved(group: ConsumerGroup, answer: RegexesResolved, context: Context) -> Outcome:
    """It was found what expressions match. The epoch moves if that is news."""
    decision = Decision(group, context)
    decision.remember(resolving=False)
    changed = False
    names = set(group.subscribers)
    for expression in sorted(answer.matches):
        if not group.regex_users[expression]:
            continue
        found = Resolved(frozenset(answer.matches[expression]), answer.version, context.now_ms)
        before = group.regexes.get(expression)
        changed |= found.topics != (before.topics if before is not None else frozenset())
        changed |= before is None and _hands_on(group, expression)
        decision.record(log.regex_record(group.group_id, expression, found))
    for expression in group.regex_users:
        before = group.regexes.get(expression)
        names |= answer.matches.get(expression, before.topics if before is not None else frozenset())
    found_hash = hash_of(names, context)
    if changed or found_hash != decision.metadata_hash:
        decision.remember(seen=context.topics)
        decision.cause(causes.REGEX_REFRESHED if changed else causes.TOPIC_METADATA_CHANGED)
        decision.bump(found_hash)
    return decision.outcome()
