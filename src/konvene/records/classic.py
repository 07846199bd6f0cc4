"""Records of classic groups in `__consumer_offsets`."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, bytes_, int32, int64, string


class GroupMetadataKey(Struct, key=2, versions="0"):
    group: str = string("0")
    """Id of the group."""


class MemberMetadata(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    """Instance id of a static member; None for a dynamic one."""
    client_id: str = string("0+")
    """Client id that the member sends with its requests."""
    client_host: str = string("0+")
    """Address from which the member is connected."""
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    """Time that the member has to join a rebalance, in milliseconds."""
    session_timeout: int = int32("0+")
    """Time without a heartbeat after which the member is removed, in milliseconds."""
    subscription: bytes = bytes_("0+")
    """Subscription of the member, in bytes of the protocol."""
    assignment: bytes = bytes_("0+")
    """Assignment of the member, in bytes of the protocol."""


class GroupMetadataValue(Struct, key=2, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    """Protocol type of the group, such as `consumer`."""
    generation: int = int32("0+")
    """Generation of the group."""
    protocol: str | None = string("0+", nullable="0+")
    """Name of the selected protocol; None if there is none."""
    leader: str | None = string("0+", nullable="0+")
    """Id of the member that leads the group; None if there is none."""
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    """Time when the group entered its state, in milliseconds."""
    members: tuple[MemberMetadata, ...] = array(MemberMetadata, "0+")
    """Members of the group."""
