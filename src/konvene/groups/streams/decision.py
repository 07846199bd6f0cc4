"""A decision about a streams group: extends `groups.modern.decision` with its own steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from konvene.groups.assignors.tasks.contract import TaskAssignor
from konvene.groups.modern.decision import ModernDecision, rejoin_key, resync_key, revocation_key, session_key
from konvene.groups.modern.log import RecordTypes
from konvene.groups.modern.rebalance_trace import RebalanceTrace
from konvene.groups.streams import log
from konvene.groups.streams.assignors import assignor_of
from konvene.groups.streams.current_assignment import MemberState
from konvene.groups.streams.group import Member, Reported, State, StreamsGroup
from konvene.groups.streams.topology.topology import Topology
from konvene.shard.contract import Context, Disarm

__all__ = [
    "Decision", "delay_key", "refresh_key", "rejoin_key", "resync_key", "revocation_key", "session_key",
    "settled_state",
]  # fmt: skip


def delay_key(group_id: str) -> tuple[str, str]:
    """Runs while the first assignment of a group that was empty waits for more members."""
    return ("initial-delay", group_id)


def refresh_key(group_id: str) -> tuple[str, str]:
    """Runs until it is to be found out anew what the expressions of a group's topology match."""
    return ("expressions", group_id)


def settled_state(topology: Topology | None, validated_topology_epoch: int) -> str:
    """The state of a group whose members all have what they are meant to have: that may be nothing."""
    is_ready = topology is not None and topology.epoch == validated_topology_epoch
    return (State.STABLE if is_ready else State.NOT_READY).value


class Decision(ModernDecision[StreamsGroup, Member]):
    """One decision about one group."""

    log: ClassVar[RecordTypes[Any]] = log.RECORDS
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
        """How many tasks a new target moves, in each role."""
        self.reported: dict[str, Reported | None] = {}
        """What members say now of how far they have come; None of who is gone."""

    @property
    def assignor(self) -> TaskAssignor:
        said = {name for name, reported in self.reported.items() if reported is not None}
        names = sorted((self.group.members.keys() - self.departed) | said)
        return assignor_of(self.config, self.context, self.topology, map(self.reported_by, names))

    @property
    def replaces_topology(self) -> bool:
        """Whether the member at hand brings the next topology, in the place of the one that the group had."""
        known = self.group.topology
        return known is not None and self.topology is not known

    def _protocol(self) -> str:
        return self.assignor.name

    def _settled_state(self) -> str:
        return settled_state(self.topology, self.validated_topology_epoch)

    def _with_moves(self, story: RebalanceTrace) -> RebalanceTrace:
        moved = map(sum, zip(story.moved or (0, 0, 0), self.moved, strict=True))
        return replace(story, moved=tuple(moved))

    # --- what follows ---

    def arm_session(self, member: Member) -> None:
        """Count the member's session from now on."""
        timeout_ms: int = self.config["streams.session.timeout.ms"]
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.arm(session_key(self.group.group_id, member.member_id), timeout_ms)

    def disarm_all(self, member_id: str) -> None:
        """The member is gone, and whatever it was waited for."""
        group_id = self.group.group_id
        self.timers += (Disarm(session_key(group_id, member_id)), Disarm(revocation_key(group_id, member_id)))
        if self.group.classic_members:
            self.disarm_classic(member_id)

    def disarm_classic(self, member_id: str) -> None:
        """Nobody waits for the member to join or to sync any more."""
        group_id = self.group.group_id
        self.timers += (Disarm(rejoin_key(group_id, member_id)), Disarm(resync_key(group_id, member_id)))

    def report(self, member_id: str, reported: Reported | None) -> None:
        """Note how far a member says that it has come; None: it is gone."""
        if self.reported_by(member_id) != reported:
            self.reported[member_id] = reported

    def reported_by(self, member_id: str) -> Reported | None:
        """How far the member says that it has come, now or before."""
        if member_id in self.reported:
            return self.reported[member_id]
        return self.group.reported.get(member_id)

    def _reported(self) -> Mapping[str, Reported | None]:
        return self.reported

    # --- moves that requests share ---

    def bump(self) -> None:
        """The group is at its next epoch: whatever its assignment rests on has changed."""
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
