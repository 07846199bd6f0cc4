"""Well-behaved clients of the consumer protocol and of the classic protocol, eager and cooperative.

Each client knows only the responses that it received. A response may be lost; then the client does what real
clients do. `owns` is the set of partitions that the client consumes at that moment, whatever the
coordinator's
state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.groups.consumer.harness import GroupHarness, Owned, error

from konvene.codec.compile import encode
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.subscriptions import read_assignment, write_assignment
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

Units = set[tuple[Uuid, int]]

SESSION_MS, REBALANCE_MS = 45_000, 20_000
DROPS = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH, Errors.FENCED_INSTANCE_ID)


@dataclass
class Client:
    """One client process. `epoch` is its member epoch or generation, -1 while it is in no group."""

    name: str
    instance: str | None = None
    classic: bool = False
    eager: bool = True
    topics: tuple[str, ...] = ("orders",)
    regex: str | None = None
    assignor: str | None = None
    member_id: str = ""
    epoch: int = -1
    owns: Units = field(default_factory=set)
    assigned: Units = field(default_factory=set)
    needs: str = "join"
    full_heartbeat: bool = True
    """Whether the next heartbeat must be a full one: the first, and after a lost response."""
    ids_used: int = 0

    def forget(self, *, anew: bool = False) -> None:
        """Drop all partitions and the epoch; with `anew` the member id too."""
        self.owns, self.assigned, self.epoch, self.needs, self.full_heartbeat = set(), set(), -1, "join", True
        if anew:
            self.member_id = ""

    def apply_assignment(self) -> None:
        """Revoke and take over partitions so that `owns` equals the last received assignment."""
        if self.epoch > 0:
            self.owns = set(self.assigned)

    # --- consumer protocol ---

    def beat(
        self, harness: GroupHarness, *, lost: bool = False, slow: bool = False, reports_owned: bool = True
    ) -> Any:
        """Send one heartbeat. `slow`: keep consuming revoked partitions; `reports_owned`: report the owned
        partitions."""
        if not self.member_id:
            self.ids_used += 1
            self.member_id = f"{self.name}-{self.ids_used}"
        if self.epoch <= 0:
            names = {"subscribed_topic_names": self.topics, "subscribed_topic_regex": self.regex}
            response = harness.beat(
                self.member_id, 0, instance_id=self.instance, server_assignor=self.assignor, **names
            )
        elif self.full_heartbeat:
            response = harness.beat(
                self.member_id, self.epoch, instance_id=self.instance, owned=owned(self.owns),
                rebalance_timeout_ms=30_000, subscribed_topic_names=self.topics,
                subscribed_topic_regex=self.regex or "", server_assignor=self.assignor,
            )  # fmt: skip
        else:
            reported = {"owned": owned(self.owns)} if reports_owned else {}
            response = harness.beat(self.member_id, self.epoch, instance_id=self.instance, **reported)
        self.full_heartbeat = lost
        if not lost:
            self._handle_heartbeat(response, slow)
        return response

    def _handle_heartbeat(self, response: Any, slow: bool) -> None:
        code = error(response)
        if code in DROPS:
            self.forget(anew=code is Errors.FENCED_INSTANCE_ID)
        elif code is not Errors.NONE:
            if self.epoch <= 0 or code is Errors.GROUP_ID_NOT_FOUND:
                self.forget()
        else:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {
                    (t.topic_id, p) for t in response.assignment.topic_partitions for p in t.partitions
                }
                if not slow or not self.owns - self.assigned:
                    self.apply_assignment()

    def leave(self, harness: GroupHarness, epoch: int = -1) -> None:
        """Leave the group, for good (-1) or temporarily as a static member (-2)."""
        if self.classic:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
            harness.ask(LeaveGroupRequest(group_id="g", members=(identity,)), 5, self.name)
        elif self.epoch > 0:
            harness.beat(self.member_id, epoch, instance_id=self.instance)
        self.forget(anew=True)

    # --- classic protocol ---

    def step(self, harness: GroupHarness, *, lost: bool = False) -> Any:
        """Send the next JoinGroup, SyncGroup or heartbeat; return the response, or None if it waits."""
        if self.needs == "join":
            return self._join(harness, lost)
        if self.needs == "sync":
            return self._sync(harness, lost)
        identity = {
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "generation_id": self.epoch,
        }
        response = harness.ask(HeartbeatRequest(group_id="g", **identity), 4, self.name)
        if error(response) is Errors.REBALANCE_IN_PROGRESS:
            self.needs = "join"
        self._drop_if_fenced(response)
        return response

    def _join(self, harness: GroupHarness, lost: bool) -> Any:
        if self.eager:
            self.owns = set()
        names = {topic.id: topic.name for topic in harness.topics.by_name.values()}
        self.owns = {(t, p) for t, p in self.owns if t in names}
        owned_by_name = [(names[t], p) for t, p in sorted(self.owns)]
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=tuple(TopicPartition(topic=name, partitions=(p,)) for name, p in owned_by_name),
        )
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"\0\1" + encode(subscription, 1)),),
        )
        response = harness.ask(request, 9, self.name)
        if response is None or lost:
            return response
        return self.joined(harness, response)

    def joined(self, harness: GroupHarness, response: Any) -> Any:
        """Handle the response to a JoinGroup."""
        code = error(response)
        if code is Errors.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return self._join(harness, False)
        if code is Errors.NONE:
            self.member_id, self.epoch, self.needs = response.member_id, response.generation_id, "sync"
        self._drop_if_fenced(response)
        return response

    def _sync(self, harness: GroupHarness, lost: bool) -> Any:
        group = harness.group
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if isinstance(group, ClassicGroup) and group.leader == self.member_id:
            assignments = round_robin(group, harness)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=assignments,
        )
        response = harness.ask(request, 5, self.name)
        if lost:
            self.needs = "join"
        elif response is not None:
            self.synced(harness, response)
        return response

    def synced(self, harness: GroupHarness, response: Any) -> None:
        """Handle the response to a SyncGroup."""
        if error(response) is Errors.REBALANCE_IN_PROGRESS:
            self.needs = "join"
        elif error(response) is Errors.NONE:
            read = read_assignment(response.assignment)
            assert read is not None, response
            by_name = harness.topics.by_name
            assigned = {
                (by_name[name].id, p) for name, indexes in read.partitions for p in indexes if name in by_name
            }
            self.needs = "join" if self.owns - assigned else "heartbeat"
            self.owns = self.assigned = assigned
        self._drop_if_fenced(response)

    def _drop_if_fenced(self, response: Any) -> None:
        code = error(response)
        if code in DROPS:
            self.forget(anew=True)
        elif code not in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS, Errors.MEMBER_ID_REQUIRED):
            self.forget()


def owned(units: Units) -> Owned:
    """Return partition sets as partitions by topic."""
    by_topic: Owned = {}
    for topic, partition in sorted(units):
        by_topic[topic] = (*by_topic.get(topic, ()), partition)
    return by_topic


def round_robin(group: ClassicGroup, harness: GroupHarness) -> tuple[SyncGroupRequestAssignment, ...]:
    """Return a leader's assignments: the partitions of `orders`, dealt out to the members in turn."""
    members = list(group.members)
    orders = harness.topics.by_name.get("orders")
    count = orders.partitions if orders is not None else 0
    return tuple(
        SyncGroupRequestAssignment(
            member_id=member,
            assignment=write_assignment([("orders", tuple(range(i, count, len(members))))], b"\0\1"),
        )
        for i, member in enumerate(members)
    )
