"""What a shard does with requests and news that are about share groups alone."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from konvene.groups.share import initialize, offsets
from konvene.groups.share.describe import described
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.heartbeat import heartbeat
from konvene.groups.share.work import (
    BeginDeletion,
    InitializedPartitions,
    StateDeleted,
    StateInitialized,
    TopicsGone,
)
from konvene.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from konvene.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.shard.contract import Context, Outcome, Reply

Groups = MutableMapping[str, Any]


def _describe(groups: Any, request: ShareGroupDescribeRequest, context: Context) -> Outcome:
    found = tuple(described(groups, group_id, context) for group_id in request.group_ids)
    return Outcome((Reply(context.waiter, ShareGroupDescribeResponse(groups=found)),))


def known(groups: Groups, group_id: str) -> ShareGroup | None:
    """The share group of that name."""
    group = groups.get(group_id)
    return group if isinstance(group, ShareGroup) else None


HANDLERS: dict[type, Callable[[Groups, Any, Context], Outcome]] = {
    ShareGroupHeartbeatRequest: heartbeat,
    ShareGroupDescribeRequest: _describe,
    AlterShareGroupOffsetsRequest: offsets.alter,
    DeleteShareGroupOffsetsRequest: offsets.delete,
    BeginDeletion: offsets.begin_deletion,
    InitializedPartitions: offsets.initialized_partitions,
    StateInitialized: lambda groups, news, context: initialize.initialized(
        known(groups, news.group_id), news, context
    ),
    StateDeleted: lambda groups, news, context: initialize.deleted(
        known(groups, news.group_id), news, context
    ),
    TopicsGone: lambda groups, news, context: initialize.topics_gone(groups.values(), news, context),
}
