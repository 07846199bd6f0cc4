"""What an administrator asks of groups and their offsets: the half of `Admin` that coordinators answer.

Groups of every type are listed; classic and consumer groups are described with their members, as Kafka's own
tools do (ConsumerGroupDescribe first, DescribeGroups for what it does not know). Where Kafka answers for each
partition or member, so do the methods here: what is refused for one of many is handed back beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from konvene.client.admin.group_state import spellings
from konvene.client.consumer.fetch import OffsetAt, list_offsets
from konvene.client.consumer.protocol import read_assignment, read_subscription
from konvene.client.errors import BadResponse, KafkaError, raise_for
from konvene.client.net.cluster import Cluster, Node, TopicPartition
from konvene.client.net.connection import Connection
from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat_notes import ASKED, HEARTBEAT_NOTES, HeartbeatNotes
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from konvene.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

__all__ = [
    "CommittedOffset", "GroupAdmin", "GroupDescription", "GroupListing", "MemberDescription", "Removal",
]  # fmt: skip

REMOVED_BY_ADMIN = "member was removed by an admin"
"""What a member's removal is explained with where no reason is given; Kafka's words."""

LONGEST_REASON = 255

Partitions = Mapping[TopicPartition, Any]


class GroupListing(NamedTuple):
    """A row of ListGroups. `type` is `classic`, `consumer`, `share` or `streams`; empty before version 5."""

    group_id: str
    type: str
    state: str
    protocol_type: str


class Heartbeats(NamedTuple):
    """How a member heartbeats, where a broker of ours tells it."""

    told_ms: int | None
    """What it is told with its next answer; None for a member of the classic protocol."""
    held: bool
    """Whether it waits for the answer to a heartbeat with nothing to tell."""


class MemberDescription(NamedTuple):
    """A member of a group; epochs None in a classic group, `target` too."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    subscribed: tuple[str, ...] = ()
    upgraded: bool | None = None
    """In a consumer group: whether the member speaks the consumer protocol itself."""
    regex: str | None = None
    rack_id: str | None = None
    heartbeats: Heartbeats | None = None


class GroupDescription(NamedTuple):
    """A group as its coordinator has it."""

    group_id: str
    type: str
    state: str
    coordinator: Node
    assignor: str
    """The partition assignor (the chosen protocol of a classic group)."""
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    protocol_type: str = "consumer"
    heartbeat_policy: str | None = None
    """`konvene.heartbeat.policy`, where a broker of ours was asked how members heartbeat."""


class CommittedOffset(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str


class Removal(NamedTuple):
    """What became of a member that was to be removed: named by its instance id where it has one."""

    member_id: str
    instance_id: str | None
    error: KafkaError | None

    @property
    def name(self) -> str:
        return self.instance_id or self.member_id


class GroupAdmin:
    """Administration of groups in the cluster behind `cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.cluster!r}>"

    # groups

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all brokers, by id; only those in one of `states`, of one of `types`, if given.

        Filters need ListGroups v4 (states) and v5 (types): `UnsupportedVersion` where a broker lacks them."""
        request = ListGroupsRequest(states_filter=spellings(states), types_filter=tuple(types))
        await self.cluster.refresh([])
        found: dict[str, GroupListing] = {}
        for node_id in sorted(self.cluster.metadata.nodes):
            patience = self.cluster.patience()
            while True:
                answer: ListGroupsResponse = await self.cluster.ask(request, node_id=node_id)
                if answer.error_code == 0:
                    break
                await patience.after(KafkaError(answer.error_code, about=f"the groups of broker {node_id}"))
            for g in answer.groups:
                found[g.group_id] = GroupListing(g.group_id, g.group_type, g.group_state, g.protocol_type)
        return [found[group] for group in sorted(found)]

    async def describe_group(self, group: str, *, heartbeats: bool = False) -> GroupDescription:
        """A classic or consumer group. Raises `KafkaError` GROUP_ID_NOT_FOUND where there is none.

        `heartbeats`: ask how its members heartbeat, too; brokers that are not ours do not say."""
        tags = (ASKED,) if heartbeats else ()
        about = f"group {group}"
        connection = await self._coordinator(group)
        words = f"Group {group} not found."
        if connection.speaks(BY_NAME["ConsumerGroupDescribe"].key):
            answer = await self.cluster.ask_coordinator(
                group,
                ConsumerGroupDescribeRequest(group_ids=(group,)).replace(unknown_tags=tags),
                lambda a: a.groups[0].error_code,
            )
            found = answer.groups[0]
            if found.error_code not in (Errors.GROUP_ID_NOT_FOUND, Errors.UNSUPPORTED_VERSION):
                raise_for(found.error_code, found.error_message, about=about)
                return _noted(_consumer_group(found, await self._coordinator_node(group)), found)
            words = found.error_message or words
        answer = await self.cluster.ask_coordinator(
            group,
            DescribeGroupsRequest(groups=(group,)).replace(unknown_tags=tags),
            lambda a: a.groups[0].error_code,
        )
        described = answer.groups[0]
        if described.error_code == Errors.GROUP_ID_NOT_FOUND:
            raise KafkaError(Errors.GROUP_ID_NOT_FOUND, words, about=about)
        raise_for(described.error_code, described.error_message, about=about)
        if described.group_state == "Dead":
            raise KafkaError(Errors.GROUP_ID_NOT_FOUND, words, about=about)
        return _noted(_classic_group(described, await self._coordinator_node(group)), described)

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete groups that have no members. Raises `KafkaError` for the first that could not be."""
        failed: list[KafkaError] = []
        for group in sorted(set(groups)):
            answer = await self.cluster.ask_coordinator(
                group, DeleteGroupsRequest(groups_names=(group,)), lambda a: a.results[0].error_code
            )
            row = answer.results[0]
            if row.error_code:
                failed.append(KafkaError(row.error_code, row.error_message, about=f"group {group}"))
        if failed:
            raise failed[0]

    async def remove_members(
        self, group: str, *, member_ids: Iterable[str] = (), instance_ids: Iterable[str] = (),
        reason: str = "",
    ) -> list[Removal]:  # fmt: skip
        """Make members leave a group, whether they want to or not; what became of each, in order.

        `reason` is what the coordinator writes down of it. Raises `KafkaError` where the group is refused."""
        why = reason[:LONGEST_REASON] or REMOVED_BY_ADMIN
        members = [MemberIdentity(member_id=each, reason=why) for each in dict.fromkeys(member_ids)]
        members += (
            MemberIdentity(member_id="", group_instance_id=each, reason=why)
            for each in dict.fromkeys(instance_ids)
        )
        if not members:
            return []
        request = LeaveGroupRequest(group_id=group, members=tuple(members))
        answer: LeaveGroupResponse = await self.cluster.ask_coordinator(
            group, request, lambda a: a.error_code
        )
        raise_for(answer.error_code, about=f"group {group}")
        return [
            Removal(
                m.member_id,
                m.group_instance_id,
                _refused(m.error_code, f"member {m.group_instance_id or m.member_id} of group {group}"),
            )
            for m in answer.members
        ]

    # offsets

    async def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False,
        member_id: str | None = None, member_epoch: int = -1,
    ) -> dict[TopicPartition, CommittedOffset]:  # fmt: skip
        """A group's committed offsets: of `partitions`, or of all. Partitions without one are left out.

        A member of a consumer group says who it is, and is refused where it is not that (any more)."""
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=member_epoch)
        speak = _offset_fetch(asked, partitions, require_stable)

        def code(answer: OffsetFetchResponse) -> int:
            return answer.groups[0].error_code if answer.groups else answer.error_code

        patience = self.cluster.patience()
        while True:
            answer = await self.cluster.ask_coordinator(group, speak, code)
            raise_for(code(answer), about=f"the offsets of group {group}")
            rows = answer.groups[0].topics if answer.groups else answer.topics
            found: dict[TopicPartition, CommittedOffset] = {}
            unstable: KafkaError | None = None
            for t in rows:
                for p in t.partitions:
                    tp = TopicPartition(t.name, p.partition_index)
                    if p.error_code == Errors.UNSTABLE_OFFSET_COMMIT:
                        unstable = KafkaError(p.error_code, about=f"the offset of {tp} in group {group}")
                        continue
                    raise_for(p.error_code, about=f"the offset of {tp} in group {group}")
                    if p.committed_offset >= 0:
                        found[tp] = CommittedOffset(
                            p.committed_offset, p.committed_leader_epoch, p.metadata or ""
                        )
            if unstable is None:
                return dict(sorted(found.items()))
            await patience.after(unstable)

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset], *, member_id: str = "",
        generation: int = -1, instance_id: str | None = None,
    ) -> None:  # fmt: skip
        """Commit offsets for a group without members (or, with its id and generation, for a member).

        Raises `KafkaError` for the first that is refused."""
        for why in (await self._commit(group, offsets, member_id, generation, instance_id)).values():
            if why is not None:
                raise why

    async def _commit(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset], member_id: str = "",
        generation: int = -1, instance_id: str | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:  # fmt: skip
        """What became of each."""
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=tuple(
                OffsetCommitRequestTopic(name=topic, partitions=tuple(_commit_rows(rows)))
                for topic, rows in _by_topic(offsets).items()
            ),
        )
        key = BY_NAME["OffsetCommit"].key
        answer = await self.cluster.ask_coordinator(
            group,
            lambda connection: (request, min(9, connection.version_of(key))),  # From 10 on: by topic id.
            lambda a: a.topics[0].partitions[0].error_code if a.topics and a.topics[0].partitions else 0,
        )
        return {
            tp: _refused(p.error_code, f"the offset of {tp} in group {group}")
            for t in answer.topics
            for p in t.partitions
            for tp in [TopicPartition(t.name, p.partition_index)]
        }

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forget a group's offsets of partitions that no member subscribes to; why not, where it is refused.

        Raises `KafkaError` where the group itself is refused."""
        request = OffsetDeleteRequest(
            group_id=group,
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=tuple(
                        OffsetDeleteRequestPartition(partition_index=tp.partition) for tp in rows
                    ),
                )
                for topic, rows in _by_topic(dict.fromkeys(partitions)).items()
            ),
        )
        answer = await self.cluster.ask_coordinator(group, request, lambda a: a.error_code)
        raise_for(answer.error_code, about=f"group {group}")
        return {
            tp: _refused(p.error_code, f"the offset of {tp} in group {group}")
            for t in answer.topics
            for p in t.partitions
            for tp in [TopicPartition(t.name, p.partition_index)]
        }

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """See `konvene.client.consumer.fetch.list_offsets`."""
        return await list_offsets(self.cluster, wanted)

    # how

    async def _coordinator(self, group: str) -> Connection:
        patience = self.cluster.patience()
        while True:
            try:
                return await self.cluster.coordinator(group)
            except KafkaError as error:
                await patience.after(error)

    async def _coordinator_node(self, group: str) -> Node:
        connection = await self._coordinator(group)
        for node in self.cluster.metadata.nodes.values():
            if (node.host, node.port) == (connection.host, connection.port):
                return node
        return await self.cluster.find_coordinator(group)


def _refused(code: int, about: str) -> KafkaError | None:
    return KafkaError(code, about=about) if code else None


def _noted(group: GroupDescription, found: Struct) -> GroupDescription:
    """With what a broker of ours says of heartbeats beside it."""
    for tag, data in found.unknown_tags:
        if tag == HEARTBEAT_NOTES:
            try:
                notes = decode(HeartbeatNotes, 0, data)
            except CodecError as error:
                raise BadResponse(f"group {group.group_id}, how its members heartbeat: {error}") from error
            of = {
                n.member_id: Heartbeats(None if n.told_ms < 0 else n.told_ms, n.is_held)
                for n in notes.members
            }
            members = tuple(m._replace(heartbeats=of.get(m.member_id)) for m in group.members)
            return group._replace(members=members, heartbeat_policy=notes.policy)
    return group


def _consumer_group(found: Any, coordinator: Node) -> GroupDescription:
    members = tuple(
        MemberDescription(
            member_id=m.member_id,
            instance_id=m.instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            assignment=_assigned(m.assignment),
            target=_assigned(m.target_assignment),
            epoch=m.member_epoch,
            subscribed=tuple(m.subscribed_topic_names),
            upgraded=None if m.member_type < 0 else m.member_type == 1,
            regex=m.subscribed_topic_regex or None,
            rack_id=m.rack_id or None,
        )
        for m in found.members
    )
    return GroupDescription(
        found.group_id, "consumer", found.group_state, coordinator, found.assignor_name, members,
        found.group_epoch, found.assignment_epoch,
    )  # fmt: skip


def _assigned(assignment: Any) -> tuple[TopicPartition, ...]:
    rows = ((t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions)
    return tuple(sorted(TopicPartition(topic, p) for topic, p in rows))


def _classic_group(found: Any, coordinator: Node) -> GroupDescription:
    members = []
    for m in found.members:
        assignment: tuple[TopicPartition, ...] = ()
        subscribed: tuple[str, ...] = ()
        if found.protocol_type == "consumer":
            try:
                assignment = read_assignment(m.member_assignment).partitions if m.member_assignment else ()
                subscribed = read_subscription(m.member_metadata).topics if m.member_metadata else ()
            except CodecError as error:
                raise BadResponse(f"group {found.group_id}, member {m.member_id}: {error}") from error
        members.append(
            MemberDescription(
                m.member_id, m.group_instance_id, m.client_id, m.client_host, assignment,
                subscribed=subscribed,
            )
        )  # fmt: skip
    return GroupDescription(
        found.group_id, "classic", found.group_state, coordinator, found.protocol_data, tuple(members),
        protocol_type=found.protocol_type,
    )  # fmt: skip


def _offset_fetch(
    asked: OffsetFetchRequestGroup, partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> Callable[[Connection], tuple[Struct, int]]:
    """OffsetFetch by topic name: many groups at once from version 8 on, one group before, ids from 10 on."""
    grouped = None if partitions is None else _by_topic(dict.fromkeys(partitions))

    def speak(connection: Connection) -> tuple[Struct, int]:
        version = min(9, connection.version_of(BY_NAME["OffsetFetch"].key))
        stable = require_stable and version >= 7
        if version >= 8:
            rows = None if grouped is None else tuple(
                OffsetFetchRequestTopics(name=t, partition_indexes=tuple(tp.partition for tp in tps))
                for t, tps in grouped.items()
            )  # fmt: skip
            return OffsetFetchRequest(groups=(asked.replace(topics=rows),), require_stable=stable), version
        old = None if grouped is None else tuple(
            OffsetFetchRequestTopic(name=t, partition_indexes=tuple(tp.partition for tp in tps))
            for t, tps in grouped.items()
        )  # fmt: skip
        return OffsetFetchRequest(group_id=asked.group_id, topics=old, require_stable=stable), version

    return speak


def _commit_rows(rows: Mapping[TopicPartition, Any]) -> Iterable[OffsetCommitRequestPartition]:
    for tp, at in rows.items():
        committed = at if isinstance(at, CommittedOffset) else CommittedOffset(at, -1, "")
        yield OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            committed_metadata=committed.metadata,
        )


def _by_topic(partitions: Partitions) -> dict[str, dict[TopicPartition, Any]]:
    grouped: dict[str, dict[TopicPartition, Any]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(tp.topic, {})[tp] = partitions[tp]
    return grouped
