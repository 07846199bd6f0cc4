"""Admin methods for streams groups, as KIP-1071 adds them to Kafka's Admin.

Offsets and deletion work as for any group; a method for several partitions or groups returns an error per
item. Descriptions come from StreamsGroupDescribe. A konvene broker adds on request what Kafka does not
report: pending revocations, warm-up limits, members that report no offsets, and the spread of the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from konvene.client.admin.groups import CommittedOffset, GroupAdmin
from konvene.client.admin.heartbeats import GroupHeartbeats, Heartbeats, decode_heartbeats
from konvene.client.errors import BadResponse, KafkaError, UnsupportedVersion, raise_for
from konvene.client.net.cluster import Node, Topic, TopicPartition
from konvene.client.streams.tasks import Assignment, Subtopology, Task, Topology
from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.messages import BY_NAME
from konvene.messages import streams_group_describe as messages
from konvene.messages.heartbeat_extensions import REQUEST_FIELD as HEARTBEATS_FIELD
from konvene.messages.streams_extensions import REQUEST_FIELD, STREAMS_EXTENSION, StreamsExtension
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest

__all__ = [
    "DescriptionStatus", "GlobalStore", "NodeKind", "StreamsGroupAdmin", "StreamsGroupDescription",
    "StreamsMemberDescription", "SubtopologyNodes", "TopologyDescription", "TopologyNode",
]  # fmt: skip

FIRST_VERSION_WITH_DESCRIPTION = 1

NO_STREAMS_GROUPS = "The cluster does not support streams groups (StreamsGroupDescribe)."


class StreamsMemberDescription(NamedTuple):
    """A member of a streams group."""

    member_id: str
    client_id: str
    client_host: str
    epoch: int
    topology_epoch: int
    process_id: str
    """Members with the same process id share their state on disk; no two of them have the same task."""
    assignment: Assignment
    target: Assignment
    instance_id: str | None = None
    rack_id: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: Mapping[str, str] = {}
    task_offsets: Mapping[Task, int] = {}
    task_end_offsets: Mapping[Task, int] = {}
    is_classic: bool = False
    pending_revocation: Assignment | None = None
    """Tasks whose revocation it has not confirmed; None if the broker does not report them."""
    heartbeats: Heartbeats | None = None
    """Its heartbeat statistics, if they were requested from a konvene broker."""


class NodeKind(IntEnum):
    """Types of processor nodes, by their number in StreamsGroupTopologyDescriptionUpdate."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


class TopologyNode(NamedTuple):
    """A processor node of a topology, as `Topology.describe()` of Kafka Streams shows it."""

    name: str
    kind: int
    source_topics: tuple[str, ...]
    sink_topic: str | None
    stores: tuple[str, ...]
    successors: tuple[str, ...]


class SubtopologyNodes(NamedTuple):
    """The processor nodes of a subtopology."""

    subtopology_id: str
    nodes: tuple[TopologyNode, ...]


class GlobalStore(NamedTuple):
    """A global store with its source and processor nodes."""

    source: TopologyNode
    processor: TopologyNode


class TopologyDescription(NamedTuple):
    """The processors of a topology (KIP-1331), if a member sent them and the broker stores them."""

    subtopologies: tuple[SubtopologyNodes, ...]
    global_stores: tuple[GlobalStore, ...]


class DescriptionStatus(IntEnum):
    """Whether a group's description contains the processors of its topology, and if not, why."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


class Placement(NamedTuple):
    """How well a target assignment spreads tasks over client tags and racks.

    Copies of a task are its active, standby and warm-up tasks."""

    tags: tuple[str, ...]
    """Client tags over whose values the copies of a task are to be spread."""
    actives_outside: int
    """Active tasks on members outside the racks of their input partitions."""
    copies_outside: int
    """Standby and warm-up tasks on such members."""
    pairs_sharing_all: int
    """Pairs of copies of one task with equal values of all tags."""
    pairs_sharing_some: int
    """Pairs of copies of one task with equal values of some tags."""
    tasks_apart: int
    """Tasks whose copies are all known to differ in every tag."""
    tasks_with_copies: int
    """Tasks with more than one copy."""


class StreamsGroupDescription(NamedTuple):
    """The state of a streams group, as its coordinator describes it.

    `state` is one of `GroupState`, such as NOT_READY, or a newer one."""

    group_id: str
    state: str
    coordinator: Node
    epoch: int
    assignment_epoch: int
    topology: Topology | None
    members: tuple[StreamsMemberDescription, ...]
    assignor: str = ""
    """Empty before StreamsGroupDescribe version 1."""
    description: TopologyDescription | None = None
    description_status: int = DescriptionStatus.NOT_REQUESTED
    acceptable_recovery_lag: int | None = None
    """Lag in records up to which a warm-up counts as caught up; None, as below, if it is not reported."""
    num_warmup_replicas: int | None = None
    """Maximum number of warm-up tasks of the group."""
    not_reporting: frozenset[str] | None = None
    """Ids of members that report no task offsets."""
    placement: Placement | None = None
    """None also if the group has neither tags nor racks."""
    heartbeat_policy: str | None = None
    """`konvene.heartbeat.policy`, if it was requested from a konvene broker."""

    @property
    def type(self) -> str:
        return "streams"


Offsets = Mapping[TopicPartition, int | CommittedOffset]


class StreamsGroupAdmin(GroupAdmin):
    """The methods of `Admin` for streams groups."""

    async def describe_streams_group(
        self,
        group: str,
        *,
        topology_description: bool = False,
        pending_revocations: bool = False,
        heartbeats: bool = False,
    ) -> StreamsGroupDescription:
        """Describe a streams group.

        `topology_description` requests the processors of the topology (needs version 1).
        `pending_revocations` requests what a konvene broker reports in addition, and `heartbeats` the
        heartbeat statistics of the members; other brokers ignore both.
        Raises `KafkaError`, such as GROUP_ID_NOT_FOUND, and `UnsupportedVersion` if the broker has no
        streams groups."""
        key, about = BY_NAME["StreamsGroupDescribe"].key, f"group {group}"
        connection = await self._coordinator(group)
        if not connection.speaks(key):
            raise UnsupportedVersion(NO_STREAMS_GROUPS)
        with_topology = topology_description and connection.version_of(key) >= FIRST_VERSION_WITH_DESCRIPTION
        request = StreamsGroupDescribeRequest(group_ids=(group,), include_topology_description=with_topology)
        tags = ((HEARTBEATS_FIELD,) if heartbeats else ()) + ((REQUEST_FIELD,) if pending_revocations else ())
        request = request.replace(unknown_tags=tags)
        response: messages.StreamsGroupDescribeResponse = await self.cluster.ask_coordinator(
            group, request, lambda r: r.groups[0].error_code
        )
        found = response.groups[0]
        raise_for(found.error_code, found.error_message, about=about)
        return _described(found, await self._coordinator_node(group))

    async def describe_streams_groups(self, groups: Iterable[str]) -> dict[str, StreamsGroupDescription]:
        """Describe streams groups. Raises `KafkaError` for the first that cannot be described."""
        return {group: await self.describe_streams_group(group) for group in dict.fromkeys(groups)}

    async def list_streams_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, require_stable: bool = False
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets by group, of the given partitions or of all (None)."""
        return {
            group: await self.committed_offsets(group, partitions, require_stable=require_stable)
            for group, partitions in groups.items()
        }

    async def alter_streams_group_offsets(
        self, group: str, offsets: Offsets
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets of a group without members; return the error of each partition, or None."""
        return await self._commit(group, offsets) if offsets else {}

    async def delete_streams_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition | str]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of partitions, or of whole topics, that no member reads.

        Returns the error of each partition, or None. Raises `KafkaError` if the request for the group
        fails."""
        selected: set[TopicPartition] = set()
        topics: set[str] = set()
        for each in partitions:
            if isinstance(each, str):
                topics.add(each)
            else:
                selected.add(each)
        for topic in await self._topics(topics):
            selected.update(TopicPartition(topic.name, p.partition) for p in topic.partitions)
        return await self.delete_offsets(group, sorted(selected)) if selected else {}

    async def delete_streams_groups(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members, with their offsets and topologies.

        Returns the error of each group, or None. Internal topics stay: see `Topology.internal_topics`."""
        errors: dict[str, KafkaError | None] = {}
        for group in dict.fromkeys(groups):
            try:
                await self.delete_groups([group])
                errors[group] = None
            except KafkaError as error:
                errors[group] = error
        return errors

    async def _topics(self, names: Iterable[str]) -> list[Topic]:
        names = sorted(names)
        if not names:
            return []
        found = (await self.cluster.refresh(names)).topics
        for name in names:
            raise_for(found[name].error_code, about=f"topic {name}")
        return [found[name] for name in names]


# decoding -------------------------------------------------------------------------------------


def _described(found: messages.DescribedGroup, coordinator: Node) -> StreamsGroupDescription:
    extension = _extension(found)
    pending = None if extension is None else _pending_revocations(extension)
    heartbeats = decode_heartbeats(found, found.group_id)
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
        members=tuple(_member(each, pending, heartbeats) for each in found.members),
        assignor=found.assignor_name or "",
        description=_description(found.topology_description),
        description_status=found.topology_description_status,
        acceptable_recovery_lag=_known(extension.acceptable_recovery_lag) if extension is not None else None,
        num_warmup_replicas=_known(extension.num_warmup_replicas) if extension is not None else None,
        not_reporting=frozenset(extension.not_reporting) if extension is not None else None,
        placement=_placement(extension) if extension is not None else None,
        heartbeat_policy=heartbeats.policy if heartbeats is not None else None,
    )


def _placement(extension: StreamsExtension) -> Placement | None:
    for row in extension.placement:
        counts = (getattr(row, name) for name in Placement._fields[1:])
        return Placement(row.rack_aware_assignment_tags, *counts)
    return None


def _member(
    m: messages.Member, pending: Mapping[str, Assignment] | None, heartbeats: GroupHeartbeats | None
) -> StreamsMemberDescription:
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
        pending_revocation=None if pending is None else pending.get(m.member_id, Assignment()),
        heartbeats=None if heartbeats is None else heartbeats.members.get(m.member_id),
    )


def _assignment(row: messages.Assignment) -> Assignment:
    return Assignment.from_message(row.active_tasks, row.standby_tasks, row.warmup_tasks)


def _extension(found: messages.DescribedGroup) -> StreamsExtension | None:
    """Return what a konvene broker adds to the description `found` of a group; None from other brokers."""
    for tag, data in found.unknown_tags:
        if tag == STREAMS_EXTENSION:
            try:
                extension: StreamsExtension = decode(StreamsExtension, 0, data)
            except CodecError as error:
                raise BadResponse(f"group {found.group_id}, pending revocations: {error}") from error
            return extension
    return None


def _pending_revocations(extension: StreamsExtension) -> dict[str, Assignment]:
    return {
        member.member_id: Assignment.from_message(
            member.pending_active, member.pending_standby, member.pending_warmup
        )
        for member in extension.members
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _description(message: messages.TopologyDescription | None) -> TopologyDescription | None:
    if message is None:
        return None
    return TopologyDescription(
        tuple(
            SubtopologyNodes(each.subtopology_id, tuple(map(_node, each.nodes)))
            for each in message.subtopologies
        ),
        tuple(GlobalStore(_node(each.source), _node(each.processor)) for each in message.global_stores),
    )


def _node(row: messages.TopologyDescriptionNode) -> TopologyNode:
    return TopologyNode(
        row.name, row.node_type, tuple(row.source_topics), row.sink_topic, tuple(row.stores),
        tuple(row.successors),
    )  # fmt: skip
