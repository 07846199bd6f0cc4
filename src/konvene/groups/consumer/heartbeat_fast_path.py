"""The fast path of ConsumerGroupHeartbeat, for members that only have to move to a new epoch.

When a member joins a group of ten thousand, nearly all others keep their partitions: they send an empty
heartbeat, receive the new epoch, and one record is written. That is most of the cost of a rebalance of a
large group. The fast path is an optimisation and has no rules of its own: it decides what the steps of
`heartbeat` would decide, with the same records in the same order, and leaves every other case to them.

    the group        has a target for its epoch, and its metadata hash is that of the current topics
    the member       uses the consumer protocol, has its whole target, and owes no revocation
    the heartbeat    has the member's own epoch, and nothing else; it is not the first of its connection

The last member to reach the target ends the rebalance, which the steps of `heartbeat` audit.

The response does not change what the member does, so it may wait to become durable together with others.
"""

from __future__ import annotations

from konvene.groups.assignors.contract import NOTHING
from konvene.groups.classic.decision import session_key
from konvene.groups.consumer import log
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState, has_it_all
from konvene.groups.consumer.decision import revocation_key
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.targets import SubscribedTopics
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.modern.rebalance_trace import SoftStateRecord
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Reply


def heartbeat_fast_path(
    group: object, request: ConsumerGroupHeartbeatRequest, context: Context
) -> Outcome | None:
    """Return the outcome of a valid heartbeat; None if the steps of `heartbeat` have to decide it."""
    if type(group) is not ConsumerGroup or not _is_keep_alive(request) or context.may_have_lost_response:
        return None
    epoch, soft = group.epoch, group.soft
    if group.assignment_epoch != epoch or soft.hashed_topics is not context.topics or group.regex_users:
        return None
    member = group.members.get(request.member_id)
    if member is None or not _is_unchanged(group, member, request, context):
        return None
    current = member.current
    if current.state is not MemberState.STABLE or request.member_epoch != current.epoch:
        return None
    config = context.group_configs.of(group.group_id)
    armed = Arm(session_key(group.group_id, member.member_id), config["consumer.session.timeout.ms"])
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(
            config["consumer.heartbeat.interval.ms"], context.config, context.members, waits=False,
            member_id=member.member_id,
        ),
    )  # fmt: skip
    replies = (Reply(context.waiter, response),)
    if current.epoch == epoch:
        return Outcome(replies, timers=(armed,), may_wait=True)
    target = group.targets.get(member.member_id, NOTHING)
    is_last = soft.trace is not None and len(group.behind) <= 1
    if is_last or not has_it_all(current, target, SubscribedTopics(member.topics, context.topics)):
        return None
    moved = CurrentAssignment(MemberState.STABLE, epoch, current.epoch, current.assigned)
    reached = SoftStateRecord(group.group_id, soft, {member.member_id: context.now_ms})
    return Outcome(
        replies,
        (log.current_record(group.group_id, member.member_id, moved),),
        (reached,) if soft.trace is not None else (),
        (Disarm(revocation_key(group.group_id, member.member_id)), armed),
        may_wait=True,
    )


def _is_keep_alive(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether the request has the member's identity and epoch only."""
    return (
        request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == -1
        and request.rack_id is None
    )


def _is_unchanged(
    group: ConsumerGroup, member: Member, request: ConsumerGroupHeartbeatRequest, context: Context
) -> bool:
    """Return whether the client and the instance id of the request are those of the member.

    A member of the classic protocol never counts as unchanged."""
    instance_id = request.instance_id
    return (
        member.classic is None
        and (instance_id is None or group.instances.get(instance_id) == member.member_id)
        and member.client_id == context.client_id
        and member.client_host == context.client_host
    )
