"""Builders of requests of classic members, and a group whose members send them."""

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
    """Return a consumer's protocol metadata, version 1."""
    return b"\0\1" + encode(ConsumerProtocolSubscription(topics=topics, user_data=note.encode()), 1)


def join_request(
    member_id: str = "",
    instance_id: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes | None = None,
    **more: Any,
) -> JoinGroupRequest:
    metadata = subscription() if metadata is None else metadata
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocols": tuple(JoinGroupRequestProtocol(name=p, metadata=metadata) for p in protocols),
    }
    return JoinGroupRequest(**fields | more)


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
    rows = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata=metadata)
        for p in partitions
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=rows),),
    )


def fetch_request(
    partitions: tuple[int, ...] = (0,), group_id: str = "g", *, stable: bool = False
) -> OffsetFetchRequest:
    topics = (OffsetFetchRequestTopics(name="orders", partition_indexes=partitions),)
    groups = (OffsetFetchRequestGroup(group_id=group_id, topics=topics),)
    return OffsetFetchRequest(groups=groups, require_stable=stable)


class Cast:
    """Members of group "g" in a sandbox, by name. Members with upper-case names are static."""

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

    def answer(self, name: str) -> Any:
        """Return a client's last response."""
        return self.life.answers.get(name)

    def _update_members(self) -> None:
        for name in list(self.life.answers):
            response = self.answer(name)
            if type(response).__name__ == "JoinGroupResponse" and response.member_id and name != "other":
                self.ids[name] = response.member_id
                if not response.error_code:
                    self.generations[name] = response.generation_id

    def ask(self, name: str, request: Any, version: int) -> Any:
        answer = self.life.ask(name, request, version, client_id=name)
        self._update_members()
        return answer

    def advance(self, ms: int) -> None:
        self.life.advance(ms)
        self._update_members()

    def join(self, name: str, version: int = 9, **more: Any) -> Any:
        """Send a JoinGroup with the member's current id; a new dynamic member joins again with its assigned
        id."""
        static = name if name.isupper() and version >= 5 else None
        fields = {"member_id": self.ids.get(name, ""), "instance_id": static} | more
        answer = self.ask(name, join_request(**fields), version)
        if getattr(answer, "error_code", 0) == 79:
            answer = self.ask(name, join_request(**fields | {"member_id": answer.member_id}), version)
        return answer

    def anew(self, name: str, version: int = 9, **more: Any) -> Any:
        """Send a JoinGroup of a restarted member, which has no member id."""
        self.ids.pop(name, None)
        return self.join(name, version, **more)

    def sync(self, name: str, version: int = 5, **more: Any) -> Any:
        """Send a SyncGroup; the leader assigns "name@generation" to every member."""
        generation = self.generations.get(name, -1)
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if self.group.leader == self.ids[name]:
            assignments = tuple(
                SyncGroupRequestAssignment(member_id=m, assignment=f"{m}@{generation}".encode())
                for m in self.group.members
            )
        fields = {"group_id": "g", "generation_id": generation, "member_id": self.ids[name]} | more
        return self.ask(name, SyncGroupRequest(**{"assignments": assignments} | fields), version)

    def heartbeat(self, name: str, **more: Any) -> Any:
        fields = {
            "group_id": "g",
            "generation_id": self.generations[name],
            "member_id": self.ids[name],
        } | more
        return self.ask(name, HeartbeatRequest(**fields), 4)

    def commit(self, name: str, offset: int = 7, **more: Any) -> Any:
        fields = {"member_id": self.ids[name], "generation": self.generations[name]} | more
        return self.ask(name, commit_request(offset, **fields), 8)

    def leave(self, *members: MemberIdentity) -> Any:
        return self.ask("admin", LeaveGroupRequest(group_id="g", members=members), 5)

    def fetched(self, partition: int = 0) -> int:
        """Return the committed offset of a partition."""
        answer = self.ask("admin", fetch_request((partition,)), 9)
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset

    def stable(self, *names: str, **more: Any) -> None:
        """Join the members and sync them, so that the group is stable."""
        for name in names:
            self.join(name, **more)
        self.advance(1000)
        for name in sorted(names, key=lambda name: self.ids[name] != self.group.leader):
            self.sync(name)
        assert self.group.state is State.STABLE
        assert len(self.group.members) == len(names)
