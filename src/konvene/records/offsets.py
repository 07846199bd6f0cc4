"""Records of committed offsets in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class LegacyOffsetCommitKey(Struct, key=0, versions="0"):
    group: str = string("0")
    """Id of the group."""
    topic: str = string("0")
    """Name of the topic."""
    partition: int = int32("0")
    """Partition number."""


class LegacyOffsetCommitValue(Struct, key=0, versions="0"):
    offset: int = int64("0")
    """Committed offset."""
    metadata: str = string("0")
    """Metadata that the client stored with the offset."""
    commit_timestamp: int = int64("0")
    """Time of the commit, in milliseconds."""


class OffsetCommitKey(Struct, key=1, versions="0"):
    group: str = string("0")
    """Id of the group."""
    topic: str = string("0")
    """Name of the topic."""
    partition: int = int32("0")
    """Partition number."""


class OffsetCommitValue(Struct, key=1, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    """Committed offset."""
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    metadata: str = string("0+")
    """Metadata that the client stored with the offset."""
    commit_timestamp: int = int64("0+")
    """Time of the commit, in milliseconds."""
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    """Time when the offset expires, in milliseconds; -1 for the broker's default (version 1)."""
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)
    """Id of the topic; zero if it is not known."""
