"""SubscriptionInfo: the user data of a member of Kafka Streams in its JoinGroup."""

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
"""The offset sum of an active task, which is always at the end."""

UNKNOWN_OFFSET = -3
"""The offset sum of a task with state on disk at an unknown offset."""

ENDPOINT = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)]?:([0-9]{1,10})")
"""`host:port`, `[host]:port`, and either behind `protocol://`. Kafka Streams before 4.4 allowed an empty
host, and each member expects to find itself among the endpoints that it is sent."""

MAX_PORT = 0xFFFF
"""The streams protocol's port field has 16 bits."""

Task = tuple[str, int]
"""A subtopology's id and a partition."""


class UserDataError(ValueError):
    """Error: user data cannot be decoded or encoded, for the reason in the message."""


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """The user data of a member's subscription, decoded."""

    version: int
    latest_supported_version: int
    """-1 in versions 1 and 2, which lack it."""
    process_id: str
    """A UUID, as the streams protocol writes it."""
    prev_tasks: frozenset[Task] = frozenset()
    """Versions 1 to 6: the active tasks."""
    standby_tasks: frozenset[Task] = frozenset()
    """Versions 1 to 6: the other tasks with state on disk."""
    offset_sums: Mapping[Task, int] = field(default_factory=dict)
    """Version 7 and later: the offsets of tasks, summed over their changelogs; `LATEST_OFFSET` for active
    ones."""
    user_endpoint: str = ""
    """`host:port`; empty for none."""
    unique_field: int = 0
    """Version 8 and later: a value that only changes to force a rebalance."""
    error_code: int = 0
    """Version 9 and later; 4: the member requests a shutdown of the whole application."""
    client_tags: tuple[tuple[str, str], ...] = ()
    """Version 11; sorted."""
    named_topologies: frozenset[str] = frozenset()
    """Version 10 and later: the named topologies of its tasks; such tasks are in none of the other fields."""

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Return host and port of the member's endpoint for interactive queries; None without a valid one."""
        found = ENDPOINT.fullmatch(self.user_endpoint)
        return (found[1], int(found[2])) if found and int(found[2]) <= MAX_PORT else None


def read_subscription_info(data: bytes) -> SubscriptionInfo:
    """Decode the user data of a subscription. Raises `UserDataError`."""
    if len(data) < 4:
        raise UserDataError("there is no user data")
    version = int.from_bytes(data[:4], "big", signed=True)
    if version > LATEST_VERSION:  # Of those only the two versions can be decoded.
        raise UserDataError(f"its version is {version}, but {LATEST_VERSION} is the latest supported one")
    if version < 1:
        raise UserDataError(f"its version is {version}")
    try:
        info = _read(decode(SubscriptionInfoData, version, data))
    except (CodecError, UnicodeDecodeError) as unread:
        raise UserDataError(f"it is malformed ({unread})") from None
    latest = info.latest_supported_version
    if version >= FIRST_VERSION_WITH_LATEST_SUPPORTED and version > latest:
        raise UserDataError(f"its version is {version}, beyond its own latest supported version {latest}")
    return info


def _read(data: SubscriptionInfoData) -> SubscriptionInfo:
    sums: dict[Task, int] = {}
    named: set[str] = set()
    for each in data.task_offset_sums:
        if each.named_topology:
            named.add(each.named_topology)
        elif data.version >= FIRST_VERSION_WITH_NAMED_TOPOLOGIES:
            sums[str(each.topic_group_id), each.partition] = each.offset_sum
        for row in each.partition_to_offset_sum:
            sums[str(each.topic_group_id), row.partition] = row.offset_sum
    tags = {bytes(tag.key).decode(): bytes(tag.value).decode() for tag in data.client_tags}
    return SubscriptionInfo(
        data.version,
        data.latest_supported_version,
        _dashed(bytes(data.process_id).hex()),
        frozenset((str(task.topic_group_id), task.partition) for task in data.prev_tasks),
        frozenset((str(task.topic_group_id), task.partition) for task in data.standby_tasks),
        sums,
        bytes(data.user_end_point).decode(),
        data.unique_field,
        data.error_code,
        tuple(sorted(tags.items())),
        frozenset(named),
    )


def _dashed(process_id: str) -> str:
    ends = (0, 8, 12, 16, 20, 32)
    return "-".join(process_id[start:end] for start, end in pairwise(ends))


def write_subscription_info(info: SubscriptionInfo) -> bytes:
    """Encode the user data in its version, without fields that this version does not have.

    Named topologies are not encoded.
    """
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
