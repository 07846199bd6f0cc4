"""Requests of share groups to the share coordinator, which the shell sends for them, and their results.

The core does no I/O: it passes a request to the shell as an `Effect`, and the shell passes the result to the
core as an event. If a client waits for the result (to alter or delete offsets, or to delete a group), the
shell begins: it sends the core a request, which records the intent and returns the requests to the share
coordinator, and afterwards an event, which records the result. After a crash in between, record 15 still has
the share partitions as `initializing` or `deleting` (`initialize`).
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
"""Effect: a member left, and may still acknowledge the records that it acquired. Subject: `(group id,
member id)`."""

GROUP_EMPTY = "share-group-empty"
"""Effect: the group has no members any more. Subject: the group id."""


class StateToInitialize(NamedTuple):
    group_id: str
    requests: tuple[Initialize, ...]


class StateToDelete(NamedTuple):
    group_id: str
    requests: tuple[Delete, ...]


class StateInitialized(NamedTuple):
    """Event: the share coordinator initialized the partitions `done`, and failed for those in `failed`."""

    group_id: str
    done: tuple[SharePartitionKey, ...]
    failed: tuple[SharePartitionKey, ...] = ()


class StateDeleted(NamedTuple):
    """Event: the share coordinator deleted the group's state of these topics."""

    group_id: str
    topics: tuple[Uuid, ...]


class BeginDeletion(NamedTuple):
    """Request: record that all state of a group is to be deleted.

    Answered with a `StateToDelete`, without requests if there is no state or the group is no share group.
    """

    group_id: str


class OffsetsToAlter(NamedTuple):
    """Reply: an AlterShareGroupOffsets response, to be sent to the client after these requests succeeded."""

    response: AlterShareGroupOffsetsResponse
    requests: tuple[Initialize, ...] = ()


class OffsetsToDelete(NamedTuple):
    """Reply: a DeleteShareGroupOffsets response with the rejected topics, and requests for the others."""

    response: DeleteShareGroupOffsetsResponse
    requests: tuple[Delete, ...] = ()


class InitializedPartitions(NamedTuple):
    """Request: list the initialized share partitions of a group. Answered with a tuple of their keys."""

    group_id: str


class DeletedTopics(NamedTuple):
    """Event: these topics were deleted from the cluster."""

    topic_ids: frozenset[Uuid]
