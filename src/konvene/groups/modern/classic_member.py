"""What is kept of a member that speaks the classic protocol in a group whose coordinator assigns."""

from __future__ import annotations

from dataclasses import dataclass

from konvene.records.consumer import ClassicMemberMetadata, ClassicProtocol


@dataclass(frozen=True, slots=True)
class ClassicProtocolMetadata:
    """Its session, and what it said as it joined last: the assignors that it supports, each with metadata."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


def to_metadata(side: ClassicProtocolMetadata | None) -> ClassicMemberMetadata | None:
    """As the log keeps it."""
    if side is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=side.session_timeout_ms,
        supported_protocols=tuple(ClassicProtocol(name=n, metadata=said) for n, said in side.protocols),
    )


def from_metadata(kept: ClassicMemberMetadata | None) -> ClassicProtocolMetadata | None:
    """Of what the log keeps."""
    if kept is None:
        return None
    return ClassicProtocolMetadata(
        kept.session_timeout_ms, tuple((each.name, bytes(each.metadata)) for each in kept.supported_protocols)
    )
