"""A stream thread of the classic protocol in a scenario, which runs its assignment and copies changelogs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from tests.groups.streams.members import Play

from konvene.codec.compile import encode
from konvene.errors import Errors
from konvene.groups.classic.subscriptions import read_assignment
from konvene.groups.streams.classic.user_data import (
    LATEST_OFFSET,
    AssignmentInfo,
    SubscriptionInfo,
    read_assignment_info,
    write_subscription_info,
)
from konvene.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.sync_group import SyncGroupRequest

Task = tuple[str, int]


@dataclass
class Thread:
    """Consumes `orders` and reports the offsets of its copies with each join."""

    name: str
    version: int = 11
    member_id: str = ""
    generation: int = -1
    has: AssignmentInfo | None = None
    disk: dict[Task, int] = field(default_factory=dict)
    """Offset of each copy on the disk."""
    endpoint: str = ""

    @property
    def active(self) -> list[Task]:
        return sorted({task for task, _ in self.has.active}) if self.has is not None else []

    @property
    def standby(self) -> list[Task]:
        """Return the standby tasks: some of them may be warm-ups, which the client does not know."""
        return sorted(self.has.standby) if self.has is not None else []

    def metadata(self) -> bytes:
        sums = self.disk | dict.fromkeys(self.active, LATEST_OFFSET)
        process = str(uuid5(NAMESPACE_DNS, self.name))
        info = SubscriptionInfo(self.version, 11, process, offset_sums=sums, user_endpoint=self.endpoint)
        owned = [partition for _, (_, partition) in self.has.active] if self.has is not None else []
        subscription = ConsumerProtocolSubscription(
            topics=("orders",),
            user_data=write_subscription_info(info),
            owned_partitions=(TopicPartition(topic="orders", partitions=tuple(sorted(owned))),),
        )
        return b"\0\1" + encode(subscription, 1)

    # --- requests and responses ---

    def join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="stream", metadata=self.metadata()),),
        )

    def joined(self, response: Any) -> bool:
        """Handle the response to a JoinGroup; return whether to join again with the assigned member id."""
        self.member_id = response.member_id or self.member_id
        if not response.error_code:
            self.generation = response.generation_id
        return Errors(response.error_code) is Errors.MEMBER_ID_REQUIRED

    def sync_request(self) -> SyncGroupRequest:
        return SyncGroupRequest(group_id="g", generation_id=self.generation, member_id=self.member_id)

    def synced(self, response: Any) -> Errors:
        if not response.error_code:
            assignment = read_assignment(response.assignment)
            assert assignment is not None
            partitions = tuple((topic, p) for topic, some in assignment.partitions for p in some)
            self.has = read_assignment_info(assignment.user_data, partitions)
        return Errors(response.error_code)

    def beat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(group_id="g", generation_id=self.generation, member_id=self.member_id)

    # --- in a scenario ---

    def join(self, play: Play) -> None:
        """Join, as often as it takes to get a member id."""
        while self.joined(play.life.ask(self.name, self.join_request(), 9)):
            pass

    def sync(self, play: Play) -> Errors:
        """Send a SyncGroup and take over the assignment."""
        return self.synced(play.life.ask(self.name, self.sync_request(), 5))

    def beat(self, play: Play) -> Errors:
        """Send one heartbeat."""
        return Errors(play.life.ask(self.name, self.beat_request(), 4).error_code)

    def settle(self, play: Play) -> bool:
        """Heartbeat, and rejoin if the response requests it; return whether it did."""
        if self.beat(play) is not Errors.REBALANCE_IN_PROGRESS:
            return False
        self.join(play)
        self.sync(play)
        return True
