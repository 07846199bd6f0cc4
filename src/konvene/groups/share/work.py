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
    """Requests to the share coordinator to initialize state, one for each share partition."""

    group_id: str
    requests: tuple[Initialize, ...]


class StateToDelete(NamedTuple):
    """Requests to the share coordinator to delete state, one for each share partition."""

    group_id: str
    requests: tuple[Delete, ...]


class StateInitialized(NamedTuple):
    """Event: the share coordinator has answered requests to initialize the state of share partitions.

    If it failed for one partition of a topic, all those of the topic are in `failed`, otherwise in `done`.
    """

    group_id: str
    done: tuple[SharePartitionKey, ...]
    failed: tuple[SharePartitionKey, ...] = ()


class StateDeleted(NamedTuple):
    """Event: the share coordinator deleted the group's state of these topics."""

    group_id: str
    topics: tuple[Uuid, ...]


class BeginDeletion(NamedTuple):
    """Request to the group coordinator: record that all share state of a group is to be deleted.

    The reply is a `StateToDelete`: the requests that the broker then sends to the share coordinator. There
    are none if the group has no state or is no share group.
    """

    group_id: str


class OffsetsToAlter(NamedTuple):
    """The group coordinator's reply to AlterShareGroupOffsets: what the broker has to do next.

    The broker sends the requests, one for each altered share partition, to the share coordinator; then it
    adds the errors of those that failed to the response, and sends that to the client.
    """

    response: AlterShareGroupOffsetsResponse
    requests: tuple[Initialize, ...] = ()


class OffsetsToDelete(NamedTuple):
    """The group coordinator's reply to DeleteShareGroupOffsets: what the broker has to do next.

    The broker sends the requests, each to delete the state of a share partition, to the share
    coordinator; then it adds the results of their topics to the response, which so far has only rejected
    topics, and sends that to the client.
    """

    response: DeleteShareGroupOffsetsResponse
    requests: tuple[Delete, ...] = ()


class InitializedPartitions(NamedTuple):
    """Request to the group coordinator: list the initialized share partitions of a group.

    The reply is a tuple of their keys.
    """

    group_id: str


class DeletedTopics(NamedTuple):
    """Event: these topics were deleted from the cluster."""

    topic_ids: frozenset[Uuid]
