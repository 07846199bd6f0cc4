"""ConsumerGroupDescribe: each group by its own coordinator (`group_descriptions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.describe_heartbeats import with_notes
from konvene.broker.handlers.describe_modern_groups import Kind, described
from konvene.broker.handlers.group_requests import consumer_groups_are_on
from konvene.broker.net.authorizer import Allows, allows
from konvene.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


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
