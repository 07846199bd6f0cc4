"""A member of a classic group: joins, syncs, heartbeats and leaves with a reason.

States:

- OUT: not in the group; `join` joins it.
- STABLE: has a generation and an assignment, and sends heartbeats. It ends when `rejoin` is set (after
  REBALANCE_IN_PROGRESS, when the leader detects new partitions, or when a partition must be revoked), when
  the member is removed (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: all partitions are lost), or by `leave`.
- FENCED: another member uses the same instance id. Final.
- LEFT: `leave` was called. Final.

Heartbeats only set `rejoin`; the next `join` or `ensure` rejoins, so that partitions change hands only while
the caller processes no record. With eager assignors a member revokes all partitions before it rejoins. With
cooperative ones it keeps its partitions, revokes those that the new assignment takes away, and rejoins once
more so that they can be assigned to others.

Fetching and positions are in `consumer`. max.poll.interval.ms is not enforced: a member that never calls
`ensure` again keeps its partitions while it heartbeats, until a rebalance times out."""

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

_REMOVED = frozenset({Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION})
_ANSWER_SLACK_MS = 5_000

Callback = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]


class State(Enum):
    OUT = "out"
    STABLE = "stable"
    FENCED = "fenced"
    LEFT = "left"


class MemberSettings(NamedTuple):
    """Settings of a member, under the names of Kafka's consumer configs."""

    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    """`max.poll.interval.ms`, which a classic member sends as its rebalance timeout."""
    heartbeat_interval_ms: int = 3_000
    metadata_max_age_ms: int = 300_000
    """Interval at which the leader checks its topics for new partitions."""
    group_instance_id: str | None = None
    client_rack: str | None = None
    member_id: str | None = None
    """Member id in a consumer group; random if None."""


class Member:
    """A member of a classic group.

    `assignors` are in order of preference, all eager or all cooperative. The callbacks run within `ensure`,
    `join` and `leave`. Raises `Misconfigured` for unknown or mixed assignors."""

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
        """Member id and generation of the current assignment, for commits in transactions."""
        self.protocol: str | None = None
        self.leader = ""
        self.assignment: tuple[TopicPartition, ...] = ()
        self.rejoin = True
        self.reason: str | None = None
        """Reason of the next join, sent from JoinGroup v8 on."""
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
        """Join unless the member is in a stable generation without a pending rebalance.

        Raises `KafkaError` for an error that a retry cannot resolve, such as FENCED_INSTANCE_ID."""
        if self._failure is not None:
            raise self._failure
        while self.rejoin or self.state is State.OUT:
            await self.join()

    async def join(self, reason: str | None = None) -> None:
        """Join or rejoin and wait for the assignment.

        `rejoin` is still set afterwards if partitions were revoked and another rebalance is needed."""
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
        await self._apply(assigned)

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
        response: SyncGroupResponse = await self._request(request, self.settings.rebalance_timeout_ms)
        raise_for(response.error_code, about=f"group {self.group_id}")
        try:
            return read_assignment(bytes(response.assignment)).partitions
        except CodecError as error:
            raise BadResponse(f"the assignment in group {self.group_id}: {error}") from error

    async def _join(self) -> JoinGroupResponse:
        owned = self.assignment if self.cooperative else ()
        generation = self.generation if owned else -1
        # Java's cooperative members send their generation in the user data as well.
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
        response: JoinGroupResponse = await self._request(request, self.settings.rebalance_timeout_ms)
        if response.error_code == Errors.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        raise_for(response.error_code, about=f"group {self.group_id}")
        return response

    async def _assign(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """Compute the assignment of the group as its leader.

        A static leader that rejoins a stable generation assigns nothing but watches the topics, as in Java.
        """
        members = {}
        for m in joined.members:
            try:
                members[m.member_id] = read_subscription(bytes(m.metadata), m.group_instance_id)
            except CodecError as error:
                raise BadResponse(f"the subscription of {m.member_id}: {error}") from error
        assignor = next((a for a in self.assignors if a.name == joined.protocol_name), None)
        if assignor is None:
            raise BadResponse(f"group {self.group_id} chose {joined.protocol_name}, which is not one of ours")
        topics = await self._topic_infos(topics_of(members))
        self._counts = {name: info.partitions for name, info in topics.items()}
        if joined.skip_assignment:
            return ()
        given = assignor.assign(topics, members)
        return tuple(
            SyncGroupRequestAssignment(member_id=m, assignment=write_assignment(Assigned(tuple(tps))))
            for m, tps in given.items()
        )

    async def _topic_infos(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the existing topics among `names`, with their partition counts and racks."""
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

    async def _apply(self, assigned: tuple[TopicPartition, ...]) -> None:
        """Apply an assignment: first revoke partitions, then take over the new ones."""
        revoked = tuple(tp for tp in self.assignment if tp not in assigned)
        new = tuple(tp for tp in assigned if tp not in self.assignment)
        if revoked:
            await self._revoke(revoked)
            self.ask_to_rejoin(f"need to revoke partitions {', '.join(map(str, revoked))} and rejoin")
        self.assignment = assigned
        if self.on_assigned is not None:
            await self.on_assigned(new)

    async def _revoke(self, partitions: tuple[TopicPartition, ...]) -> None:
        if self.on_revoked is not None:
            await self.on_revoked(partitions)
        self.assignment = tuple(tp for tp in self.assignment if tp not in partitions)

    def ask_to_rejoin(self, reason: str) -> None:
        """Make the next `ensure` rejoin the group for this reason."""
        self.rejoin, self.reason = True, reason

    async def _recover(self, error: KafkaError) -> bool:
        """Update the state after an error in a rebalance; return False if a retry cannot help."""
        if error.code == Errors.MEMBER_ID_REQUIRED:
            return True
        if error.code in _REMOVED:
            await self._lose(error)
            return True
        if error.code == Errors.FENCED_INSTANCE_ID:
            self.state = State.FENCED
            return False
        return error.code == Errors.REBALANCE_IN_PROGRESS or error.retriable

    async def _lose(self, error: KafkaError) -> None:
        """Drop all partitions: the coordinator does not know the member or its generation."""
        lost, self.assignment = self.assignment, ()
        if error.code == Errors.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation, self.state, self.rejoin = -1, State.OUT, True
        self.reason = f"received {error.name}"
        if lost and self.on_lost is not None:
            await self.on_lost(lost)

    # staying

    async def heartbeat(self) -> None:
        """Send a heartbeat. Sets `rejoin` if a rebalance has started."""
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
        )  # fmt: skip
        generation = self.generation
        response: HeartbeatResponse = await self._request(request)
        if response.error_code == 0 or generation != self.generation:
            return
        error = KafkaError(response.error_code, about=f"group {self.group_id}")
        if error.code == Errors.REBALANCE_IN_PROGRESS:
            self.ask_to_rejoin(self.reason or "group is already rebalancing")
        elif error.code in _REMOVED:
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
        """Send heartbeats of one generation, also while `rejoin` is set, so that the session stays alive."""
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        while self.state is State.STABLE:
            await asyncio.sleep(self.settings.heartbeat_interval_ms / 1000)
            try:
                await self.heartbeat()
                if self.is_leader and loop.time() - checked_at > self.settings.metadata_max_age_ms / 1000:
                    checked_at = loop.time()
                    await self._watch_topics()
            except ClientError as error:
                if not error.retriable:
                    self._failure = error
                    return

    async def _watch_topics(self) -> None:
        now = {name: info.partitions for name, info in (await self._topic_infos(self._counts)).items()}
        changed = sorted(name for name in self._counts | now if self._counts.get(name) != now.get(name))
        if changed:
            self.ask_to_rejoin(f"cached metadata has changed: the partitions of {', '.join(changed)}")

    # leaving

    async def leave(self, reason: str = "the consumer is being closed") -> None:
        """Revoke all partitions and leave. A static member stays until its session expires."""
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

        response: LeaveGroupResponse = await self.cluster.ask_coordinator(
            self.group_id, speak, lambda r: r.error_code, timeout_ms=5_000, lane=self
        )
        self.cluster.release(self)
        code = response.error_code or next((m.error_code for m in response.members), 0)
        if code not in (0, Errors.UNKNOWN_MEMBER_ID):
            raise KafkaError(code, about=f"leaving group {self.group_id}")

    async def _request(self, request: Struct, longest_ms: int | None = None) -> Any:
        return await self.cluster.ask_coordinator(
            self.group_id, request, lambda r: r.error_code, lane=self,
            answer_timeout_ms=None if longest_ms is None else longest_ms + _ANSWER_SLACK_MS,
        )  # fmt: skip


def _assignor(given: str | Assignor) -> Assignor:
    if isinstance(given, Assignor):
        return given
    known: Mapping[str, Assignor] = ASSIGNORS
    if given not in known:
        raise Misconfigured(f"there is no assignor {given}: choose from {', '.join(sorted(known))}")
    return known[given]
