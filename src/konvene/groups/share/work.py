"""What a share group asks of others, and what comes back.

The core never waits: it gives work to the shell as an `Effect`, and what comes of it is handled like a
request. Where somebody waits for it (offsets altered or deleted, a group deleted) the shell asks in two
steps: what has to be done, which is written down, and then that it was. After a crash in between the lists of
record 15 say what is left (`initialize`).
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from konvene.share_state.requests import Delete, Initialize, SharePartitionKey

INITIALIZE_STATE = "initialize-share-state"
"""Effect: have the share coordinator begin with share partitions. Subject: `StateToInitialize`."""

DELETE_STATE = "delete-share-state"
"""Effect: have it forget what a crash kept from being forgotten. Subject: `StateToDelete`."""

MEMBER_GONE = "share-member-gone"
"""Effect: a member was put out; whatever it has acquired is free again. Subject: `(group id, member id)`."""

MEMBER_LEFT = "share-member-left"
"""Effect: a member has left, and may still say what became of what it has acquired. Subject: the same."""

GROUP_EMPTY = "share-group-empty"
"""Effect: nobody reads for this group any more. Subject: the group id."""


class StateToInitialize(NamedTuple):
    group_id: str
    requests: tuple[Initialize, ...]


class StateToDelete(NamedTuple):
    group_id: str
    requests: tuple[Delete, ...]


class StateInitialized(NamedTuple):
    """News: how that went. A topic that could not be initialised whole is asked for again later."""

    group_id: str
    done: tuple[SharePartitionKey, ...]
    failed: tuple[SharePartitionKey, ...] = ()


class StateDeleted(NamedTuple):
    """News: nothing is known any more of these topics for this group."""

    group_id: str
    topics: tuple[Uuid, ...]


class BeginDeletion(NamedTuple):
    """A group is to be deleted: write down that all its state goes. Answered with a `StateToDelete`, which is
    empty where there is no state, or where it is no share group."""

    group_id: str


class OffsetsToAlter(NamedTuple):
    """What is to be done for AlterShareGroupOffsets, and its response if all goes well."""

    response: AlterShareGroupOffsetsResponse
    requests: tuple[Initialize, ...] = ()


class OffsetsToDelete(NamedTuple):
    """The same for DeleteShareGroupOffsets; its response so far has the topics that were refused."""

    response: DeleteShareGroupOffsetsResponse
    requests: tuple[Delete, ...] = ()


class InitializedPartitions(NamedTuple):
    """Which share partitions does a group have? Answered with a tuple of their keys."""

    group_id: str


class TopicsGone(NamedTuple):
    """News: topics were deleted."""

    topic_ids: frozenset[Uuid]
