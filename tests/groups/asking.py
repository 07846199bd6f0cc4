"""Requests of classic members in few words, and a cast of members who know their lines."""

from __future__ import annotations

from typing import Any

from konvene.codec.compile import encode
from konvene.groups.classic.group import ClassicGroup, State
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.sim.transcript.sandbox import Sandbox

SESSION_MS, REBALANCE_MS = 10_000, 20_000


def subscription(topics: tuple[str, ...] = ("orders",), note: str = "") -> bytes:
    """A consumer's metadata, version 1."""
    return b"\0\1" + encode(ConsumerProtocolSubscription(topics=topics, user_data=note.encode()), 1)


def join_request(
    member_id: str = "",
    instance_id: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes | None = None,
    **more: Any,
) -> JoinGroupRequest:
    metadata = subscription() if metadata is None else metadata
    told: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocols": tuple(JoinGroupRequestProtocol(name=p, metadata=metadata) for p in protocols),
    }
    return JoinGroupRequest(**told | more)


def commit_request(
    offset: int = 7,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    partitions: tuple[int, ...] = (0,),
    group_id: str = "g",
    metadata: str = "",
    topic: str = "orders",
) -> OffsetCommitRequest:
    told = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata=metadata)
        for p in partitions
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=told),),
    )


def fetch_request(
    partitions: tuple[int, ...] = (0,), group_id: str = "g", *, stable: bool = False
) -> OffsetFetchRequest:
    topics = (OffsetFetchRequestTopics(name="orders", partition_indexes=partitions),)
    groups = (OffsetFetchRequestGroup(group_id=group_id, topics=topics),)
    return OffsetFetchRequest(groups=groups, require_stable=stable)


class Cast:
    """Members by name in group "g" of a life. Names in capitals are static."""

    def __init__(self, **settings: str) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.life = Sandbox({"group.initial.rebalance.delay.ms": "0"} | named)
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}

    @property
    def group(self) -> ClassicGroup:
        return self.life.group("g")

    @property
    def group_or_none(self) -> ClassicGroup | None:
        return self.life.shard.groups.get("g")

    def answer(self, who: str) -> Any:
        """What was answered last."""
        return self.life.answers.get(who)

    def _learn(self) -> None:
        for who in list(self.life.answers):
            told = self.answer(who)
            if type(told).__name__ == "JoinGroupResponse" and told.member_id and who != "other":
                self.ids[who] = told.member_id
                if not told.error_code:
                    self.generations[who] = told.generation_id

    def ask(self, who: str, request: Any, version: int) -> Any:
        answer = self.life.ask(who, request, version, client_id=who)
        self._learn()
        return answer

    def advance(self, ms: int) -> None:
        self.life.advance(ms)
        self._learn()

    def join(self, who: str, version: int = 9, **more: Any) -> Any:
        """A JoinGroup under the id that the member has, if any; a new dynamic one comes back with its own."""
        static = who if who.isupper() and version >= 5 else None
        told = {"member_id": self.ids.get(who, ""), "instance_id": static} | more
        answer = self.ask(who, join_request(**told), version)
        if getattr(answer, "error_code", 0) == 79:
            answer = self.ask(who, join_request(**told | {"member_id": answer.member_id}), version)
        return answer

    def anew(self, who: str, version: int = 9, **more: Any) -> Any:
        """A JoinGroup of one who was started anew, and so has no id."""
        self.ids.pop(who, None)
        return self.join(who, version, **more)

    def sync(self, who: str, version: int = 5, **more: Any) -> Any:
        """A SyncGroup; the leader gives everybody "name@generation" of what it was told."""
        generation = self.generations.get(who, -1)
        given: tuple[SyncGroupRequestAssignment, ...] = ()
        if self.group.leader == self.ids[who]:
            given = tuple(
                SyncGroupRequestAssignment(member_id=m, assignment=f"{m}@{generation}".encode())
                for m in self.group.members
            )
        told = {"group_id": "g", "generation_id": generation, "member_id": self.ids[who]} | more
        return self.ask(who, SyncGroupRequest(**{"assignments": given} | told), version)

    def heartbeat(self, who: str, **more: Any) -> Any:
        told = {"group_id": "g", "generation_id": self.generations[who], "member_id": self.ids[who]} | more
        return self.ask(who, HeartbeatRequest(**told), 4)

    def commit(self, who: str, offset: int = 7, **more: Any) -> Any:
        told = {"member_id": self.ids[who], "generation": self.generations[who]} | more
        return self.ask(who, commit_request(offset, **told), 8)

    def leave(self, *members: MemberIdentity) -> Any:
        return self.ask("admin", LeaveGroupRequest(group_id="g", members=members), 5)

    def fetched(self, partition: int = 0) -> int:
        """The committed offset."""
        answer = self.ask("admin", fetch_request((partition,)), 9)
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset

    def stable(self, *who: str, **more: Any) -> None:
        """All of them in one generation, with their assignments."""
        for name in who:
            self.join(name, **more)
        self.advance(1000)
        for name in sorted(who, key=lambda name: self.ids[name] != self.group.leader):
            self.sync(name)
        assert self.group.state is State.STABLE
        assert len(self.group.members) == len(who)
