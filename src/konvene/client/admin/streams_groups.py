"""What an administrator asks of streams groups: the methods that KIP-1071 adds to Kafka's Admin.

Offsets and deletion are those of any group, under the document's names; what they refuse for one of many is
handed back beside it. Descriptions are StreamsGroupDescribe's, and hold Kafka's answer to it, with what
brokers of ours tell beside if they are asked: what members have yet to give up, and what warm-ups are
measured by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from konvene.client.admin.groups import CommittedOffset, GroupAdmin
from konvene.client.errors import BadResponse, KafkaError, UnsupportedVersion, raise_for
from konvene.client.net.cluster import Node, TopicPartition
from konvene.client.streams.tasks import Assignment, Subtopology, Task, Topology
from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.messages import BY_NAME
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.messages.streams_notes import ASKED, STREAMS_NOTES, StreamsNotes

__all__ = [
    "DescriptionStatus", "GlobalStore", "NodeKind", "StreamsGroupAdmin", "StreamsGroupDescription",
    "StreamsMemberDescription", "SubtopologyNodes", "TopologyDescription", "TopologyNode",
]  # fmt: skip

FIRST_VERSION_WITH_DESCRIPTION = 1

NO_STREAMS_GROUPS = "The cluster does not support streams groups (StreamsGroupDescribe)."


class StreamsMemberDescription(NamedTuple):
    """A member as its coordinator has it."""

    member_id: str
    client_id: str
    client_host: str
    epoch: int
    topology_epoch: int
    process_id: str
    """Members of one process share their state on disk, and no task is there twice."""
    assignment: Assignment
    target: Assignment
    instance_id: str | None = None
    rack_id: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: Mapping[str, str] = {}
    task_offsets: Mapping[Task, int] = {}
    task_end_offsets: Mapping[Task, int] = {}
    is_classic: bool = False
    owes: Assignment | None = None
    """What it was told to give up and has not confirmed; None where the broker does not say."""


class NodeKind(IntEnum):
    """As StreamsGroupTopologyDescriptionUpdate has them."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


class TopologyNode(NamedTuple):
    """A processor of the application, as `Topology.describe()` of Kafka Streams shows it."""

    name: str
    kind: int
    source_topics: tuple[str, ...]
    sink_topic: str | None
    stores: tuple[str, ...]
    successors: tuple[str, ...]


class SubtopologyNodes(NamedTuple):
    subtopology_id: str
    nodes: tuple[TopologyNode, ...]


class GlobalStore(NamedTuple):
    source: TopologyNode
    processor: TopologyNode


class TopologyDescription(NamedTuple):
    """What a topology looks like inside (KIP-1331), where members told it and the broker kept it."""

    subtopologies: tuple[SubtopologyNodes, ...]
    global_stores: tuple[GlobalStore, ...]


class DescriptionStatus(IntEnum):
    """Whether a topology's description is there."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


class Placement(NamedTuple):
    """What a group's target costs by tags and racks; a copy is the active task, a standby or a warm-up."""

    tags: tuple[str, ...]
    """Those over whose values copies of a task are to be spread."""
    actives_outside: int
    """Active tasks at members outside the racks of what they read."""
    copies_outside: int
    """Standby and warm-up tasks at such members."""
    pairs_sharing_all: int
    """Pairs of copies of one task on the same value of every tag."""
    pairs_sharing_some: int
    tasks_apart: int
    """Tasks all copies of which are known to be on distinct values of every tag,"""
    tasks_with_copies: int
    """of so many that have more than one copy."""


class StreamsGroupDescription(NamedTuple):
    """A streams group as its coordinator has it. Its `state` is one of `GroupState`, such as NOT_READY."""

    group_id: str
    state: str
    coordinator: Node
    epoch: int
    assignment_epoch: int
    topology: Topology | None
    members: tuple[StreamsMemberDescription, ...]
    assignor: str = ""
    """Empty before version 1."""
    description: TopologyDescription | None = None
    description_status: int = DescriptionStatus.NOT_REQUESTED
    acceptable_recovery_lag: int | None = None
    """A warm-up that is behind by no more records has caught up. None, as below, where it is not told."""
    num_warmup_replicas: int | None = None
    """So many tasks may warm up at a time."""
    silent: frozenset[str] | None = None
    """Member ids of those that are known not to say how far their tasks are."""
    placement: Placement | None = None
    """Also None where no tags are configured and no racks are known."""

    @property
    def type(self) -> str:
        return "streams"


Offsets = Mapping[TopicPartition, int | CommittedOffset]


class StreamsGroupAdmin(GroupAdmin):
    """Administration of streams groups, and of all others."""

    async def describe_streams_group(
        self, group: str, *, topology_description: bool = False, owed: bool = False
    ) -> StreamsGroupDescription:
        """A streams group. Raises `KafkaError` GROUP_ID_NOT_FOUND where there is none.

        `topology_description`: with what the topology looks like inside, where that is known (version 1).
        `owed`: ask what members have yet to give up, too, and what warm-ups are measured by; brokers that
        are not ours do not say."""
        key, about = BY_NAME["StreamsGroupDescribe"].key, f"group {group}"
        connection = await self._coordinator(group)
        if not connection.speaks(key):
            raise UnsupportedVersion(NO_STREAMS_GROUPS)
        wanted = topology_description and connection.version_of(key) >= FIRST_VERSION_WITH_DESCRIPTION
        request = StreamsGroupDescribeRequest(group_ids=(group,), include_topology_description=wanted)
        answer = await self.cluster.ask_coordinator(
            group, request.replace(unknown_tags=(ASKED,) if owed else ()), lambda a: a.groups[0].error_code
        )
        found = answer.groups[0]
        raise_for(found.error_code, found.error_message, about=about)
        return _described(found, await self._coordinator_node(group))

    async def describe_streams_groups(self, groups: Iterable[str]) -> dict[str, StreamsGroupDescription]:
        """Streams groups by name. Raises `KafkaError` for the first that cannot be described."""
        return {group: await self.describe_streams_group(group) for group in dict.fromkeys(groups)}

    async def list_streams_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, require_stable: bool = False
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Committed offsets by group: of these partitions, or of all (None)."""
        return {
            group: await self.committed_offsets(group, partitions, require_stable=require_stable)
            for group, partitions in groups.items()
        }

    async def alter_streams_group_offsets(
        self, group: str, offsets: Offsets
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets for a group without members; why not, where one is refused."""
        return await self._commit(group, offsets) if offsets else {}

    async def delete_streams_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition | str]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forget a group's offsets of partitions, or of whole topics, that no member reads; why not, where it
        is refused. Raises `KafkaError` where the group itself is refused."""
        wanted: set[TopicPartition] = set()
        topics: set[str] = set()
        for each in partitions:
            if isinstance(each, str):
                topics.add(each)
            else:
                wanted.add(each)
        for topic in await self._topics(topics):
            wanted.update(TopicPartition(topic.name, p.partition) for p in topic.partitions)
        return await self.delete_offsets(group, sorted(wanted)) if wanted else {}

    async def delete_streams_groups(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members, with their offsets and topologies; why not, where one is refused.

        Their internal topics stay: see `Topology.internal_topics`."""
        done: dict[str, KafkaError | None] = {}
        for group in dict.fromkeys(groups):
            try:
                await self.delete_groups([group])
                done[group] = None
            except KafkaError as error:
                done[group] = error
        return done

    # how

    async def _topics(self, names: Iterable[str]) -> list[Any]:
        wanted = sorted(names)
        if not wanted:
            return []
        found = (await self.cluster.refresh(wanted)).topics
        for name in wanted:
            raise_for(found[name].error_code, about=f"topic {name}")
        return [found[name] for name in wanted]


# from the wire --------------------------------------------------------------------------------


def _described(found: Any, coordinator: Node) -> StreamsGroupDescription:
    notes = _notes(found)
    owed = None if notes is None else _owed(notes)
    topology = None
    if found.topology is not None:
        subtopologies = tuple(map(Subtopology.from_message, found.topology.subtopologies or ()))
        topology = Topology(subtopologies, found.topology.epoch)
    return StreamsGroupDescription(
        group_id=found.group_id,
        state=found.group_state,
        coordinator=coordinator,
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        topology=topology,
        members=tuple(_member(each, owed) for each in found.members),
        assignor=found.assignor_name or "",
        description=_description(found.topology_description),
        description_status=found.topology_description_status,
        acceptable_recovery_lag=_known(notes.acceptable_recovery_lag) if notes is not None else None,
        num_warmup_replicas=_known(notes.num_warmup_replicas) if notes is not None else None,
        silent=frozenset(notes.silent) if notes is not None else None,
        placement=_placement(notes) if notes is not None else None,
    )


def _placement(notes: Any) -> Placement | None:
    for told in notes.placement:
        counts = (getattr(told, name) for name in Placement._fields[1:])
        return Placement(told.rack_aware_assignment_tags, *counts)
    return None


def _member(m: Any, owed: Mapping[str, Assignment] | None) -> StreamsMemberDescription:
    return StreamsMemberDescription(
        member_id=m.member_id,
        client_id=m.client_id,
        client_host=m.client_host,
        epoch=m.member_epoch,
        topology_epoch=m.topology_epoch,
        process_id=m.process_id,
        assignment=_assignment(m.assignment),
        target=_assignment(m.target_assignment),
        instance_id=m.instance_id,
        rack_id=m.rack_id or None,
        endpoint=None if m.user_endpoint is None else (m.user_endpoint.host, m.user_endpoint.port),
        tags={tag.key: tag.value for tag in m.client_tags},
        task_offsets={Task(t.subtopology_id, t.partition): t.offset for t in m.task_offsets},
        task_end_offsets={Task(t.subtopology_id, t.partition): t.offset for t in m.task_end_offsets},
        is_classic=m.is_classic,
        owes=None if owed is None else owed.get(m.member_id, Assignment()),
    )


def _assignment(told: Any) -> Assignment:
    return Assignment.from_message(told.active_tasks, told.standby_tasks, told.warmup_tasks)


def _notes(found: Any) -> StreamsNotes | None:
    """What a broker of ours tells beside."""
    for tag, data in found.unknown_tags:
        if tag == STREAMS_NOTES:
            try:
                notes: StreamsNotes = decode(StreamsNotes, 0, data)
            except CodecError as error:
                raise BadResponse(f"group {found.group_id}, what its members owe: {error}") from error
            return notes
    return None


def _owed(notes: StreamsNotes) -> dict[str, Assignment]:
    return {
        note.member_id: Assignment.from_message(note.owes_active, note.owes_standby, note.owes_warmup)
        for note in notes.members
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _description(told: Any) -> TopologyDescription | None:
    if told is None:
        return None
    return TopologyDescription(
        tuple(
            SubtopologyNodes(each.subtopology_id, tuple(map(_node, each.nodes)))
            for each in told.subtopologies
        ),
        tuple(GlobalStore(_node(each.source), _node(each.processor)) for each in told.global_stores),
    )


def _node(told: Any) -> TopologyNode:
    return TopologyNode(
        told.name, told.node_type, tuple(told.source_topics), told.sink_topic, tuple(told.stores),
        tuple(told.successors),
    )  # fmt: skip
