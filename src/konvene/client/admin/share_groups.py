"""What an administrator asks of share groups: the methods that KIP-932 adds to Kafka's Admin.

A share group has no committed offsets. It stands in a partition at a start offset, before which every record
is done; what is not done behind it is its lag, where the broker tells it. Where Kafka answers for each
partition or topic, so do the methods here: what is refused for one of many is handed back beside it. One
thing more is told by brokers of ours, if they are asked: who has which records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from konvene.client.admin.groups import GroupAdmin
from konvene.client.errors import BadResponse, KafkaError, UnsupportedVersion, raise_for
from konvene.client.net.cluster import Node, TopicPartition
from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.messages import BY_NAME
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from konvene.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from konvene.messages.in_flight_notes import ASKED, IN_FLIGHT_NOTES, InFlightNotes
from konvene.messages.share_group_describe import ShareGroupDescribeRequest

__all__ = [
    "InFlightRecords", "ShareGroupAdmin", "ShareGroupDescription", "ShareMemberDescription",
    "SharePartitionOffset",
]  # fmt: skip

NO_SHARE_GROUPS = "The cluster does not support share groups (ShareGroupDescribe)."
RECORD_STATES = ("available", "acquired", "acknowledged", "archiving", "archived")
"""By number, as they are on the wire and in the log."""


class ShareMemberDescription(NamedTuple):
    """A member as its coordinator has it."""

    member_id: str
    client_id: str
    client_host: str
    epoch: int
    assignment: tuple[TopicPartition, ...]
    subscribed: tuple[str, ...]
    rack_id: str | None = None


class ShareGroupDescription(NamedTuple):
    """A share group as its coordinator has it."""

    group_id: str
    state: str
    coordinator: Node
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...]

    @property
    def type(self) -> str:
        return "share"


class InFlightRecords(NamedTuple):
    """Offsets in a row, both ends included, that were delivered and are not done."""

    first_offset: int
    last_offset: int
    state: str
    """One of `RECORD_STATES`."""
    member_id: str | None
    delivery_count: int
    held_ms: int | None
    """How long the member has had them."""
    lock_left_ms: int | None
    """How long nobody else gets them."""


class SharePartitionOffset(NamedTuple):
    """Where a group stands in a partition; None where it has not begun, or where the broker does not say."""

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    in_flight: tuple[InFlightRecords, ...] | None = None
    error: KafkaError | None = None
    """Why nothing is known."""


class ShareGroupAdmin(GroupAdmin):
    """Administration of share groups, and of all others."""

    async def describe_share_group(self, group: str) -> ShareGroupDescription:
        """A share group. Raises `KafkaError` GROUP_ID_NOT_FOUND where there is none."""
        connection = await self._coordinator(group)
        if not connection.speaks(BY_NAME["ShareGroupDescribe"].key):
            raise UnsupportedVersion(NO_SHARE_GROUPS)
        answer = await self.cluster.ask_coordinator(
            group, ShareGroupDescribeRequest(group_ids=(group,)), lambda a: a.groups[0].error_code
        )
        found = answer.groups[0]
        raise_for(found.error_code, found.error_message, about=f"group {group}")
        return _described(found, await self._coordinator_node(group))

    async def describe_share_groups(self, groups: Iterable[str]) -> dict[str, ShareGroupDescription]:
        """Share groups by name. Raises `KafkaError` for the first that cannot be described."""
        return {group: await self.describe_share_group(group) for group in dict.fromkeys(groups)}

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, in_flight: bool = False
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset]]:
        """Where groups stand: in these partitions, or in all that they have begun (None).

        `in_flight`: ask who has which records, too; brokers that are not ours do not say."""
        return {
            group: await self._share_offsets(group, partitions, in_flight)
            for group, partitions in groups.items()
        }

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move where a group without members stands; why not, where one is refused.

        Raises `KafkaError` where the group itself is refused, such as NON_EMPTY_GROUP."""
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
        answer = await self.cluster.ask_coordinator(group, request, lambda a: a.error_code)
        raise_for(answer.error_code, answer.error_message, about=f"group {group}")
        return {
            tp: _why_not(row, f"the offset of {tp} in group {group}")
            for topic in answer.responses
            for row in topic.partitions
            for tp in [TopicPartition(topic.topic_name, row.partition_index)]
        }

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Forget where a group without members stands in topics; why not, where one is refused.

        Raises `KafkaError` where the group itself is refused, such as NON_EMPTY_GROUP."""
        wanted = tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=t) for t in sorted(set(topics)))
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted)
        answer = await self.cluster.ask_coordinator(group, request, lambda a: a.error_code)
        raise_for(answer.error_code, answer.error_message, about=f"group {group}")
        return {
            row.topic_name: _why_not(row, f"topic {row.topic_name} in group {group}")
            for row in answer.responses
        }

    async def delete_share_groups(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members, with all that they stand at; why not, where one is refused."""
        done: dict[str, KafkaError | None] = {}
        for group in dict.fromkeys(groups):
            try:
                await self.delete_groups([group])
                done[group] = None
            except KafkaError as error:
                done[group] = error
        return done

    # how

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
        ).replace(unknown_tags=(ASKED,) if in_flight else ())
        answer = await self.cluster.ask_coordinator(group, request, lambda a: a.groups[0].error_code)
        found = answer.groups[0]
        raise_for(found.error_code, found.error_message, about=f"group {group}")
        rows = {
            TopicPartition(topic.topic_name, row.partition_index): row
            for topic in found.topics
            for row in topic.partitions
        }
        return {tp: _offset(group, tp, rows[tp]) for tp in sorted(rows)}


# from the wire --------------------------------------------------------------------------------


def _described(found: Any, coordinator: Node) -> ShareGroupDescription:
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
        )
        for m in found.members
    )
    return ShareGroupDescription(
        found.group_id, found.group_state, coordinator, found.group_epoch, found.assignment_epoch,
        found.assignor_name, tuple(sorted(members)),
    )  # fmt: skip


def _offset(group: str, tp: TopicPartition, row: Any) -> SharePartitionOffset:
    error = _why_not(row, f"the offset of {tp} in group {group}")
    if error is not None:
        return SharePartitionOffset(None, None, None, error=error)
    begun = row.start_offset >= 0
    return SharePartitionOffset(
        row.start_offset if begun else None,
        row.leader_epoch if begun and row.leader_epoch >= 0 else None,
        row.lag if begun and row.lag >= 0 else None,
        _in_flight(tp, row),
    )


def _in_flight(tp: TopicPartition, row: Any) -> tuple[InFlightRecords, ...] | None:
    """What a broker of ours says beside it."""
    for tag, data in row.unknown_tags:
        if tag == IN_FLIGHT_NOTES:
            try:
                notes = decode(InFlightNotes, 0, data)
            except CodecError as error:
                raise BadResponse(f"{tp}, who has which records: {error}") from error
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


def _why_not(row: Any, about: str) -> KafkaError | None:
    return KafkaError(row.error_code, row.error_message, about=about) if row.error_code else None
