"""Invariants between a whole broker and its clients, one class each.

The docstring of an invariant states it. An invariant defines those of these callbacks that it needs:

- `began`: a new life of the broker is ready; `started`: its logs have been read, too;
- `settled`: some steps were taken (`check_every` of the run), and no step is in progress;
- `came`: a record was appended to a log;
- `read`, `offsets`, `answered`: a client received a record, committed offsets, or any response;
- `shared`, `acknowledged`: a share consumer received a record, or the confirmation of acknowledged offsets;
- `released`: a coordinator releases replies; `failed`: code raised an exception;
- `liveness`: faults have ended and the groups are stable; `ended`: the clients have stopped, the broker runs.

A violated invariant raises `Violation`, to which the run adds the seed, the step and the last events.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from konvene.client.errors import ClientError
from konvene.client.net.cluster import TopicPartition
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.modern.group import ModernGroup
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
from konvene.sim.end_to_end.transactional_clients import (
    TRANSACTS,
    CompletedTransactionsAreClosed,
    ExactlyOnce,
)

if TYPE_CHECKING:
    from konvene.client.consumer.consumer import Consumed
    from konvene.runtime.coordinator import Coordinator
    from konvene.sim.end_to_end.clients import Client
    from konvene.sim.end_to_end.run import EndToEndRun
    from konvene.sim.machine.loop import Host

__all__ = ["INVARIANTS", "Invariant", "Violation"]


class AcknowledgedRecordsStay(Invariant):
    """An acknowledged record stays at the reported offset, whatever dies; if topics are not synced, whatever
    dies except the machine."""

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
        unchecked, history.unchecked = history.unchecked, []
        if self.run.may_lose_records:
            return
        for place, offset, value in unchecked:
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
    """A log holds only what producers sent to this partition; the records of an idempotent producer once each
    and in order."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self._last: dict[tuple[TopicPartition, str], int] = {}

    def began(self) -> None:
        self._last.clear()

    def came(self, place: TopicPartition, offset: int, value: bytes) -> None:
        sent = self.run.history.sent.get(value)
        if sent is None or sent.place != place:
            self.broken(f"{place} offset {offset} is {_short(value)}, which no producer sent there")
        elif sent.idempotent:
            before = self._last.get((place, sent.producer), 0)
            if sent.number <= before:
                self.broken(
                    f"{place} offset {offset} is number {sent.number} of idempotent {sent.producer}, which"
                    f" stands behind its number {before}"
                )
            self._last[place, sent.producer] = sent.number


class AcknowledgedInOrder(Invariant):
    """Records that one producer had acknowledged in a partition are in the order in which they were sent."""

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


class CommittedOffsetsNeverRegress(Invariant):
    """Fetched and stored offsets are the last acknowledged commit, or a later one whose response was lost."""

    def _transactional_groups(self) -> set[str]:
        """Return the groups that commit in transactions; `ExactlyOnce` checks their offsets."""
        return {c.group for c in self.run.parameters.clients if c.job == TRANSACTS}

    def offsets(self, place: tuple[str, str, int], offset: int, began: int) -> None:
        if place[0] in self._transactional_groups():
            return
        if place[1] in self.run.topics and not self.run.history.may_be_committed(place, offset, began):
            self.broken(f"OffsetFetch of {place} returned {offset}; {self.run.history.committed(place)}")

    def settled(self) -> None:
        history = self.run.history
        now = history.tick()
        for _, shard in self.run.shards():
            for group, topics in shard.offsets.items():
                for topic, rows in topics.items():
                    if topic not in self.run.topics or group in self._transactional_groups():
                        continue
                    for partition, row in rows.items():
                        place = (group, topic, partition)
                        if not history.may_be_committed(place, row.offset, now):
                            self.broken(f"{place} stands at {row.offset}; {history.committed(place)}")

    def started(self) -> None:
        self.run.check_when_loaded(self._check_present)

    def _check_present(self) -> None:
        """Check that the broker has a committed offset for each partition with an acknowledged commit."""
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
                self.broken(f"{place} is missing; {self.run.history.committed(place)}")

    def liveness(self) -> None:
        self._check_present()


class ReadInOrder(Invariant):
    """A consumer reads each partition from its group's position, offset after offset, and the values are
    those in the log."""

    def read(self, client: Client, record: Consumed) -> None:
        place = TopicPartition(record.topic, record.partition)
        if place.topic not in self.run.topics:
            return
        before = client.read_to.get(place)
        if before is not None and record.offset != before + 1:
            self.broken(f"{client.client_id} read {place} offset {record.offset} behind {before}")
        client.read_to[place] = record.offset
        self.run.look(place)
        stands = self.run.mirror.at(place, record.offset)
        if stands != record.value:
            self.broken(
                f"{client.client_id} read {_short(record.value)} at {place} offset {record.offset}, where"
                f" {_short(stands)} stands"
            )


class ReadAtLeastOnce(Invariant):
    """Each record of a topic is read by each group that subscribes to the topic."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self.seen: dict[tuple[str, TopicPartition], dict[int, bytes]] = {}

    def read(self, client: Client, record: Consumed) -> None:
        place = TopicPartition(record.topic, record.partition)
        self.seen.setdefault((client.spec.group, place), {})[record.offset] = record.value or b""

    def missing(self) -> list[tuple[str, TopicPartition, int]]:
        """Return (group, partition, first unread offset) for each partition that a group has not read to its
        end."""
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
    """The state of a group coordinator equals the replay of its log on the disk.

    It is compared when the coordinator's journal (`runtime.journal`) has written all records that it
    received."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self._shadows: dict[int, Shadow] = {}

    def began(self) -> None:
        self._shadows.clear()

    def settled(self) -> None:
        disk = self.run.host.disk
        if disk.dead or self.run.host.disk_is_offline:
            return
        for index, live in self.run.shards():
            if self.run.has_buffered_records(index):
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
            replayed = shadow.groups.get(name)
            if isinstance(now, ModernGroup):
                of_log = _durable_modern_state(replayed) if isinstance(replayed, ModernGroup) else None
                if _durable_modern_state(now) != of_log:
                    self.broken(
                        f"group {name} in partition {index}: live {_durable_modern_state(now)},"
                        f" by its log {of_log}"
                    )
                continue
            assert isinstance(now, ClassicGroup), f"{now!r} is not a classic group"
            assert isinstance(replayed, ClassicGroup | None)
            if now.state is State.STABLE:
                ours, replayed_state = (
                    _durable_state(now),
                    None if replayed is None else _durable_state(replayed),
                )
                if ours != replayed_state:
                    self.broken(
                        f"group {name} in partition {index}: live {ours}, by its log {replayed_state}"
                    )
            elif replayed is not None and replayed.generation > now.generation:
                self.broken(f"group {name} is at {now.generation}, by its log at {replayed.generation}")
        for name in sorted(shadow.groups.keys() - live.groups.keys()):
            self.broken(f"group {name} in partition {index} stands in its log alone")


class RepliesAreDurable(Invariant):
    """No reply of a coordinator leaves before the records that it depends on are synced to the disk; a reply
    with the state of a share partition need not wait for a sync."""

    def released(self, coordinator: Coordinator, held: Any) -> None:
        if any(isinstance(response, StateAnswer) for _, response in held.replies):
            return
        journal = coordinator._journal
        needed = held.offset or journal.end_offset
        if needed > journal.synced_offset:
            self.broken(f"{coordinator!r} answers up to {needed}, synced to {journal.synced_offset}")


class RequestsEnd(Invariant):
    """Every request of a live client completes, with a response or an error, within its timeout."""

    slack_s = 5.0

    def settled(self) -> None:
        now = self.run.loop.now
        for pending in self.run.history.open:
            if now - pending.began_s > pending.timeout_ms / 1000 + self.slack_s:
                if not self.run.was_paused(pending.client_id, pending.began_s):
                    self.broken(
                        f"{pending.client_id} waits for {pending.api.name} since {pending.began_s:.3f} s"
                    )
            else:
                break


class NoUnexpectedErrors(Invariant):
    """Broker and clients raise no unexpected exception and log no traceback; no partition goes offline while
    its disk works."""

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
    """When all clients have left, the broker has no connection, no waiting request, no bytes being read, and
    only the timers that its state requires."""

    def _has_outsiders(self) -> bool:
        """Return True if share sessions may be of clients that are not members: users whose heartbeats are
        denied fetch nevertheless. As in Kafka, their share partitions stay until the group is empty again."""
        return self.run.parameters.secured is not None

    def ended(self) -> None:
        broker = self.run.host.broker
        assert broker is not None
        left = {
            "connections": len(broker.network.connections),
            "bytes being read": broker.network.frame_buffers.incomplete_bytes,
            "fetches that wait": sum(len(p.waiting) for p in broker.partitions),
            "requests that wait": sum(len(c._waiting) for c in self.run.host.coordinators()),
            "replies held": sum(len(c._held) for c in self.run.host.coordinators()),
            "share sessions": len(broker.share_partitions.sessions),
            "share partitions": 0 if self._has_outsiders() else len(broker.share_partitions.served),
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
    NoUnexpectedErrors,
    OnlyWhatWasSent,
    AcknowledgedRecordsStay,
    AcknowledgedInOrder,
    CommittedOffsetsNeverRegress,
    ReadInOrder,
    ReadAtLeastOnce,
    ShardIsItsLog,
    RepliesAreDurable,
    RequestsEnd,
    NothingIsLeft,
    ExactlyOnce,
    CompletedTransactionsAreClosed,
    *SHARE_INVARIANTS,
)


def _short(value: bytes | None) -> str:
    if value is None:
        return "nothing"
    return repr(value[:40]) + ("..." if len(value) > 40 else "")


def _durable_state(group: ClassicGroup) -> tuple[object, ...]:
    """Return the part of a stable classic group that a restart has to restore, to be compared: generation,
    protocol, static members and assignments."""
    members = sorted((m.member_id, m.instance_id, m.assignment) for m in group.members.values())
    return group.generation, group.protocol_type, group.protocol, sorted(group.instances.items()), members


def _durable_modern_state(group: ModernGroup[Any]) -> tuple[object, ...]:
    """Return the part of a consumer, streams or share group that a restart has to restore, to be compared."""
    if isinstance(group, ShareGroup):
        return _durable_share_state(group)
    return group.group_type, group.epoch, group.assignment_epoch, group.members, group.targets


def _durable_share_state(group: ShareGroup) -> tuple[object, ...]:
    """Return the part of a share group that a restart has to restore, to be compared: epochs, subscriptions,
    target and current assignments, and the topics with share state."""
    members = sorted((m.member_id, sorted(m.topics), m.current) for m in group.members.values())
    targets = sorted((client_id, sorted(what.items())) for client_id, what in group.targets.items())
    return group.epoch, group.metadata_hash, group.assignment_epoch, members, targets, group.state_topics
