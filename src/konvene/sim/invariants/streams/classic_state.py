"""What members of the classic protocol send and receive as instances of a Kafka Streams application, decoded
from the user data of their subscriptions and assignments. This module has no `KINDS`.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.client.consumer.protocol import Assigned, Subscription, read_assignment, read_subscription
from konvene.codec.errors import CodecError
from konvene.groups.classic.group import Member
from konvene.groups.streams.classic.user_data import (
    AssignmentInfo,
    SubscriptionInfo,
    UserDataError,
    read_assignment_info,
    read_subscription_info,
)

STREAM = "stream"
"""Name of the protocol of Kafka Streams in the classic protocol."""
FIRST_VERSION_THAT_REJOINS = 9
"""First version of the user data whose clients rejoin when a JoinGroup is answered with
REBALANCE_IN_PROGRESS; those of earlier versions fail."""
FIRST_VERSION_WITH_OFFSETS = 7
"""First version of the user data in which members report task offsets."""
SHUTDOWN_REQUESTED = 4
"""Error code in user data: a shutdown is requested."""


class ClassicState(NamedTuple):
    """Decoded Kafka Streams data of a member of the classic protocol: its subscription in its last JoinGroup,
    and its assignment by the leader."""

    subscription: Subscription
    info: SubscriptionInfo
    assigned: AssignmentInfo


def read_classic_state(member: Member) -> ClassicState | None:
    """Decode what a member of the classic protocol sent and was assigned; None if that cannot be decoded or
    has named topologies."""
    try:
        subscription = read_subscription(dict(member.protocols)[STREAM])
        info = read_subscription_info(subscription.user_data or b"")
        assigned = read_info(read_assignment(member.assignment))
    except (CodecError, UserDataError, KeyError):
        return None
    if info.named_topologies or assigned is None:
        return None
    return ClassicState(subscription, info, assigned)


def read_info(assignment: Assigned) -> AssignmentInfo | None:
    """Decode the Kafka Streams user data of an assignment. Without user data return an empty one if the
    assignment is empty, else None. Raises `UserDataError`."""
    partitions = tuple((p.topic, p.partition) for p in assignment.partitions)
    if assignment.user_data:
        return read_assignment_info(assignment.user_data, partitions)
    return None if partitions else AssignmentInfo(1, 1)
