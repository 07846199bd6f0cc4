"""SubscriptionInfo: what a member of Kafka Streams says as it joins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from konvene.codec.compile import decode, encode
from konvene.codec.errors import CodecError
from konvene.codec.uuid import Uuid
from konvene.messages.streams_subscription_info import (
    ClientTag,
    PartitionToOffsetSum,
    SubscriptionInfoData,
    TaskId,
    TaskOffsetSum,
)

LATEST_VERSION = 11
FIRST_VERSION_WITH_LATEST_SUPPORTED = 3
FIRST_VERSION_WITH_OFFSETS = 7
FIRST_VERSION_WITH_NAMED_TOPOLOGIES = 10

LATEST_OFFSET = -2
"""The offset sum of a task that runs as active: it is at the end."""

UNKNOWN_OFFSET = -3
"""The offset sum of a task whose state is there, and nobody knows how far it is."""

ENDPOINT = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)]?:([0-9]{1,10})")
"""`host:port`, `[host]:port`, and either behind `protocol://`. Before its release 4.4 Kafka Streams took an
empty host for one, too; and each member wants to find itself among the endpoints that it is told."""

MAX_PORT = 0xFFFF
"""The streams protocol has no room for more."""

Task = tuple[str, int]
"""A subtopology's id and a partition."""


class UserDataError(ValueError):
    """The user data cannot be read: its words say why."""


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """What a member says."""

    version: int
    latest_supported_version: int
    """-1 in versions 1 and 2, which do not say."""
    process_id: str
    """A UUID, as the streams protocol writes it."""
    prev_tasks: frozenset[Task] = frozenset()
    """Versions 1 to 6: what it was active in."""
    standby_tasks: frozenset[Task] = frozenset()
    """Versions 1 to 6: what it has state of beside that."""
    offset_sums: Mapping[Task, int] = field(default_factory=dict)
    """Version 7 and later: how far its tasks are, over all their changelogs; of an active `LATEST_OFFSET`."""
    user_endpoint: str = ""
    """`host:port`; empty: none."""
    unique_field: int = 0
    """Version 8 and later: changes where nothing else does, so that the group rebalances."""
    error_code: int = 0
    """Version 9 and later; 4: all of the application is to be shut down."""
    client_tags: tuple[tuple[str, str], ...] = ()
    """Version 11; sorted."""
    named_topologies: frozenset[str] = frozenset()
    """Version 10 and later: of the tasks that belong to one; those tasks are in none of the others."""

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Where the member can be asked about its state; None where that cannot be told."""
        found = ENDPOINT.fullmatch(self.user_endpoint)
        return (found[1], int(found[2])) if found and int(found[2]) <= MAX_PORT else None


def read_subscription_info(data: bytes) -> SubscriptionInfo:
    """Raises `UserDataError`."""
    if len(data) < 4:
        raise UserDataError("there is no user data")
    version = int.from_bytes(data[:4], "big", signed=True)
    if version > LATEST_VERSION:  # Of those the two versions can be read, and nothing else.
        raise UserDataError(f"its version is {version}, and {LATEST_VERSION} is the latest that is known")
    if version < 1:
        raise UserDataError(f"its version is {version}")
    try:
        said = _read(decode(SubscriptionInfoData, version, data))
    except (CodecError, UnicodeDecodeError) as unread:
        raise UserDataError(f"it is malformed ({unread})") from None
    latest = said.latest_supported_version
    if version >= FIRST_VERSION_WITH_LATEST_SUPPORTED and version > latest:
        raise UserDataError(f"its version is {version}, beyond {latest}, which it says is its latest")
    return said


def _read(said: SubscriptionInfoData) -> SubscriptionInfo:
    sums: dict[Task, int] = {}
    named: set[str] = set()
    for each in said.task_offset_sums:
        if each.named_topology:
            named.add(each.named_topology)
        elif said.version >= FIRST_VERSION_WITH_NAMED_TOPOLOGIES:
            sums[str(each.topic_group_id), each.partition] = each.offset_sum
        for row in each.partition_to_offset_sum:
            sums[str(each.topic_group_id), row.partition] = row.offset_sum
    tags = {bytes(tag.key).decode(): bytes(tag.value).decode() for tag in said.client_tags}
    return SubscriptionInfo(
        said.version,
        said.latest_supported_version,
        _dashed(bytes(said.process_id).hex()),
        frozenset((str(task.topic_group_id), task.partition) for task in said.prev_tasks),
        frozenset((str(task.topic_group_id), task.partition) for task in said.standby_tasks),
        sums,
        bytes(said.user_end_point).decode(),
        said.unique_field,
        said.error_code,
        tuple(sorted(tags.items())),
        frozenset(named),
    )


def _dashed(process_id: str) -> str:
    ends = (0, 8, 12, 16, 20, 32)
    return "-".join(process_id[start:end] for start, end in pairwise(ends))


def write_subscription_info(info: SubscriptionInfo) -> bytes:
    """In its own version; what that has no place for is not written. Named topologies are only read."""
    version = info.version
    has_offsets = version >= FIRST_VERSION_WITH_OFFSETS
    data = SubscriptionInfoData(
        version=version,
        latest_supported_version=(
            info.latest_supported_version if version >= FIRST_VERSION_WITH_LATEST_SUPPORTED else -1
        ),
        process_id=Uuid(bytes.fromhex(info.process_id.replace("-", ""))),
        prev_tasks=() if has_offsets else _tasks(info.prev_tasks),
        standby_tasks=() if has_offsets else _tasks(info.standby_tasks),
        user_end_point=info.user_endpoint.encode() if version >= 2 else b"",
        task_offset_sums=_sums(info) if has_offsets else (),
        unique_field=info.unique_field if version >= 8 else 0,
        error_code=info.error_code if version >= 9 else 0,
        client_tags=(
            tuple(ClientTag(key=key.encode(), value=value.encode()) for key, value in info.client_tags)
            if version >= 11
            else ()
        ),
    )
    return encode(data, version)


def _tasks(tasks: frozenset[Task]) -> tuple[TaskId, ...]:
    return tuple(TaskId(topic_group_id=int(name), partition=partition) for name, partition in sorted(tasks))


def _sums(info: SubscriptionInfo) -> tuple[TaskOffsetSum, ...]:
    rows = sorted(info.offset_sums.items())
    if info.version >= FIRST_VERSION_WITH_NAMED_TOPOLOGIES:
        return tuple(
            TaskOffsetSum(topic_group_id=int(name), partition=partition, offset_sum=offset)
            for (name, partition), offset in rows
        )
    by_name: dict[str, tuple[PartitionToOffsetSum, ...]] = {}
    for (name, partition), offset in rows:
        row = PartitionToOffsetSum(partition=partition, offset_sum=offset)
        by_name[name] = (*by_name.get(name, ()), row)
    return tuple(
        TaskOffsetSum(topic_group_id=int(name), partition_to_offset_sum=some)
        for name, some in by_name.items()
    )
