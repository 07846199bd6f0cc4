"""What a whole broker invariants to whole clients, one class for each invariant.

An invariant's docstring is the invariant. The run calls those of its methods that it has:

- `started`: the broker has begun a new life and serves;
- `settled`: some steps were taken (`check_every` of the run), and nobody is in the middle of anything;
- `read`, `offsets`, `released`, `failed`: a client read a record, or was told offsets; a coordinator lets
  replies go; somebody's code raised;
- `made`: there is a broker that has not begun; `answered`, `shared`, `acknowledged`: a client has an answer;
  a share consumer got a record, or was told that offsets are acknowledged;
- `liveness`: the faults are over, everybody had time; `ended`: the clients are gone, the broker is not.

An invariant that is violated raises `Violation`, which the run completes with the seed, the step and the last
events.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from konvene.client.errors import ClientError
from konvene.client.net.cluster import TopicPartition
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.shard import GroupShard
from konvene.groups.share.group import ShareGroup
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.log.disk.memory import PowerCut
from konvene.log.errors import LogError
from konvene.share_state.requests import StateAnswer
from konvene.sim.end_to_end.broker import BROKER, DATA
from konvene.sim.end_to_end.invariant import Invariant, Violation
from konvene.sim.end_to_end.mirror import Shadow
from konvene.sim.end_to_end.share_invariants import SHARE_INVARIANTS
from konvene.sim.end_to_end.transactional_clients import TRANSACTS, ExactlyOnce, NothingStaysOpen

if TYPE_CHECKING:
    from konvene.client.consumer.consumer import Consumed
    from konvene.runtime.coordinator import Coordinator
    from konvene.sim.end_to_end.clients import Client
    from konvene.sim.end_to_end.run import Whole
    from konvene.sim.machine.loop import Host

__all__ = ["INVARIANTS", "Invariant", "Violation"]


class AcknowledgedRecordsStay(Invariant):
    """A record that was acknowledged stands at the offset that was told, whatever dies; where topics are not
    synced, whatever dies but the machine."""

    def started(self) -> None:
        if self.run.may_lose_records:
            return
        for place, rows in sorted(self.run.history.acknowledged.items()):
            for offset, value in rows.items():
                self._check(place, offset, value)

    def settled(self) -> None:
        history = self.run.history
        if not self.run.host.ready:
            return
        news, history.news = history.news, []
        if self.run.may_lose_records:
            return
        for place, offset, value in news:
            self._check(place, offset, value)

    def liveness(self) -> None:
        self.started()

    def ended(self) -> None:
        self.started()

    def _check(self, place: TopicPartition, offset: int, value: bytes) -> None:
        found = self.run.mirror.at(place, offset)
        if found != value:
            self.broken(
                f"{place} offset {offset} was acknowledged as {_short(value)} and is {_short(found)};"
                f" the log ends at {self.run.mirror.end(place)}"
            )


class OnlyWhatWasSent(Invariant):
    """A log holds what its producers sent to this partition; an idempotent producer's records once each and
    in the order in which they were sent."""

    def __init__(self, run: Whole) -> None:
        super().__init__(run)
        self._last: dict[tuple[TopicPartition, str], int] = {}

    def began(self) -> None:
        self._last.clear()

    def came(self, place: TopicPartition, offset: int, value: bytes) -> None:
        sent = self.run.history.sent.get(value)
        if sent is None or sent.place != place:
            self.broken(f"{place} offset {offset} is {_short(value)}, which nobody sent there")
        elif sent.idempotent:
            before = self._last.get((place, sent.producer), 0)
            if sent.number <= before:
                self.broken(
                    f"{place} offset {offset} is number {sent.number} of idempotent {sent.producer}, which"
                    f" stands behind its number {before}"
                )
            self._last[place, sent.producer] = sent.number


class AcknowledgedInOrder(Invariant):
    """What one producer had acknowledged in a partition lies in the order in which it was sent."""

    def ended(self) -> None:
        if self.run.may_lose_records:
            return
        for place, rows in sorted(self.run.history.acknowledged.items()):
            last: dict[str, int] = {}
            for offset in sorted(rows):
                sent = self.run.history.sent[rows[offset]]
                if last.get(sent.producer, 0) > sent.number:
                    self.broken(f"{place} offset {offset}: {sent} stands behind number {last[sent.producer]}")
                last[sent.producer] = sent.number


class CommitsStay(Invariant):
    """What a group is told that it committed is the last commit that was acknowledged, or one whose answer
    was lost; so is what the coordinator has."""

    def _elsewhere(self) -> set[str]:
        """Groups that commit in transactions: `ExactlyOnce` is about them."""
        return {c.group for c in self.run.parameters.clients if c.job == TRANSACTS}

    def offsets(self, place: tuple[str, str, int], offset: int, began: int) -> None:
        if place[0] in self._elsewhere():
            return
        if place[1] in self.run.topics and not self.run.history.may_be_committed(place, offset, began):
            self.broken(f"OffsetFetch of {place} said {offset}; {self.run.history.committed(place)}")

    def settled(self) -> None:
        history = self.run.history
        now = history.tick()
        for _, shard in self.run.shards():
            for group, topics in shard.offsets.items():
                for topic, rows in topics.items():
                    if topic not in self.run.topics or group in self._elsewhere():
                        continue
                    for partition, row in rows.items():
                        place = (group, topic, partition)
                        if not history.may_be_committed(place, row.offset, now):
                            self.broken(f"{place} stands at {row.offset}; {history.committed(place)}")

    def started(self) -> None:
        self.run.check_when_loaded(self._all_there)

    def _all_there(self) -> None:
        """No place that must have an offset is without one."""
        now = self.run.history.tick()
        known = {
            (group, topic, partition)
            for _, shard in self.run.shards()
            for group, topics in shard.offsets.items()
            for topic, rows in topics.items()
            for partition in rows
        }
        for place in sorted(self.run.history.commits):
            lost = place[1] in self.run.topics and place not in known
            if lost and not self.run.history.may_be_committed(place, -1, now):
                self.broken(f"{place} is gone; {self.run.history.committed(place)}")

    def liveness(self) -> None:
        self._all_there()


class ReadInOrder(Invariant):
    """A consumer reads each partition from where its group is, one offset behind the other, and what it reads
    is what stands there."""

    def read(self, client: Client, record: Consumed) -> None:
        place = TopicPartition(record.topic, record.partition)
        if place.topic not in self.run.topics:
            return
        before = client.read_to.get(place)
        if before is not None and record.offset != before + 1:
            self.broken(f"{client.who} read {place} offset {record.offset} behind {before}")
        client.read_to[place] = record.offset
        self.run.look(place)
        stands = self.run.mirror.at(place, record.offset)
        if stands != record.value:
            self.broken(
                f"{client.who} read {_short(record.value)} at {place} offset {record.offset}, where"
                f" {_short(stands)} stands"
            )


class ReadAtLeastOnce(Invariant):
    """Each record of a topic is read by each group that reads the topic."""

    def __init__(self, run: Whole) -> None:
        super().__init__(run)
        self.seen: dict[tuple[str, TopicPartition], dict[int, bytes]] = {}

    def read(self, client: Client, record: Consumed) -> None:
        place = TopicPartition(record.topic, record.partition)
        self.seen.setdefault((client.spec.group, place), {})[record.offset] = record.value or b""

    def missing(self) -> list[tuple[str, TopicPartition, int]]:
        """The first offset of each partition that a group has not read."""
        found = []
        for group, topics in self.run.groups():
            for place in self.run.places(topics):
                rows = self.seen.get((group, place), {})
                values = self.run.mirror.values.get(place, [])
                lost = next((i for i, value in enumerate(values) if rows.get(i) != value), None)
                if lost is not None:
                    found.append((group, place, lost))
        return found

    def liveness(self) -> None:
        for group, place, offset in self.missing():
            self.broken(
                f"group {group} never read {place} offset {offset} of {self.run.mirror.end(place)}:"
                f" {_short(self.run.mirror.at(place, offset))}; it read"
                f" {_short(self.seen.get((group, place), {}).get(offset))} there"
            )


class ShardIsItsLog(Invariant):
    """The state of a group coordinator is the fold of replay over its log, as it stands on the disk.

    It is looked at when nothing is kept for the next sync (`runtime.journal`)."""

    def __init__(self, run: Whole) -> None:
        super().__init__(run)
        self._shadows: dict[int, Shadow] = {}

    def began(self) -> None:
        self._shadows.clear()

    def settled(self) -> None:
        disk = self.run.host.disk
        if disk.dead or self.run.host.is_sick:
            return
        for index, live in self.run.shards():
            if self.run.keeps(index):
                continue
            shadow = self._shadows.get(index)
            if shadow is None:
                shadow = self._shadows[index] = Shadow(disk, f"{DATA}/{OFFSETS_TOPIC}-{index}")
            self._compare(index, live, shadow.catch_up())

    def _compare(self, index: int, live: GroupShard, shadow: GroupShard) -> None:
        if live.offsets != shadow.offsets:
            for group in sorted(live.offsets.keys() | shadow.offsets.keys()):
                if live.offsets.get(group) != shadow.offsets.get(group):
                    self.broken(
                        f"offsets of {group} in partition {index}: live {live.offsets.get(group)}, by its log"
                        f" {shadow.offsets.get(group)}"
                    )
        for name, now in live.groups.items():
            told = shadow.groups.get(name)
            if isinstance(now, ShareGroup):
                of_log = None if told is None else _told_of_share(told)
                if _told_of_share(now) != of_log:
                    self.broken(
                        f"group {name} in partition {index}: live {_told_of_share(now)}, by its log {of_log}"
                    )
                continue
            assert isinstance(now, ClassicGroup), f"{now!r} where consumers speak the classic protocol"
            assert isinstance(told, ClassicGroup | None)
            if now.state is State.STABLE:
                ours, theirs = _told(now), None if told is None else _told(told)
                if ours != theirs:
                    self.broken(f"group {name} in partition {index}: live {ours}, by its log {theirs}")
            elif told is not None and told.generation > now.generation:
                self.broken(f"group {name} is at {now.generation}, by its log at {told.generation}")
        for name in sorted(shadow.groups.keys() - live.groups.keys()):
            self.broken(f"group {name} in partition {index} stands in its log alone")


class RepliesAreDurable(Invariant):
    """No reply of a coordinator leaves before the records that it rests on are on the disk; but that a leader
    has read the state of a share partition is enough if it is written."""

    def released(self, coordinator: Coordinator, held: Any) -> None:
        if any(isinstance(response, StateAnswer) for _, response in held.replies):
            return
        journal = coordinator._journal
        needed = held.offset or journal.end_offset
        if needed > journal.synced_offset:
            self.broken(f"{coordinator!r} answers up to {needed}, synced to {journal.synced_offset}")


class RequestsEnd(Invariant):
    """Every request of a client that lives ends, with an answer or without, in its own time."""

    slack_s = 5.0

    def settled(self) -> None:
        now = self.run.loop.now
        for asked in self.run.history.open:
            if now - asked.began_s > asked.timeout_ms / 1000 + self.slack_s:
                if not self.run.was_asleep(asked.who, asked.began_s):
                    self.broken(f"{asked.who} waits for {asked.api.name} since {asked.began_s:.3f} s")
            else:
                break


class NobodyDies(Invariant):
    """No code of broker or client raises what nobody expects: no task dies of it, no traceback is logged. No
    partition goes offline while its disk is sound."""

    def failed(self, host: Host, error: BaseException, about: str) -> None:
        if isinstance(error, PowerCut | ClientError | asyncio.CancelledError):
            return
        if host.name == BROKER and isinstance(error, LogError | OSError) and self.run.disk_has_failed:
            return
        if isinstance(error, ConnectionError | TimeoutError) and host.name != BROKER:
            return
        self.run.last_error = error
        self.broken(f"{host.name}: {type(error).__name__}: {error} ({about})")

    def settled(self) -> None:
        for host in self.run.loop.hosts():
            for task in host.tasks:
                if task.done() and not task.cancelled():
                    error = task.exception()
                    if error is not None:
                        self.failed(host, error, f"task {task.get_name()}")
        broker = self.run.host.broker
        if broker is not None and broker.partitions.offline and not self.run.disk_has_failed:
            self.broken(f"offline without a reason: {sorted(broker.partitions.offline)}")


class NothingIsLeft(Invariant):
    """When all clients are gone, the broker has no connection, no request that waits, no bytes that are being
    read, and of timers those that its state demands."""

    def ended(self) -> None:
        broker = self.run.host.broker
        assert broker is not None
        left = {
            "connections": len(broker.network.connections),
            "bytes being read": broker.network.frame_buffers.held,
            "fetches that wait": sum(len(p.waiting) for p in broker.partitions),
            "requests that wait": sum(len(c._waiting) for c in self.run.host.coordinators()),
            "replies held": sum(len(c._held) for c in self.run.host.coordinators()),
            "share sessions": len(broker.share_partitions.sessions),
            "share partitions": len(broker.share_partitions.served),
            "requests for share state": len(broker.share_coordinators._waiting),
            "dead letters": len(broker.share_partitions.dead_letters._sending),
        }
        for coordinator in broker.groups.all():
            shard = coordinator.core
            assert isinstance(shard, GroupShard)
            groups = [g for g in shard.groups.values() if isinstance(g, ClassicGroup)]
            demanded = 1 + sum(len(g.members) + len(g.pending_joins) for g in groups)
            demanded += any(isinstance(g, ShareGroup) for g in shard.groups.values())
            demanded += sum(
                g.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE) for g in groups
            )
            left[f"timers of {coordinator.name} too many"] = len(coordinator._timers) - demanded
        if any(left.values()):
            self.broken(", ".join(f"{name}: {count}" for name, count in left.items() if count))


INVARIANTS: tuple[type[Invariant], ...] = (
    NobodyDies,
    OnlyWhatWasSent,
    AcknowledgedRecordsStay,
    AcknowledgedInOrder,
    CommitsStay,
    ReadInOrder,
    ReadAtLeastOnce,
    ShardIsItsLog,
    RepliesAreDurable,
    RequestsEnd,
    NothingIsLeft,
    ExactlyOnce,
    NothingStaysOpen,
    *SHARE_INVARIANTS,
)


def _short(value: bytes | None) -> str:
    if value is None:
        return "nothing"
    return repr(value[:40]) + ("..." if len(value) > 40 else "")


def _told(group: Any) -> tuple[Any, ...]:
    """What of a stable group a restart has to know."""
    members = sorted((m.member_id, m.instance_id, m.assignment) for m in group.members.values())
    return group.generation, group.protocol_type, group.protocol, sorted(group.instances.items()), members


def _told_of_share(group: Any) -> tuple[Any, ...]:
    """What of a share group a restart has to know."""
    members = sorted((m.member_id, sorted(m.topics), m.current) for m in group.members.values())
    targets = sorted((who, sorted(what.items())) for who, what in group.targets.items())
    return group.epoch, group.metadata_hash, group.assignment_epoch, members, targets, group.state_topics
