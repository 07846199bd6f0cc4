"""Committed offsets, in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class LegacyOffsetCommitKey(Struct, key=0, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(Struct, key=0, versions="0"):
    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


class OffsetCommitKey(Struct, key=1, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Struct, key=1, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)
