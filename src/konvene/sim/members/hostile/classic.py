"""A hostile or buggy client of classic groups: it sends arbitrary requests, also in the name of other
members.

It knows the member ids and generations of all members, as an eavesdropper would, and uses them or values
close to them. As a leader it assigns nothing, or garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.groups.classic.group import ClassicGroup
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.sim.world.process import Answer, Process

if TYPE_CHECKING:
    from konvene.sim.world.world import World

INTERVAL_MS = 4_000
METADATA = (b"", b"\0\1", b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0", b"\xff" * 40)


class HostileClassic(Process):
    """A hostile client of classic groups."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name)
        self.group = group
        self.assigned_id = ""
        """Member id that the coordinator assigned to it."""

    def start(self) -> None:
        super().start()
        self._tick()

    def _tick(self) -> None:
        self.schedule(self.world.random.randint(1, INTERVAL_MS), self._tick)
        self.world.random.choice(ACTIONS)(self)

    # --- invented values ---

    def _classic_group(self) -> ClassicGroup:
        return self.world.group(self.group)

    def _any_member_id(self) -> str:
        """Draw a member id: its own, that of another member, or an empty one."""
        random = self.world.random
        ids = [self.assigned_id, self.assigned_id, "", f"{self.name}-0", *self._classic_group().members]
        return random.choice(ids)

    def _any_instance_id(self) -> str | None:
        random = self.world.random
        return random.choice([None, None, self.name, *self._classic_group().instances])

    def _any_generation(self) -> int:
        random = self.world.random
        return self._classic_group().generation + random.choice([0, 0, 0, 0, 1, -1, -1_000, 2_000_000_000])

    # --- actions ---

    def join(self) -> None:
        """Join with arbitrary protocols and metadata."""
        random = self.world.random
        names = random.sample(["range", "roundrobin", "cooperative-sticky", "sticky"], random.randint(1, 3))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=random.choice([6_000, 10_000, 60_000, 1, 2_000_000_000]),
            rebalance_timeout_ms=random.choice([1_000, 10_000, 60_000]),
            member_id=self._any_member_id(),
            group_instance_id=self._any_instance_id(),
            protocol_type=random.choice(["consumer", "consumer", "consumer", "connect", ""]),
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=random.choice(METADATA)) for name in names
            ),
        )
        self.send(request, random.choice([9, 9, 5, 4, 2]), self._joined, 70_000)

    def _joined(self, answer: Answer) -> None:
        if not isinstance(answer, JoinGroupResponse) or not answer.member_id:
            return
        self.assigned_id = answer.member_id
        if not answer.error_code and self.world.random.random() < 0.7:
            self.lead(answer)
        elif self.world.random.random() < 0.7:
            self.join_again(answer.member_id)

    def join_again(self, member_id: str) -> None:
        """Join with the member id that the coordinator assigned, as a correct client does."""
        names = self._common_protocols()
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.world.random.choice([6_000, 60_000]),
            rebalance_timeout_ms=self.world.random.choice([1_000, 60_000]),
            member_id=member_id,
            protocol_type="consumer",
            protocols=tuple(JoinGroupRequestProtocol(name=n, metadata=METADATA[2]) for n in names),
        )
        self.send(request, 9, self._joined, 70_000)

    def _common_protocols(self) -> list[str]:
        known = [name for m in self._classic_group().members.values() for name, _ in m.protocols]
        return list(dict.fromkeys(known)) or ["range"]

    def lead(self, answer: JoinGroupResponse) -> None:
        """Send garbage as the assignments of some members, whether this client is the leader or not."""
        random = self.world.random
        members = [*(m.member_id for m in answer.members), *self._classic_group().members, "nobody"]
        assignees = random.sample(members, random.randint(0, len(members)))
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            protocol_type=random.choice([None, "consumer"]),
            protocol_name=random.choice([None, answer.protocol_name, "sticky"]),
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=m, assignment=random.choice(METADATA)) for m in assignees
            ),
        )
        self.send(request, 5, lambda answer: None, 70_000)

    def sync(self) -> None:
        random = self.world.random
        assignees = [*self._classic_group().members, "nobody"][: random.randint(0, 3)]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._any_generation(),
            member_id=self._any_member_id(),
            group_instance_id=self._any_instance_id(),
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=m, assignment=random.choice(METADATA)) for m in assignees
            ),
        )
        self.send(request, 5, lambda answer: None)

    def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self._any_generation(),
            member_id=self._any_member_id(),
            group_instance_id=self._any_instance_id(),
        )
        self.send(request, 4, lambda answer: None)

    def commit(self) -> None:
        """Commit arbitrary offsets, also of unknown partitions."""
        random = self.world.random
        partition = OffsetCommitRequestPartition(
            partition_index=random.choice(
                [0, 1, 5, -1, self.world.partition_counts()["orders"], 2_000_000_000]
            ),
            committed_offset=random.choice([0, 7, -1, 1 << 40]),
            committed_leader_epoch=random.choice([-1, 0, 7]),
            committed_metadata=random.choice(["", None, "graffiti", "großes Ⓚ", "x" * 5_000]),
        )
        request = OffsetCommitRequest(
            group_id=random.choice([self.group, self.group, self.group, "gone"]),
            generation_id_or_member_epoch=self._any_generation(),
            member_id=self._any_member_id(),
            group_instance_id=self._any_instance_id(),
            topics=(
                OffsetCommitRequestTopic(
                    name=random.choice(["orders", "extra", "none"]), partitions=(partition,)
                ),
            ),
        )
        self.send(request, random.choice([8, 9]), lambda answer: None)

    def leave(self) -> None:
        """Leave, or remove other members."""
        random = self.world.random
        leaving = tuple(
            MemberIdentity(member_id=self._any_member_id(), group_instance_id=self._any_instance_id())
            for _ in range(random.randint(1, 3))
        )
        self.send(LeaveGroupRequest(group_id=self.group, members=leaving), 5, lambda answer: None)


ACTIONS: tuple[Callable[[HostileClassic], None], ...] = (
    HostileClassic.join,
    HostileClassic.join,
    HostileClassic.sync,
    HostileClassic.heartbeat,
    HostileClassic.heartbeat,
    HostileClassic.commit,
    HostileClassic.leave,
)
