"""The heartbeats of a member that only has to hear of an epoch, decided at a glance.

When one more joins a group of ten thousand, nearly all others keep what they have: they come with a heartbeat
that says nothing, are told the new epoch, and one record says that they know it. That is most of what a
rebalance of a large group costs, so it has a way of its own. It is a short cut and no rule: what it decides
is what the steps of `heartbeat` decide, word by word and in the same order, and whenever it is not sure it
leaves the decision to them.

    the group        has a target for its epoch, and looks at the topics that there are
    the member       speaks the consumer protocol, has all of its target, and nothing to give up
    the heartbeat    says the member's own epoch, and nothing else

The last member to come to a target ends the rebalance; that is told by the steps as well.

What such a member is told changes nothing of what it does: its answer may wait a moment, to be made durable
with those of others.
"""

from __future__ import annotations

from typing import Any

from konvene.groups.assignors.contract import NOTHING
from konvene.groups.classic.decision import session_key
from konvene.groups.consumer import log
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState, has_it_all
from konvene.groups.consumer.decision import revocation_key
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.targets import Reads
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.modern.rebalance_trace import SoftStateRecord
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Reply


def heartbeat_fast_path(
    group: Any, request: ConsumerGroupHeartbeatRequest, context: Context
) -> Outcome | None:
    """The outcome of a heartbeat that passed all checks of the request alone; None: the steps decide."""
    if type(group) is not ConsumerGroup or not _says_nothing(request):
        return None
    epoch, soft = group.epoch, group.soft
    if group.assignment_epoch != epoch or soft.seen is not context.topics or group.regex_users:
        return None
    member = group.members.get(request.member_id)
    if member is None or not _is_as_known(group, member, request, context):
        return None
    current = member.current
    if current.state is not MemberState.STABLE or request.member_epoch != current.epoch:
        return None
    config = context.group_configs.of(group.group_id)
    armed = Arm(session_key(group.group_id, member.member_id), config["consumer.session.timeout.ms"])
    told = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(
            config["consumer.heartbeat.interval.ms"], context.config, context.members, waits=False,
            member_id=member.member_id,
        ),
    )  # fmt: skip
    replies = (Reply(context.waiter, told),)
    if current.epoch == epoch:
        return Outcome(replies, timers=(armed,), may_wait=True)
    target = group.targets.get(member.member_id, NOTHING)
    is_last = soft.story is not None and len(group.behind) <= 1
    if is_last or not has_it_all(current, target, Reads(member.topics, context.topics)):
        return None
    there = CurrentAssignment(MemberState.STABLE, epoch, current.epoch, current.assigned)
    reached = SoftStateRecord(group.group_id, soft, {member.member_id: context.now_ms})
    return Outcome(
        replies,
        (log.current_record(group.group_id, member.member_id, there),),
        (reached,) if soft.story is not None else (),
        (Disarm(revocation_key(group.group_id, member.member_id)), armed),
        may_wait=True,
    )


def _says_nothing(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it gives nothing but who it is, and at which epoch."""
    return (
        request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == -1
        and request.rack_id is None
    )


def _is_as_known(
    group: ConsumerGroup, member: Member, request: ConsumerGroupHeartbeatRequest, context: Context
) -> bool:
    """Whether it comes from where the member is known to be, under its own names."""
    instance_id = request.instance_id
    return (
        member.classic is None
        and (instance_id is None or group.instances.get(instance_id) == member.member_id)
        and member.client_id == context.client_id
        and member.client_host == context.client_host
    )
