"""Admin methods for share groups, as KIP-932 adds them to Kafka's Admin.

A share group has a start offset in each partition instead of a committed offset; the records after it that
are not completed are its lag, if the broker reports it. A method for several partitions or topics returns an
error per item. A konvene broker reports the in-flight records on request, which Kafka does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from konvene.client.admin.groups import GroupAdmin
from konvene.client.admin.heartbeats import Heartbeats, decode_heartbeats
from konvene.client.errors import BadResponse, KafkaError, UnsupportedVersion, raise_for
from konvene.client.net.cluster import Node, TopicPartition
from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.messages import BY_NAME
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from konvene.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
)
from konvene.messages.heartbeat_extensions import REQUEST_FIELD as HEARTBEATS_FIELD
from konvene.messages.in_flight_extensions import IN_FLIGHT_EXTENSION, REQUEST_FIELD, InFlightExtension
from konvene.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

__all__ = [
    "InFlightRecords", "ShareGroupAdmin", "ShareGroupDescription", "ShareMemberDescription",
    "SharePartitionOffset",
]  # fmt: skip

NO_SHARE_GROUPS = "The cluster does not support share groups (ShareGroupDescribe)."
RECORD_STATES = ("available", "acquired", "acknowledged", "archiving", "archived")
"""Record states by their number in messages and in the log."""


class ShareMemberDescription(NamedTuple):
    """A member of a share group."""

    member_id: str
    client_id: str
    client_host: str
    epoch: int
    assignment: tuple[TopicPartition, ...]
    subscribed: tuple[str, ...]
    rack_id: str | None = None
    heartbeats: Heartbeats | None = None
    """Its heartbeat statistics, if they were requested from a konvene broker."""


class ShareGroupDescription(NamedTuple):
    """The state of a share group, as its coordinator describes it."""

    group_id: str
    state: str
    coordinator: Node
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...]
    heartbeat_policy: str | None = None
    """`konvene.heartbeat.policy`, if it was requested from a konvene broker."""

    @property
    def type(self) -> str:
        return "share"


class InFlightRecords(NamedTuple):
    """A range of records, both ends included, that were delivered and are not completed."""

    first_offset: int
    last_offset: int
    state: str
    """One of `RECORD_STATES`."""
    member_id: str | None
    delivery_count: int
    held_ms: int | None
    """Time since the member acquired them."""
    lock_left_ms: int | None
    """Remaining time of the acquisition lock."""


class SharePartitionOffset(NamedTuple):
    """Start offset and lag of a group in a partition. A field is None if the partition is uninitialized or
    the broker does not report the field."""

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    in_flight: tuple[InFlightRecords, ...] | None = None
    error: KafkaError | None = None
    """The error of the partition; the other fields are None then."""


class ShareGroupAdmin(GroupAdmin):
    """The methods of `Admin` for share groups."""

    async def describe_share_group(self, group: str, *, heartbeats: bool = False) -> ShareGroupDescription:
        """Describe a share group.

        `heartbeats` requests heartbeat statistics from a konvene broker; other brokers ignore it. Raises
        `KafkaError`, such as GROUP_ID_NOT_FOUND, and `UnsupportedVersion` if the broker has no share groups.
        """
        connection = await self._coordinator(group)
        if not connection.speaks(BY_NAME["ShareGroupDescribe"].key):
            raise UnsupportedVersion(NO_SHARE_GROUPS)
        tags = (HEARTBEATS_FIELD,) if heartbeats else ()
        response: ShareGroupDescribeResponse = await self.cluster.ask_coordinator(
            group,
            ShareGroupDescribeRequest(group_ids=(group,)).replace(unknown_tags=tags),
            lambda r: r.groups[0].error_code,
        )
        found = response.groups[0]
        raise_for(found.error_code, found.error_message, about=f"group {group}")
        return _described(found, await self._coordinator_node(group))

    async def describe_share_groups(self, groups: Iterable[str]) -> dict[str, ShareGroupDescription]:
        """Describe share groups. Raises `KafkaError` for the first that cannot be described."""
        return {group: await self.describe_share_group(group) for group in dict.fromkeys(groups)}

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, in_flight: bool = False
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset]]:
        """Return the start offsets by group, of the given partitions or of all initialized ones (None).

        `in_flight` requests the in-flight records from a konvene broker; other brokers ignore it."""
        return {
            group: await self._share_offsets(group, partitions, in_flight)
            for group, partitions in groups.items()
        }

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the start offsets of a group without members; return the error of each partition, or None.

        Raises `KafkaError` if the request for the group fails, such as NON_EMPTY_GROUP."""
        if not offsets:
            return {}
        rows: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for tp in sorted(offsets):
            row = AlterShareGroupOffsetsRequestPartition(
                partition_index=tp.partition, start_offset=offsets[tp]
            )
            rows.setdefault(tp.topic, []).append(row)
        topics = (
            AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=tuple(each))
            for topic, each in rows.items()
        )
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=tuple(topics))
        response: AlterShareGroupOffsetsResponse = await self.cluster.ask_coordinator(
            group, request, lambda r: r.error_code
        )
        raise_for(response.error_code, response.error_message, about=f"group {group}")
        return {
            tp: _error_of(row.error_code, row.error_message, f"the offset of {tp} in group {group}")
            for topic in response.responses
            for row in topic.partitions
            for tp in [TopicPartition(topic.topic_name, row.partition_index)]
        }

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Delete the start offsets of topics of a group without members; return the error of each topic, or
        None.

        Raises `KafkaError` if the request for the group fails, such as NON_EMPTY_GROUP."""
        rows = tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=t) for t in sorted(set(topics)))
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=rows)
        response: DeleteShareGroupOffsetsResponse = await self.cluster.ask_coordinator(
            group, request, lambda r: r.error_code
        )
        raise_for(response.error_code, response.error_message, about=f"group {group}")
        return {
            row.topic_name: _error_of(
                row.error_code, row.error_message, f"topic {row.topic_name} in group {group}"
            )
            for row in response.responses
        }

    async def delete_share_groups(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members, with their offsets; return the error of each group, or None."""
        errors: dict[str, KafkaError | None] = {}
        for group in dict.fromkeys(groups):
            try:
                await self.delete_groups([group])
                errors[group] = None
            except KafkaError as error:
                errors[group] = error
        return errors

    async def _share_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None, in_flight: bool
    ) -> dict[TopicPartition, SharePartitionOffset]:
        topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None = None
        if partitions is not None:
            numbers: dict[str, list[int]] = {}
            for tp in sorted(set(partitions)):
                numbers.setdefault(tp.topic, []).append(tp.partition)
            topics = tuple(
                DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=tuple(each))
                for topic, each in numbers.items()
            )
        request = DescribeShareGroupOffsetsRequest(
            groups=(DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics),)
        ).replace(unknown_tags=(REQUEST_FIELD,) if in_flight else ())
        response: DescribeShareGroupOffsetsResponse = await self.cluster.ask_coordinator(
            group, request, lambda r: r.groups[0].error_code
        )
        found = response.groups[0]
        raise_for(found.error_code, found.error_message, about=f"group {group}")
        rows = {
            TopicPartition(topic.topic_name, row.partition_index): row
            for topic in found.topics
            for row in topic.partitions
        }
        return {tp: _offset(group, tp, rows[tp]) for tp in sorted(rows)}


# decoding -------------------------------------------------------------------------------------


def _described(found: DescribedGroup, coordinator: Node) -> ShareGroupDescription:
    heartbeats = decode_heartbeats(found, found.group_id)
    members = tuple(
        ShareMemberDescription(
            member_id=m.member_id,
            client_id=m.client_id,
            client_host=m.client_host,
            epoch=m.member_epoch,
            assignment=tuple(
                sorted(
                    TopicPartition(t.topic_name, p)
                    for t in m.assignment.topic_partitions
                    for p in t.partitions
                )
            ),
            subscribed=tuple(m.subscribed_topic_names),
            rack_id=m.rack_id or None,
            heartbeats=None if heartbeats is None else heartbeats.members.get(m.member_id),
        )
        for m in found.members
    )
    return ShareGroupDescription(
        found.group_id, found.group_state, coordinator, found.group_epoch, found.assignment_epoch,
        found.assignor_name, tuple(sorted(members)), None if heartbeats is None else heartbeats.policy,
    )  # fmt: skip


def _offset(
    group: str, tp: TopicPartition, row: DescribeShareGroupOffsetsResponsePartition
) -> SharePartitionOffset:
    error = _error_of(row.error_code, row.error_message, f"the offset of {tp} in group {group}")
    if error is not None:
        return SharePartitionOffset(None, None, None, error=error)
    is_initialized = row.start_offset >= 0
    return SharePartitionOffset(
        row.start_offset if is_initialized else None,
        row.leader_epoch if is_initialized and row.leader_epoch >= 0 else None,
        row.lag if is_initialized and row.lag >= 0 else None,
        _in_flight(tp, row),
    )


def _in_flight(
    tp: TopicPartition, row: DescribeShareGroupOffsetsResponsePartition
) -> tuple[InFlightRecords, ...] | None:
    """Return the in-flight records of a partition, which a konvene broker adds to its row of the response."""
    for tag, data in row.unknown_tags:
        if tag == IN_FLIGHT_EXTENSION:
            try:
                notes = decode(InFlightExtension, 0, data)
            except CodecError as error:
                raise BadResponse(f"{tp}, in-flight records: {error}") from error
            return tuple(
                InFlightRecords(
                    n.first_offset, n.last_offset, _state(n.state), n.member_id or None, n.delivery_count,
                    None if n.held_ms < 0 else n.held_ms, None if n.lock_left_ms < 0 else n.lock_left_ms,
                )
                for n in notes.records
            )  # fmt: skip
    return None


def _state(number: int) -> str:
    return RECORD_STATES[number] if 0 <= number < len(RECORD_STATES) else str(number)


def _error_of(code: int, message: str | None, about: str) -> KafkaError | None:
    return KafkaError(code, message, about=about) if code else None
