"""Whole-broker benchmarks: start, memory, connections, and restarts with much to load; each with a broker of
its own.
"""

from __future__ import annotations

import asyncio
import time

from bench.drive import run
from bench.figures import RSS, Figure, less
from bench.records import SHAPES, batch_of
from bench.requests import PARTITIONS, all_offsets_of, commit_of, committed, offsets
from bench.systems import Lab, Running, report_progress
from bench.topics import Topic, make_topic, prove, wait_for_coordinator
from bench.wire import Asking, BadAnswer, Peer, asking
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from konvene.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from konvene.messages.offset_commit import OffsetCommitResponse
from konvene.messages.offset_fetch import OffsetFetchResponse
from konvene.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

START_MS = "start, ms"
CLOSE_MS = "close, ms"
IDLE_CPU = "idle CPU, %"


def start(lab: Lab) -> list[Figure]:
    """Measure from the start of the process on an empty directory to the first ApiVersions response."""
    took = []
    for _ in range(2 * lab.windows.runs - 1):
        with lab.fresh() as running:
            running.start()
            took.append(1000 * running.ready_s)
    return [less(START_MS, took)]


def idle(lab: Lab) -> list[Figure]:
    """Measure memory and CPU of an idle broker, five seconds after its start."""
    rss, cpu = [], []
    with lab.fresh() as running:
        running.start()
        time.sleep(5 / lab.shrink)
        for _ in range(lab.windows.runs):
            before = running.cpu_s()
            time.sleep(lab.windows.seconds)
            cpu.append(100 * (running.cpu_s() - before) / lab.windows.seconds)
            rss.append(running.rss_mib())
    return [less(RSS, rss), less(IDLE_CPU, cpu)]


CONNECTIONS = 5_000


def connections(lab: Lab) -> list[Figure]:
    """Measure the cost of 5,000 idle connections that have sent ApiVersions."""
    count = lab.of(CONNECTIONS)
    each, took = [], []
    for _ in range(lab.windows.runs):
        with lab.fresh() as running:
            running.start()
            _, before = run(_connect(running, lab.of(20), 1 / lab.shrink))
            opened_s, with_them = run(_connect(running, count, 2 / lab.shrink))
            each.append(1024 * (with_them - before) / count)
            took.append(1000 * opened_s)
    return [less("KiB per connection", each), less("to open them, ms", took)]


async def _connect(running: Running, count: int, settle_s: float) -> tuple[float, float]:
    """Open `count` connections; return the seconds that took, and the memory per connection in MiB."""
    began = time.perf_counter()
    lines: list[Asking] = []
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    for _ in range(count):
        lines.append(await asking(running.port))
        await lines[-1].ask(request, ApiVersionsResponse)
    took = time.perf_counter() - began
    await asyncio.sleep(settle_s)
    mib = running.rss_mib()
    for line in lines:
        line.transport.close()
    return took, mib


GROUPS = 10_000
WRITERS = 16
LOADED_MS = "all partitions right, ms"
FIRST_MS = "first right OffsetFetch, ms"


def load(lab: Lab) -> list[Figure]:
    """Measure a restart with 1,000,000 committed offsets of 10,000 groups: from the start of the process
    until the offsets of one group are returned, and until those of a group of each log partition are."""
    groups = [f"load-{i}" for i in range(lab.of(GROUPS))]
    first, loaded, rss = [], [], []
    with lab.fresh() as running:
        running.start()
        topic = make_topic(running, PARTITIONS)
        wait_for_coordinator(running, groups[0])
        for group in groups[:WRITERS]:
            prove(running, commit_of(group, topic, PARTITIONS, 1), OffsetCommitResponse, committed)
        run(_commit_all(running.port, topic, groups))
        running.stop()
        for _ in range(lab.windows.runs):
            running.start()
            for i in range(0, len(groups), max(1, len(groups) // 16)):
                _wait_for_offsets(running, groups[i], i + 1)
                if not i:
                    first.append(1000 * running.age_s())
            loaded.append(1000 * running.age_s())
            rss.append(running.rss_mib())
            report_progress(f"  {loaded[-1]:.0f} ms")
            running.stop()
    return [less(FIRST_MS, first), less(LOADED_MS, loaded), less(RSS, rss)]


async def _commit_all(port: int, topic: Topic, groups: list[str]) -> None:
    """Commit a hundred offsets of each group, derived from its number."""

    async def write(first: int) -> None:
        line = await asking(port)
        for i in range(first, len(groups), WRITERS):
            request = commit_of(groups[i], topic, PARTITIONS, i + 1)
            if not committed(await line.ask(request, OffsetCommitResponse)):
                raise BadAnswer(f"the commit of {groups[i]} was refused")
        line.transport.close()

    async with asyncio.TaskGroup() as writers:
        for first in range(WRITERS):
            writers.create_task(write(first))


def _wait_for_offsets(running: Running, group: str, offset: int) -> None:
    """Repeat OffsetFetch until the group's offsets are returned; raises BadAnswer for wrong ones."""

    def right(answer: OffsetFetchResponse) -> bool:
        found = offsets(answer)
        if found and found != [offset] * PARTITIONS:
            raise BadAnswer(f"{group}: {found[:3]} …, not {offset}")
        return bool(found)

    prove(running, all_offsets_of(group), OffsetFetchResponse, right)


TOPICS = 10
PARTITIONS_EACH = 1_000
#: No further turn after so long: Kafka needs minutes for one.
LONG_S = 60


def partitions(lab: Lab) -> list[Figure]:
    """Measure starts with 10,000 partitions until ListOffsets of the last one works, after a clean close, and
    after kill -9 with records written since the last start."""
    starts: list[float] = []
    recoveries: list[float] = []
    closes: list[float] = []
    with lab.fresh() as running:
        running.start()
        began = time.perf_counter()
        topics = [make_topic(running, lab.of(PARTITIONS_EACH)) for _ in range(lab.of(TOPICS))]
        _write_to_each(running, topics)
        made = 1000 * (time.perf_counter() - began)
        for turn in range(lab.windows.runs):
            if turn and time.perf_counter() - began > LONG_S:
                break
            closes.append(1000 * running.stop())
            running.start()
            _wait_for_records(running, topics[-1], 2 * turn + 1)
            starts.append(1000 * running.age_s())
            rss, descriptors = running.rss_mib(), float(running.descriptors())
            _write_to_each(running, topics)
            running.kill()
            running.start()
            _wait_for_records(running, topics[-1], 2 * turn + 2)
            recoveries.append(1000 * running.age_s())
            report_progress(f"  start {starts[-1]:.0f} ms, after kill -9 {recoveries[-1]:.0f} ms")
            _write_to_each(running, topics)
    return [
        less("to make and fill them, ms", [made]),
        less("start after a clean close, ms", starts),
        less("start after kill -9, ms", recoveries),
        less("close, ms", closes),
        less(RSS, [rss]),
        less("descriptors", [descriptors]),
    ]


def _write_to_each(running: Running, topics: list[Topic]) -> None:
    """Write one record to every partition, retrying those that are not available yet."""
    batch = batch_of(SHAPES[1])
    with Peer(running.port) as peer:
        for topic in topics:
            missing = list(range(topic.partitions))
            until = time.monotonic() + 120
            while missing:
                data = tuple(PartitionProduceData(index=i, records=batch) for i in missing)
                topic_data = TopicProduceData(topic_id=topic.topic_id, partition_data=data)
                request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic_data,))
                answers = peer.ask(request, ProduceResponse).responses[0].partition_responses
                missing = [a.index for a in answers if a.error_code]
                if missing and time.monotonic() > until:
                    raise RuntimeError(f"{topic.name}: {len(missing)} partitions take no record")
                time.sleep(0.02 if missing else 0)


def _wait_for_records(running: Running, topic: Topic, count: int) -> None:
    """Repeat ListOffsets until the topic's last partition has the expected end offset."""
    wanted = ListOffsetsPartition(partition_index=topic.partitions - 1, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(wanted,)),)
    )

    def right(answer: ListOffsetsResponse) -> bool:
        found = answer.topics[0].partitions[0]
        if found.error_code == 0 and found.offset != count:
            raise BadAnswer(f"{topic.name} ends at {found.offset}, not {count}")
        return found.error_code == 0

    prove(running, request, ListOffsetsResponse, right)
