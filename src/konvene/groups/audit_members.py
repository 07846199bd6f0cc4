"""Members and causes of rebalances as the audit (`__konvene_audit`) records them, for groups of any type."""

from __future__ import annotations

from typing import Protocol

from konvene.records.audit import Cause, RebalancedMember


class AuditedMember(Protocol):
    """The identity of a member of any type of group, as far as the audit records it (a protocol class)."""

    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


def cause_of(
    kind: str,
    at_ms: int,
    member: AuditedMember | None,
    *,
    reason: str | None = None,
    topic: str | None = None,
) -> Cause:
    """Return a cause of a rebalance, as the audit records it, with the identity of the member behind it.

    `kind`: one of the kinds in `shard.causes`; `at_ms`: when it happened; `member`: None if the cause
    concerns the whole group; `reason`: details, from the client or the coordinator; `topic`: the topic that
    changed, if the cause is about one."""
    cause = Cause(kind=kind, at_ms=at_ms, reason=reason, topic=topic)
    if member is None:
        return cause
    return cause.replace(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )


def rebalanced_member(member: AuditedMember, joined_ms: int) -> RebalancedMember:
    """Return a member of a group as the audit lists it after a rebalance.

    `joined_ms`: when it rejoined, or reached its target; -1 if that is not known."""
    return RebalancedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        joined_ms=joined_ms,
    )
