"""Random lives of classic groups: whatever members, timers and restarts do, the invariants hold.

G1  replay of the log equals the live state at every offset; G4  one outcome is one batch; G5  a decision
does not change the state, only replay does; G11  timers belong to members or rebalances that exist;
G12  every request is answered once, or waits for a reason; C1  the generation rises, one leader who is a
member; C3  a stable member holds what the leader gave it; C5  no more members than `group.max.size`;
and every generation that rose was told why.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.groups.world import State, World, durable, replayed

from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

WHO = st.sampled_from(["ann", "bob", "cas", "dan", "eve"])
PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")])
MAX_SIZE = 4


class ClassicGroups(RuleBasedStateMachine):
    """Five clients, one group; some of them static."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World({"group.max.size": str(MAX_SIZE), "group.initial.rebalance.delay.ms": "1000"})
        self.members: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.given: dict[str, bytes] = {}
        self.highest = 0
        self.told: set[int] = set()

    # --- what clients do ---

    def ask(self, who: str, request: Any, version: int) -> Any:
        before = copy.deepcopy((self.world.shard.groups, self.world.shard.offsets))
        live = self.world.shard.handle
        shard = self.world.shard

        def decide(asked: Any, context: Any) -> Any:
            outcome = live(asked, context)
            # G5: between the decision and its replay nothing has changed.
            assert (shard.groups, shard.offsets) == before
            return outcome

        self.world.shard = _Deciding(shard, decide)  # type: ignore[assignment]
        batches = len(self.world.log)
        try:
            answer = self.world.ask(who, request, version)
        finally:
            self.world.shard = shard
        assert len(self.world.log) <= batches + 1  # G4
        self.learn()
        return answer

    def learn(self) -> None:
        for who, answer in self.world.answers.items():
            name = type(answer).__name__
            told: Any = answer
            if name == "JoinGroupResponse" and told.error_code == Errors.NONE:
                self.members[who], self.generations[who] = told.member_id, told.generation_id
            elif name == "JoinGroupResponse" and told.error_code == Errors.MEMBER_ID_REQUIRED:
                self.members[who] = told.member_id
            elif told in (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID) or (
                name == "JoinGroupResponse" and told.error_code == Errors.UNKNOWN_MEMBER_ID
            ):
                self.members.pop(who, None)

    @rule(who=WHO, protocols=PROTOCOLS, static=st.booleans(), version=st.sampled_from([2, 5, 9]))
    def join(self, who: str, protocols: tuple[str, ...], static: bool, version: int) -> None:
        if who in self.world.waiting.values():
            return
        static = static and version >= 5 and who in ("dan", "eve")
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.members.get(who, ""),
            group_instance_id=who if static else None,
            protocol_type="consumer",
            protocols=tuple(JoinGroupRequestProtocol(name=p, metadata=who.encode()) for p in protocols),
        )
        self.ask(who, request, version)

    @precondition(lambda self: self.members)
    @rule(who=WHO)
    def sync(self, who: str) -> None:
        if who in self.world.waiting.values() or who not in self.members:
            return
        group = self.world.shard.groups.get("g")
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        leads = group is not None and group.leader == self.members[who]
        if leads and group is not None:
            given = {m: f"{m}@{group.generation}".encode() for m in group.members}
            assignments = tuple(
                SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in given.items()
            )
            if group.state is State.COMPLETING_REBALANCE and self.generations.get(who) == group.generation:
                self.given = given
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generations.get(who, -1),
            member_id=self.members[who],
            assignments=assignments,
        )
        self.ask(who, request, 5)

    @rule(who=WHO)
    def heartbeat(self, who: str) -> None:
        if who not in self.world.waiting.values():
            request = HeartbeatRequest(
                group_id="g",
                generation_id=self.generations.get(who, -1),
                member_id=self.members.get(who, ""),
            )
            self.ask(who, request, 4)

    @rule(who=WHO)
    def leave(self, who: str) -> None:
        if who not in self.world.waiting.values():
            leaving = MemberIdentity(member_id=self.members.pop(who, "nobody"))
            self.ask(who, LeaveGroupRequest(group_id="g", members=(leaving,)), 5)

    @rule(who=WHO, offset=st.integers(0, 100), alone=st.booleans())
    def commit(self, who: str, offset: int, alone: bool) -> None:
        if who in self.world.waiting.values():
            return
        partition = OffsetCommitRequestPartition(
            partition_index=offset % 6, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1 if alone else self.generations.get(who, -1),
            member_id="" if alone else self.members.get(who, ""),
            topics=(OffsetCommitRequestTopic(name="orders", partitions=(partition,)),),
        )
        self.ask(who, request, 9)

    @rule(ms=st.sampled_from([1, 500, 1000, 5000, 10_000, 20_000, 300_000]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)
        self.learn()

    @rule()
    def restart(self) -> None:
        """Back to what the log says: generations that never were stable are forgotten, as by Kafka."""
        self.world.restart()
        group = self.world.shard.groups.get("g")
        self.highest = group.generation if group is not None else 0

    # --- what must hold ---

    @invariant()
    def replay_equals_live(self) -> None:
        """G1. A group in the middle of a rebalance is still what the log last said of it."""
        again = replayed(self.world.log)
        live = self.world.shard
        assert again.offsets == live.offsets
        assert again.groups.keys() == live.groups.keys()
        for group_id, group in live.groups.items():
            stored = again.groups[group_id]
            if group.state in (State.STABLE, State.EMPTY) and group.protocol_type is not None:
                assert durable(group) == stored
            else:
                assert stored.generation <= group.generation

    @invariant()
    def group_is_sound(self) -> None:
        """C1, C3, C5 and the books that the group keeps of itself."""
        group = self.world.shard.groups.get("g")
        if group is None:
            return
        assert group.generation >= self.highest
        self.highest = group.generation
        assert (group.leader in group.members) == bool(group.members)
        assert len(group.members) <= MAX_SIZE or group.state is State.PREPARING_REBALANCE
        assert group.waiting == sum(m.join_waiter is not None for m in group.members.values())
        assert group.instances == {
            m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None
        }
        assert set(group.protocol_counts) == {n for m in group.members.values() for n, _ in m.protocols}
        assert group.pending_syncs <= set(group.members)
        assert (group.state is State.EMPTY) <= (not group.members)
        if group.state is State.STABLE:
            for member in group.members.values():
                generation = member.assignment.partition(b"@")[2]
                assert not generation or int(generation) <= group.generation

    @invariant()
    def timers_and_waiters_have_a_reason(self) -> None:
        """G11, G12."""
        group = self.world.shard.groups.get("g")
        waiters: set[int] = set()
        known: set[str] = set()
        if group is not None:
            known = set(group.members) | group.pending_joins
            for m in group.members.values():
                waiters |= {w for w in (m.join_waiter, m.sync_waiter) if w is not None}
        assert set(self.world.waiting) == waiters
        sessions = {key[2] for key in self.world.timers if key[0] == "session"}
        assert sessions <= known
        if group is not None and group.state is State.PREPARING_REBALANCE:
            assert ("join", "g") in self.world.timers

    @invariant()
    def every_generation_was_told(self) -> None:
        """Each generation that is over has its story, with at least one cause."""
        self.told |= {r.story.epoch for r in self.world.why}
        assert all(r.story.causes for r in self.world.why)
        group = self.world.shard.groups.get("g")
        if group is not None and group.state in (State.STABLE, State.EMPTY) and group.generation:
            assert group.generation in self.told


class _Deciding:
    """A shard whose decisions are watched."""

    def __init__(self, shard: GroupShard, handle: Any) -> None:
        self._shard = shard
        self.handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)


TestClassicGroups = ClassicGroups.TestCase
TestClassicGroups.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
