"""Records of share groups' delivery state in `__share_group_state`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class ShareSnapshotKey(Struct, key=0, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    topic_id: Uuid = uuid("0")
    """Id of the topic."""
    partition: int = int32("0")
    """Partition number."""


class StateBatch(Struct):
    first_offset: int = int64("0+")
    """First offset of the range."""
    last_offset: int = int64("0+")
    """Last offset of the range, inclusive."""
    delivery_state: int = int8("0+")
    """State of the records: available, acquired, acknowledged or archived."""
    delivery_count: int = int16("0+")
    """Number of times that the records were delivered."""


class ShareSnapshotValue(Struct, key=0, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    """Number of the snapshot, raised by each one; an update belongs to the last snapshot."""
    state_epoch: int = int32("0+")
    """Epoch of the share partition's state, raised by each initialization."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader that wrote the state."""
    start_offset: int = int64("0+")
    """Start offset of the share partition; -1 if it is not initialized."""
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    """Number of records above the start offset whose delivery is complete; -1 if unknown."""
    create_timestamp: int = int64("0+")
    """Time when the state was initialized, in milliseconds."""
    write_timestamp: int = int64("0+")
    """Time of the snapshot, in milliseconds."""
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")
    """Delivery state of ranges of records above the start offset."""


class ShareUpdateKey(Struct, key=1, versions="0"):
    group_id: str = string("0")
    """Id of the group."""
    topic_id: Uuid = uuid("0")
    """Id of the topic."""
    partition: int = int32("0")
    """Partition number."""


class ShareUpdateValue(Struct, key=1, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    """Number of the snapshot, raised by each one; an update belongs to the last snapshot."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader that wrote the state."""
    start_offset: int = int64("0+")
    """New start offset; -1 if unchanged."""
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    """Number of records above the start offset whose delivery is complete; -1 if unknown."""
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")
    """Delivery state of ranges of records above the start offset."""
