"""The decision about a request to a consumer group: extends `groups.modern.decision` with its own steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from konvene.groups.assignors import OFFERED, Assignor
from konvene.groups.consumer import log
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member, SoftState
from konvene.groups.modern.decision import ModernDecision, rejoin_key, resync_key, revocation_key, session_key
from konvene.groups.modern.log import RecordTypes
from konvene.shard import causes
from konvene.shard.contract import Context, Disarm

__all__ = ["Decision", "rejoin_key", "resync_key", "revocation_key", "session_key"]


def offered(context: Context) -> Mapping[str, Assignor]:
    """Return the available assignors by name, the default first."""
    return context.assignors or OFFERED


class Decision(ModernDecision[ConsumerGroup, Member]):
    """The decision about one request, timer or event of a consumer group, while it is being made."""

    soft: SoftState
    log: ClassVar[RecordTypes[Any]] = log.RECORDS
    session_timeout: ClassVar[str] = "consumer.session.timeout.ms"
    unrevoked: ClassVar[object] = MemberState.UNREVOKED_PARTITIONS

    __slots__ = ("metadata_hash",)

    def __init__(self, group: ConsumerGroup, context: Context) -> None:
        super().__init__(group, context)
        self.metadata_hash = group.metadata_hash

    # --- timers ---

    def disarm_all(self, member_id: str) -> None:
        """Stop all timers of a member that is removed."""
        group_id = self.group.group_id
        self.timers += (
            Disarm(key(group_id, member_id)) for key in (session_key, revocation_key, rejoin_key, resync_key)
        )

    # --- steps that requests share ---

    def bump(self, metadata_hash: int) -> None:
        """Bump the group's epoch. Called when an input of its assignment has changed.

        `metadata_hash`: the hash of the subscribed topics, recorded with the epoch."""
        self.epoch += 1
        self.metadata_hash = metadata_hash
        self.record(log.group_record(self.group.group_id, self.epoch, metadata_hash))

    # --- the audit ---

    def _protocol(self) -> str:
        return self.group.preferred_assignor() or next(iter(offered(self.context)))

    def _is_audited_without_bump(self) -> bool:
        """Return whether the decision upgrades the group, which is audited even without an epoch bump.

        An upgrade by a static member that rejoins with the consumer protocol does not bump the epoch."""
        return any(cause.kind == causes.UPGRADED for cause in self.causes)
