"""The handlers of requests and events that concern only share groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from konvene.groups.modern.group import find_group
from konvene.groups.share import initialize, offsets
from konvene.groups.share.describe import describe
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.heartbeat import heartbeat
from konvene.groups.share.work import (
    BeginDeletion,
    DeletedTopics,
    InitializedPartitions,
    StateDeleted,
    StateInitialized,
)
from konvene.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.shard.contract import Context, Outcome

Groups = Mapping[str, object]


HANDLERS: dict[type, Callable[[Groups, Any, Context], Outcome]] = {
    ShareGroupHeartbeatRequest: heartbeat,
    ShareGroupDescribeRequest: describe,
    AlterShareGroupOffsetsRequest: offsets.alter,
    DeleteShareGroupOffsetsRequest: offsets.delete,
    BeginDeletion: offsets.begin_deletion,
    InitializedPartitions: offsets.initialized_partitions,
    StateInitialized: lambda groups, event, context: initialize.initialized(
        find_group(groups, event.group_id, ShareGroup), event, context
    ),
    StateDeleted: lambda groups, event, context: initialize.deleted(
        find_group(groups, event.group_id, ShareGroup), event, context
    ),
    DeletedTopics: lambda groups, event, context: initialize.topics_deleted(groups.values(), event, context),
}
