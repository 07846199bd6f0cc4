"""Clients that behave: of the consumer protocol, and of the classic one, eager and cooperative.

Each knows only what it was told. An answer may be lost on the way; then it does what real clients do. What a
client `owns` is what it reads from at that moment, whatever the coordinator thinks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.groups.consumer.room import Owned, Room, error

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
    """One process. `epoch` is its member epoch or generation, -1 while it is in no group."""

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
    told: Units = field(default_factory=set)
    needs: str = "join"
    unsure: bool = True
    """Whether it has to say everything: at the beginning, and when an answer was lost."""
    made: int = 0

    def forget(self, *, anew: bool = False) -> None:
        """It reads nothing any more; `anew`: and it is another member from here on."""
        self.owns, self.told, self.epoch, self.needs, self.unsure = set(), set(), -1, "join", True
        if anew:
            self.member_id = ""

    def give_up(self) -> None:
        """What it was told to give up, it has; and takes what it was told to have."""
        if self.epoch > 0:
            self.owns = set(self.told)

    # --- the consumer protocol ---

    def beat(self, room: Room, *, lost: bool = False, slow: bool = False, says: bool = True) -> Any:
        """One heartbeat. `slow`: it reads on what it is told to give up; `says`: it says what it owns."""
        if not self.member_id:
            self.made += 1
            self.member_id = f"{self.name}-{self.made}"
        if self.epoch <= 0:
            names = {"subscribed_topic_names": self.topics, "subscribed_topic_regex": self.regex}
            answer = room.beat(
                self.member_id, 0, instance_id=self.instance, server_assignor=self.assignor, **names
            )
        elif self.unsure:
            answer = room.beat(
                self.member_id, self.epoch, instance_id=self.instance, owned=owned(self.owns),
                rebalance_timeout_ms=30_000, subscribed_topic_names=self.topics,
                subscribed_topic_regex=self.regex or "", server_assignor=self.assignor,
            )  # fmt: skip
        else:
            said = {"owned": owned(self.owns)} if says else {}
            answer = room.beat(self.member_id, self.epoch, instance_id=self.instance, **said)
        self.unsure = lost
        if not lost:
            self._hears(answer, slow)
        return answer

    def _hears(self, answer: Any, slow: bool) -> None:
        wrong = error(answer)
        if wrong in DROPS:
            self.forget(anew=wrong is Errors.FENCED_INSTANCE_ID)
        elif wrong is not Errors.NONE:
            if self.epoch <= 0 or wrong is Errors.GROUP_ID_NOT_FOUND:
                self.forget()
        else:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.told = {
                    (t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions
                }
                if not slow or not self.owns - self.told:
                    self.give_up()

    def leave(self, room: Room, epoch: int = -1) -> None:
        """It leaves, for good or (-2) for a while."""
        if self.classic:
            who = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
            room.ask(LeaveGroupRequest(group_id="g", members=(who,)), 5, self.name)
        elif self.epoch > 0:
            room.beat(self.member_id, epoch, instance_id=self.instance)
        self.forget(anew=True)

    # --- the classic one ---

    def step(self, room: Room, *, lost: bool = False) -> Any:
        """What it does next: it joins, syncs or heartbeats. The answer, or None where it has to wait."""
        if self.needs == "join":
            return self._join(room, lost)
        if self.needs == "sync":
            return self._sync(room, lost)
        who = {"member_id": self.member_id, "group_instance_id": self.instance, "generation_id": self.epoch}
        answer = room.ask(HeartbeatRequest(group_id="g", **who), 4, self.name)
        if error(answer) is Errors.REBALANCE_IN_PROGRESS:
            self.needs = "join"
        self._is_gone(answer)
        return answer

    def _join(self, room: Room, lost: bool) -> Any:
        if self.eager:
            self.owns = set()
        names = {topic.id: topic.name for topic in room.topics.by_name.values()}
        self.owns = {(t, p) for t, p in self.owns if t in names}
        told = [(names[t], p) for t, p in sorted(self.owns)]
        said = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=tuple(TopicPartition(topic=name, partitions=(p,)) for name, p in told),
        )
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"\0\1" + encode(said, 1)),),
        )
        answer = room.ask(request, 9, self.name)
        if answer is None or lost:
            return answer
        return self.joined(room, answer)

    def joined(self, room: Room, answer: Any) -> Any:
        """It has the answer to its JoinGroup."""
        wrong = error(answer)
        if wrong is Errors.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return self._join(room, False)
        if wrong is Errors.NONE:
            self.member_id, self.epoch, self.needs = answer.member_id, answer.generation_id, "sync"
        self._is_gone(answer)
        return answer

    def _sync(self, room: Room, lost: bool) -> Any:
        group = room.group
        given: tuple[SyncGroupRequestAssignment, ...] = ()
        if isinstance(group, ClassicGroup) and group.leader == self.member_id:
            given = round_robin(group, room)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=given,
        )
        answer = room.ask(request, 5, self.name)
        if lost:
            self.needs = "join"
        elif answer is not None:
            self.synced(room, answer)
        return answer

    def synced(self, room: Room, answer: Any) -> None:
        """It has the answer to its SyncGroup."""
        if error(answer) is Errors.REBALANCE_IN_PROGRESS:
            self.needs = "join"
        elif error(answer) is Errors.NONE:
            read = read_assignment(answer.assignment)
            assert read is not None, answer
            by_name = room.topics.by_name
            told = {(by_name[name].id, p) for name, some in read.partitions for p in some if name in by_name}
            self.needs = "join" if self.owns - told else "heartbeat"
            self.owns = self.told = told
        self._is_gone(answer)

    def _is_gone(self, answer: Any) -> None:
        wrong = error(answer)
        if wrong in DROPS:
            self.forget(anew=True)
        elif wrong not in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS, Errors.MEMBER_ID_REQUIRED):
            self.forget()


def owned(units: Units) -> Owned:
    """Partitions by topic."""
    found: Owned = {}
    for topic, partition in sorted(units):
        found[topic] = (*found.get(topic, ()), partition)
    return found


def round_robin(group: ClassicGroup, room: Room) -> tuple[SyncGroupRequestAssignment, ...]:
    """What a leader gives: one partition after another of `orders`, to one member after another."""
    members = list(group.members)
    orders = room.topics.by_name.get("orders")
    count = orders.partitions if orders is not None else 0
    return tuple(
        SyncGroupRequestAssignment(
            member_id=member,
            assignment=write_assignment([("orders", tuple(range(i, count, len(members))))], b"\0\1"),
        )
        for i, member in enumerate(members)
    )
