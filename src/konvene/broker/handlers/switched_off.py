"""Group protocols that are not served: that of share groups.

Its APIs stay advertised, and every request is answered UNSUPPORTED_VERSION: a client of that protocol stops
with a clear error instead of waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.share_group_describe import DescribedGroup as DescribedShareGroup
from konvene.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call

NO = Errors.UNSUPPORTED_VERSION


def handle_share_group_heartbeat(
    broker: Broker, request: ShareGroupHeartbeatRequest, call: Call
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=NO)


def handle_share_group_describe(
    broker: Broker, request: ShareGroupDescribeRequest, call: Call
) -> ShareGroupDescribeResponse:
    groups = tuple(DescribedShareGroup(group_id=g, error_code=NO) for g in request.group_ids)
    return ShareGroupDescribeResponse(groups=groups)
