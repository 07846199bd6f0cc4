"""A streams group (KIP-1071), its members and its states.

    state         what it means                                           leaves for
    Empty         no members                                              NotReady: a member joins
    NotReady      the topology cannot run: topics are missing, or do      Assigning: they exist
                  not match each other
    Assigning     the group's epoch is ahead of its assignment's          Reconciling: a target is computed
    Reconciling   a member is not at the assignment's epoch, waits for    Stable: all have their target;
                  a task, or has yet to revoke one                        Assigning: something changed
    Stable        all members have their target                           Assigning
    Dead          not a state here: a deleted group no longer exists

The epochs are those of consumer groups. The topology has an epoch as well; `validated_topology_epoch` is that
of the last topology whose topics were all found.

A `StreamsGroup` changes only by the replay of records (`log`), in place. Tasks are indexed by their owners:
two members of one process may not have the same task in any roles, and a log that was compacted while it was
read may have the record of an earlier owner after that of its successor.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from konvene.groups.assignors.tasks.contract import NO_OFFSETS, NOTHING, MemberAssignment, TaskOffsets, Tasks
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.group import ModernGroup, ModernSoftState
from konvene.groups.streams.current_assignment import CurrentAssignment, Role
from konvene.groups.streams.topology.configure import ConfiguredTopology
from konvene.groups.streams.topology.expressions import Resolved, reader_of
from konvene.groups.streams.topology.internal_topics import CreationFailure
from konvene.groups.streams.topology.topology import Topology
from konvene.messages.streams_group_describe import TopologyDescription
from konvene.messages.streams_group_heartbeat import EndpointToPartitions
from konvene.shard.image import Topic, Topics

NO_EPOCH = -1
"""The topology epoch of a group without a topology."""


class State(StrEnum):
    """The states of a streams group, by the names that ListGroups and StreamsGroupDescribe return."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Member:
    """A member: the fields that it sent last, and its current assignment."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = NO_EPOCH
    process_id: str = ""
    """Members with the same one share their state directories."""
    user_endpoint: tuple[str, int] | None = None
    """Host and port of its interactive queries."""
    client_tags: tuple[tuple[str, str], ...] = ()
    classic: ClassicProtocolMetadata | None = None
    """None for a member of the streams protocol."""
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    def having(self, current: CurrentAssignment) -> Member:
        """Return the member with this current assignment."""
        return Member(
            self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host,
            self.rebalance_timeout_ms, self.topology_epoch, self.process_id, self.user_endpoint,
            self.client_tags, self.classic, current,
        )  # fmt: skip

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member has reached its target assignment of this epoch."""
        return self.current.is_at(epoch)


@dataclass(frozen=True, slots=True)
class Reported:
    """A member's report of its task offsets, each the sum over the changelogs of a task."""

    offsets: TaskOffsets = field(default_factory=lambda: NO_OFFSETS)
    end_offsets: TaskOffsets = field(default_factory=lambda: NO_OFFSETS)
    reported_ms: int = 0
    """When it reported: of two members of one process, which share a disk, the later report counts."""
    reports: bool = False
    """Whether the member reports offsets at all; if not, its warm-ups are not waited for (`warmups`)."""
    sent_endpoint_epoch: int = -1
    """The endpoint epoch that was last sent to a member of the classic protocol."""


NOTHING_REPORTED = Reported()


@dataclass(frozen=True, slots=True)
class Description:
    """The description of the topology of `epoch`; `content` is None while it is only requested."""

    epoch: int = NO_EPOCH
    content: TopologyDescription | None = None
    requested_ms: int = 0


@dataclass(frozen=True, slots=True)
class SoftState(ModernSoftState):
    """State of a group that is not in its log and is lost by a restart."""

    configured: ConfiguredTopology | None = None
    """The topology, configured with the topics of the last image (`hashed_topics`)."""
    resolved: Resolved | None = None
    """The topics that its expressions match."""
    resolving: bool = False
    """Whether the expressions are being resolved."""
    delayed: bool = False
    """Whether the first assignment after the group was empty waits for more members."""
    shutdown: str | None = None
    """The member that requested a shutdown of the application."""
    endpoint_epoch: int = 0
    """Bumped when the tasks of an endpoint change."""
    creation: CreationFailure | None = None
    """Why internal topics could not be created."""
    description: Description | None = None

    @property
    def basis(self) -> tuple[object, ...]:
        """Return the values on which the response to a repeated heartbeat depends."""
        return self.hashed_topics, self.configured, self.shutdown, self.endpoint_epoch, self.description


Holders = dict[str, dict[int, set[str]]]
"""By subtopology id and partition, the members that own a task or have yet to revoke it."""


@dataclass(slots=True, repr=False)
class StreamsGroup(ModernGroup[Member]):
    """A streams group: its topology, members, target assignments, and indexes of task owners."""

    group_type: ClassVar[str] = "streams"

    validated_topology_epoch: int = NO_EPOCH
    assignment_configs: Mapping[str, str] = field(default_factory=dict)
    """The configs on which targets depend, as of the group's last epoch."""
    stored_description_epoch: int = NO_EPOCH
    failed_description_epoch: int = NO_EPOCH
    topology: Topology | None = None
    targets: dict[str, MemberAssignment] = field(default_factory=dict)
    """Target assignments by member id."""
    active: dict[str, dict[int, str]] = field(default_factory=dict)
    """By subtopology id and partition, the member that owns the active task or has yet to revoke it."""
    standby: Holders = field(default_factory=dict)
    warmup: Holders = field(default_factory=dict)
    classic_members: int = 0
    """The number of members of the classic protocol."""
    soft: SoftState = field(default_factory=SoftState)
    reported: dict[str, Reported] = field(default_factory=dict)
    """Reports by member id, since the coordinator loaded the group. Kept beside the log as `soft`, but apart
    from it: a report of one member does not change the responses to others."""
    endpoints: dict[str, tuple[Member, ConfiguredTopology, Topics, EndpointToPartitions]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Cache of the endpoint information of members, after the values on which it depends."""
    hosts: dict[int, tuple[frozenset[int], tuple[EndpointToPartitions, ...], bytes]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Cache of the endpoint information encoded for classic members, by version of their user data, after the
    values on which it depends."""

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return State.NOT_READY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        return State.RECONCILING if self.behind else State.STABLE

    def copy(self, **indexes: object) -> Self:
        return ModernGroup.copy(
            self,
            active={name: dict(owners) for name, owners in self.active.items()},
            standby=_copied(self.standby),
            warmup=_copied(self.warmup),
            reported=dict(self.reported),
            endpoints={},
            hosts={},
            **indexes,
        )

    @property
    def topology_epoch(self) -> int:
        return NO_EPOCH if self.topology is None else self.topology.epoch

    def processes(self, role: Role, subtopology: str, partition: int) -> Set[str]:
        """Return the processes whose members own a task in a role, or have yet to revoke it."""
        if role is Role.ACTIVE:
            owner = self.active.get(subtopology, {}).get(partition)
            return frozenset() if owner is None else frozenset((self.members[owner].process_id,))
        holders = (self.standby if role is Role.STANDBY else self.warmup).get(subtopology, {}).get(partition)
        if not holders:
            return frozenset()
        return frozenset(self.members[holder].process_id for holder in holders)

    def reads(self, topic: str) -> bool:
        """Return whether the group has members and its topology reads the topic."""
        return bool(self.members) and self.reader_of(topic) is not None

    def reader_of(self, topic: str) -> str | None:
        """Return the id of the subtopology that reads a topic, by name or by expression, if any."""
        if self.topology is None:
            return None
        configured = self.soft.configured
        if configured is None or configured.topology is None or configured.epoch != self.topology.epoch:
            return reader_of(self.topology, topic)
        return configured.topology.readers.get(topic)

    def assigned_since(self, member: Member, topic: Topic, partition: int) -> int | None:
        """Return the epoch in which a member was assigned the active task that reads a partition.

        Return None if the member does not have the task, nor has yet to revoke it.
        """
        subtopology = self.reader_of(topic.name)
        if subtopology is None:
            return None
        current = member.current
        since = current.assigned.active.get(subtopology, {}).get(partition)
        if since is None:
            since = current.pending_revocation.active.get(subtopology, {}).get(partition)
        return since

    def reported_by(self, member_id: str) -> Reported:
        return self.reported.get(member_id, NOTHING_REPORTED)

    def target_of(self, member_id: str) -> MemberAssignment:
        return self.targets.get(member_id, NOTHING)

    # --- replay ---

    def _count(self, member: Member, delta: int) -> None:
        if member.classic is not None:
            self.classic_members += delta

    def _claim(self, member: Member) -> None:
        member_id, current = member.member_id, member.current
        for held in (current.assigned, current.pending_revocation):
            for subtopology, epochs in held.active.items():
                self.active.setdefault(subtopology, {}).update(dict.fromkeys(epochs, member_id))
            for holders, tasks in ((self.standby, held.standby), (self.warmup, held.warmup)):
                for subtopology, partitions in tasks.items():
                    by_partition = holders.setdefault(subtopology, {})
                    for partition in partitions:
                        by_partition.setdefault(partition, set()).add(member_id)

    def _release(self, member: Member) -> None:
        member_id, current = member.member_id, member.current
        for held in (current.assigned, current.pending_revocation):
            for subtopology, epochs in held.active.items():
                owners = self.active.get(subtopology, {})
                for partition in epochs:
                    if owners.get(partition) == member_id:
                        del owners[partition]
                if not owners:
                    self.active.pop(subtopology, None)
            self._release_copies(member_id, self.standby, held.standby)
            self._release_copies(member_id, self.warmup, held.warmup)

    @staticmethod
    def _release_copies(member_id: str, holders: Holders, tasks: Tasks) -> None:
        for subtopology, partitions in tasks.items():
            by_partition = holders.get(subtopology, {})
            for partition in partitions:
                members = by_partition.get(partition, set())
                members.discard(member_id)
                if not members:
                    by_partition.pop(partition, None)
            if not by_partition:
                holders.pop(subtopology, None)


def _copied(holders: Holders) -> Holders:
    return {
        name: {p: set(members) for p, members in by_partition.items()}
        for name, by_partition in holders.items()
    }
