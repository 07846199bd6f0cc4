"""Share groups (KIP-932): records to members that accept them, keep-alive heartbeats, one change in a group.

Four members fetch eight partitions as fast as they are answered; a record is counted when its acknowledgement
was answered. `in batches` is 500 records a fetch, and the next fetch accepts them; `singles` is one record,
and a ShareAcknowledge of its own. Beside them stand the same records as a consumer has them: each fetch as
large, and an OffsetCommit after each; and what part of its rate a share group reaches, taken by turns.

The load comes from an event loop, so the rate per second of the wall clock says less than that per CPU second
of the broker.
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
#: The coordinator loads, is not there, or is not this one: Kafka says so while it makes its topics.
NOT_YET = (14, 15, 16)
RECORD_LIMIT = 1


class Spent(NamedTuple):
    """What so many records took."""

    records: int
    cpu_s: float
    wall_s: float


class Member:
    """A member of a share group, on a connection of its own."""

    def __init__(self, line: Asking, topic: Topic, group: str, member_id: str) -> None:
        self.line, self.topic, self.group = line, topic, group
        self.member_id = member_id
        self.epoch = 0
        self.accepted = 0
        self.again = 0
        """Records that somebody had before."""
        self._has: dict[int, list[tuple[int, int]]] = {}

    def __repr__(self) -> str:
        return f"<{self.member_id} of {self.group}: {self.accepted} accepted>"

    async def fetch(self, most: int, mode: int = 0) -> int:
        """Accept what it has, and acquire so many more. How many records came."""
        accepting = sum(last - first + 1 for has in self._has.values() for first, last in has)
        partitions = range(self.topic.partitions) if self.epoch == 0 else sorted(self._has)
        asked = ShareFetchRequest(
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
        answer = await self.line.ask(asked, ShareFetchResponse, 2)
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
        """Accept what it has, by a request of its own."""
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
        asked = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            topics=(AcknowledgeTopic(topic_id=self.topic.topic_id, partitions=partitions),),
        )
        answer = await self.line.ask(asked, ShareAcknowledgeResponse, 2)
        _check(answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                _check(partition.error_code)
        self.epoch += 1
        self.accepted += sum(last - first + 1 for has in self._has.values() for first, last in has)
        self._has = {}


def _check(code: int) -> None:
    if code:
        raise BadAnswer(f"a member of a share group was told error {code}")


# --- records ---------------------------------------------------------------------------------------


Take = Callable[[Sequence[Member], int], Coroutine[Any, Any, None]]
"""How members take so many records."""


def in_batches(lab: Lab) -> list[Figure]:
    """500 records a fetch, accepted by the next one."""
    return _delivered(lab, lab.of(RECORDS), _take_batches)


def singles(lab: Lab, sync: bool = True) -> list[Figure]:
    """One record a fetch, and one ShareAcknowledge for each."""
    return _delivered(lab, lab.of(SINGLES), _take_singles, None if sync else NO_SYNC)


def beside(lab: Lab) -> list[Figure]:
    """The same records by Fetch, as many at a time, with an OffsetCommit after each; and by turns with it a
    share group again, so that both are taken while the machine is as busy."""
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
    """All records to a new group."""
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
    """So often as is asked for, after a warm-up of whole runs: a JVM compiles in it."""
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
    """Members of a new group that begins at the start of the topic, and have all partitions."""
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
            asked = ShareGroupHeartbeatRequest(
                group_id=group,
                member_id=member.member_id,
                member_epoch=epochs[member.member_id],
                subscribed_topic_names=(topic.name,) if not epochs[member.member_id] else None,
            )
            answer = await member.line.ask(asked, ShareGroupHeartbeatResponse, 1)
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
                asked = FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
                )
                answer: Any = await line.ask(
                    FetchRequest(
                        max_wait_ms=0,
                        min_bytes=1,
                        max_bytes=FETCH_BYTES,
                        topics=(FetchTopic(topic_id=topic.topic_id, partitions=(asked,)),),
                    ),
                    FetchResponse,
                )
                data = answer.responses[0].partitions[0]
                _check(data.error_code)
                if not data.records:
                    break
                offset += min(A_FETCH, data.high_watermark - offset)
                told = OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=""
                )
                topics = (OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=(told,)),)
                committed = OffsetCommitRequest(
                    group_id=group, generation_id_or_member_epoch=-1, topics=topics
                )
                done = await line.ask(committed, OffsetCommitResponse)
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
    """Heartbeats with nothing to say, of ten stable groups of a hundred; a connection speaks for many."""
    running = broker(lab, "share", "kafka")
    topic = make_topic(running, lab.of(A_GROUP))
    beats: list[ShareGroupHeartbeatRequest] = []
    for _ in range(lab.of(GROUPS)):
        crowd = run(gathered(sharers(running.port, topic, hurries=True), lab.of(A_GROUP)))
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
    """One more joins, one leaves: until all are where they are meant to be."""
    running, members = broker(lab, "share", policy), lab.of(size)
    topic = make_topic(running, 2 * members)

    async def measure() -> list[Figure]:
        crowd = await stable(lab, sharers(running.port, topic, software(policy)), members)
        joins, leaves = await changes(lab, running, crowd)
        return costs(joins, "one joins: ") + costs(leaves, "one leaves: ")

    return run(measure())
