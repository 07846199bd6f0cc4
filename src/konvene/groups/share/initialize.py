"""Initialize share partitions: which ones, at which start offset, and how to continue after a crash.

Only share partitions that the share coordinator has initialized are assigned. So each heartbeat that is
decided looks for partitions of subscribed topics that the group does not have yet: they are recorded as
`initializing`, and the share coordinator is requested to initialize them. Its response makes them
`initialized`. After a failure they stay `initializing` and the next heartbeat requests them again: the share
coordinator may have initialized them before it failed, so their state has to be deleted with the group.

The start offset:

    a topic of which the group has no partition yet  -1: `share.auto.offset.reset` decides
    partitions added to a topic of the group         0: no record of them may be missed

Partitions that are added to a topic during its initialization are requested when that has ended, so that the
second rule applies to them, and the first one to all partitions that a crash leaves as `initializing`.

A request without a response is repeated after `group.share.initialize.retry.interval.ms`. A restarted
coordinator does not know which requests are pending, and repeats all with the next heartbeat. The share
coordinator accepts repeated requests. In Kafka 4.4 a topic that is requested twice starts at 0, whatever its
reset policy is.
"""

from __future__ import annotations

from collections.abc import Collection

from konvene.codec.uuid import Uuid
from konvene.groups.share.decision import CLEANUP_TIMER, Decision
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.state_topics import ListedPartitions, PartitionsByTopic, by_topic, keys
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
    state = decision.state_topics.without_initializing(_stale_initializing(decision))
    if not found:
        if state != decision.state_topics:
            decision.record_state_topics(state)
        return
    group_id = decision.group.group_id
    requests = tuple(
        Initialize(key, decision.epoch, _start_offset(decision, key.topic_id, key.partition))
        for key in keys(group_id, found)
    )
    decision.record_state_topics(state.with_initializing(found))
    decision.effects.append(Effect(INITIALIZE_STATE, StateToInitialize(group_id, requests)))
    decision.remember(
        requested_ms={**decision.soft.requested_ms, **dict.fromkeys(found, decision.context.now_ms)}
    )


def missing(decision: Decision, names: Collection[str]) -> PartitionsByTopic:
    """Return the partitions of these topics that are neither initialized nor pending."""
    state, known = decision.state_topics, decision.context.topics.by_name
    found: dict[Uuid, ListedPartitions] = {}
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
            found[topic.id] = ListedPartitions(
                name, tuple(p for p in range(topic.partitions) if p not in has)
            )
    return found


def _is_pending(decision: Decision, topic: Uuid) -> bool:
    """Return whether the initialization of this topic was requested within the retry interval."""
    requested_ms = decision.soft.requested_ms.get(topic)
    retry_ms: int = decision.context.config["group.share.initialize.retry.interval.ms"]
    return requested_ms is not None and requested_ms <= decision.context.now_ms < requested_ms + retry_ms


def _stale_initializing(decision: Decision) -> PartitionsByTopic:
    """Return topics whose start offsets were being altered when a crash interrupted that.

    They are both `initializing` and `initialized`, and no request is pending for them."""
    state = decision.state_topics
    return {
        topic: state.initialized[topic]
        for topic in state.initializing
        if topic in state.initialized and not _is_pending(decision, topic)
    }


def _start_offset(decision: Decision, topic: Uuid, partition: int) -> int:
    """Return the start offset of a new share partition.

    It is `RESET` (by the reset policy) if the group had no partition of the topic before, otherwise 0: no
    record may be missed."""
    state = decision.state_topics
    if topic in state.initialized:
        return 0
    requested = state.initializing.get(topic)
    return RESET if requested is None or partition in requested.partitions else 0


def is_initializing(group: ShareGroup) -> bool:
    """Return whether share partitions of subscribed topics are being initialized."""
    return any(some.name in group.subscribers for some in group.state_topics.initializing.values())


def target_lacks_initialized(group: ShareGroup, topics: Topics) -> bool:
    """Return whether the targets lack initialized partitions of subscribed topics, or have others.

    Then the caller has to bump the epoch. Deleted topics are ignored, since a target cannot contain them.
    """
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
    """Record the partitions that the share coordinator has initialized, so that they can be assigned."""
    if group is None:
        return _acknowledge(context)
    decision = Decision(group, context)
    done, failed = by_topic(event.done, context.topics), by_topic(event.failed, context.topics)
    before = decision.state_topics
    begun = {t: some for t, some in done.items() if t in context.topics.by_id and t not in before.deleting}
    after = before.with_initialized(begun)
    if after != before:
        decision.record_state_topics(after)
        if after.initialized != before.initialized:
            decision.remember(has_new_partitions=True)
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
    after = decision.state_topics.without_deleting(event.topics)
    if after != decision.state_topics:
        decision.record_state_topics(after)
    decision.replies += _acknowledge(context).replies
    return decision.outcome()


def _acknowledge(context: Context) -> Outcome:
    """Return the outcome of an event that changes nothing else: a reply if the shell waits for one.

    It waits if it may continue only after the event is recorded.
    """
    return Outcome((Reply(context.waiter, None),)) if context.waiter else NOTHING


def topics_deleted(groups: Collection[object], event: DeletedTopics, context: Context) -> Outcome:
    """Remove deleted topics from the share partitions of all groups.

    The share coordinator deletes the state of deleted topics without a request.
    """
    remaining = Topics(topic for topic in context.topics.by_id.values() if topic.id not in event.topic_ids)
    return _remove_deleted_topics(groups, remaining, context)


def _remove_deleted_topics(groups: Collection[object], remaining: Topics, context: Context) -> Outcome:
    """Remove all topics but the `remaining` ones from the share partitions of all groups."""
    records: list[object] = []
    for group in groups:
        if isinstance(group, ShareGroup):
            state = group.state_topics.without_deleted_topics(remaining)
            if state is not group.state_topics:
                decision = Decision(group, context)
                decision.record_state_topics(state)
                records += decision.records
    return Outcome(records=tuple(records))


# --- clean-up -----------------------------------------------------------------------------


def cleanup_timer(groups: Collection[object]) -> tuple[Arm, ...]:
    """Return the timer for `clean_up`, to be started by the caller; none if no group has share partitions."""
    some = any(isinstance(g, ShareGroup) and not g.state_topics.is_empty for g in groups)
    return (Arm(CLEANUP_TIMER, 0),) if some else ()


def clean_up(groups: Collection[object], context: Context) -> Outcome:
    """Remove deleted topics from the share partitions of all groups; repeat pending deletions."""
    removal = _remove_deleted_topics(groups, context.topics, context)
    effects: list[Effect] = []
    for group in groups:
        if isinstance(group, ShareGroup):
            deleting = {
                topic: ListedPartitions(name, tuple(range(context.topics.by_id[topic].partitions)))
                for topic, name in group.state_topics.deleting.items()
                if topic in context.topics.by_id
            }
            if deleting:
                requests = tuple(Delete(key) for key in keys(group.group_id, deleting))
                effects.append(Effect(DELETE_STATE, StateToDelete(group.group_id, requests)))
    after_ms: int = context.config["offsets.retention.check.interval.ms"]
    timers = tuple(Arm(key, after_ms) for key, _, _ in cleanup_timer(groups))
    return removal._replace(effects=tuple(effects), timers=timers)
