"""What Kafka Streams says in the user data of the classic protocol's assignor `stream`, versions 1 to 11.

    SubscriptionInfo   of a member, in its JoinGroup: its process, the tasks that it had or how far they are
    AssignmentInfo     to a member, in its SyncGroup: its tasks, where all others are, when to join again

Both begin with their version, as a 32-bit integer. A member answers in the version that it was last told, and
is answered in the version that it used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LATEST_VERSION = 11
"""Of Kafka Streams 3.2 and later."""

LATEST_OFFSET = -2
"""The offset sum of a task that runs as active: it is at the end."""

UNKNOWN_OFFSET = -3
"""The offset sum of a task whose state is there, and nobody knows how far it is."""

NO_REBALANCE_MS = 2**63 - 1
"""When to join again of one's own accord: never."""

Task = tuple[str, int]
"""A subtopology's id and a partition."""

TopicPartition = tuple[str, int]
HostInfo = tuple[str, int]


class UserDataError(ValueError):
    """The user data cannot be read: its words say why."""


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """What a member says."""

    version: int
    latest_supported_version: int
    """Of versions 1 and 2, which do not say: the version itself."""
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
    error_code: int = 0
    """Version 9 and later; 4: all of the application is to be shut down."""
    client_tags: tuple[tuple[str, str], ...] = ()
    """Version 11."""
    named_topologies: frozenset[str] = frozenset()
    """Version 10 and later: of the tasks that belong to one; those tasks are in none of the others."""

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Where the member can be asked about its state."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AssignmentInfo:
    """What a member is told."""

    version: int
    commonly_supported_version: int
    active: tuple[tuple[Task, TopicPartition], ...] = ()
    """Each partition with its task, by topic and partition. The partitions stand in the assignment itself:
    read alone, user data has the tasks of them in this order."""
    standby: Mapping[Task, tuple[TopicPartition, ...]] = field(default_factory=dict)
    partitions_by_host: Mapping[HostInfo, tuple[TopicPartition, ...]] = field(default_factory=dict)
    """Version 2 and later."""
    standby_partitions_by_host: Mapping[HostInfo, tuple[TopicPartition, ...]] = field(default_factory=dict)
    """Version 6 and later."""
    error_code: int = 0
    """Version 4 and later: 1 a source topic is missing, 4 the application is to be shut down."""
    next_rebalance_ms: int = NO_REBALANCE_MS
    """Version 7 and later: the time of day when it is to join again of its own accord."""


def read_subscription_info(data: bytes) -> SubscriptionInfo:
    """Raises `UserDataError`."""
    raise NotImplementedError


def write_subscription_info(info: SubscriptionInfo) -> bytes:
    """In its own version."""
    raise NotImplementedError


def read_assignment_info(data: bytes, partitions: tuple[TopicPartition, ...]) -> AssignmentInfo:
    """`partitions`: those of the assignment that the user data stands in. Raises `UserDataError`."""
    raise NotImplementedError


def write_assignment_info(info: AssignmentInfo) -> bytes:
    """In its own version."""
    raise NotImplementedError
