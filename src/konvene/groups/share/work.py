"""Work that share groups pass to the shell, mostly for the share coordinator, and its results.

The core never waits: it passes work to the shell as an `Effect`, and the result is handled like a request.
Where a client waits for it (offsets altered or deleted, a group deleted), the shell sends two requests: the
first records and returns what has to be done, the second records that it is done. After a crash in between,
the state lists of record 15 have what is left (`initialize`).
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from konvene.share_state.requests import Delete, Initialize, SharePartitionKey

INITIALIZE_STATE = "initialize-share-state"
"""Effect: initialize the state of share partitions. Subject: `StateToInitialize`."""

DELETE_STATE = "delete-share-state"
"""Effect: delete state whose deletion a crash interrupted. Subject: `StateToDelete`."""

MEMBER_FENCED = "share-member-fenced"
"""Effect: a member was fenced; the records that it acquired are released. Subject: `(group id, member
id)`."""

MEMBER_LEFT = "share-member-left"
"""Effect: a member left, and may still acknowledge the records that it acquired. Subject: the same."""

GROUP_EMPTY = "share-group-empty"
"""Effect: the group has no members any more. Subject: the group id."""


class StateToInitialize(NamedTuple):
    group_id: str
    requests: tuple[Initialize, ...]


class StateToDelete(NamedTuple):
    group_id: str
    requests: tuple[Delete, ...]


class StateInitialized(NamedTuple):
    """Event: the result of an initialization. Failed partitions are requested again later."""

    group_id: str
    done: tuple[SharePartitionKey, ...]
    failed: tuple[SharePartitionKey, ...] = ()


class StateDeleted(NamedTuple):
    """Event: the group's state of these topics was deleted."""

    group_id: str
    topics: tuple[Uuid, ...]


class BeginDeletion(NamedTuple):
    """Request: record the deletion of all state of a group. Answered with a `StateToDelete`, which is empty
    if there is no state, or the group is no share group."""

    group_id: str


class OffsetsToAlter(NamedTuple):
    """The work of an AlterShareGroupOffsets, and its response if all of it succeeds."""

    response: AlterShareGroupOffsetsResponse
    requests: tuple[Initialize, ...] = ()


class OffsetsToDelete(NamedTuple):
    """The work of a DeleteShareGroupOffsets, and its response with the rejected topics."""

    response: DeleteShareGroupOffsetsResponse
    requests: tuple[Delete, ...] = ()


class InitializedPartitions(NamedTuple):
    """Request: the initialized share partitions of a group. Answered with a tuple of their keys."""

    group_id: str


class DeletedTopics(NamedTuple):
    """Event: topics were deleted."""

    topic_ids: frozenset[Uuid]
