"""What consumer and streams groups keep of a member that uses the classic protocol."""

from __future__ import annotations

from dataclasses import dataclass

from konvene.records.consumer import ClassicMemberMetadata, ClassicProtocol


@dataclass(frozen=True, slots=True)
class ClassicProtocolMetadata:
    """The session timeout and the assignors, with their metadata, of a classic member's last JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


def to_metadata(classic: ClassicProtocolMetadata | None) -> ClassicMemberMetadata | None:
    """Return the metadata as a field of the member's record; None for a member that is not classic."""
    if classic is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=tuple(
            ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ),
    )


def from_metadata(value: ClassicMemberMetadata | None) -> ClassicProtocolMetadata | None:
    """Return the metadata from a field of the member's record; None for a member that is not classic."""
    if value is None:
        return None
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in value.supported_protocols)
    return ClassicProtocolMetadata(value.session_timeout_ms, protocols)
