"""Members of classic groups: eager and cooperative, dynamic and static.

An honest member behaves as Kafka's consumer with the classic protocol: it joins with the member id it
received, assigns if it is the leader, syncs, sends heartbeats while it has a generation, and commits
sometimes and before a revocation. It reacts to errors as Kafka's consumer does. A request without a response
is repeated, with the same member id.

An eager member revokes everything before it rejoins. A cooperative one keeps its partitions, revokes those
that it is no longer assigned, and rejoins. A static member leaves without a request and returns without a
member id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.client.consumer.assignors import ASSIGNORS, TopicInfo
from konvene.client.consumer.protocol import (
    Assigned,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from konvene.client.net.cluster import TopicPartition as Partition
from konvene.codec.errors import CodecError
from konvene.errors import Errors
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from konvene.sim.invariants.offset_oracle import TopicPartition
from konvene.sim.members import Kind
from konvene.sim.members.hostile.classic import HostileClassic
from konvene.sim.members.member import RETRY_BACKOFF_MS, CommitRequest, Member
from konvene.sim.world.process import Answer, error_of

if TYPE_CHECKING:
    from konvene.sim.world.world import World

READ_TOPIC, UNREAD_TOPIC = "orders", "extra"
"""The topic that members read, and the one for which they only commit (with the option `aside`)."""

CUSTOM_ASSIGNOR = "ours"
"""Name of a custom assignor, which assigns as `range` does."""

JOIN_VERSIONS = (9, 9, 9, 9, 8, 5, 3, 0)
"""Versions of JoinGroup that members of different age send; static membership needs version 5."""
FIRST_WITH_REBALANCE_TIMEOUT, FIRST_WITH_REASON = 1, 8

COMMON_ASSIGNOR, OTHER_ASSIGNORS = "roundrobin", ("range", CUSTOM_ASSIGNOR)
"""For the policy "mixed": the assignor that all members support, and those that some support."""

RETRIABLE_ERRORS = (
    None,
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.UNKNOWN_SERVER_ERROR,
    Errors.NOT_COORDINATOR,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.REBALANCE_IN_PROGRESS,
)
"""Errors after which a member repeats its request; None: no response arrived."""
LOST_MEMBERSHIP = (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION)


class ClassicMember(Member):
    """An honest member of a classic group. `state` is "out", "joining", "syncing" or "in"."""

    def __init__(self, world: World, name: str, group: str, *, static: bool) -> None:
        super().__init__(world, name, group)
        options = world.options
        self.instance_id = name if static else None
        self.session_ms: int = options["session.ms"]
        self.rebalance_ms: int = options["rebalance.ms"]
        self.topics = self._subscribed_topics()
        self.assignors = self._assignors(options["assignor"])
        self.cooperative = self._is_cooperative()
        self.protocol_type: str = options["type"]
        self.join_version = 9 if static else world.random.choice(JOIN_VERSIONS)
        self.heartbeat_ms = options["heartbeat.ms"]
        self._reset()

    def _assignors(self, policy: str) -> list[str]:
        """Return the supported assignors, preferred first; all members have one in common."""
        random = self.world.random
        if policy != "mixed":
            return [policy]
        names = [COMMON_ASSIGNOR, *random.sample(OTHER_ASSIGNORS, random.randint(0, len(OTHER_ASSIGNORS)))]
        random.shuffle(names)
        return names

    def _is_cooperative(self) -> bool:
        return ASSIGNORS[implementation_of(self.assignors[0])].cooperative

    def _subscribed_topics(self) -> tuple[str, ...]:
        """Return the topics to subscribe to; with `aside`, not the one for which members only commit."""
        return (READ_TOPIC,) if self.world.options["aside"] else self.world.subscription()

    def _change_settings(self) -> None:
        """Draw new timeouts, topics and assignors, as if a deployment had changed them between two lives."""
        options, random = self.world.options, self.world.random
        self.session_ms = options["session.ms"] * random.choice([1, 1, 2])
        self.rebalance_ms = options["rebalance.ms"] * random.choice([1, 1, 2])
        self.topics = random.choice([self._subscribed_topics(), self._subscribed_topics(), (READ_TOPIC,)])
        self.assignors = self._assignors(options["assignor"])

    def _reset(self) -> None:
        self.state = "out"
        self.generation = -1
        self._member_id = ""
        self._partition_counts_assigned: dict[str, int] = {}
        self._heartbeat_serial = 0
        self._committing = False
        self._revoking = self._narrowed_subscription = False

    def __repr__(self) -> str:
        return f"<{self.name} {self.state} generation {self.generation}, {len(self.owned)} partitions>"

    @property
    def is_stable(self) -> bool:
        return self.state == "in" and not self._revoking

    @property
    def epoch(self) -> int:
        return self.generation

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def assigned(self) -> set[TopicPartition]:
        """Assigned partitions that are not revoked."""
        return self.owned

    def set_assigned(self, partitions: set[TopicPartition]) -> None:
        """Replace the assigned partitions."""
        self.own(partitions)

    # --- life ---

    def start(self) -> None:
        super().start()
        self._reset()
        if self.world.options["varied"]:
            self._change_settings()
        # With rarer heartbeats a member could learn of every rebalance only after it ended.
        options = self.world.options
        self.heartbeat_ms = min(options["heartbeat.ms"], self.session_ms // 3, options["rebalance.ms"] // 3)
        self.schedule(0, self._tick)
        self.join()

    def leave(self) -> None:
        """Commit, leave the group unless the member is static, and stop."""
        if not self.alive:
            return
        self._commit()
        if self.instance_id is None and self._member_id:
            leaving = MemberIdentity(member_id=self._member_id, reason="the consumer is being closed")
            self.send(LeaveGroupRequest(group_id=self.group, members=(leaving,)), 5, lambda answer: None)
        self.die()

    def change_subscription(self) -> None:
        """Draw other topics to subscribe to, and rejoin.

        Usually a cooperative member revokes partitions of other topics only after its next assignment, which
        takes some heartbeats. Otherwise it drops them before it rejoins, as Java's consumer does."""
        if self.state != "in" or self._revoking:
            return
        self.topics = self._subscribed_topics() if self.topics == (READ_TOPIC,) else (READ_TOPIC,)
        self._narrowed_subscription = self.cooperative and self.world.random.random() < 0.8
        if self.cooperative and not self._narrowed_subscription:
            self.own({tp for tp in self.owned if tp[0] in self.topics})
        self._prepare_join("the subscription has changed")

    # --- joining ---

    def join(self, reason: str | None = None) -> None:
        """Send a JoinGroup for the next generation."""
        if self.state == "joining":
            return
        self.state = "joining"
        self._send_join(reason)

    def _send_join(self, reason: str | None = None) -> None:
        owned = tuple(Partition(*tp) for tp in sorted(self.assigned)) if self.cooperative else ()
        version = self.join_version
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms if version >= FIRST_WITH_REBALANCE_TIMEOUT else -1,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=self._subscription_metadata(name, owned))
                for name in self.assignors
            ),
            reason=reason if version >= FIRST_WITH_REASON else None,
        )
        self.send(request, version, self._joined, self.rebalance_ms + 5_000)

    def _subscription_metadata(self, assignor: str, owned: tuple[Partition, ...]) -> bytes:
        """Encode the subscription for the leader; each assignor may have its own user data."""
        user_data = assignor.encode() if len(self.assignors) > 1 else None
        return write_subscription(Subscription(self.topics, owned, self.generation, user_data=user_data))

    def _joined(self, answer: Answer) -> None:
        if self.state != "joining":
            return
        error = error_of(answer)
        if error is Errors.NONE and isinstance(answer, JoinGroupResponse):
            self._joined_generation(answer)
        elif error is Errors.MEMBER_ID_REQUIRED and isinstance(answer, JoinGroupResponse):
            self._member_id = answer.member_id
            self._send_join()
        elif error in LOST_MEMBERSHIP:
            self._lose_membership(keep_id=False)
        elif error in RETRIABLE_ERRORS:
            self.schedule(RETRY_BACKOFF_MS, self._retry_join)
        else:
            self._fatal(error)

    def _retry_join(self) -> None:
        if self.state == "joining":
            self._send_join()

    def _joined_generation(self, answer: JoinGroupResponse) -> None:
        self.state = "syncing"
        self.generation, self._member_id = answer.generation_id, answer.member_id
        self._restart_heartbeats()
        assigned: tuple[SyncGroupRequestAssignment, ...] = ()
        leads = answer.leader == answer.member_id
        self._partition_counts_assigned = self.world.partition_counts() if leads else {}
        if leads and not answer.skip_assignment:
            assigned = self._assign(answer)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=answer.protocol_name,
            assignments=assigned,
        )
        longest_ms = self.world.options["slow.leader"] if assigned and not self.world.faults_disabled else 0
        if longest_ms:
            self.schedule(
                round(self.world.random.uniform(0, longest_ms) * self.rebalance_ms), self._sync, request
            )
        else:
            self._sync(request)

    def _sync(self, request: SyncGroupRequest) -> None:
        if self.state == "syncing" and request.generation_id == self.generation:
            self.send(request, 5, self._synced, self.rebalance_ms + 5_000)

    def _assign(self, answer: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """Compute the assignment as the group's leader."""
        members = {}
        for m in answer.members:
            try:
                members[m.member_id] = read_subscription(m.metadata, m.group_instance_id)
            except CodecError:
                members[m.member_id] = Subscription(())
        topics = {t.name: TopicInfo(t.partitions) for t in self.world.topics.by_name.values()}
        wanted = ASSIGNORS[implementation_of(answer.protocol_name or COMMON_ASSIGNOR)].assign(topics, members)
        return tuple(
            SyncGroupRequestAssignment(member_id=m, assignment=write_assignment(Assigned(tuple(assigned))))
            for m, assigned in wanted.items()
        )

    def _synced(self, answer: Answer) -> None:
        if self.state != "syncing":
            return
        error = error_of(answer)
        if error is Errors.NONE and isinstance(answer, SyncGroupResponse):
            self._assignment_received(answer.assignment)
        elif error in LOST_MEMBERSHIP:
            self._lose_membership(keep_id=error is Errors.ILLEGAL_GENERATION)
        elif error in RETRIABLE_ERRORS:
            self.schedule(RETRY_BACKOFF_MS, self._rejoin_after_sync, self.generation)
        else:
            self._fatal(error)

    def _rejoin_after_sync(self, generation: int) -> None:
        if self.state == "syncing" and generation == self.generation:
            self._prepare_join("the assignment did not come")

    def _assignment_received(self, assignment: bytes) -> None:
        self.state = "in"
        try:
            assigned = {(p.topic, p.partition) for p in read_assignment(assignment).partitions}
        except CodecError:
            assigned = set()
        self._move_to(assigned)

    def _move_to(self, assigned: set[TopicPartition]) -> None:
        """Apply a new assignment; a cooperative member first revokes what it is no longer assigned."""
        if not self.cooperative or self.assigned <= assigned:
            self.set_assigned(assigned)
            return
        self._revoke(lambda: self._revoked_then_rejoin(assigned))

    def _revoked_then_rejoin(self, assigned: set[TopicPartition]) -> None:
        """Rejoin after a cooperative revocation, so that other members can be assigned what was revoked."""
        self.set_assigned(assigned)
        self.join("need to revoke partitions and re-join")

    # --- revocation ---

    def _prepare_join(self, reason: str) -> None:
        """Join the next generation, an eager member after it revoked all partitions.

        Does nothing during a revocation; the next heartbeat reports the rebalance again."""
        if self._revoking:
            return
        if self.cooperative or not self.assigned:
            self._commit()
            self.join(reason)
        else:
            self._revoke(lambda: self._eager_join(reason))

    def _eager_join(self, reason: str) -> None:
        self.set_assigned(set())
        self.join(reason)

    def _revoke(self, then: Callable[[], None]) -> None:
        """Commit, run the application's revocation callback, which takes time, and call `then` at its end."""
        if self._revoking:
            return
        self._revoking = True
        request = self.commit_request(self.generation, self.instance_id)
        if request is None:
            self._run_callback(then)
        else:
            self.send_commit(request, lambda error: self._run_callback_if_revoking(then), 1_000)

    def _run_callback_if_revoking(self, then: Callable[[], None]) -> None:
        if self._revoking:
            self._run_callback(then)

    def _run_callback(self, then: Callable[[], None]) -> None:
        longest_ms = self.world.options["slow.callback"] * self.rebalance_ms
        if self._narrowed_subscription and not longest_ms:
            longest_ms = 3 * self.heartbeat_ms
        self._narrowed_subscription = False
        duration_ms = (
            round(self.world.random.uniform(0, longest_ms))
            if longest_ms and not self.world.faults_disabled
            else 0
        )
        if duration_ms > self.rebalance_ms and self.instance_id is None:
            self.schedule(self.rebalance_ms, self._poll_timeout)
        self.schedule(duration_ms, self._revocation_done, self.generation, then)

    def _revocation_done(self, generation: int, then: Callable[[], None]) -> None:
        if self._revoking and generation == self.generation:
            self._revoking = False
            then()

    def _poll_timeout(self) -> None:
        """Leave the group because `max.poll.interval.ms` passed, as the heartbeat thread does."""
        if self._revoking and self._member_id:
            leaving = MemberIdentity(member_id=self._member_id, reason="consumer poll timeout has expired.")
            self.send(LeaveGroupRequest(group_id=self.group, members=(leaving,)), 5, lambda answer: None)
            self._lose_membership(keep_id=False)

    def _lose_membership(self, *, keep_id: bool) -> None:
        """Drop all owned partitions and rejoin; with `keep_id` under the same member id."""
        self.generation = -1
        if not keep_id:
            self._member_id = ""
        self._revoking = False
        self.lose_all()
        self.state = "out"
        self.schedule(1, self._join_if_out)

    def _join_if_out(self) -> None:
        if self.state == "out":
            self.join()

    def _fatal(self, error: Errors) -> None:
        """Stop after a fatal error; the world may restart the member later."""
        self.world.log_event(self.name, f"stops: {error.name}", None)
        self.die()
        self.world.member_stopped(self)

    # --- heartbeats ---

    def _restart_heartbeats(self) -> None:
        self._heartbeat_serial += 1
        self.schedule(self.heartbeat_ms, self._heartbeat, self._heartbeat_serial)

    def _heartbeat(self, serial: int) -> None:
        if serial != self._heartbeat_serial or self.generation < 0:
            return
        self.schedule(self.heartbeat_ms, self._heartbeat, serial)
        if self.state == "joining":
            return
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
        )
        generation = self.generation
        self.send(request, 4, lambda answer: self._handle_heartbeat(generation, answer))

    def _handle_heartbeat(self, generation: int, answer: Answer) -> None:
        if generation != self.generation or not isinstance(answer, HeartbeatResponse | Errors):
            return
        error = error_of(answer)
        if error is Errors.REBALANCE_IN_PROGRESS:
            if self.state == "in":
                self._prepare_join("group is already rebalancing")
        elif error in LOST_MEMBERSHIP:
            if self.state in ("in", "syncing"):
                self._lose_membership(keep_id=error is Errors.ILLEGAL_GENERATION)
        elif error is Errors.FENCED_INSTANCE_ID:
            self._fatal(error)

    # --- the poll loop ---

    def _tick(self) -> None:
        """Run one iteration of the poll loop: read, sometimes commit.

        A leader rejoins if partition counts changed since it assigned."""
        self.schedule(self.heartbeat_ms, self._tick)
        if self._revoking:
            return
        self.read()
        if self.state == "in" and self.world.random.random() < 0.5:
            self._commit()
        if self.state == "in" and self.world.options["aside"]:
            self._commit_unread()
        if self.state == "in" and self._partition_counts_assigned not in ({}, self.world.partition_counts()):
            self._partition_counts_assigned = {}
            self._prepare_join("cached metadata has changed")

    def _commit(self) -> None:
        if self.generation < 0 or self._committing:
            return
        request = self.commit_request(self.generation, self.instance_id)
        if request is not None:
            self._committing = True
            self.send_commit(request, lambda error: self._committed(request, error))

    def _commit_unread(self) -> None:
        """Sometimes commit for a partition of a topic that the group does not read, as an application may."""
        topic, random = self.world.topics.by_name.get(UNREAD_TOPIC), self.world.random
        if topic is None or random.random() < 0.7:
            return
        partition = OffsetCommitRequestPartition(
            partition_index=random.randrange(topic.partitions), committed_offset=random.randint(0, 9)
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=(OffsetCommitRequestTopic(name=UNREAD_TOPIC, partitions=(partition,)),),
        )
        self.send(request, 9, lambda answer: None)

    def _committed(self, request: CommitRequest, error: Errors | None) -> None:
        self._committing = False
        if request.generation_id_or_member_epoch != self.generation or self.state != "in":
            return
        if error is Errors.FENCED_INSTANCE_ID:
            self._fatal(error)
        elif error in LOST_MEMBERSHIP:
            self._lose_membership(keep_id=error is Errors.ILLEGAL_GENERATION)
        elif error is Errors.REBALANCE_IN_PROGRESS:
            self._prepare_join("group is already rebalancing")


def implementation_of(assignor: str) -> str:
    """Return the name of the built-in assignor that implements the assignor of this name."""
    return "range" if assignor == CUSTOM_ASSIGNOR else assignor


def _dynamic(world: World, name: str, group: str) -> Member:
    return ClassicMember(world, name, group, static=False)


def _static(world: World, name: str, group: str) -> Member:
    return ClassicMember(world, name, group, static=True)


KINDS = (Kind("classic", _dynamic, HostileClassic), Kind("static", _static, HostileClassic))
