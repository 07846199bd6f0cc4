"""Members of consumer groups (KIP-848), dynamic and static: the protocol as Kafka's Java consumer speaks it.

    state       what it does
    out         nothing: it was not started, or it left
    joining     it asks with epoch 0, and owns nothing
    in          it is at an epoch, and says so every so often
    stale       its application was too slow to give something up; it has left, and joins when that is over

A heartbeat says what is new since the last one that was answered; after one that was not, or was refused, it
says everything. What it owns it says when it has carried out an assignment, at once; while it carries one out
its heartbeats keep it alive and confirm nothing. An assignment that comes meanwhile is carried out next. Who
is fenced gives up everything and joins again, under the same id: that is its process's own.

A static member leaves with epoch -2 and comes back under another id. A topic id of which it does not know the
name it leaves alone until it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.messages.offset_commit import OffsetCommitRequest
from konvene.sim.members import Kind
from konvene.sim.members.hostile.consumer import HostileConsumer
from konvene.sim.members.member import RETRY_BACKOFF_MS, Member
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World

Unit = tuple[Uuid, int]
"""A partition by the id of its topic."""

VERSION = 1
JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2
FENCED = (Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID)
ASKED_AGAIN = (None, Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE,
               Errors.COORDINATOR_LOAD_IN_PROGRESS)  # fmt: skip
"""Answers after which a member asks once more in a while; None: nothing was heard."""
REGEXES = ("orders.*", "[eo].*", ".*", "extra.*", "nothing")
"""Such as can be read without google-re2 too. The last one matches no topic."""


class ConsumerMember(Member):
    """See the top of this file. `held` is what it believes to own, by topic id: the oracle's witness."""

    def __init__(self, world: World, name: str, group: str, *, static: bool) -> None:
        super().__init__(world, name, group)
        options = world.options
        self.instance_id = name if static else None
        self.rebalance_ms: int = options["rebalance.ms"]
        self.regex = ""
        self.assignor: str | None = None
        self._reset()

    def _reset(self) -> None:
        self.state = "out"
        self.held: set[Unit] = set()
        self.since_ms: dict[Unit, int] = {}
        """When it was told of what it holds."""
        self._member_id = ""
        self._epoch = self._last_epoch = -1
        self._interval_ms = 1_000
        self._target: set[Unit] | None = None
        """What it was told to have and has not carried out."""
        self._said: dict[str, Any] | None = None
        """What the last heartbeat that was answered said; None: it has to say everything."""
        self._under_way = self._owes_ack = self._busy = False
        self._committing = False
        self._beating = self._carried_out = 0
        self._had_regex = self.instance_id is not None
        """Who had an expression takes it back by an empty one, also if that was in the life before."""

    def __repr__(self) -> str:
        return f"<{self.name} {self.state} epoch {self._epoch}, {len(self.held)} partitions>"

    @property
    def settled(self) -> bool:
        return self.state == "in" and not self._busy and self._target is None and not self._owes_ack

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def member_id(self) -> str:
        return self._member_id

    # --- life ---

    def start(self) -> None:
        super().start()
        self._reset()
        self._member_id = f"{self.name}.{self.life}"
        self._choose()
        self.schedule(0, self._tick)
        self.join()

    def die(self) -> None:
        super().die()
        self._reset()

    def leave(self) -> None:
        """Commit, say goodbye and wait for no answer. A static member leaves for a while, as a rule."""
        if not self.alive:
            return
        self._commit()
        leaves_permanently = self.instance_id is None or self.world.leaves_permanently()
        if self.state == "in":
            self.send(
                self._farewell(LEAVE if leaves_permanently else LEAVE_STATIC), VERSION, lambda answer: None
            )
        self.die()

    def _farewell(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    # --- what it reads ---

    def _choose(self) -> None:
        options, random = self.world.options, self.world.random
        told = options["server.assignor"]
        self.assignor = random.choice([None, "uniform", "range"]) if told == "mixed" else told or None
        if options["varied"]:
            self.rebalance_ms = options["rebalance.ms"] * random.choice([1, 1, 2])
        self.topics, self.regex = self._subscription(self._reads())

    def change_subscription(self) -> None:
        """Other topics; its next heartbeat says so."""
        subscription = self._reads()
        self.topics, self.regex = self._subscription(
            self.world.random.choice([subscription, subscription[:1], subscription[-1:]])
        )

    def _reads(self) -> tuple[str, ...]:
        """Where members commit for what they do not read, nobody is to read it."""
        subscription = self.world.subscription()
        return subscription[:1] if self.world.options["aside"] else subscription

    def _subscription(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        options, random = self.world.options, self.world.random
        if not options["regex"] or random.random() >= options["regex"]:
            return names, ""
        regexes = REGEXES[:1] if options["aside"] else REGEXES
        return (names[:1] if random.random() < 0.2 else ()), random.choice(regexes)

    # --- joining ---

    def join(self) -> None:
        """Ask to be let in, owning nothing."""
        self.state, self._epoch, self._said = "joining", JOIN, None
        self._target, self._owes_ack, self._busy = None, False, False
        self._beat_now()

    def _fence(self) -> None:
        """The coordinator does not know it any more, or not like this: all is lost, and it joins again."""
        self._let_go()
        self.join()

    def _let_go(self) -> None:
        self._busy, self._target, self._owes_ack = False, None, False
        self._hold(set())
        self.forget_all()

    def _hold(self, units: set[Unit]) -> None:
        now_ms = self.world.event_queue.now_ms
        self.since_ms = {unit: self.since_ms.get(unit, now_ms) for unit in sorted(units)}
        self.held = units

    # --- heartbeats ---

    def _beat_now(self) -> None:
        """As soon as no other one is under way."""
        self._beating += 1
        self._beat(self._beating)

    def _beat_later(self, delay_ms: int) -> None:
        self._beating += 1
        self.schedule(delay_ms, self._beat, self._beating)

    def _beat(self, beating: int) -> None:
        if beating != self._beating or self._under_way or self.state not in ("joining", "in"):
            return
        says = self._says()
        everything = self._said is None or self.state == "joining"
        new = dict(says) if everything else {k: v for k, v in says.items() if self._said[k] != v}  # type: ignore[index]
        owned = new.pop("topic_partitions", None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self.instance_id,
            topic_partitions=None if owned is None else told(owned[0]),
            **new,
        )
        self._under_way, self._owes_ack = True, False
        life = self._epoch, self.state
        self.send(request, VERSION, lambda answer: self._heard(says, life, answer))

    def _says(self) -> dict[str, Any]:
        """All that a heartbeat can say. What it owns counts as new whenever it has carried something out."""
        self._had_regex |= bool(self.regex)
        return {
            "rebalance_timeout_ms": self.rebalance_ms,
            "subscribed_topic_names": tuple(sorted(self.topics)),
            "subscribed_topic_regex": self.regex if self._had_regex else None,
            "server_assignor": self.assignor,
            "topic_partitions": (frozenset(self.held), self._carried_out),
        }

    def _heard(self, says: dict[str, Any], asked: tuple[int, str], answer: Answer) -> None:
        self._under_way = False
        if self.state not in ("joining", "in"):
            return
        error = _error(answer)
        if error is Errors.NONE and isinstance(answer, ConsumerGroupHeartbeatResponse):
            self._said = says
            self._accepted(answer)
        elif error in FENCED:
            self._fence()
        elif error in ASKED_AGAIN:
            self._said = None
            self._beat_later(self.world.random.randint(1, 2 * RETRY_BACKOFF_MS))
        else:
            self._fatal(error)

    def _accepted(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.member_epoch != self._epoch:
            self._last_epoch = self._epoch
        self.state, self._epoch = "in", answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            given = units_of(answer.assignment)
            if given == self.held and self._target is not None and not self._busy:
                self._owes_ack = True  # It was told something else before, and did not get to it.
                self._carried_out += 1
            self._target = given if given != self.held or self._busy else None
        jitter = self.world.random.uniform(0.9, 1.0)
        self._beat_later(1 if self._owes_ack else max(1, round(self._interval_ms * jitter)))
        self._carry_out()

    # --- carrying out an assignment ---

    def _carry_out(self) -> None:
        """The next step towards what it was told to have: give up first, then take."""
        if self._busy or self._target is None or self.state != "in":
            return
        known = self.world.topics.by_id
        wanted = {unit for unit in self._target if unit[0] in known or unit in self.held}
        if wanted == self.held:
            if wanted == self._target:
                self._target = None
            return
        self._busy = True
        keeps = self.held & wanted
        if keeps == self.held:
            self._carried(wanted)
        else:
            self._give_up(keeps, wanted)

    def _give_up(self, keeps: set[Unit], wanted: set[Unit]) -> None:
        request = self.commit_request(self._epoch, self.instance_id)
        if request is None:
            self._callback(wanted)
        else:
            self.send_commit(request, lambda error: self._callback(wanted), 1_000)

    def _callback(self, wanted: set[Unit]) -> None:
        """The application gives up what it has to; it may take longer than it is allowed to."""
        if not self._busy:
            return
        most = self.world.options["slow.callback"] * self.rebalance_ms
        takes_ms = round(self.world.random.uniform(0, most)) if most and not self.world.faults_disabled else 0
        busy = self._epochs_of_life()
        if takes_ms > self.rebalance_ms:
            self.schedule(self.rebalance_ms, self._poll_timeout, busy, takes_ms - self.rebalance_ms)
        self.schedule(takes_ms, self._gave_up, busy, wanted)

    def _epochs_of_life(self) -> tuple[int, int]:
        return self.life, self._carried_out

    def _gave_up(self, busy: tuple[int, int], wanted: set[Unit]) -> None:
        if self._busy and busy == self._epochs_of_life():
            self._carried(wanted)

    def _carried(self, wanted: set[Unit]) -> None:
        self._busy = False
        self._carried_out += 1
        if self._target == wanted:
            self._target = None
        self._take(wanted)
        self._owes_ack = True
        if not self._under_way:
            self._beat_now()
        self._carry_out()

    def _take(self, units: set[Unit]) -> None:
        self._hold(units)
        known = self.world.topics.by_id
        self.own({(known[topic].name, p) for topic, p in units if topic in known})

    def _poll_timeout(self, busy: tuple[int, int], more_ms: int) -> None:
        """`max.poll.interval.ms` is over: it leaves, and is back when the application is."""
        if not self._busy or busy != self._epochs_of_life() or self.state != "in":
            return
        epoch = LEAVE if self.instance_id is None else LEAVE_STATIC
        self.send(self._farewell(epoch), VERSION, lambda answer: None)
        self._let_go()
        self._carried_out += 1
        self.state = "stale"
        self.schedule(more_ms, self._back_from_stale)

    def _back_from_stale(self) -> None:
        if self.state == "stale":
            self.join()

    def _fatal(self, error: Errors | None) -> None:
        """An error after which a consumer does not go on by itself. Somebody starts it again, or not."""
        self.world.log_event(self.name, f"stops: {error!r}", None)
        self.die()
        self.world.member_stopped(self)

    # --- the poll loop ---

    def _tick(self) -> None:
        """Read, and now and then commit; look whether a topic is known by now."""
        self.schedule(self.world.options["heartbeat.ms"], self._tick)
        if self._busy:
            return
        self._carry_out()
        self.read()
        if self.state == "in" and self.world.random.random() < 0.5:
            self._commit()

    def _commit(self) -> None:
        if self.state != "in" or self._epoch <= 0 or self._committing:
            return
        old = self.world.options["old.epochs"]
        epoch = self._epoch
        if (
            old
            and not self.world.faults_disabled
            and self._last_epoch > 0
            and self.world.random.random() < old
        ):
            epoch = self._last_epoch
        request = self.commit_request(epoch, self.instance_id)
        if request is not None:
            self._committing = True
            self.send_commit(request, lambda error: self._committed(request, error))

    def _committed(self, request: OffsetCommitRequest, error: Errors | None) -> None:
        self._committing = False
        if request.member_id != self._member_id or self.state != "in":
            return
        if error is Errors.UNKNOWN_MEMBER_ID:
            self._fence()

    @property
    def fetcher(self) -> tuple[str | None, int]:
        return self._member_id, self._epoch


def told(units: frozenset[Unit] | set[Unit]) -> tuple[TopicPartitions, ...]:
    """Partitions as a heartbeat says them."""
    by_topic: dict[Uuid, list[int]] = {}
    for topic, partition in sorted(units):
        by_topic.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic_id=t, partitions=tuple(p)) for t, p in by_topic.items())


def units_of(assignment: Assignment) -> set[Unit]:
    """What an answer says that a member has."""
    return {(t.topic_id, p) for t in assignment.topic_partitions for p in t.partitions}


def _error(answer: Answer) -> Errors | None:
    if answer is None or isinstance(answer, Errors):
        return answer
    return Errors(getattr(answer, "error_code", 0))


Honest = Callable[["World", str, str], Member]


def _dynamic(world: World, name: str, group: str) -> Member:
    return ConsumerMember(world, name, group, static=False)


def _static(world: World, name: str, group: str) -> Member:
    return ConsumerMember(world, name, group, static=True)


KINDS = (
    Kind("consumer", _dynamic, HostileConsumer, assigned=True),
    Kind("consumer-static", _static, HostileConsumer, assigned=True),
)
