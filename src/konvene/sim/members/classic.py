"""Members of classic groups: eager and cooperative, dynamic and static, and some that are not honest.

An honest member does what a consumer does that speaks the classic protocol: it joins, with the id that it was
told; leads if it is made the leader; asks for its assignment; sends heartbeats while it has a generation;
commits now and then, and before it gives something up. What it does about each error is Kafka's consumer's
way. After a question without an answer it asks again, under the id that it has.

An eager member gives up everything before it joins again. A cooperative one keeps what it has, and gives up
what it is not given any more; then it joins once more. A static member leaves without a word and comes back
without a member id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from konvene.sim.members.member import RETRY_BACKOFF_MS, Member
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World

READ, ASIDE = "orders", "extra"
"""Where members commit for what they do not read: the topic that they read, and the other one."""

OURS = "ours"
"""An assignor that somebody wrote. It does what range does, under another name."""

JOIN_VERSIONS = (9, 9, 9, 9, 8, 5, 3, 0)
"""Of JoinGroup, as members of different age speak it: only from 5 on there are static ones."""
FIRST_WITH_REBALANCE_TIMEOUT, FIRST_WITH_REASON = 1, 8

COMMON, OTHERS = "roundrobin", ("range", OURS)
"""Of the assignors that members choose from where they are mixed: the one that all have, and the others."""

ASKED_AGAIN = (
    None,
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.UNKNOWN_SERVER_ERROR,
    Errors.NOT_COORDINATOR,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.REBALANCE_IN_PROGRESS,
)
"""Answers after which a member asks once more in a while; None: nothing was heard."""
LOST_MEMBERSHIP = (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION)


class ClassicMember(Member):
    """See the top of this file. `state` is "out", "joining", "syncing" or "in"."""

    def __init__(self, world: World, name: str, group: str, *, static: bool) -> None:
        super().__init__(world, name, group)
        options = world.options
        self.instance_id = name if static else None
        self.session_ms: int = options["session.ms"]
        self.rebalance_ms: int = options["rebalance.ms"]
        self.topics = self._reads()
        self.assignors = self._assignors(options["assignor"])
        self.cooperative = self._is_cooperative()
        self.protocol_type: str = options["type"]
        self.join_version = 9 if static else world.random.choice(JOIN_VERSIONS)
        self.beat_ms = options["heartbeat.ms"]
        self._reset()

    def _assignors(self, told: str) -> list[str]:
        """What it can, best liked first. All have one in common, or there would be no group."""
        random = self.world.random
        if told != "mixed":
            return [told]
        names = [COMMON, *random.sample(OTHERS, random.randint(0, len(OTHERS)))]
        random.shuffle(names)
        return names

    def _is_cooperative(self) -> bool:
        return ASSIGNORS[known_as(self.assignors[0])].cooperative

    def _reads(self) -> tuple[str, ...]:
        """Where members commit for what they do not read, nobody is to read it."""
        return (READ,) if self.world.options["aside"] else self.world.subscription()

    def _vary(self) -> None:
        """Another one than in the life before: as after a deployment with other settings."""
        options, random = self.world.options, self.world.random
        self.session_ms = options["session.ms"] * random.choice([1, 1, 2])
        self.rebalance_ms = options["rebalance.ms"] * random.choice([1, 1, 2])
        self.topics = random.choice([self._reads(), self._reads(), (READ,)])
        self.assignors = self._assignors(options["assignor"])

    def _reset(self) -> None:
        self.state = "out"
        self.generation = -1
        self._member_id = ""
        self._assigned_for: dict[str, int] = {}
        self._beating = 0
        self._committing = False
        self._giving_up = self._reads_less = False

    def __repr__(self) -> str:
        return f"<{self.name} {self.state} generation {self.generation}, {len(self.owned)} partitions>"

    @property
    def settled(self) -> bool:
        return self.state == "in" and not self._giving_up

    @property
    def epoch(self) -> int:
        return self.generation

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def given(self) -> set[TopicPartition]:
        """What it was given and has not given up."""
        return self.owned

    def take(self, partitions: set[TopicPartition]) -> None:
        """From now on it has exactly these."""
        self.own(partitions)

    # --- life ---

    def start(self) -> None:
        super().start()
        self._reset()
        if self.world.options["varied"]:
            self._vary()
        # One that beats less often may hear of a rebalance when it is over, for ever.
        options = self.world.options
        self.beat_ms = min(options["heartbeat.ms"], self.session_ms // 3, options["rebalance.ms"] // 3)
        self.schedule(0, self._tick)
        self.join()

    def leave(self) -> None:
        """Give up everything; a dynamic member says goodbye, a static one does not."""
        if not self.alive:
            return
        self._commit()
        if self.instance_id is None and self._member_id:
            leaving = MemberIdentity(member_id=self._member_id, reason="the consumer is being closed")
            self.send(LeaveGroupRequest(group_id=self.group, members=(leaving,)), 5, lambda answer: None)
        self.die()

    def change_subscription(self) -> None:
        """Other topics, of which it tells when it joins again. Java's client gives up first what it does not
        read any more; one that does not is told to, and takes some heartbeats for it."""
        if self.state != "in" or self._giving_up:
            return
        self.topics = self._reads() if self.topics == (READ,) else (READ,)
        self._reads_less = self.cooperative and self.world.random.random() < 0.8
        if self.cooperative and not self._reads_less:
            self.own({tp for tp in self.owned if tp[0] in self.topics})
        self._prepare_join("the subscription has changed")

    # --- joining ---

    def join(self, reason: str | None = None) -> None:
        """Ask to be in the next generation."""
        if self.state == "joining":
            return
        self.state = "joining"
        self._send_join(reason)

    def _send_join(self, reason: str | None = None) -> None:
        owned = tuple(Partition(*tp) for tp in sorted(self.given)) if self.cooperative else ()
        version = self.join_version
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms if version >= FIRST_WITH_REBALANCE_TIMEOUT else -1,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=self._told(name, owned))
                for name in self.assignors
            ),
            reason=reason if version >= FIRST_WITH_REASON else None,
        )
        self.send(request, version, self._joined, self.rebalance_ms + 5_000)

    def _told(self, assignor: str, owned: tuple[Partition, ...]) -> bytes:
        """What it tells the leader; each assignor may have something of its own."""
        note = assignor.encode() if len(self.assignors) > 1 else None
        return write_subscription(Subscription(self.topics, owned, self.generation, user_data=note))

    def _joined(self, answer: Answer) -> None:
        if self.state != "joining":
            return
        error = _error(answer)
        if error is Errors.NONE and isinstance(answer, JoinGroupResponse):
            self._in_generation(answer)
        elif error is Errors.MEMBER_ID_REQUIRED and isinstance(answer, JoinGroupResponse):
            self._member_id = answer.member_id
            self._send_join()
        elif error in LOST_MEMBERSHIP:
            self._lose(keep_id=False)
        elif error in ASKED_AGAIN:
            self.schedule(RETRY_BACKOFF_MS, self._again)
        else:
            self._fatal(error)

    def _again(self) -> None:
        if self.state == "joining":
            self._send_join()

    def _in_generation(self, answer: JoinGroupResponse) -> None:
        self.state = "syncing"
        self.generation, self._member_id = answer.generation_id, answer.member_id
        self._beat_from_now()
        given: tuple[SyncGroupRequestAssignment, ...] = ()
        leads = answer.leader == answer.member_id
        self._assigned_for = self.world.partition_counts() if leads else {}
        if leads and not answer.skip_assignment:
            given = self._assign(answer)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=answer.protocol_name,
            assignments=given,
        )
        most = self.world.options["slow.leader"] if given and not self.world.faults_disabled else 0
        if most:
            self.schedule(round(self.world.random.uniform(0, most) * self.rebalance_ms), self._sync, request)
        else:
            self._sync(request)

    def _sync(self, request: SyncGroupRequest) -> None:
        if self.state == "syncing" and request.generation_id == self.generation:
            self.send(request, 5, self._synced, self.rebalance_ms + 5_000)

    def _assign(self, answer: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """As the leader: who gets what."""
        members = {}
        for m in answer.members:
            try:
                members[m.member_id] = read_subscription(m.metadata, m.group_instance_id)
            except CodecError:
                members[m.member_id] = Subscription(())
        topics = {t.name: TopicInfo(t.partitions) for t in self.world.topics.by_name.values()}
        wanted = ASSIGNORS[known_as(answer.protocol_name or COMMON)].assign(topics, members)
        return tuple(
            SyncGroupRequestAssignment(member_id=m, assignment=write_assignment(Assigned(tuple(given))))
            for m, given in wanted.items()
        )

    def _synced(self, answer: Answer) -> None:
        if self.state != "syncing":
            return
        error = _error(answer)
        if error is Errors.NONE and isinstance(answer, SyncGroupResponse):
            self._take(answer.assignment)
        elif error in LOST_MEMBERSHIP:
            self._lose(keep_id=error is Errors.ILLEGAL_GENERATION)
        elif error in ASKED_AGAIN:
            self.schedule(RETRY_BACKOFF_MS, self._rejoin_after_sync, self.generation)
        else:
            self._fatal(error)

    def _rejoin_after_sync(self, generation: int) -> None:
        if self.state == "syncing" and generation == self.generation:
            self._prepare_join("the assignment did not come")

    def _take(self, assignment: bytes) -> None:
        self.state = "in"
        try:
            given = {(p.topic, p.partition) for p in read_assignment(assignment).partitions}
        except CodecError:
            given = set()
        self._turn_to(given)

    def _turn_to(self, given: set[TopicPartition]) -> None:
        """It is to have these: a cooperative member gives up first what it was not given."""
        if not self.cooperative or self.given <= given:
            self.take(given)
            return
        self._give_up(lambda: self._revoked(given))

    def _revoked(self, given: set[TopicPartition]) -> None:
        """A cooperative member gave up what it was not given; the others get it in the next generation."""
        self.take(given)
        self.join("need to revoke partitions and re-join")

    # --- giving up ---

    def _prepare_join(self, reason: str) -> None:
        """Before the next generation: an eager member gives up all it has. Who is at that already has no ear
        for anything else, and hears of the rebalance with its next heartbeat."""
        if self._giving_up:
            return
        if self.cooperative or not self.given:
            self._commit()
            self.join(reason)
        else:
            self._give_up(lambda: self._eager_join(reason))

    def _eager_join(self, reason: str) -> None:
        self.take(set())
        self.join(reason)

    def _give_up(self, then: Any) -> None:
        """Commit, then let the application finish; that may take its time, or longer than it has."""
        if self._giving_up:
            return
        self._giving_up = True
        request = self.commit_request(self.generation, self.instance_id)
        if request is None:
            self._callback(then)
        else:
            self.send_commit(request, lambda error: self._callback_if_going(then), 1_000)

    def _callback_if_going(self, then: Any) -> None:
        if self._giving_up:
            self._callback(then)

    def _callback(self, then: Any) -> None:
        most = self.world.options["slow.callback"] * self.rebalance_ms
        if self._reads_less and not most:
            most = 3 * self.beat_ms
        self._reads_less = False
        takes_ms = round(self.world.random.uniform(0, most)) if most and not self.world.faults_disabled else 0
        if takes_ms > self.rebalance_ms and self.instance_id is None:
            self.schedule(self.rebalance_ms, self._poll_timeout)
        self.schedule(takes_ms, self._gave_up, self.generation, then)

    def _gave_up(self, generation: int, then: Any) -> None:
        if self._giving_up and generation == self.generation:
            self._giving_up = False
            then()

    def _poll_timeout(self) -> None:
        """`max.poll.interval.ms` has passed: the heartbeat thread lets go of the membership."""
        if self._giving_up and self._member_id:
            leaving = MemberIdentity(member_id=self._member_id, reason="consumer poll timeout has expired.")
            self.send(LeaveGroupRequest(group_id=self.group, members=(leaving,)), 5, lambda answer: None)
            self._lose(keep_id=False)

    def _lose(self, *, keep_id: bool) -> None:
        """The membership is gone, and with it all that was owned."""
        self.generation = -1
        if not keep_id:
            self._member_id = ""
        self._giving_up = False
        self.forget_all()
        self.state = "out"
        self.schedule(1, self._join_if_out)

    def _join_if_out(self) -> None:
        if self.state == "out":
            self.join()

    def _fatal(self, error: Errors) -> None:
        """An error after which a consumer does not go on by itself. Somebody starts it again, or not."""
        self.world.log_event(self.name, f"stops: {error.name}", None)
        self.die()
        self.world.member_stopped(self)

    # --- heartbeats ---

    def _beat_from_now(self) -> None:
        self._beating += 1
        self.schedule(self.beat_ms, self._beat, self._beating)

    def _beat(self, beating: int) -> None:
        if beating != self._beating or self.generation < 0:
            return
        self.schedule(self.beat_ms, self._beat, beating)
        if self.state == "joining":
            return
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
        )
        generation = self.generation
        self.send(request, 4, lambda answer: self._heard_beat(generation, answer))

    def _heard_beat(self, generation: int, answer: Answer) -> None:
        if generation != self.generation or not isinstance(answer, HeartbeatResponse | Errors):
            return
        error = _error(answer)
        if error is Errors.REBALANCE_IN_PROGRESS:
            if self.state == "in":
                self._prepare_join("group is already rebalancing")
        elif error in LOST_MEMBERSHIP:
            if self.state in ("in", "syncing"):
                self._lose(keep_id=error is Errors.ILLEGAL_GENERATION)
        elif error is Errors.FENCED_INSTANCE_ID:
            self._fatal(error)

    # --- the poll loop ---

    def _tick(self) -> None:
        """Read, and now and then commit; a leader looks whether the topics are still as it knew them."""
        self.schedule(self.beat_ms, self._tick)
        if self._giving_up:
            return
        self.read()
        if self.state == "in" and self.world.random.random() < 0.5:
            self._commit()
        if self.state == "in" and self.world.options["aside"]:
            self._commit_aside()
        if self.state == "in" and self._assigned_for not in ({}, self.world.partition_counts()):
            self._assigned_for = {}
            self._prepare_join("cached metadata has changed")

    def _commit(self) -> None:
        if self.generation < 0 or self._committing:
            return
        request = self.commit_request(self.generation, self.instance_id)
        if request is not None:
            self._committing = True
            self.send_commit(request, lambda error: self._committed(request, error))

    def _commit_aside(self) -> None:
        """For a partition of a topic that nobody in the group reads, as an application may."""
        topic, random = self.world.topics.by_name.get(ASIDE), self.world.random
        if topic is None or random.random() < 0.7:
            return
        told = OffsetCommitRequestPartition(
            partition_index=random.randrange(topic.partitions), committed_offset=random.randint(0, 9)
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=(OffsetCommitRequestTopic(name=ASIDE, partitions=(told,)),),
        )
        self.send(request, 9, lambda answer: None)

    def _committed(self, request: OffsetCommitRequest, error: Errors | None) -> None:
        self._committing = False
        if request.generation_id_or_member_epoch != self.generation or self.state != "in":
            return
        if error is Errors.FENCED_INSTANCE_ID:
            self._fatal(error)
        elif error in LOST_MEMBERSHIP:
            self._lose(keep_id=error is Errors.ILLEGAL_GENERATION)
        elif error is Errors.REBALANCE_IN_PROGRESS:
            self._prepare_join("group is already rebalancing")


def known_as(assignor: str) -> str:
    """Under which name we have it."""
    return "range" if assignor == OURS else assignor


def _error(answer: Answer) -> Errors | None:
    """The error of an answer; None where nothing was heard."""
    if answer is None or isinstance(answer, Errors):
        return answer
    return Errors(getattr(answer, "error_code", 0))


def _dynamic(world: World, name: str, group: str) -> Member:
    return ClassicMember(world, name, group, static=False)


def _static(world: World, name: str, group: str) -> Member:
    return ClassicMember(world, name, group, static=True)


KINDS = (Kind("classic", _dynamic, HostileClassic), Kind("static", _static, HostileClassic))
