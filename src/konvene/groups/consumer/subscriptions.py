"""Subscriptions of a consumer group: topic names, regular expressions, and the metadata hash of their topics.

The hash is Kafka's, over all existing topics that members subscribe to: id, name, partitions, racks. The log
keeps it with the group's epoch, so that a new coordinator detects topics that changed in the meantime; then
the next heartbeat of any member bumps the epoch, once.

All expressions of a group are resolved together, outside the core (`work`), and the matches are records. This
happens when an expression is new, when topics were created, and periodically; at most every ten seconds. The
first member that subscribes with an invalid expression is rejected.
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
"""The least time between two resolutions (Kafka's constant)."""


# --- the hash --------------------------------------------------------------------------------------


def hash_of(names: Collection[str], context: Context) -> int:
    """Return the metadata hash of these topics; those that do not exist are left out."""
    known = context.topics.by_name
    return metadata_hash({name: _topic_hash(known[name]) for name in names if name in known})


@lru_cache(maxsize=10_000)
def _topic_hash(topic: Topic) -> int:
    return topic_hash(topic.name, topic.id, topic.racks or ((),) * topic.partitions)


def _hash_with(decision: Decision, old: Member, new: Member) -> int:
    """Return the group's metadata hash with member `new` in place of `old`."""
    group = decision.group
    if _is_subscription_unchanged(group, old, new) and decision.soft.hashed_topics is decision.context.topics:
        return decision.metadata_hash
    names = names_without(group, [old]) | group.topics_of(new)
    return hash_of(names, decision.context)


def _is_subscription_unchanged(group: ConsumerGroup, old: Member, new: Member) -> bool:
    """Return whether the group subscribes to the same topics with `new` in place of `old`.

    This is a fast check. It returns False if some expressions are not resolved yet, since the metadata hash
    may then be that of earlier subscriptions."""
    if len(group.regexes) != len(group.regex_users):
        return False
    if old.regex or new.regex:
        return old.regex == new.regex and old.topics == new.topics
    if old.topics == new.topics:
        return True
    counts = group.subscribers
    return new.topics <= counts.keys() and all(counts[name] > 1 for name in old.topics - new.topics)


def names_without(group: ConsumerGroup, departed: Iterable[Member]) -> set[str]:
    """Return the topics that the group would subscribe to, by name or by expression, without these members.

    Only the topics and the expression of each departed member are used, not its id, which may be another one
    than the group has."""
    names, regexes = dict(group.subscribers), dict(group.regex_users)
    for member in departed:
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
    """Bump the epoch if `bump` is set, or if the metadata hash of the subscribed topics changed.

    The hash is that with `new` in place of `old`. Return whether the epoch was bumped."""
    context = decision.context
    if not bump and decision.soft.hashed_topics is context.topics:
        return False
    found = _hash_with(decision, old, new)
    if decision.soft.hashed_topics is not context.topics:
        decision.remember(hashed_topics=context.topics)
    changed = found != decision.metadata_hash
    if not bump and not changed:
        return False
    if not bump:
        decision.cause(causes.TOPIC_METADATA_CHANGED)
    decision.bump(found)
    return True


# --- expressions -----------------------------------------------------------------------------------


def update_regex(decision: Decision, old: Member, new: Member) -> tuple[bool, bool]:
    """Apply a member's change of its regular expression. Raises INVALID_REGULAR_EXPRESSION.

    Return whether the expression changed, and whether the topics that the new one matches are known
    already."""
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
    """Request that the topics that the group's expressions match are found, if these are missing or outdated.

    They may be outdated if topics were created since, or if the refresh interval has passed. Only one request
    is pending at a time, and after a result there is a pause. `new` is counted in place of `old`."""
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
    if last_ms <= context.now_ms <= last_ms + REFRESH_PAUSE_MS:  # Earlier than that, the clock was set back.
        return
    longest_ms: int = context.config["group.consumer.regex.refresh.interval.ms"]
    unresolved = len(users) != len(group.regexes)
    stale = max((resolved.version for resolved in known), default=-1) < context.topics.version
    if unresolved or stale or context.now_ms > last_ms + longest_ms:
        request = RegexesToResolve(
            group.group_id, tuple(sorted(users)), context.topics, context.principal, context.client_host
        )
        decision.effects.append(Effect(RESOLVE_REGEXES, request))
        decision.remember(resolving=True)


def _requires_target(group: ConsumerGroup, expression: str) -> bool:
    """Return whether a newly resolved expression requires a new target even if it matches no topic.

    So it is if members that use the expression have targets from an earlier subscription, or if partitions
    are unassigned since the group was upgraded. Kafka 4.4 computes no new target here."""
    unassigned = group.classic_members > 0 and not group.assignment_timestamp_ms
    return unassigned or any(
        m.regex == expression and group.targets.get(member_id) for member_id, m in group.members.items()
    )


def regexes_resolved(group: ConsumerGroup, event: RegexesResolved, context: Context) -> Outcome:
    """Record which topics the expressions match, and bump the epoch if these topics changed."""
    decision = Decision(group, context)
    decision.remember(resolving=False)
    changed = False
    names = set(group.subscribers)
    for expression in sorted(event.matches):
        if not group.regex_users[expression]:
            continue
        found = Resolved(frozenset(event.matches[expression]), event.version, context.now_ms)
        before = group.regexes.get(expression)
        changed |= found.topics != (before.topics if before is not None else frozenset())
        changed |= before is None and _requires_target(group, expression)
        decision.record(log.regex_record(group.group_id, expression, found))
    for expression in group.regex_users:
        before = group.regexes.get(expression)
        names |= event.matches.get(expression, before.topics if before is not None else frozenset())
    found_hash = hash_of(names, context)
    if changed or found_hash != decision.metadata_hash:
        decision.remember(hashed_topics=context.topics)
        decision.cause(causes.REGEX_REFRESHED if changed else causes.TOPIC_METADATA_CHANGED)
        decision.bump(found_hash)
    return decision.outcome()
