"""Admin methods for groups and committed offsets, which `Admin` inherits.

Groups of every type are listed. Classic and consumer groups are described with their members, as Kafka's
tools do: ConsumerGroupDescribe first, DescribeGroups for a group that it does not find. A method for several
partitions or members returns an error per item if Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from konvene.client.admin.group_state import state_filter
from konvene.client.admin.heartbeats import Heartbeats, decode_heartbeats
from konvene.client.consumer.fetch import OffsetAt, list_offsets
from konvene.client.consumer.protocol import read_assignment, read_subscription
from konvene.client.errors import BadResponse, KafkaError, raise_for
from konvene.client.net.cluster import Cluster, Node, TopicPartition
from konvene.client.net.connection import Connection
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME, consumer_group_describe, describe_groups
from konvene.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from konvene.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from konvene.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from konvene.messages.heartbeat_extensions import REQUEST_FIELD
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from konvene.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

__all__ = [
    "CommittedOffset", "GroupAdmin", "GroupDescription", "GroupListing", "Heartbeats", "MemberDescription",
    "Removal",
]  # fmt: skip

REMOVED_BY_ADMIN = "member was removed by an admin"
"""Kafka's reason for a removal if the caller gives none."""

MAX_REASON_LENGTH = 255

V = TypeVar("V")


class GroupListing(NamedTuple):
    """A row of ListGroups. `type` is `classic`, `consumer`, `share` or `streams`; empty before version 5."""

    group_id: str
    type: str
    state: str
    protocol_type: str


class MemberDescription(NamedTuple):
    """A member of a classic or consumer group. `epoch` and `target` (the partitions that the coordinator
    wants it to own) are None in a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    subscribed: tuple[str, ...] = ()
    upgraded: bool | None = None
    """In a consumer group: whether the member uses the consumer protocol."""
    regex: str | None = None
    rack_id: str | None = None
    heartbeats: Heartbeats | None = None


class GroupDescription(NamedTuple):
    """The state of a classic or consumer group, as its coordinator describes it."""

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
    """`konvene.heartbeat.policy`, if it was requested from a konvene broker."""


class CommittedOffset(NamedTuple):
    """An offset that a group committed for a partition, with its metadata."""

    offset: int
    leader_epoch: int
    metadata: str


class Removal(NamedTuple):
    """The result of removing a member from a group; `error` is None if it was removed."""

    member_id: str
    instance_id: str | None
    error: KafkaError | None

    @property
    def name(self) -> str:
        return self.instance_id or self.member_id


class GroupAdmin:
    """The methods of `Admin` for groups and committed offsets."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.cluster!r}>"

    # groups

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """List the groups of all brokers by id, filtered by state and type if given.

        Raises `UnsupportedVersion` if a broker lacks the filter: states need ListGroups v4, types v5."""
        request = ListGroupsRequest(states_filter=state_filter(states), types_filter=tuple(types))
        await self.cluster.refresh([])
        found: dict[str, GroupListing] = {}
        for node_id in sorted(self.cluster.metadata.nodes):
            patience = self.cluster.patience()
            while True:
                response: ListGroupsResponse = await self.cluster.ask(request, node_id=node_id)
                if response.error_code == 0:
                    break
                await patience.after(KafkaError(response.error_code, about=f"the groups of broker {node_id}"))
            for g in response.groups:
                found[g.group_id] = GroupListing(g.group_id, g.group_type, g.group_state, g.protocol_type)
        return [found[group] for group in sorted(found)]

    async def describe_group(self, group: str, *, heartbeats: bool = False) -> GroupDescription:
        """Describe a classic or consumer group.

        `heartbeats` requests heartbeat statistics from a konvene broker; other brokers ignore it.
        Raises `KafkaError`, such as GROUP_ID_NOT_FOUND."""
        tags = (REQUEST_FIELD,) if heartbeats else ()
        about = f"group {group}"
        connection = await self._coordinator(group)
        not_found = f"Group {group} not found."
        if connection.speaks(BY_NAME["ConsumerGroupDescribe"].key):
            response: ConsumerGroupDescribeResponse = await self.cluster.ask_coordinator(
                group,
                ConsumerGroupDescribeRequest(group_ids=(group,)).replace(unknown_tags=tags),
                lambda r: r.groups[0].error_code,
            )
            found = response.groups[0]
            if found.error_code not in (Errors.GROUP_ID_NOT_FOUND, Errors.UNSUPPORTED_VERSION):
                raise_for(found.error_code, found.error_message, about=about)
                return _with_heartbeats(_consumer_group(found, await self._coordinator_node(group)), found)
            not_found = found.error_message or not_found
        classic: DescribeGroupsResponse = await self.cluster.ask_coordinator(
            group,
            DescribeGroupsRequest(groups=(group,)).replace(unknown_tags=tags),
            lambda r: r.groups[0].error_code,
        )
        described = classic.groups[0]
        if described.error_code == Errors.GROUP_ID_NOT_FOUND:
            raise KafkaError(Errors.GROUP_ID_NOT_FOUND, not_found, about=about)
        raise_for(described.error_code, described.error_message, about=about)
        if described.group_state == "Dead":
            raise KafkaError(Errors.GROUP_ID_NOT_FOUND, not_found, about=about)
        return _with_heartbeats(_classic_group(described, await self._coordinator_node(group)), described)

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete groups without members. Raises `KafkaError` for the first that cannot be deleted."""
        failed: list[KafkaError] = []
        for group in sorted(set(groups)):
            response: DeleteGroupsResponse = await self.cluster.ask_coordinator(
                group, DeleteGroupsRequest(groups_names=(group,)), lambda r: r.results[0].error_code
            )
            row = response.results[0]
            if row.error_code:
                failed.append(KafkaError(row.error_code, row.error_message, about=f"group {group}"))
        if failed:
            raise failed[0]

    async def remove_members(
        self, group: str, *, member_ids: Iterable[str] = (), instance_ids: Iterable[str] = (),
        reason: str = "",
    ) -> list[Removal]:  # fmt: skip
        """Remove members from a group; return the result of each, in order.

        `reason` is sent to the coordinator. Raises `KafkaError` if the request for the group fails."""
        reason = reason[:MAX_REASON_LENGTH] or REMOVED_BY_ADMIN
        members = [MemberIdentity(member_id=each, reason=reason) for each in dict.fromkeys(member_ids)]
        members += (
            MemberIdentity(member_id="", group_instance_id=each, reason=reason)
            for each in dict.fromkeys(instance_ids)
        )
        if not members:
            return []
        request = LeaveGroupRequest(group_id=group, members=tuple(members))
        response: LeaveGroupResponse = await self.cluster.ask_coordinator(
            group, request, lambda r: r.error_code
        )
        raise_for(response.error_code, about=f"group {group}")
        return [
            Removal(
                m.member_id,
                m.group_instance_id,
                _error_of(m.error_code, f"member {m.group_instance_id or m.member_id} of group {group}"),
            )
            for m in response.members
        ]

    # offsets

    async def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False,
        member_id: str | None = None, member_epoch: int = -1,
    ) -> dict[TopicPartition, CommittedOffset]:  # fmt: skip
        """Return the committed offsets of `partitions`, or of all partitions. Those without one are left out.

        `require_stable` waits for open transactions. A member of a consumer group gives its id and epoch, and
        the request fails if they are not current. Raises `KafkaError`."""
        requested = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=member_epoch)
        versioned = _offset_fetch(requested, partitions, require_stable)

        def code(response: OffsetFetchResponse) -> int:
            return response.groups[0].error_code if response.groups else response.error_code

        patience = self.cluster.patience()
        while True:
            response = await self.cluster.ask_coordinator(group, versioned, code)
            raise_for(code(response), about=f"the offsets of group {group}")
            rows = response.groups[0].topics if response.groups else response.topics
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
        """Commit offsets for a group without members, or for a member with its id and generation.

        Raises `KafkaError` for the first partition that fails."""
        for error in (await self._commit(group, offsets, member_id, generation, instance_id)).values():
            if error is not None:
                raise error

    async def _commit(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset], member_id: str = "",
        generation: int = -1, instance_id: str | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:  # fmt: skip
        """Commit offsets; return the error of each partition, or None."""
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
        response: OffsetCommitResponse = await self.cluster.ask_coordinator(
            group,
            lambda connection: (request, min(9, connection.version_of(key))),  # From 10 on: by topic id.
            lambda r: r.topics[0].partitions[0].error_code if r.topics and r.topics[0].partitions else 0,
        )
        return {
            tp: _error_of(p.error_code, f"the offset of {tp} in group {group}")
            for t in response.topics
            for p in t.partitions
            for tp in [TopicPartition(t.name, p.partition_index)]
        }

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of partitions to which no member subscribes.

        Returns the error of each partition, or None. Raises `KafkaError` if the request for the group fails.
        """
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
        response: OffsetDeleteResponse = await self.cluster.ask_coordinator(
            group, request, lambda r: r.error_code
        )
        raise_for(response.error_code, about=f"group {group}")
        return {
            tp: _error_of(p.error_code, f"the offset of {tp} in group {group}")
            for t in response.topics
            for p in t.partitions
            for tp in [TopicPartition(t.name, p.partition_index)]
        }

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """Return the offset of each partition at the given timestamp (ms), EARLIEST or LATEST."""
        return await list_offsets(self.cluster, wanted)

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


def _error_of(code: int, about: str) -> KafkaError | None:
    return KafkaError(code, about=about) if code else None


def _with_heartbeats(group: GroupDescription, found: Struct) -> GroupDescription:
    """Return `group` with the heartbeat statistics that a konvene broker adds to its response `found`."""
    heartbeats = decode_heartbeats(found, group.group_id)
    if heartbeats is None:
        return group
    members = tuple(m._replace(heartbeats=heartbeats.members.get(m.member_id)) for m in group.members)
    return group._replace(members=members, heartbeat_policy=heartbeats.policy)


def _consumer_group(found: consumer_group_describe.DescribedGroup, coordinator: Node) -> GroupDescription:
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


def _assigned(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    rows = ((t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions)
    return tuple(sorted(TopicPartition(topic, p) for topic, p in rows))


def _classic_group(found: describe_groups.DescribedGroup, coordinator: Node) -> GroupDescription:
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
    requested: OffsetFetchRequestGroup, partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> Callable[[Connection], tuple[Struct, int]]:
    """Return a function that builds the OffsetFetch request for a connection.

    Topics are given by name, so the version is at most 9; versions below 8 have fields for one group only."""
    grouped = None if partitions is None else _by_topic(dict.fromkeys(partitions))

    def versioned(connection: Connection) -> tuple[Struct, int]:
        version = min(9, connection.version_of(BY_NAME["OffsetFetch"].key))
        stable = require_stable and version >= 7
        if version >= 8:
            rows = None if grouped is None else tuple(
                OffsetFetchRequestTopics(name=t, partition_indexes=tuple(tp.partition for tp in tps))
                for t, tps in grouped.items()
            )  # fmt: skip
            return OffsetFetchRequest(
                groups=(requested.replace(topics=rows),), require_stable=stable
            ), version
        old = None if grouped is None else tuple(
            OffsetFetchRequestTopic(name=t, partition_indexes=tuple(tp.partition for tp in tps))
            for t, tps in grouped.items()
        )  # fmt: skip
        return OffsetFetchRequest(group_id=requested.group_id, topics=old, require_stable=stable), version

    return versioned


def _commit_rows(
    rows: Mapping[TopicPartition, int | CommittedOffset],
) -> Iterable[OffsetCommitRequestPartition]:
    for tp, at in rows.items():
        committed = at if isinstance(at, CommittedOffset) else CommittedOffset(at, -1, "")
        yield OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            committed_metadata=committed.metadata,
        )


def _by_topic(partitions: Mapping[TopicPartition, V]) -> dict[str, dict[TopicPartition, V]]:
    grouped: dict[str, dict[TopicPartition, V]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(tp.topic, {})[tp] = partitions[tp]
    return grouped
