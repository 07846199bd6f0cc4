"""The decision of one request or timer of a streams group: extends `groups.modern.decision`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from konvene.groups.assignors.tasks.contract import TaskAssignor
from konvene.groups.modern.decision import ModernDecision, rejoin_key, resync_key, revocation_key, session_key
from konvene.groups.modern.log import RecordTypes
from konvene.groups.modern.rebalance_trace import RebalanceTrace
from konvene.groups.streams import log
from konvene.groups.streams.assignors import assignor_of
from konvene.groups.streams.current_assignment import MemberState
from konvene.groups.streams.group import Member, Reported, SoftState, State, StreamsGroup
from konvene.groups.streams.topology.topology import Topology
from konvene.shard.contract import Context, Disarm

__all__ = [
    "Decision", "delay_key", "refresh_key", "rejoin_key", "resync_key", "revocation_key", "session_key",
    "settled_state",
]  # fmt: skip


def delay_key(group_id: str) -> tuple[str, str]:
    """Return the key of the timer for which the first assignment of a group waits for more members."""
    return ("initial-delay", group_id)


def refresh_key(group_id: str) -> tuple[str, str]:
    """Return the key of the timer after which the expressions of a topology are resolved again."""
    return ("expressions", group_id)


def settled_state(topology: Topology | None, validated_topology_epoch: int) -> str:
    """Return the state of a group whose members have reached their targets: Stable or NotReady.

    The group is not ready, and its targets are empty, unless its topology was validated.
    """
    is_ready = topology is not None and topology.epoch == validated_topology_epoch
    return (State.STABLE if is_ready else State.NOT_READY).value


class Decision(ModernDecision[StreamsGroup, Member]):
    """The changes, replies and timers that follow from one request or timer of a streams group."""

    soft: SoftState
    log: ClassVar[RecordTypes[StreamsGroup]] = log.RECORDS
    session_timeout: ClassVar[str] = "streams.session.timeout.ms"
    unrevoked: ClassVar[object] = MemberState.UNREVOKED_TASKS

    __slots__ = (
        "assignment_configs", "metadata_hash", "moved", "reported", "topology", "validated_topology_epoch",
    )  # fmt: skip

    def __init__(self, group: StreamsGroup, context: Context) -> None:
        super().__init__(group, context)
        self.topology: Topology | None = group.topology
        self.metadata_hash = group.metadata_hash
        self.validated_topology_epoch = group.validated_topology_epoch
        self.assignment_configs: Mapping[str, str] = group.assignment_configs
        self.moved: tuple[int, ...] = (0, 0, 0)
        """Number of tasks that members gain by new targets, by role."""
        self.reported: dict[str, Reported | None] = {}
        """New reports by member id; None for a member that is removed."""

    @property
    def assignor(self) -> TaskAssignor:
        reporting = {name for name, reported in self.reported.items() if reported is not None}
        names = sorted((self.group.members.keys() - self.departed) | reporting)
        return assignor_of(self.config, self.context, self.topology, map(self.reported_by, names))

    @property
    def replaces_topology(self) -> bool:
        """Return whether the request replaces the group's topology."""
        known = self.group.topology
        return known is not None and self.topology is not known

    def _protocol(self) -> str:
        return self.assignor.name

    def _settled_state(self) -> str:
        return settled_state(self.topology, self.validated_topology_epoch)

    def _with_moves(self, trace: RebalanceTrace) -> RebalanceTrace:
        moved = map(sum, zip(trace.moved or (0, 0, 0), self.moved, strict=True))
        return replace(trace, moved=tuple(moved))

    # --- timers and reports ---

    def disarm_all(self, member_id: str) -> None:
        """Stop all timers of a member that is removed."""
        group_id = self.group.group_id
        self.timers += (Disarm(session_key(group_id, member_id)), Disarm(revocation_key(group_id, member_id)))
        if self.group.classic_members:
            self.disarm_classic(member_id)

    def report(self, member_id: str, reported: Reported | None) -> None:
        """Set the report of a member's task offsets; None if the member is removed."""
        if self.reported_by(member_id) != reported:
            self.reported[member_id] = reported

    def reported_by(self, member_id: str) -> Reported | None:
        """Return the latest report of a member's task offsets; None if it is unknown."""
        if member_id in self.reported:
            return self.reported[member_id]
        return self.group.reported.get(member_id)

    def _reported(self) -> Mapping[str, Reported | None]:
        return self.reported

    # --- steps that requests share ---

    def bump(self) -> None:
        """Bump the group's epoch because an input of its target assignment changed."""
        self.epoch += 1
        self.record(
            log.group_record(
                self.group, self.epoch, self.metadata_hash, self.validated_topology_epoch,
                self.assignment_configs,
            )
        )  # fmt: skip

    def remove(self, member: Member) -> None:
        super().remove(member)
        self.report(member.member_id, None)
