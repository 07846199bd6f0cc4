"""The nouns of a streams group (KIP-1071), and its states.

    state         what it means                                           leaves for
    Empty         nobody is a member                                      NotReady: a member joins
    NotReady      the topology that members have cannot run: topics       Assigning: they are there
                  are missing, or do not fit each other
    Assigning     the group's epoch is ahead of its assignment's          Reconciling: a target is computed
    Reconciling   a member is not at the assignment's epoch, or waits     Stable: all have what they should;
                  for something, or has yet to give something up          Assigning: something changed
    Stable        all members have their target                           Assigning
    Dead          never kept: a deleted group is gone

Epochs are those of consumer groups; the topology has one beside them, and the group says for which topology's
epoch it was last found that all topics are there (`validated_topology_epoch`).

`StreamsGroup` is changed by the replay of records alone (`log`), in place. Who has a task is kept by member,
for two members of one process may not have the same task in any roles, and a log that was compacted while it
was read tells of an owner after its successor.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from konvene.groups.assignors.tasks.contract import NO_OFFSETS, NOTHING, MemberAssignment, TaskOffsets, Tasks
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.group import ModernGroup
from konvene.groups.modern.rebalance_trace import RebalanceTrace
from konvene.groups.streams.current_assignment import CurrentAssignment, Role
from konvene.groups.streams.topology.configure import ConfiguredTopology
from konvene.groups.streams.topology.expressions import Resolved, reader_of
from konvene.groups.streams.topology.internal_topics import CreationFailure
from konvene.groups.streams.topology.topology import Topology
from konvene.shard.image import Topic, Topics

NO_EPOCH = -1
"""The epoch of a topology that nobody has."""


class State(StrEnum):
    """Kafka's names, as ListGroups and StreamsGroupDescribe give them."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Member:
    """What a member said of itself, and what it has."""

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
    """Host and port at which it can be asked about its state."""
    client_tags: tuple[tuple[str, str], ...] = ()
    classic: ClassicProtocolMetadata | None = None
    """Of a member that speaks the classic protocol."""
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    def having(self, current: CurrentAssignment) -> Member:
        """The same member, who has this now."""
        return Member(
            self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host,
            self.rebalance_timeout_ms, self.topology_epoch, self.process_id, self.user_endpoint,
            self.client_tags, self.classic, current,
        )  # fmt: skip

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all that it was meant to have at this epoch."""
        return self.current.is_at(epoch)


@dataclass(frozen=True, slots=True)
class Reported:
    """How far a member says that its tasks have come: sums over the changelogs of a task."""

    offsets: TaskOffsets = field(default_factory=lambda: NO_OFFSETS)
    end_offsets: TaskOffsets = field(default_factory=lambda: NO_OFFSETS)
    reported_ms: int = 0
    """When it said so: of two members of one process, who share a disk, the later one is right."""
    reports: bool = False
    """Whether it is one that says so: nobody waits for the others (`warmups`)."""
    knows_endpoints: int = -1
    """Of a member of the classic protocol: the epoch of the endpoints that it was told last."""


NOTHING_REPORTED = Reported()


@dataclass(frozen=True, slots=True)
class SoftState:
    """What a coordinator knows of a group beside its log; a restart may forget it."""

    seen: Topics | None = None
    """The topics that the group's hash was last compared with."""
    configured: ConfiguredTopology | None = None
    """The topology, held against these topics."""
    resolved: Resolved | None = None
    """What its expressions were found to match."""
    resolving: bool = False
    """Somebody finds out."""
    computing: int = 0
    """The epoch for which a target is being computed elsewhere; 0: none is."""
    delayed: bool = False
    """The first assignment of a group that was empty waits for more members."""
    shutdown: str | None = None
    """The member that asked for all of the application to be shut down."""
    endpoint_epoch: int = 0
    """Rises when it changes which tasks are to be found at which endpoint."""
    creation: CreationFailure | None = None
    """Why internal topics could not be made."""
    description: Any = None
    """What a member told of the topology (`descriptions.Description`), or that it was asked for it."""
    story: RebalanceTrace | None = None

    @property
    def basis(self) -> tuple[object, ...]:
        """What the answer to a heartbeat with nothing to say rests on."""
        return self.seen, self.configured, self.shutdown, self.endpoint_epoch, self.description


Holders = dict[str, dict[int, set[str]]]
"""By subtopology id and partition, the members that have a task or have yet to give it up."""


@dataclass(slots=True, repr=False)
class StreamsGroup(ModernGroup[Member]):
    """A streams group. Changed by the replay of records (`log`) alone."""

    group_type: ClassVar[str] = "streams"

    validated_topology_epoch: int = NO_EPOCH
    assignment_configs: Mapping[str, str] = field(default_factory=dict)
    """Those settings of the group with which its last epoch came about, and on which targets rest."""
    stored_description_epoch: int = NO_EPOCH
    failed_description_epoch: int = NO_EPOCH
    topology: Topology | None = None
    targets: dict[str, MemberAssignment] = field(default_factory=dict)
    """By member id, what it is meant to have."""
    active: dict[str, dict[int, str]] = field(default_factory=dict)
    """By subtopology id and partition, the one member that is active or has yet to give it up."""
    standby: Holders = field(default_factory=dict)
    warmup: Holders = field(default_factory=dict)
    classic_members: int = 0
    """How many members speak the classic protocol."""
    soft: SoftState = field(default_factory=SoftState)
    reported: dict[str, Reported] = field(default_factory=dict)
    """By member id, of those who were heard since the coordinator has the group. As soft; apart, for what one
    member reports changes nothing for the others."""
    endpoints: dict[str, tuple[Any, Any, Any, Any]] = field(default_factory=dict, compare=False, repr=False)
    """What was last told of a member, behind what that rests on: worked out again where that is another."""
    hosts: dict[int, tuple[frozenset[int], Any, bytes]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """All of that as members of the classic protocol are told it, by the version of their user data; before
    it the very values that it was written of."""

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return State.NOT_READY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        return State.RECONCILING if self.behind else State.STABLE

    def copy(self) -> StreamsGroup:
        """As it is now; its members and all else in it are values."""
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            targets=dict(self.targets),
            active={name: dict(owners) for name, owners in self.active.items()},
            standby=_copied(self.standby),
            warmup=_copied(self.warmup),
            behind=set(self.behind),
            reached_ms=dict(self.reached_ms),
            reported=dict(self.reported),
            endpoints={},
            hosts={},
        )

    @property
    def topology_epoch(self) -> int:
        return NO_EPOCH if self.topology is None else self.topology.epoch

    def processes(self, role: Role, subtopology: str, partition: int) -> Set[str]:
        """The processes on which a task is, or has yet to be given up, in a role."""
        if role is Role.ACTIVE:
            owner = self.active.get(subtopology, {}).get(partition)
            return frozenset() if owner is None else frozenset((self.members[owner].process_id,))
        holders = (self.standby if role is Role.STANDBY else self.warmup).get(subtopology, {}).get(partition)
        if not holders:
            return frozenset()
        return frozenset(self.members[holder].process_id for holder in holders)

    def reads(self, topic: str) -> bool:
        """Whether its members want the topic."""
        return bool(self.members) and self.reader_of(topic) is not None

    def reader_of(self, topic: str) -> str | None:
        """The subtopology that reads a topic, whether it names it or has an expression that matches it."""
        if self.topology is None:
            return None
        configured = self.soft.configured
        if configured is None or configured.topology is None or configured.epoch != self.topology.epoch:
            return reader_of(self.topology, topic)
        return configured.topology.readers.get(topic)

    def assigned_since(self, member: Member, topic: Topic, partition: int) -> int | None:
        """Return the epoch since which a member has the active task that reads a partition, or has yet to
        revoke it; None if it has not."""
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

    # --- taken in by replay ---

    def _count(self, member: Member, delta: int) -> None:
        if member.classic is not None:
            self.classic_members += delta

    def _claim(self, member_id: str, current: CurrentAssignment) -> None:
        for held in (current.assigned, current.pending_revocation):
            for subtopology, epochs in held.active.items():
                self.active.setdefault(subtopology, {}).update(dict.fromkeys(epochs, member_id))
            for holders, tasks in ((self.standby, held.standby), (self.warmup, held.warmup)):
                for subtopology, partitions in tasks.items():
                    there = holders.setdefault(subtopology, {})
                    for partition in partitions:
                        there.setdefault(partition, set()).add(member_id)

    def _release(self, member_id: str, current: CurrentAssignment) -> None:
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
            there = holders.get(subtopology, {})
            for partition in partitions:
                some = there.get(partition, set())
                some.discard(member_id)
                if not some:
                    there.pop(partition, None)
            if not there:
                holders.pop(subtopology, None)


def _copied(holders: Holders) -> Holders:
    return {name: {p: set(some) for p, some in there.items()} for name, there in holders.items()}
