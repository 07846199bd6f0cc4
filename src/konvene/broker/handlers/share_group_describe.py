"""ShareGroupDescribe: each group by its own coordinator (`group_descriptions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.describe_heartbeats import with_notes
from konvene.broker.handlers.describe_modern_groups import Kind, described
from konvene.broker.handlers.group_requests import share_groups_are_on
from konvene.broker.net.authorizer import Allows, allows
from konvene.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


async def handle(
    broker: Broker, request: ShareGroupDescribeRequest, call: Call, *, asked: Allows = allows
) -> ShareGroupDescribeResponse:
    answer: ShareGroupDescribeResponse = await described(KIND, broker, request, call, asked)
    return answer


def _topics(group: DescribedGroup) -> list[str]:
    """The topics of which members have partitions."""
    return sorted({t.topic_name for member in group.members for t in member.assignment.topic_partitions})


KIND = Kind(
    is_on=share_groups_are_on,
    response=ShareGroupDescribeResponse,
    group=DescribedGroup,
    topics=_topics,
    hidden="The group has described topic(s) that the client is not authorized to describe.",
    annotated=with_notes,
)
