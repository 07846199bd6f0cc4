"""Share partitions of a group begin: which, from where, and how that is found again after a crash.

Only what the share coordinator has begun with is assigned. So with each heartbeat that is decided it is
looked for partitions of topics that members read and that the group does not have yet: they are written down
as `initializing`, and the share coordinator is asked. Its answer makes them `initialized`. If it could not,
the next heartbeat asks again; they stay on the list, for it may have begun with them all the same, and
whoever deletes the group has to have that forgotten as well.

Where they begin:

    a topic of which the group has nothing yet      -1: `share.auto.offset.reset` says it
    partitions that were added to one that it has   0: nothing of them may be missed

So partitions that are added to a topic while it begins are asked for after that: which rule is theirs is
known then, and what is still listed after a crash is all of one kind.

A coordinator that starts again has forgotten that it asked. What is still listed as `initializing` is then
asked for at once, else after `group.share.initialize.retry.interval.ms`. The share coordinator takes the same
question twice. In Kafka 4.4 a topic that has to be asked for twice begins at 0, whatever its reset says.
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
    StateDeleted,
    StateInitialized,
    StateToDelete,
    StateToInitialize,
    TopicsGone,
)
from konvene.shard.contract import NOTHING, Arm, Context, Effect, Outcome, Reply
from konvene.shard.image import Topics
from konvene.share_state.requests import Delete, Initialize

RESET = -1


def initialize(decision: Decision, names: Collection[str]) -> None:
    """Have what these topics lack begun with, unless that was asked for a moment ago."""
    found = missing(decision, names)
    state = decision.state_topics.not_begun(_left_over(decision))
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
    decision.remember(asked_ms={**decision.soft.asked_ms, **dict.fromkeys(found, decision.context.now_ms)})


def missing(decision: Decision, names: Collection[str]) -> Listed:
    """The partitions of these topics that the group neither has nor has just asked for."""
    state, known = decision.state_topics, decision.context.topics.by_name
    found: dict[Uuid, Some] = {}
    for name in sorted(names):
        topic = known.get(name)
        if topic is None:
            continue
        has = set(state.initialized[topic.id].partitions) if topic.id in state.initialized else set()
        if topic.id in state.initializing and _was_just_asked(decision, topic.id):
            if topic.id not in state.initialized:
                continue
            has |= set(state.initializing[topic.id].partitions)
        if len(has) < topic.partitions:
            found[topic.id] = Some(name, tuple(p for p in range(topic.partitions) if p not in has))
    return found


def _was_just_asked(decision: Decision, topic: Uuid) -> bool:
    """Whether the answer of the share coordinator is still to be waited for."""
    asked_ms = decision.soft.asked_ms.get(topic)
    retry_ms: int = decision.context.config["group.share.initialize.retry.interval.ms"]
    return asked_ms is not None and asked_ms <= decision.context.now_ms < asked_ms + retry_ms


def _left_over(decision: Decision) -> Listed:
    """What a crash left on the list of what begins though the group has it: its offset was to be altered."""
    state = decision.state_topics
    return {
        topic: state.initialized[topic]
        for topic in state.initializing
        if topic in state.initialized and not _was_just_asked(decision, topic)
    }


def _start_offset(decision: Decision, topic: Uuid, partition: int) -> int:
    """See the top of this file."""
    state = decision.state_topics
    if topic in state.initialized:
        return 0
    asked = state.initializing.get(topic)
    return RESET if asked is None or partition in asked.partitions else 0


def is_beginning(group: ShareGroup) -> bool:
    """Whether partitions that somebody reads have still to begin."""
    return any(some.name in group.subscribers for some in group.state_topics.initializing.values())


def assignment_lacks_some(group: ShareGroup, topics: Topics) -> bool:
    """Whether initialised partitions of topics that members read are nobody's target: the epoch moves then.

    Of topics that exist: a target cannot have others."""
    if group.is_empty or not group.state_topics.initialized:
        return False
    assigned: dict[Uuid, set[int]] = {}
    for target in group.targets.values():
        for topic, partitions in target.items():
            assigned.setdefault(topic, set()).update(partitions)
    for topic, some in group.state_topics.initialized.items():
        if some.name in group.subscribers and topic in topics.by_id:
            there = {p for p in some.partitions if p < topics.by_id[topic].partitions}
            if there != assigned.get(topic, set()):
                return True
    return False


# --- what comes back -------------------------------------------------------------------------------


def initialized(group: ShareGroup | None, news: StateInitialized, context: Context) -> Outcome:
    """The share coordinator has begun with partitions, or could not."""
    if group is None:
        return _heard(context)
    decision = Decision(group, context)
    done, failed = by_topic(news.done, context.topics), by_topic(news.failed, context.topics)
    before = decision.state_topics
    begun = {t: some for t, some in done.items() if t in context.topics.by_id and t not in before.deleting}
    after = before.begun(begun)
    if after != before:
        decision.keep_state(after)
    heard = done.keys() | failed.keys()
    decision.remember(asked_ms={t: ms for t, ms in decision.soft.asked_ms.items() if t not in heard})
    decision.replies += _heard(context).replies
    return decision.outcome()


def deleted(group: ShareGroup | None, news: StateDeleted, context: Context) -> Outcome:
    """The share coordinator has forgotten topics."""
    if group is None:
        return _heard(context)
    decision = Decision(group, context)
    after = decision.state_topics.ended(news.topics)
    if after != decision.state_topics:
        decision.keep_state(after)
    decision.replies += _heard(context).replies
    return decision.outcome()


def _heard(context: Context) -> Outcome:
    """To who waits for the news to be written down, if anybody does."""
    return Outcome((Reply(context.waiter, None),)) if context.waiter else NOTHING


def topics_gone(groups: Collection[object], news: TopicsGone, context: Context) -> Outcome:
    """Topics were deleted: no group has partitions of them. The share coordinator hears it itself."""
    left = Topics(topic for topic in context.topics.by_id.values() if topic.id not in news.topic_ids)
    return _let_go(groups, left, context)


def _let_go(groups: Collection[object], left: Topics, context: Context) -> Outcome:
    """Keep on the lists what there still is."""
    records: list[object] = []
    for group in groups:
        if isinstance(group, ShareGroup):
            state = group.state_topics.left_by(left)
            if state is not group.state_topics:
                decision = Decision(group, context)
                decision.keep_state(state)
                records += decision.records
    return Outcome(records=tuple(records))


# --- from time to time -----------------------------------------------------------------------------


def armed(groups: Collection[object]) -> tuple[Arm, ...]:
    """The timer of a coordinator that starts: it runs while there are groups that have share partitions."""
    some = any(isinstance(g, ShareGroup) and not g.state_topics.is_empty for g in groups)
    return (Arm(TIDY, 0),) if some else ()


def tidy(groups: Collection[object], context: Context) -> Outcome:
    """What is listed of topics that are gone is let go of; what is being deleted is asked for again."""
    gone = _let_go(groups, context.topics, context)
    effects: list[Effect] = []
    for group in groups:
        if isinstance(group, ShareGroup):
            still = {
                topic: Some(name, tuple(range(context.topics.by_id[topic].partitions)))
                for topic, name in group.state_topics.deleting.items()
                if topic in context.topics.by_id
            }
            if still:
                wanted = tuple(Delete(key) for key in keys(group.group_id, still))
                effects.append(Effect(DELETE_STATE, StateToDelete(group.group_id, wanted)))
    after_ms: int = context.config["offsets.retention.check.interval.ms"]
    timers = tuple(Arm(key, after_ms) for key, _, _ in armed(groups))
    return gone._replace(effects=tuple(effects), timers=timers)
