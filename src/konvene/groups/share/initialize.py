"""Initialization of share partitions: which ones, at which offset, and how it continues after a crash.

Only share partitions that the share coordinator has initialized are assigned. So each heartbeat that is
decided looks for partitions of subscribed topics that the group does not have yet: they are recorded as
`initializing`, and the share coordinator is requested to initialize them. Its response makes them
`initialized`. After a failure the next heartbeat requests them again; they stay in the list, since the share
coordinator may have initialized them all the same, and their state has to be deleted with the group.

The start offset:

    a topic of which the group has no partition yet  -1: `share.auto.offset.reset` decides
    partitions added to a topic of the group         0: no record of them may be missed

Partitions that are added to a topic during its initialization are requested after it, so that it is known
which rule applies, and all partitions that a crash leaves in the list have the same one.

A restarted coordinator does not know which requests are pending. It requests what is listed as `initializing`
at once, otherwise after `group.share.initialize.retry.interval.ms`. The share coordinator accepts a request
twice. In Kafka 4.4 a topic that is requested twice starts at 0, whatever its reset policy is.
"""

from __future__ import annotations

from collections.abc import Collection

from konvene.codec.uuid import Uuid
from konvene.groups.share.decision import TIDY, Decision
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.state_topics import Listed, Some, by_topic, keys
from konvene.groups.share.work import (
    DELETE_STATE,
    INITIALIZE_STATE,
    DeletedTopics,
    StateDeleted,
    StateInitialized,
    StateToDelete,
    StateToInitialize,
)
from konvene.shard.contract import NOTHING, Arm, Context, Effect, Outcome, Reply
from konvene.shard.image import Topics
from konvene.share_state.requests import Delete, Initialize

RESET = -1


def initialize(decision: Decision, names: Collection[str]) -> None:
    """Request the initialization of missing share partitions of these topics, unless it is pending."""
    found = missing(decision, names)
    state = decision.state_topics.not_begun(_stale_initializing(decision))
    if not found:
        if state != decision.state_topics:
            decision.keep_state(state)
        return
    group_id = decision.group.group_id
    requests = tuple(
        Initialize(key, decision.epoch, _start_offset(decision, key.topic_id, key.partition))
        for key in keys(group_id, found)
    )
    decision.keep_state(state.beginning(found))
    decision.effects.append(Effect(INITIALIZE_STATE, StateToInitialize(group_id, requests)))
    decision.remember(
        requested_ms={**decision.soft.requested_ms, **dict.fromkeys(found, decision.context.now_ms)}
    )


def missing(decision: Decision, names: Collection[str]) -> Listed:
    """Return the partitions of these topics that are neither initialized nor pending."""
    state, known = decision.state_topics, decision.context.topics.by_name
    found: dict[Uuid, Some] = {}
    for name in sorted(names):
        topic = known.get(name)
        if topic is None:
            continue
        has = set(state.initialized[topic.id].partitions) if topic.id in state.initialized else set()
        if topic.id in state.initializing and _is_pending(decision, topic.id):
            if topic.id not in state.initialized:
                continue
            has |= set(state.initializing[topic.id].partitions)
        if len(has) < topic.partitions:
            found[topic.id] = Some(name, tuple(p for p in range(topic.partitions) if p not in has))
    return found


def _is_pending(decision: Decision, topic: Uuid) -> bool:
    """Whether a response of the share coordinator is still expected."""
    requested_ms = decision.soft.requested_ms.get(topic)
    retry_ms: int = decision.context.config["group.share.initialize.retry.interval.ms"]
    return requested_ms is not None and requested_ms <= decision.context.now_ms < requested_ms + retry_ms


def _stale_initializing(decision: Decision) -> Listed:
    """Return initialized topics that a crash left as initializing, while their offsets were being altered."""
    state = decision.state_topics
    return {
        topic: state.initialized[topic]
        for topic in state.initializing
        if topic in state.initialized and not _is_pending(decision, topic)
    }


def _start_offset(decision: Decision, topic: Uuid, partition: int) -> int:
    """Return the start offset of a new share partition, by the rules of this module."""
    state = decision.state_topics
    if topic in state.initialized:
        return 0
    requested = state.initializing.get(topic)
    return RESET if requested is None or partition in requested.partitions else 0


def is_beginning(group: ShareGroup) -> bool:
    """Whether share partitions of subscribed topics are being initialized."""
    return any(some.name in group.subscribers for some in group.state_topics.initializing.values())


def assignment_lacks_some(group: ShareGroup, topics: Topics) -> bool:
    """Whether an initialized partition of a subscribed topic is in no target, so that the epoch has to be
    bumped.

    Deleted topics do not count: a target cannot have them."""
    if group.is_empty or not group.state_topics.initialized:
        return False
    assigned: dict[Uuid, set[int]] = {}
    for target in group.targets.values():
        for topic, partitions in target.items():
            assigned.setdefault(topic, set()).update(partitions)
    for topic, some in group.state_topics.initialized.items():
        if some.name in group.subscribers and topic in topics.by_id:
            existing = {p for p in some.partitions if p < topics.by_id[topic].partitions}
            if existing != assigned.get(topic, set()):
                return True
    return False


# --- results -------------------------------------------------------------------------------


def initialized(group: ShareGroup | None, event: StateInitialized, context: Context) -> Outcome:
    """Record which partitions the share coordinator has initialized."""
    if group is None:
        return _acknowledge(context)
    decision = Decision(group, context)
    done, failed = by_topic(event.done, context.topics), by_topic(event.failed, context.topics)
    before = decision.state_topics
    begun = {t: some for t, some in done.items() if t in context.topics.by_id and t not in before.deleting}
    after = before.begun(begun)
    if after != before:
        decision.keep_state(after)
    answered = done.keys() | failed.keys()
    decision.remember(
        requested_ms={t: ms for t, ms in decision.soft.requested_ms.items() if t not in answered}
    )
    decision.replies += _acknowledge(context).replies
    return decision.outcome()


def deleted(group: ShareGroup | None, event: StateDeleted, context: Context) -> Outcome:
    """Record that the share coordinator has deleted the state of topics."""
    if group is None:
        return _acknowledge(context)
    decision = Decision(group, context)
    after = decision.state_topics.ended(event.topics)
    if after != decision.state_topics:
        decision.keep_state(after)
    decision.replies += _acknowledge(context).replies
    return decision.outcome()


def _acknowledge(context: Context) -> Outcome:
    """Answer the request that waits for this event to be recorded, if there is one."""
    return Outcome((Reply(context.waiter, None),)) if context.waiter else NOTHING


def topics_deleted(groups: Collection[object], event: DeletedTopics, context: Context) -> Outcome:
    """Remove deleted topics from the lists of all groups. The share coordinator deletes their state by
    itself."""
    remaining = Topics(topic for topic in context.topics.by_id.values() if topic.id not in event.topic_ids)
    return _remove_deleted_topics(groups, remaining, context)


def _remove_deleted_topics(groups: Collection[object], remaining: Topics, context: Context) -> Outcome:
    """Keep only existing topics in the lists."""
    records: list[object] = []
    for group in groups:
        if isinstance(group, ShareGroup):
            state = group.state_topics.left_by(remaining)
            if state is not group.state_topics:
                decision = Decision(group, context)
                decision.keep_state(state)
                records += decision.records
    return Outcome(records=tuple(records))


# --- clean-up -----------------------------------------------------------------------------


def armed(groups: Collection[object]) -> tuple[Arm, ...]:
    """Return the clean-up timer of a coordinator that starts; it runs while any group has share
    partitions."""
    some = any(isinstance(g, ShareGroup) and not g.state_topics.is_empty for g in groups)
    return (Arm(TIDY, 0),) if some else ()


def tidy(groups: Collection[object], context: Context) -> Outcome:
    """Remove deleted topics from the lists, and request pending deletions again."""
    removal = _remove_deleted_topics(groups, context.topics, context)
    effects: list[Effect] = []
    for group in groups:
        if isinstance(group, ShareGroup):
            deleting = {
                topic: Some(name, tuple(range(context.topics.by_id[topic].partitions)))
                for topic, name in group.state_topics.deleting.items()
                if topic in context.topics.by_id
            }
            if deleting:
                requests = tuple(Delete(key) for key in keys(group.group_id, deleting))
                effects.append(Effect(DELETE_STATE, StateToDelete(group.group_id, requests)))
    after_ms: int = context.config["offsets.retention.check.interval.ms"]
    timers = tuple(Arm(key, after_ms) for key, _, _ in armed(groups))
    return removal._replace(effects=tuple(effects), timers=timers)
