"""SyncGroup: the answer comes when the leader's assignment is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.groups_call import ask
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call


def handle(broker: Broker, request: SyncGroupRequest, call: Call) -> Any:
    return ask(broker, request.group_id, request, call, lambda error: SyncGroupResponse(error_code=error))
