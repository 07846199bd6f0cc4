"""A member of a classic group: it joins, syncs, heartbeats, and leaves with a reason.

A member is in one of four states.

- OUT: not in the group; `join` takes it in.
- STABLE: has a generation and an assignment, and heartbeats. Leaves it by `rejoin` becoming true (the
  coordinator says REBALANCE_IN_PROGRESS, the leader sees new partitions, something must be given up), by
  being thrown out (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: everything it held is lost) or by `leave`.
- FENCED: another member with the same instance id took its place. Final.
- LEFT: `leave` was called. Final.

Joining is not done behind the caller's back: heartbeats only set `rejoin`, and the next `join` or `ensure`
acts on it, so that partitions change hands only while the caller is not working on a record. With eager
assignors a member gives up everything before it rejoins; with cooperative ones it keeps what it has, gives up
what the new assignment takes from it, and rejoins once more so that it can be given to others.

Not here: fetching and positions (`consumer`), and max.poll.interval.ms (a caller that never calls `ensure`
again keeps its partitions as long as it heartbeats, until a rebalance runs out of its time).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from konvene.client.consumer.assignors import ASSIGNORS, Assignor, TopicInfo, topics_of
from konvene.client.consumer.protocol import (
    CONSUMER,
    Assigned,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from konvene.client.errors import BadResponse, ClientError, KafkaError, Misconfigured, raise_for
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.connection import Connection
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

__all__ = ["Member", "MemberSettings", "State"]

_THROWN_OUT = frozenset({Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION})
_ANSWER_SLACK_MS = 5_000

Callback = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]


class State(Enum):
    OUT = "out"
    STABLE = "stable"
    FENCED = "fenced"
    LEFT = "left"


class MemberSettings(NamedTuple):
    """How a member behaves; the names are those of Kafka's consumer configs."""

    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    """Kafka's max.poll.interval.ms, as a classic member sends it."""
    heartbeat_interval_ms: int = 3_000
    metadata_max_age_ms: int = 300_000
    """How often the leader looks for new partitions of its topics."""
    group_instance_id: str | None = None
    client_rack: str | None = None
    member_id: str | None = None
    """What a member of a consumer group calls itself; it makes an id up where this is None."""


class Member:
    """One member of one classic group. `assignors` in order of preference; all eager or all cooperative."""

    def __init__(
        self, cluster: Cluster, group_id: str, topics: Iterable[str], *,
        assignors: Sequence[str | Assignor] = ("range",), settings: MemberSettings | None = None,
        on_assigned: Callback | None = None, on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.group_id = group_id
        self.topics = tuple(sorted(set(topics)))
        self.assignors = tuple(_assignor(a) for a in assignors)
        self.settings = settings or MemberSettings()
        if len({a.cooperative for a in self.assignors}) != 1:
            raise Misconfigured("a member's assignors are all eager or all cooperative")
        self.cooperative = self.assignors[0].cooperative
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost

        self.state = State.OUT
        self.member_id = ""
        self.generation = -1
        self.joined_as = "", -1
        """Id and generation with which it was given its partitions: who commits what was read of them."""
        self.protocol: str | None = None
        self.leader = ""
        self.assignment: tuple[TopicPartition, ...] = ()
        self.rejoin = True
        self.reason: str | None = None
        """Why the next join is asked for, in our own words; JoinGroup v8 carries it."""
        self._counts: dict[str, int] = {}
        self._heartbeats: asyncio.Task[None] | None = None
        self._failure: ClientError | None = None

    def __repr__(self) -> str:
        rejoin = ", to rejoin" if self.rejoin and self.state is State.STABLE else ""
        return (
            f"<Member {self.member_id or '-'} of {self.group_id}: {self.state.value}, "
            f"generation {self.generation}, {len(self.assignment)} partitions{rejoin}>"
        )

    @property
    def is_leader(self) -> bool:
        return self.state is State.STABLE and self.leader == self.member_id

    # joining

    async def ensure(self) -> None:
        """Be in a stable generation: joins where the member is out or a rebalance is on.

        Raises `KafkaError` for what joining cannot mend, such as FENCED_INSTANCE_ID."""
        if self._failure is not None:
            raise self._failure
        while self.rejoin or self.state is State.OUT:
            await self.join()

    async def join(self, reason: str | None = None) -> None:
        """Join (again) and wait for the assignment: one whole rebalance.

        Returns with `rejoin` still true where the rebalance must go on (something was given up)."""
        if self.state in (State.FENCED, State.LEFT):
            raise self._failure or ClientError(f"this member of group {self.group_id} has left")
        self.reason = reason or self.reason
        await self._stop_heartbeats()
        if self.assignment and not self.cooperative:
            await self._revoke(self.assignment)
        patience = self.cluster.patience(self.settings.rebalance_timeout_ms)
        while True:
            try:
                assigned = await self._rebalance()
                break
            except KafkaError as error:
                if not await self._recover(error):
                    self._failure = error
                    raise
                if error.code == Errors.MEMBER_ID_REQUIRED:
                    continue
                await patience.pause(error)
            except ClientError as error:
                await patience.after(error)
        self.state, self.rejoin, self.reason = State.STABLE, False, None
        self.joined_as = self.member_id, self.generation
        self._start_heartbeats()
        await self._take(assigned)

    async def _rebalance(self) -> tuple[TopicPartition, ...]:
        joined = await self._join()
        self.member_id, self.generation = joined.member_id, joined.generation_id
        self.protocol, self.leader = joined.protocol_name, joined.leader
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == joined.member_id:
            assignments = await self._assign(joined)
        request = SyncGroupRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id, protocol_type=CONSUMER,
            protocol_name=self.protocol, assignments=assignments,
        )  # fmt: skip
        answer: SyncGroupResponse = await self._ask(request, self.settings.rebalance_timeout_ms)
        raise_for(answer.error_code, about=f"group {self.group_id}")
        try:
            return read_assignment(bytes(answer.assignment)).partitions
        except CodecError as error:
            raise BadResponse(f"the assignment in group {self.group_id}: {error}") from error

    async def _join(self) -> JoinGroupResponse:
        owned = self.assignment if self.cooperative else ()
        generation = self.generation if owned else -1
        # Java's cooperative members tell their generation once more in the user data.
        user_data = generation.to_bytes(4, "big", signed=True) if self.cooperative else None
        metadata = write_subscription(
            Subscription(self.topics, owned, generation, self.settings.client_rack, user_data=user_data)
        )
        request = JoinGroupRequest(
            group_id=self.group_id, session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms, member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id, protocol_type=CONSUMER,
            protocols=tuple(JoinGroupRequestProtocol(name=a.name, metadata=metadata) for a in self.assignors),
            reason=self.reason,
        )  # fmt: skip
        answer: JoinGroupResponse = await self._ask(request, self.settings.rebalance_timeout_ms)
        if answer.error_code == Errors.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        raise_for(answer.error_code, about=f"group {self.group_id}")
        return answer

    async def _assign(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """What the leader does: look at the topics, ask the chosen assignor, hand out its answer.

        A static leader that came back to a generation that stands gives out nothing, but watches the topics
        from here on, as Java's does."""
        members = {}
        for m in joined.members:
            try:
                members[m.member_id] = read_subscription(bytes(m.metadata), m.group_instance_id)
            except CodecError as error:
                raise BadResponse(f"the subscription of {m.member_id}: {error}") from error
        assignor = next((a for a in self.assignors if a.name == joined.protocol_name), None)
        if assignor is None:
            raise BadResponse(f"group {self.group_id} chose {joined.protocol_name}, which is not one of ours")
        topics = await self._look_at(topics_of(members))
        self._counts = {name: info.partitions for name, info in topics.items()}
        if joined.skip_assignment:
            return ()
        given = assignor.assign(topics, members)
        return tuple(
            SyncGroupRequestAssignment(member_id=m, assignment=write_assignment(Assigned(tuple(tps))))
            for m, tps in given.items()
        )

    async def _look_at(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Topics with their partitions and racks; those that do not exist are left out."""
        wanted = list(names)
        metadata = await self.cluster.refresh(wanted)
        found = {}
        for name in wanted:
            topic = metadata.topics[name]
            if topic.error_code or not topic.partitions:
                continue
            racks = tuple(
                frozenset(r for n in p.replicas if (node := metadata.nodes.get(n)) and (r := node.rack))
                for p in topic.partitions
            )
            found[name] = TopicInfo(len(topic.partitions), racks if any(racks) else ())
        return found

    async def _take(self, assigned: tuple[TopicPartition, ...]) -> None:
        """Go from what is held to what was assigned, telling the caller in the order give up, take over."""
        gone = tuple(tp for tp in self.assignment if tp not in assigned)
        new = tuple(tp for tp in assigned if tp not in self.assignment)
        if gone:
            await self._revoke(gone)
            self.ask_to_rejoin(f"need to revoke partitions {', '.join(map(str, gone))} and rejoin")
        self.assignment = assigned
        if self.on_assigned is not None:
            await self.on_assigned(new)

    async def _revoke(self, partitions: tuple[TopicPartition, ...]) -> None:
        if self.on_revoked is not None:
            await self.on_revoked(partitions)
        self.assignment = tuple(tp for tp in self.assignment if tp not in partitions)

    def ask_to_rejoin(self, reason: str) -> None:
        """Have the next `ensure` rebalance the group, for this reason."""
        self.rejoin, self.reason = True, reason

    async def _recover(self, error: KafkaError) -> bool:
        """What an error in a rebalance changes; False where trying again cannot help."""
        if error.code == Errors.MEMBER_ID_REQUIRED:
            return True
        if error.code in _THROWN_OUT:
            await self._lose(error)
            return True
        if error.code == Errors.FENCED_INSTANCE_ID:
            self.state = State.FENCED
            return False
        return error.code == Errors.REBALANCE_IN_PROGRESS or error.retriable

    async def _lose(self, error: KafkaError) -> None:
        """The coordinator does not know this member (any more): what it held is not its own."""
        lost, self.assignment = self.assignment, ()
        if error.code == Errors.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation, self.state, self.rejoin = -1, State.OUT, True
        self.reason = f"was told {error.name}"
        if lost and self.on_lost is not None:
            await self.on_lost(lost)

    # staying

    async def heartbeat(self) -> None:
        """Say once that this member lives. Sets `rejoin` where the coordinator asks for it."""
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
        )  # fmt: skip
        generation = self.generation
        answer: HeartbeatResponse = await self._ask(request)
        if answer.error_code == 0 or generation != self.generation:
            return
        error = KafkaError(answer.error_code, about=f"group {self.group_id}")
        if error.code == Errors.REBALANCE_IN_PROGRESS:
            self.ask_to_rejoin(self.reason or "group is already rebalancing")
        elif error.code in _THROWN_OUT:
            await self._lose(error)
        else:
            if error.code == Errors.FENCED_INSTANCE_ID:
                self.state = State.FENCED
            self._failure = error
            raise error

    def _start_heartbeats(self) -> None:
        self._heartbeats = asyncio.ensure_future(self._keep_alive())

    async def _stop_heartbeats(self) -> None:
        task, self._heartbeats = self._heartbeats, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_alive(self) -> None:
        """Heartbeats for one generation. Stays on while `rejoin` is set: the session must not run out."""
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while self.state is State.STABLE:
            await asyncio.sleep(self.settings.heartbeat_interval_ms / 1000)
            try:
                await self.heartbeat()
                if self.is_leader and loop.time() - looked_at > self.settings.metadata_max_age_ms / 1000:
                    looked_at = loop.time()
                    await self._watch_topics()
            except ClientError as error:
                if not error.retriable:
                    self._failure = error
                    return

    async def _watch_topics(self) -> None:
        now = {name: info.partitions for name, info in (await self._look_at(self._counts)).items()}
        changed = sorted(name for name in self._counts | now if self._counts.get(name) != now.get(name))
        if changed:
            self.ask_to_rejoin(f"cached metadata has changed: the partitions of {', '.join(changed)}")

    # leaving

    async def leave(self, reason: str = "the consumer is being closed") -> None:
        """Give everything up and leave. A static member stays in the group until its session runs out."""
        await self._stop_heartbeats()
        if self.assignment:
            await self._revoke(self.assignment)
        was, self.state = self.state, State.LEFT
        if was is not State.STABLE:
            self.cluster.release(self)  # A JoinGroup may still wait there, and would hold up the LeaveGroup.
        static = self.settings.group_instance_id is not None
        if was in (State.FENCED, State.LEFT) or not self.member_id or static:
            self.cluster.release(self)
            return
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=None, reason=reason)

        def speak(connection: Connection) -> tuple[Struct, int]:
            version = connection.version_of(BY_NAME["LeaveGroup"].key)
            if version < 3:
                return LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id), version
            return LeaveGroupRequest(group_id=self.group_id, members=(identity,)), version

        answer: LeaveGroupResponse = await self.cluster.ask_coordinator(
            self.group_id, speak, lambda a: a.error_code, timeout_ms=5_000, lane=self
        )
        self.cluster.release(self)
        code = answer.error_code or next((m.error_code for m in answer.members), 0)
        if code not in (0, Errors.UNKNOWN_MEMBER_ID):
            raise KafkaError(code, about=f"leaving group {self.group_id}")

    async def _ask(self, request: Struct, longest_ms: int | None = None) -> Any:
        return await self.cluster.ask_coordinator(
            self.group_id, request, lambda a: a.error_code, lane=self,
            answer_timeout_ms=None if longest_ms is None else longest_ms + _ANSWER_SLACK_MS,
        )  # fmt: skip


def _assignor(given: str | Assignor) -> Assignor:
    if isinstance(given, Assignor):
        return given
    known: Mapping[str, Assignor] = ASSIGNORS
    if given not in known:
        raise Misconfigured(f"there is no assignor {given}: choose from {', '.join(sorted(known))}")
    return known[given]
