"""The table of all benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial as with_
from typing import NamedTuple

from bench import (
    acls,
    assignors,
    cleaner,
    cleaning,
    codec,
    consumers,
    delivery,
    handovers,
    members,
    migration,
    pipeline_build,
    pipeline_codec,
    pipeline_spark,
    records,
    reload,
    requests,
    sharing,
    streams,
    transactions,
    whole,
)
from bench.figures import Figure
from bench.systems import Lab


class Row(NamedTuple):
    """A benchmark: its name, its description in one sentence, and its function."""

    name: str
    description: str
    measure: Callable[[Lab], list[Figure]]
    beside: str | None = None
    """The row whose figures of Kafka to show, if it is not this one."""

    @property
    def kafka(self) -> str:
        return self.beside or self.name


ROWS = (
    Row("codec", "microseconds to read and write the commonest messages, no broker", codec.figures, "none"),
    Row("start", "process start to the first ApiVersions answer", whole.start),
    Row("idle", "memory and CPU of an idle broker without clients", whole.idle),
    Row("api-versions", "ApiVersions, 64 connections", requests.api_versions),
    Row(
        "heartbeat-64",
        "classic Heartbeat, 1,000 members, 64 connections",
        with_(requests.heartbeat, connections=64),
    ),
    Row(
        "heartbeat-1",
        "classic Heartbeat, 1,000 members, 1 connection",
        with_(requests.heartbeat, connections=1),
    ),
    Row("commit-1", "OffsetCommit of 1 partition, 64 connections", with_(requests.commit, partitions=1)),
    Row("commit-10", "OffsetCommit of 10 partitions", with_(requests.commit, partitions=10)),
    Row("commit-100", "OffsetCommit of 100 partitions", with_(requests.commit, partitions=100)),
    Row(
        "commit-1-nosync",
        "the same of 1 without fsync, which is what Kafka does",
        with_(requests.commit, partitions=1, sync=False),
        "commit-1",
    ),
    Row(
        "commit-10-nosync",
        "the same of 10 without fsync",
        with_(requests.commit, partitions=10, sync=False),
        "commit-10",
    ),
    Row(
        "commit-100-nosync",
        "the same of 100 without fsync",
        with_(requests.commit, partitions=100, sync=False),
        "commit-100",
    ),
    Row(
        "offset-fetch", "OffsetFetch of all 100 partitions of a group, 64 connections", requests.offset_fetch
    ),
    Row(
        "produce-1",
        "Produce acks=all of 1 x 100 B, 8 connections, 5 in flight",
        with_(records.produce, count=1),
    ),
    Row(
        "produce-100",
        "Produce acks=all of 100 x 100 B, 8 connections, 5 in flight",
        with_(records.produce, count=100),
    ),
    Row(
        "produce-1000",
        "Produce acks=all of 1000 x 1 KiB, 4 connections, 2 in flight",
        with_(records.produce, count=1000),
    ),
    Row("fetch-1", "Fetch of 1 MiB, 8 connections, batches of 1 x 100 B", with_(records.fetch, count=1)),
    Row(
        "fetch-100", "Fetch of 1 MiB, 8 connections, batches of 100 x 100 B", with_(records.fetch, count=100)
    ),
    Row(
        "fetch-1000",
        "Fetch of 1 MiB, 8 connections, batches of 1000 x 1 KiB",
        with_(records.fetch, count=1000),
    ),
    Row("latency", "produce to fetch, 200 records/s, one long-polling consumer", records.latency),
    Row(
        "join-100",
        "100 classic members join at once, until all are in one generation",
        with_(members.storm, size=100),
    ),
    Row("join-1000", "1,000 classic members join at once", with_(members.storm, size=1000)),
    Row("members-5000", "a heartbeat every 5 s of 5,000 members, a connection each", members.quiet_day),
    Row(
        "consumer-heartbeat",
        "ConsumerGroupHeartbeat without changes, 1,000 members, 64 connections",
        consumers.heartbeat,
    ),
    Row(
        "consumer-join-1000",
        "1,000 consumer members join at once, heartbeat intervals as Kafka sets them",
        with_(consumers.storm, size=1000, policy="kafka"),
    ),
    Row(
        "consumer-join-1000-held",
        "the same, responsive",
        with_(consumers.storm, size=1000, policy="held"),
        "consumer-join-1000",
    ),
    Row(
        "consumer-one",
        "one joins and one leaves a group of 100, heartbeat intervals as Kafka sets them",
        with_(consumers.change, size=100, policy="kafka"),
    ),
    Row(
        "consumer-one-responsive",
        "the same, responsive by shorter heartbeat intervals alone",
        with_(consumers.change, size=100, policy="responsive"),
        "consumer-one",
    ),
    Row(
        "consumer-one-held",
        "the same, responsive with heartbeats held",
        with_(consumers.change, size=100, policy="held"),
        "consumer-one",
    ),
    Row(
        "consumer-kill",
        "one of 100 loses its connection for good, responsive, 2 s of grace",
        with_(consumers.kill, size=100),
        "consumer-kill",
    ),
    Row(
        "consumer-quiet",
        "1,000 stable consumer members, a connection each, heartbeat intervals as Kafka sets them",
        with_(consumers.quiet_day, policy="kafka"),
    ),
    Row(
        "consumer-quiet-held",
        "the same, responsive with heartbeats held",
        with_(consumers.quiet_day, policy="held"),
        "consumer-quiet",
    ),
    Row(
        "consumer-10000",
        "10,000 members of one group with 10,000 partitions: all join, then one more",
        with_(consumers.large, size=10_000, policy="kafka"),
    ),
    Row(
        "consumer-10000-responsive",
        "the same, responsive: thousands of joins at once",
        with_(consumers.large, size=10_000, policy="responsive"),
    ),
    Row(
        "streams-heartbeat",
        "StreamsGroupHeartbeat without changes, 1,000 members, 64 connections",
        streams.heartbeat,
    ),
    Row(
        "streams-join-1000",
        "1,000 streams members join at once, heartbeat intervals as Kafka sets them",
        with_(streams.storm, size=1000, policy="kafka"),
    ),
    Row(
        "streams-join-1000-held",
        "the same, responsive",
        with_(streams.storm, size=1000, policy="held"),
        "streams-join-1000",
    ),
    Row(
        "streams-one",
        "one joins and one leaves a streams group of 100, heartbeat intervals as Kafka sets them",
        with_(streams.change, size=100, policy="kafka"),
    ),
    Row(
        "streams-one-responsive",
        "the same, responsive by shorter heartbeat intervals alone",
        with_(streams.change, size=100, policy="responsive"),
        "streams-one",
    ),
    Row(
        "streams-one-held",
        "the same, responsive with heartbeats held",
        with_(streams.change, size=100, policy="held"),
        "streams-one",
    ),
    Row(
        "streams-kill",
        "one of 100 streams members loses its connection for good, responsive, 2 s of grace",
        with_(streams.kill, size=100),
    ),
    Row(
        "streams-load",
        "restart with a group of 1,000 members and 10,000 tasks",
        with_(streams.load, size=1000),
    ),
    Row(
        "streams-migration-200",
        "200 threads of the classic protocol with state, as the first of the streams protocol joins them",
        with_(migration.upgrade, size=200),
        "none",
    ),
    Row("streams-migration-1000", "1,000 threads", with_(migration.upgrade, size=1000), "none"),
    Row(
        "streams-migration-heartbeat",
        "classic Heartbeat in a streams group, 1,000 threads, 64 connections",
        with_(migration.heartbeat, size=1000),
        "none",
    ),
    Row(
        "share-batches",
        "ShareFetch of 500 records with the accepts of the last ones, 4 members, 8 partitions",
        sharing.in_batches,
    ),
    Row(
        "share-singles",
        "ShareFetch of 1 record and ShareAcknowledge, 4 members, 8 partitions",
        sharing.singles,
    ),
    Row(
        "share-singles-nosync",
        "the same without fsync, which is what Kafka does",
        with_(sharing.singles, sync=False),
        "share-singles",
    ),
    Row(
        "share-beside",
        "the records of share-batches by Fetch and OffsetCommit",
        sharing.beside,
    ),
    Row(
        "share-heartbeat",
        "ShareGroupHeartbeat without changes, 1,000 members, 64 connections",
        sharing.heartbeat,
    ),
    Row(
        "share-one",
        "one joins and one leaves a share group of 100, heartbeat intervals as Kafka sets them",
        with_(sharing.change, size=100, policy="kafka"),
    ),
    Row(
        "share-one-held",
        "the same, responsive with heartbeats held",
        with_(sharing.change, size=100, policy="held"),
        "share-one",
    ),
    Row(
        "transactions-2",
        "a record, an offset, EndTxn; 64 producers who announce nothing (transaction protocol 2)",
        with_(transactions.transactions, generation=2),
    ),
    Row(
        "transactions-1",
        "the same with AddPartitionsToTxn and AddOffsetsToTxn, as older clients do",
        with_(transactions.transactions, generation=1),
    ),
    Row(
        "transactions-2-nosync",
        "who announce nothing, without fsync",
        with_(transactions.transactions, generation=2, sync=False),
        "transactions-2",
    ),
    Row(
        "transactions-1-nosync",
        "who announce, without fsync",
        with_(transactions.transactions, generation=1, sync=False),
        "transactions-1",
    ),
    Row(
        "transaction-read",
        "EndTxn to the record in a read_committed Fetch that waits, 100 transactions/s",
        transactions.visibility,
    ),
    Row("connections", "5,000 idle connections", whole.connections),
    Row("load", "restart with 1,000,000 committed offsets in 10,000 groups", whole.load),
    Row(
        "load-compacted",
        "restart with 100,000 members and 1,000,000 offsets in a log that was cleaned",
        reload.compacted,
        "none",
    ),
    Row("partitions", "10,000 partitions: starts, close, memory, descriptors", whole.partitions),
    Row("cleaner-values", "a log of 1 KB values cleaned, 100 a batch, no broker", cleaning.values, "none"),
    Row("cleaner-commits", "a log of offset commits cleaned, 3 a batch, no broker", cleaning.commits, "none"),
    Row(
        "cleaner-p99",
        "heartbeats while 1 GiB of a compacted topic is cleaned, in a process (--cleaner-mib: another size)",
        cleaner.p99,
    ),
    Row(
        "cleaner-p99-slices",
        "the same in slices beside requests",
        with_(cleaner.p99, slices=True),
        "cleaner-p99",
    ),
    Row("acls", "microseconds of one check of the authorizer, no broker", acls.figures, "none"),
    Row(
        "assignors",
        "CPU of a server-side assignment, members x topics x partitions, no broker",
        assignors.figures,
        "assignors",
    ),
    Row(
        "handovers",
        "a streams group of 1,000 members and 10,000 tasks gets one process more, no broker",
        handovers.figures,
        "none",
    ),
    Row("delivery", "decisions of a share partition, and its memory, no broker", delivery.figures, "none"),
    Row(
        "decode-1",
        "a log of 1 record a batch to tables",
        with_(pipeline_codec.figures, per_batch=(1, 1)),
        "none",
    ),
    Row("decode-8", "the same of 8 records a batch", with_(pipeline_codec.figures, per_batch=(8, 8)), "none"),
    Row("decode-40", "the same of 1 to 40", with_(pipeline_codec.figures, per_batch=(1, 40)), "none"),
    Row("decode-100", "the same of 100", with_(pipeline_codec.figures, per_batch=(100, 100)), "none"),
    Row(
        "gold",
        "10,000,000 records of 10,000 groups taken in, and gold made of them, by two processes",
        pipeline_build.figures,
        "none",
    ),
    Row(
        "spark",
        "logs to rows and files on Spark, one core and two, beside a plain process",
        pipeline_spark.figures,
        "none",
    ),
)


class Unknown(Exception):
    """No row and no family of rows has this name."""


def chosen(names: list[str]) -> list[Row]:
    """Return the rows with these names or prefixes (`commit`, `produce`); all rows for no name."""
    for name in names:
        if not any(_is(row, name) for row in ROWS):
            raise Unknown(f"no benchmark is called {name}; there are: {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if not names or any(_is(row, name) for name in names)]


def _is(row: Row, name: str) -> bool:
    exact = any(row.name == name for row in ROWS)
    return row.name == name or (not exact and row.name.startswith(name + "-"))
