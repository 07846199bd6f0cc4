"""Members of consumer groups (KIP-848), dynamic and static, which behave as Kafka's Java consumer.

    state       what it does
    out         nothing: it was not started, or it left
    joining     it sends heartbeats with epoch 0, and owns nothing
    in          it has an epoch, and sends heartbeats at the interval
    stale       its application was too slow to revoke; it left, and rejoins when the callback is done

A heartbeat has only the fields that changed since the last accepted one; after one that failed or was
rejected, it has all. Owned partitions are reported at once when an assignment is reconciled; while one is
being reconciled, heartbeats keep the member alive and acknowledge nothing. An assignment that arrives
meanwhile is reconciled next. A fenced member drops everything and rejoins with the same member id, which the
process keeps.

A static member leaves with epoch -2 and returns with another member id. Partitions of a topic id whose name
is not known yet wait until it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.sim.members import Kind
from konvene.sim.members.hostile.consumer import HostileConsumer
from konvene.sim.members.member import RETRY_BACKOFF_MS, CommitRequest, Member
from konvene.sim.world.process import Answer, error_of

if TYPE_CHECKING:
    from konvene.sim.world.world import World

TopicIdPartition = tuple[Uuid, int]
"""Topic id and partition."""

VERSION = 1
JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2
FENCED = (Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID)
RETRIABLE_ERRORS = (None, Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE,
               Errors.COORDINATOR_LOAD_IN_PROGRESS)  # fmt: skip
"""Errors after which a member repeats its heartbeat; None: no response arrived."""
REGEXES = ("orders.*", "[eo].*", ".*", "extra.*", "nothing")
"""Expressions that are supported without google-re2, too. The last one matches no topic."""


class ConsumerMember(Member):
    """An honest member of a consumer group. `held` has its owned partitions by topic id."""

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
        self.held: set[TopicIdPartition] = set()
        self.held_since_ms: dict[TopicIdPartition, int] = {}
        """Time since which each partition in `held` is owned."""
        self._member_id = ""
        self._epoch = self._last_epoch = -1
        self._interval_ms = 1_000
        self._target: set[TopicIdPartition] | None = None
        """The assignment that is not reconciled yet; None if there is none."""
        self._last_reported: dict[str, Any] | None = None
        """Fields of the last accepted heartbeat; None: the next one has all fields."""
        self._under_way = self._must_acknowledge = self._reconciling = False
        self._committing = False
        self._heartbeat_serial = self._reconciliations = 0
        self._had_regex = self.instance_id is not None
        """Whether it ever subscribed by a regular expression (a static member maybe in an earlier life): then
        an empty one has to be sent to remove it."""

    def __repr__(self) -> str:
        return f"<{self.name} {self.state} epoch {self._epoch}, {len(self.held)} partitions>"

    @property
    def is_stable(self) -> bool:
        return (
            self.state == "in"
            and not self._reconciling
            and self._target is None
            and not self._must_acknowledge
        )

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
        self._choose_subscription()
        self.schedule(0, self._tick)
        self.join()

    def die(self) -> None:
        super().die()
        self._reset()

    def leave(self) -> None:
        """Commit, and leave without waiting for the response; a static member may announce its return."""
        if not self.alive:
            return
        self._commit()
        leaves_permanently = self.instance_id is None or self.world.leaves_permanently()
        if self.state == "in":
            self.send(
                self._leave_request(LEAVE if leaves_permanently else LEAVE_STATIC),
                VERSION,
                lambda answer: None,
            )
        self.die()

    def _leave_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    # --- subscription ---

    def _choose_subscription(self) -> None:
        options, random = self.world.options, self.world.random
        policy = options["server.assignor"]
        self.assignor = random.choice([None, "uniform", "range"]) if policy == "mixed" else policy or None
        if options["varied"]:
            self.rebalance_ms = options["rebalance.ms"] * random.choice([1, 1, 2])
        self.topics, self.regex = self._subscription(self._subscribed_topics())

    def change_subscription(self) -> None:
        """Draw other topics to subscribe to; the next heartbeat reports them."""
        subscription = self._subscribed_topics()
        self.topics, self.regex = self._subscription(
            self.world.random.choice([subscription, subscription[:1], subscription[-1:]])
        )

    def _subscribed_topics(self) -> tuple[str, ...]:
        """Return the topics to subscribe to; with `aside`, not the one for which members only commit."""
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
        """Join the group: send a heartbeat with epoch 0 and no owned partitions."""
        self.state, self._epoch, self._last_reported = "joining", JOIN, None
        self._target, self._must_acknowledge, self._reconciling = None, False, False
        self._heartbeat_now()

    def _fence(self) -> None:
        """After FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID, drop all partitions and rejoin with epoch 0."""
        self._lose_all()
        self.join()

    def _lose_all(self) -> None:
        self._reconciling, self._target, self._must_acknowledge = False, None, False
        self._set_held_units(set())
        self.lose_all()

    def _set_held_units(self, partitions: set[TopicIdPartition]) -> None:
        now_ms = self.world.event_queue.now_ms
        self.held_since_ms = {
            partition: self.held_since_ms.get(partition, now_ms) for partition in sorted(partitions)
        }
        self.held = partitions

    # --- heartbeats ---

    def _heartbeat_now(self) -> None:
        """Send a heartbeat now, unless one is pending, instead of at the next interval."""
        self._heartbeat_serial += 1
        self._heartbeat(self._heartbeat_serial)

    def _heartbeat_after(self, delay_ms: int) -> None:
        self._heartbeat_serial += 1
        self.schedule(delay_ms, self._heartbeat, self._heartbeat_serial)

    def _heartbeat(self, serial: int) -> None:
        if serial != self._heartbeat_serial or self._under_way or self.state not in ("joining", "in"):
            return
        report = self._report()
        full = self._last_reported is None or self.state == "joining"
        changed = dict(report) if full else {k: v for k, v in report.items() if self._last_reported[k] != v}  # type: ignore[index]
        owned = changed.pop("topic_partitions", None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self.instance_id,
            topic_partitions=None if owned is None else topic_partitions_of(owned[0]),
            **changed,
        )
        self._under_way, self._must_acknowledge = True, False
        sent_at = self._epoch, self.state
        self.send(request, VERSION, lambda answer: self._handle_heartbeat(report, sent_at, answer))

    def _report(self) -> dict[str, Any]:
        """Return all fields of a heartbeat, by name.

        `topic_partitions` includes the number of reconciliations, so that it changes with each of them."""
        self._had_regex |= bool(self.regex)
        return {
            "rebalance_timeout_ms": self.rebalance_ms,
            "subscribed_topic_names": tuple(sorted(self.topics)),
            "subscribed_topic_regex": self.regex if self._had_regex else None,
            "server_assignor": self.assignor,
            "topic_partitions": (frozenset(self.held), self._reconciliations),
        }

    def _handle_heartbeat(self, report: dict[str, Any], sent_at: tuple[int, str], answer: Answer) -> None:
        self._under_way = False
        if self.state not in ("joining", "in"):
            return
        error = error_of(answer)
        if error is Errors.NONE and isinstance(answer, ConsumerGroupHeartbeatResponse):
            self._last_reported = report
            self._heartbeat_accepted(answer)
        elif error in FENCED:
            self._fence()
        elif error in RETRIABLE_ERRORS:
            self._last_reported = None
            self._heartbeat_after(self.world.random.randint(1, 2 * RETRY_BACKOFF_MS))
        else:
            self._fatal(error)

    def _heartbeat_accepted(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.member_epoch != self._epoch:
            self._last_epoch = self._epoch
        self.state, self._epoch = "in", answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            assigned = topic_id_partitions_of(answer.assignment)
            if assigned == self.held and self._target is not None and not self._reconciling:
                self._must_acknowledge = True  # A target in between was never reconciled.
                self._reconciliations += 1
            self._target = assigned if assigned != self.held or self._reconciling else None
        jitter = self.world.random.uniform(0.9, 1.0)
        self._heartbeat_after(1 if self._must_acknowledge else max(1, round(self._interval_ms * jitter)))
        self._reconcile()

    # --- reconciliation ---

    def _reconcile(self) -> None:
        """Begin to reconcile the target assignment: revoke first, then take over new partitions."""
        if self._reconciling or self._target is None or self.state != "in":
            return
        by_id = self.world.topics.by_id
        next_partitions = {
            partition for partition in self._target if partition[0] in by_id or partition in self.held
        }
        if next_partitions == self.held:
            if next_partitions == self._target:
                self._target = None
            return
        self._reconciling = True
        kept = self.held & next_partitions
        if kept == self.held:
            self._reconciled(next_partitions)
        else:
            self._revoke(kept, next_partitions)

    def _revoke(self, kept: set[TopicIdPartition], next_partitions: set[TopicIdPartition]) -> None:
        request = self.commit_request(self._epoch, self.instance_id)
        if request is None:
            self._run_callback(next_partitions)
        else:
            self.send_commit(request, lambda error: self._run_callback(next_partitions), 1_000)

    def _run_callback(self, next_partitions: set[TopicIdPartition]) -> None:
        """Run the application's revocation callback, then own `next_partitions`.

        The callback may take longer than the rebalance timeout."""
        if not self._reconciling:
            return
        longest_ms = self.world.options["slow.callback"] * self.rebalance_ms
        duration_ms = (
            round(self.world.random.uniform(0, longest_ms))
            if longest_ms and not self.world.faults_disabled
            else 0
        )
        reconciliation = self._reconciliation_id()
        if duration_ms > self.rebalance_ms:
            self.schedule(
                self.rebalance_ms, self._poll_timeout, reconciliation, duration_ms - self.rebalance_ms
            )
        self.schedule(duration_ms, self._revocation_done, reconciliation, next_partitions)

    def _reconciliation_id(self) -> tuple[int, int]:
        return self.life, self._reconciliations

    def _revocation_done(
        self, reconciliation: tuple[int, int], next_partitions: set[TopicIdPartition]
    ) -> None:
        if self._reconciling and reconciliation == self._reconciliation_id():
            self._reconciled(next_partitions)

    def _reconciled(self, next_partitions: set[TopicIdPartition]) -> None:
        self._reconciling = False
        self._reconciliations += 1
        if self._target == next_partitions:
            self._target = None
        self._set_held(next_partitions)
        self._must_acknowledge = True
        if not self._under_way:
            self._heartbeat_now()
        self._reconcile()

    def _set_held(self, partitions: set[TopicIdPartition]) -> None:
        self._set_held_units(partitions)
        by_id = self.world.topics.by_id
        self.own({(by_id[topic].name, p) for topic, p in partitions if topic in by_id})

    def _poll_timeout(self, reconciliation: tuple[int, int], remaining_ms: int) -> None:
        """Leave the group because `max.poll.interval.ms` passed during a revocation callback.

        Rejoin when that callback ends, after another `remaining_ms`. Does nothing if `reconciliation`, which
        identifies the reconciliation that called it, is complete."""
        if not self._reconciling or reconciliation != self._reconciliation_id() or self.state != "in":
            return
        epoch = LEAVE if self.instance_id is None else LEAVE_STATIC
        self.send(self._leave_request(epoch), VERSION, lambda answer: None)
        self._lose_all()
        self._reconciliations += 1
        self.state = "stale"
        self.schedule(remaining_ms, self._rejoin_stale)

    def _rejoin_stale(self) -> None:
        if self.state == "stale":
            self.join()

    def _fatal(self, error: Errors | None) -> None:
        """Stop after a fatal error; the world may restart the member later."""
        self.world.log_event(self.name, f"stops: {error!r}", None)
        self.die()
        self.world.member_stopped(self)

    # --- the poll loop ---

    def _tick(self) -> None:
        """Run one iteration of the poll loop: read, sometimes commit, continue the reconciliation."""
        self.schedule(self.world.options["heartbeat.ms"], self._tick)
        if self._reconciling:
            return
        self._reconcile()
        self.read()
        if self.state == "in" and self.world.random.random() < 0.5:
            self._commit()

    def _commit(self) -> None:
        if self.state != "in" or self._epoch <= 0 or self._committing:
            return
        old_epochs = self.world.options["old.epochs"]
        epoch = self._epoch
        if (
            old_epochs
            and not self.world.faults_disabled
            and self._last_epoch > 0
            and self.world.random.random() < old_epochs
        ):
            epoch = self._last_epoch
        request = self.commit_request(epoch, self.instance_id)
        if request is not None:
            self._committing = True
            self.send_commit(request, lambda error: self._committed(request, error))

    def _committed(self, request: CommitRequest, error: Errors | None) -> None:
        self._committing = False
        if request.member_id != self._member_id or self.state != "in":
            return
        if error is Errors.UNKNOWN_MEMBER_ID:
            self._fence()


def topic_partitions_of(
    partitions: frozenset[TopicIdPartition] | set[TopicIdPartition],
) -> tuple[TopicPartitions, ...]:
    """Encode partitions for a heartbeat."""
    by_topic: dict[Uuid, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic_id=t, partitions=tuple(p)) for t, p in by_topic.items())


def topic_id_partitions_of(assignment: Assignment) -> set[TopicIdPartition]:
    """Return the partitions of an assignment."""
    return {(t.topic_id, p) for t in assignment.topic_partitions for p in t.partitions}


def _dynamic(world: World, name: str, group: str) -> Member:
    return ConsumerMember(world, name, group, static=False)


def _static(world: World, name: str, group: str) -> Member:
    return ConsumerMember(world, name, group, static=True)


KINDS = (
    Kind("consumer", _dynamic, HostileConsumer, assigned=True),
    Kind("consumer-static", _static, HostileConsumer, assigned=True),
)
