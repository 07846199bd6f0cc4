"""User data of Kafka Streams in the classic protocol's assignor `stream`, versions 1 to 11.

    SubscriptionInfo   in a member's JoinGroup request: its process, and its previous tasks or their offsets
    AssignmentInfo     in its SyncGroup response: its tasks, the partitions by host, when to rejoin

Both begin with their version, as a 32-bit integer. The response has the version that the member sent.
"""

from konvene.groups.streams.classic.user_data.assignment import (
    NO_REBALANCE_MS,
    AssignmentInfo,
    HostInfo,
    TopicPartition,
    read_assignment_info,
    write_assignment_info,
    write_hosts,
)
from konvene.groups.streams.classic.user_data.subscription import (
    LATEST_OFFSET,
    LATEST_VERSION,
    UNKNOWN_OFFSET,
    SubscriptionInfo,
    Task,
    UserDataError,
    read_subscription_info,
    write_subscription_info,
)

__all__ = [
    "LATEST_OFFSET",
    "LATEST_VERSION",
    "NO_REBALANCE_MS",
    "UNKNOWN_OFFSET",
    "AssignmentInfo",
    "HostInfo",
    "SubscriptionInfo",
    "Task",
    "TopicPartition",
    "UserDataError",
    "read_assignment_info",
    "read_subscription_info",
    "write_assignment_info",
    "write_hosts",
    "write_subscription_info",
]
