"""Share groups (KIP-932): delivery of records, keep-alive heartbeats, and one change in a group.

Four members fetch eight partitions in a closed loop; a record counts once its acknowledgement is answered.
`in batches` fetches 500 records at a time and accepts them with the next fetch; `singles` fetches one record
and sends a ShareAcknowledge for it. For comparison the same records are consumed with fetches of the same
size and an OffsetCommit after each; the ratio is taken from alternating runs.

The load generator uses an event loop, so the rate per wall-clock second is less meaningful than that per CPU
second of the broker.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from bench.drive import Caller, Repeated, drive, run
from bench.figures import Figure, rates
from bench.records import SHAPES, batch_of, produce_of, produced
from bench.settling import broker, changes, costs, gathered, software, stable
from bench.sharers import sharers
from bench.systems import NO_SYNC, TICK_S, Lab, Running, report_progress
from bench.topics import Topic, make_topic, new_name, prove, wait_for_coordinator
from bench.wire import Asking, BadAnswer, Peer, asking, frame_of
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from konvene.messages.produce import ProduceResponse
from konvene.messages.share_acknowledge import (
    AcknowledgementBatch as Acknowledged,
)
from konvene.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from konvene.messages.share_fetch import (
    AcknowledgementBatch,
    ShareFetchRequest,
    ShareFetchResponse,
)
from konvene.messages.share_fetch import (
    FetchPartition as SharePartition,
)
from konvene.messages.share_fetch import (
    FetchTopic as ShareTopic,
)
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

PARTITIONS = 8
MEMBERS = 4
RECORDS = 500_000
A_BATCH = 100
A_FETCH = 500
SINGLES = 12_000
MOST_BYTES = 50 << 20
#: Of 500 records in batches of 100, with some room.
FETCH_BYTES = 60_000
GROUP, SET = 32, 0
ACCEPT = (1,)
#: Errors while the coordinator loads or moves, which Kafka also returns while it creates its topics.
NOT_YET = (14, 15, 16)
RECORD_LIMIT = 1


class Spent(NamedTuple):
    """Time and CPU for a number of records."""

    records: int
    cpu_s: float
    wall_s: float


class Member:
    """A member of a share group with a connection of its own."""

    def __init__(self, line: Asking, topic: Topic, group: str, member_id: str) -> None:
        self.line, self.topic, self.group = line, topic, group
        self.member_id = member_id
        self.epoch = 0
        self.accepted = 0
        self.again = 0
        """Number of redelivered records."""
        self._has: dict[int, list[tuple[int, int]]] = {}

    def __repr__(self) -> str:
        return f"<{self.member_id} of {self.group}: {self.accepted} accepted>"

    async def fetch(self, most: int, mode: int = 0) -> int:
        """Accept the acquired records and fetch up to `most` more; return the number of new records."""
        accepting = sum(last - first + 1 for has in self._has.values() for first, last in has)
        partitions = range(self.topic.partitions) if self.epoch == 0 else sorted(self._has)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=MOST_BYTES,
            max_records=most,
            batch_size=most,
            share_acquire_mode=mode,
            topics=(
                ShareTopic(topic_id=self.topic.topic_id, partitions=tuple(map(self._partition, partitions))),
            )
            if partitions
            else (),
        )
        answer = await self.line.ask(request, ShareFetchResponse, 2)
        _check(answer.error_code)
        self.epoch += 1
        self._has = {}
        came = 0
        for topic in answer.responses:
            for partition in topic.partitions:
                _check(partition.error_code or partition.acknowledge_error_code)
                for batch in partition.acquired_records:
                    has = self._has.setdefault(partition.partition_index, [])
                    has.append((batch.first_offset, batch.last_offset))
                    records = batch.last_offset - batch.first_offset + 1
                    came += records
                    self.again += records if batch.delivery_count > 1 else 0
        self.accepted += accepting
        return came

    def _partition(self, index: int) -> SharePartition:
        has = self._has.get(index, ())
        acknowledged = tuple(
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=ACCEPT)
            for first, last in has
        )
        return SharePartition(partition_index=index, acknowledgement_batches=acknowledged)

    async def acknowledge(self) -> None:
        """Accept the acquired records with a ShareAcknowledge."""
        partitions = tuple(
            AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=tuple(
                    Acknowledged(first_offset=first, last_offset=last, acknowledge_types=ACCEPT)
                    for first, last in has
                ),
            )
            for index, has in self._has.items()
        )
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            topics=(AcknowledgeTopic(topic_id=self.topic.topic_id, partitions=partitions),),
        )
        answer = await self.line.ask(request, ShareAcknowledgeResponse, 2)
        _check(answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                _check(partition.error_code)
        self.epoch += 1
        self.accepted += sum(last - first + 1 for has in self._has.values() for first, last in has)
        self._has = {}


def _check(code: int) -> None:
    if code:
        raise BadAnswer(f"a member of a share group received error {code}")


# --- records ---------------------------------------------------------------------------------------


Take = Callable[[Sequence[Member], int], Coroutine[Any, Any, None]]
"""Function with which members consume a number of records."""


def in_batches(lab: Lab) -> list[Figure]:
    """Measure fetches of 500 records, accepted by the next fetch."""
    return _delivered(lab, lab.of(RECORDS), _take_batches)


def singles(lab: Lab, sync: bool = True) -> list[Figure]:
    """Measure fetches of one record with a ShareAcknowledge for each."""
    return _delivered(lab, lab.of(SINGLES), _take_singles, None if sync else NO_SYNC)


def beside(lab: Lab) -> list[Figure]:
    """Measure consuming the same records with Fetch and OffsetCommit, alternating with a share group so that
    both run under the same machine load."""
    records = lab.of(RECORDS)
    running, topic = _filled(lab, records)
    shared: list[Spent] = []

    async def measure() -> Spent:
        shared.append(await _deliver(running, topic, records, _take_batches))
        return await _spend(running, records, lambda: _consume(running, topic))

    found = _windows(lab, running, "share-beside", measure)
    ratios = [
        one.cpu_s / max(other.cpu_s, TICK_S) for one, other in zip(found, shared[-len(found) :], strict=True)
    ]
    return [*_rates(found), Figure("a share group's records per CPU s, of these", tuple(ratios))]


def _delivered(lab: Lab, records: int, take: Take, settings: dict[str, str] | None = None) -> list[Figure]:
    running, topic = _filled(lab, records, settings)

    async def measure() -> Spent:
        return await _deliver(running, topic, records, take)

    return _rates(_windows(lab, running, take.__name__, measure))


async def _deliver(running: Running, topic: Topic, records: int, take: Take) -> Spent:
    """Deliver all records to a new group."""
    members = await _joined(running, topic)
    spent = await _spend(running, records, lambda: take(members, records))
    again = sum(member.again for member in members)
    if again:
        report_progress(f"  {again} records came more than once")
    for member in members:
        member.line.transport.close()
    return spent


def _windows(
    lab: Lab, running: Running, family: str, measure: Callable[[], Coroutine[Any, Any, Spent]]
) -> list[Spent]:
    """Repeat a measurement for each window, after warm-up runs in which a JVM compiles."""
    windows = lab.warmed(running, family)
    warm_until = time.monotonic() + windows.warm_s
    while time.monotonic() < warm_until:
        run(measure())
    found = []
    for _ in range(windows.runs):
        found.append(run(measure()))
        report_progress(f"  {found[-1].records} records, CPU {found[-1].cpu_s:.2f} s")
    return found


def _rates(found: Sequence[Spent]) -> list[Figure]:
    return [
        Figure("records per CPU s", tuple(s.records / max(s.cpu_s, TICK_S) for s in found)),
        Figure("records per s", tuple(s.records / s.wall_s for s in found)),
    ]


def _filled(lab: Lab, records: int, settings: dict[str, str] | None = None) -> tuple[Running, Topic]:
    running = lab.shared(settings)
    topic = make_topic(running, PARTITIONS)
    batch = batch_of(SHAPES[A_BATCH])
    for number in range(max(records // A_BATCH, 1)):
        prove(running, produce_of(topic, number % PARTITIONS, batch), ProduceResponse, produced)
    return running, topic


async def _spend(running: Running, records: int, story: Callable[[], Awaitable[None]]) -> Spent:
    cpu, began = running.cpu_s(), time.perf_counter()
    await story()
    return Spent(records, running.cpu_s() - cpu, time.perf_counter() - began)


async def _joined(running: Running, topic: Topic) -> list[Member]:
    """Return members of a new group that starts at the earliest offset and owns all partitions."""
    group = new_name("share")
    wait_for_coordinator(running, group)
    reset = AlterableConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=(reset,))
    with Peer(running.port) as peer:
        peer.ask(IncrementalAlterConfigsRequest(resources=(resource,)), IncrementalAlterConfigsResponse)
    members = [
        Member(await asking(running.port), topic, group, secrets.token_urlsafe(16)) for _ in range(MEMBERS)
    ]
    epochs = dict.fromkeys((member.member_id for member in members), 0)
    has: dict[str, int] = {}
    until = time.monotonic() + 60
    while sum(has.values()) < topic.partitions or len(has) < len(members):
        for member in members:
            request = ShareGroupHeartbeatRequest(
                group_id=group,
                member_id=member.member_id,
                member_epoch=epochs[member.member_id],
                subscribed_topic_names=(topic.name,) if not epochs[member.member_id] else None,
            )
            answer = await member.line.ask(request, ShareGroupHeartbeatResponse, 1)
            if answer.error_code in NOT_YET:
                continue
            _check(answer.error_code)
            epochs[member.member_id] = answer.member_epoch
            if answer.assignment is not None:
                given = answer.assignment.topic_partitions
                has[member.member_id] = sum(len(topic.partitions) for topic in given)
        if time.monotonic() > until:
            raise BadAnswer(f"{group} has no partitions after a minute: {has}")
        await asyncio.sleep(0.05)
    return members


async def _take_batches(members: Sequence[Member], records: int) -> None:
    async def go_on(member: Member) -> None:
        while sum(other.accepted for other in members) < records:
            await member.fetch(A_FETCH)

    await asyncio.gather(*map(go_on, members))


async def _take_singles(members: Sequence[Member], records: int) -> None:
    async def go_on(member: Member) -> None:
        while sum(other.accepted for other in members) < records:
            if await member.fetch(1, RECORD_LIMIT):
                await member.acknowledge()

    await asyncio.gather(*map(go_on, members))


async def _consume(running: Running, topic: Topic) -> None:
    group = new_name("group")
    wait_for_coordinator(running, group)

    async def consume(line: Asking, partitions: Sequence[int]) -> None:
        for partition in partitions:
            offset = 0
            while True:
                wanted = FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
                )
                answer = await line.ask(
                    FetchRequest(
                        max_wait_ms=0,
                        min_bytes=1,
                        max_bytes=FETCH_BYTES,
                        topics=(FetchTopic(topic_id=topic.topic_id, partitions=(wanted,)),),
                    ),
                    FetchResponse,
                )
                data = answer.responses[0].partitions[0]
                _check(data.error_code)
                if not data.records:
                    break
                offset += min(A_FETCH, data.high_watermark - offset)
                committed = OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=""
                )
                topics = (OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=(committed,)),)
                request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
                done = await line.ask(request, OffsetCommitResponse)
                _check(done.topics[0].partitions[0].error_code)
        line.transport.close()

    each = -(-topic.partitions // MEMBERS)
    lines = [await asking(running.port) for _ in range(0, topic.partitions, each)]
    await asyncio.gather(
        *(
            consume(line, range(n * each, min((n + 1) * each, topic.partitions)))
            for n, line in enumerate(lines)
        )
    )


# --- the group -------------------------------------------------------------------------------------

CONNECTIONS = 64
GROUPS = 10
A_GROUP = 100
#: A heartbeat's answer up to its error code; the same for all members, but for their ids and epochs.
SAME = 11


def heartbeat(lab: Lab) -> list[Figure]:
    """Measure keep-alive heartbeats of ten stable groups of a hundred members; one connection sends for many
    members."""
    running = broker(lab, "share", "kafka")
    topic = make_topic(running, lab.of(A_GROUP))
    beats: list[ShareGroupHeartbeatRequest] = []
    for _ in range(lab.of(GROUPS)):
        crowd = run(gathered(sharers(running.port, topic, fast_setup=True), lab.of(A_GROUP)))
        beats += [
            ShareGroupHeartbeatRequest(group_id=crowd.group, member_id=m.member_id, member_epoch=m.epoch)
            for m in crowd.members
        ]
    proven = prove(running, beats[0], ShareGroupHeartbeatResponse, lambda answer: answer.error_code == 0)
    frames = [frame_of(beat) for beat in beats]
    connections = min(CONNECTIONS, len(frames))
    callers: list[Caller] = [Repeated(frames[i::connections], proven, SAME) for i in range(connections)]
    windows = lab.warmed(running, "share-heartbeat")
    return rates(drive(running.port, callers, 1, windows, running.cpu_s))


def change(lab: Lab, size: int, policy: str) -> list[Figure]:
    """Measure the time until the group is stable again after one member joins and after one leaves."""
    running, members = broker(lab, "share", policy), lab.of(size)
    topic = make_topic(running, 2 * members)

    async def measure() -> list[Figure]:
        crowd = await stable(lab, sharers(running.port, topic, software(policy)), members)
        joins, leaves = await changes(lab, running, crowd)
        return costs(joins, "one joins: ") + costs(leaves, "one leaves: ")

    return run(measure())
