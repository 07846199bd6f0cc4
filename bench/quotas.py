"""Rates under quotas: what a client produces and fetches in 30 seconds, beside Apache Kafka.

    python -m bench.quotas [--kafka] [--seconds 30] [--rate 1000000] [--connections 1]

Each connection sends the next request as soon as it has a response: only the broker slows it down. A burst is
permitted in the first seconds, so the rate over a short time is above the quota. Fetched bytes are those of
the records in responses; with Kafka as with konvene a throttled fetch has none.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.against.brokers import Broker, Kafka, Konvene

from bench.systems import Running, report_progress
from bench.topics import make_topic
from bench.wire import Peer
from konvene.codec.batches import Record, build
from konvene.codec.uuid import Uuid
from konvene.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from konvene.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VALUE_BYTES = 10_000
RECORDS = 5
"""Records of a Produce request: about 50 kB."""


class Measured(NamedTuple):
    """Bytes of produced or fetched records, number of requests, and the sum of the throttle times in ms."""

    size: int = 0
    requests: int = 0
    throttle_ms: int = 0


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--kafka", action="store_true", help="measure Apache Kafka as well")
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument("--rate", type=int, default=1_000_000, help="quota in bytes per second")
    options.add_argument("--connections", type=int, default=1)
    arguments = options.parse_args()
    kinds: list[type[Broker]] = [Konvene, Kafka] if arguments.kafka else [Konvene]
    for kind in kinds:
        with tempfile.TemporaryDirectory() as place:
            broker = kind(Path(place))
            running = Running(broker)
            broker.start(within_s=240)
            try:
                measure(running, arguments.seconds, arguments.rate, arguments.connections)
            finally:
                broker.kill9()


def measure(running: Running, seconds: float, rate: int, connections: int) -> None:
    """Print the rates of producers, then of consumers, that share a quota."""
    topic = make_topic(running, 1)
    with Peer(running.port) as peer:
        fill(peer, topic.topic_id)
        limit(peer, rate)
    for name, client in (("produced", producer), ("fetched", consumer)):
        results = together(partial(client, running.port, topic.topic_id, seconds), connections)
        size = sum(result.size for result in results)
        report_progress(
            f"{running.broker.name:<8} {name:<9} {size / seconds:>12,.0f} bytes/s,"
            f" {size / seconds / rate:.1%} of the quota; {sum(r.requests for r in results):,} requests,"
            f" throttled for {sum(r.throttle_ms for r in results) / 1000:.1f} s"
        )


def together(run: Callable[[], Measured], count: int) -> list[Measured]:
    """Run a function in several threads and return the results."""
    results: list[Measured] = []
    threads = [threading.Thread(target=lambda: results.append(run())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def limit(peer: Peer, rate: int) -> None:
    """Set both quotas of the only user."""
    entity = (EntityData(entity_type="user", entity_name="ANONYMOUS"),)
    ops = tuple(OpData(key=key, value=float(rate)) for key in ("producer_byte_rate", "consumer_byte_rate"))
    request = AlterClientQuotasRequest(entries=(EntryData(entity=entity, ops=ops),))
    answer = peer.ask(request, AlterClientQuotasResponse)
    assert not answer.entries[0].error_code, answer


def produce_request(topic: Uuid) -> ProduceRequest:
    now_ms = int(time.time() * 1000)
    records = build([Record(offset, now_ms, None, bytes(VALUE_BYTES)) for offset in range(RECORDS)])
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=(TopicProduceData(topic_id=topic, partition_data=(data,)),)
    )


def fill(peer: Peer, topic: Uuid) -> None:
    """Write enough records for the consumers, before there is a quota."""
    for _ in range(200):
        answer = peer.ask(produce_request(topic), ProduceResponse)
        assert not answer.responses[0].partition_responses[0].error_code, answer


def producer(port: int, topic: Uuid, seconds: float) -> Measured:
    """Produce for some seconds."""
    request, result = produce_request(topic), Measured()
    size = VALUE_BYTES * RECORDS
    end = time.monotonic() + seconds
    with Peer(port) as peer:
        while time.monotonic() < end:
            answer = peer.ask(request, ProduceResponse)
            assert not answer.responses[0].partition_responses[0].error_code, answer
            result = Measured(
                result.size + size, result.requests + 1, result.throttle_ms + answer.throttle_time_ms
            )
    return result


def consumer(port: int, topic: Uuid, seconds: float) -> Measured:
    """Fetch for some seconds, again from the beginning after 10 MB."""
    result, offset = Measured(), 0
    end = time.monotonic() + seconds
    with Peer(port) as peer:
        while time.monotonic() < end:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)
            request = FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
                topics=(FetchTopic(topic_id=topic, partitions=(partition,)),),
            )  # fmt: skip
            answer = peer.ask(request, FetchResponse)
            size = sum(len(p.records or b"") for t in answer.responses for p in t.partitions)
            result = Measured(
                result.size + size, result.requests + 1, result.throttle_ms + answer.throttle_time_ms
            )
            offset = (offset + size // VALUE_BYTES // RECORDS * RECORDS) % 1_000
    return result


if __name__ == "__main__":
    main()
