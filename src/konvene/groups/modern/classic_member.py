"""What consumer and streams groups keep of a member that uses the classic protocol."""

from __future__ import annotations

from dataclasses import dataclass

from konvene.records.consumer import ClassicMemberMetadata, ClassicProtocol


@dataclass(frozen=True, slots=True)
class ClassicProtocolMetadata:
    """The session timeout of the member's last JoinGroup, and the assignors that it supports, with
    metadata."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


def to_metadata(classic: ClassicProtocolMetadata | None) -> ClassicMemberMetadata | None:
    """Return the value that the log keeps; None for a member of the group's own protocol."""
    if classic is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=tuple(
            ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ),
    )


def from_metadata(value: ClassicMemberMetadata | None) -> ClassicProtocolMetadata | None:
    """Read the value that the log keeps; None for a member of the group's own protocol."""
    if value is None:
        return None
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in value.supported_protocols)
    return ClassicProtocolMetadata(value.session_timeout_ms, protocols)
