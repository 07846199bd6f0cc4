"""ConsumerGroupDescribe: each group by its own coordinator (`group_descriptions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.authorizer import Allows, allows
from konvene.broker.handlers.group_descriptions import Kind, described
from konvene.broker.handlers.groups_call import consumer_groups_are_on
from konvene.broker.heartbeat_notes import with_notes
from konvene.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call


async def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, call: Call, *, asked: Allows = allows
) -> ConsumerGroupDescribeResponse:
    answer: ConsumerGroupDescribeResponse = await described(KIND, broker, request, call, asked)
    return answer


def _topics(group: DescribedGroup) -> list[str]:
    """The topics of which members have partitions, or are to have them."""
    named = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    return sorted(named)


KIND = Kind(
    is_on=consumer_groups_are_on,
    response=ConsumerGroupDescribeResponse,
    group=DescribedGroup,
    topics=_topics,
    hidden="The group has described topic(s) that the client is not authorized to describe.",
    annotated=with_notes,
)
