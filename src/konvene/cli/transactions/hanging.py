"""`konvene transactions find-hanging` and `abort`: open transactions that no coordinator will end.

A hanging transaction stops read_committed consumers at its first record. `konvene.client.admin.transactions`
detects them; this module has the options of Kafka's tool and the output. `abort` bypasses the coordinator: it
needs the first offset of the transaction, as `find-hanging` prints it, or for brokers before 3.0 all fields
of the marker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import click

from konvene.cli.name_completion import complete_topics
from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import Table, note, print_json, print_tables
from konvene.cli.positional import one_name

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.transactions import HangingTransaction
    from konvene.client.net.cluster import TopicPartition

__all__ = ["abort", "find_hanging"]

_MINUTE_MS = 60_000


@click.command("find-hanging")
@click.option("--broker-id", type=int, help="Search the partitions with a replica on this broker.")
@click.option(
    "--max-transaction-timeout", "minutes", type=click.IntRange(0), default=15, show_default=True,
    metavar="MINUTES", help="Maximum transaction timeout; only older transactions are reported.",
)  # fmt: skip
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="Search this topic.")
@click.option("--partition", type=click.IntRange(0), help="Search only this partition of --topic.")
@cluster_options
@json_option
def find_hanging(
    connect: Connect, as_json: bool, broker_id: int | None, minutes: int, topic: str | None,
    partition: int | None,
) -> None:  # fmt: skip
    """Find hanging transactions: open ones that no coordinator will end.

    \b
    konvene transactions find-hanging --topic orders
    konvene transactions find-hanging --broker-id 1 --max-transaction-timeout 60
    """
    if topic is None and broker_id is None:
        raise click.UsageError("Give --topic NAME or --broker-id ID.")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        now_ms = time.time_ns() // 1_000_000
        async with connect() as cluster:
            admin = Admin(cluster)
            found = await admin.find_hanging_transactions(
                await _search_scope(admin, topic, partition, broker_id), now_ms=now_ms,
                max_transaction_timeout_ms=minutes * _MINUTE_MS, broker_id=broker_id,
            )  # fmt: skip
        _show(found, now_ms, as_json)

    run(job)


async def _search_scope(
    admin: Admin, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    from konvene.client.net.cluster import TopicPartition

    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    topics = await admin.list_topics() if topic is None else await admin.describe_topics([topic])
    return [
        TopicPartition(t.name, p.partition)
        for t in topics
        for p in t.partitions
        if broker_id is None or broker_id in p.replicas
    ]


def _show(found: list[HangingTransaction], now_ms: int, as_json: bool) -> None:
    if as_json:
        print_json([_document(each, now_ms) for each in found])
        return
    columns = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset",
        "LastTimestamp", "Duration(min)",
    )  # fmt: skip
    rows = [
        (
            *each.partition, each.producer.producer_id, each.producer.producer_epoch,
            each.producer.coordinator_epoch, each.producer.transaction_start_offset,
            each.producer.last_timestamp, (now_ms - each.producer.last_timestamp) // _MINUTE_MS,
        )
        for each in found
    ]  # fmt: skip
    print_tables([Table(columns, rows)])
    if found:
        note("`konvene transactions abort --topic NAME --partition N --start-offset OFFSET` aborts one.")


def _document(each: HangingTransaction, now_ms: int) -> dict[str, object]:
    age_ms = now_ms - each.producer.last_timestamp
    return each.partition._asdict() | each.producer._asdict() | {"duration_ms": age_ms}


class Marker(NamedTuple):
    """The fields of an abort marker: the producer's id and epoch, and the coordinator's epoch."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@click.command()
@one_name("topic", complete_topics)
@click.option("--partition", required=True, type=click.IntRange(0), help="The partition.")
@click.option(
    "--start-offset", type=click.IntRange(0), metavar="OFFSET",
    help="First offset of the transaction in the partition; sufficient for brokers from 3.0.",
)  # fmt: skip
@click.option("--producer-id", type=int, help="The producer id; for older brokers, with both epochs.")
@click.option("--producer-epoch", type=int, help="The producer epoch.")
@click.option("--coordinator-epoch", type=int, help="The coordinator epoch; a negative value means 0.")
@cluster_options
@json_option
def abort(
    connect: Connect, as_json: bool, topic: str, partition: int, start_offset: int | None,
    producer_id: int | None, producer_epoch: int | None, coordinator_epoch: int | None,
) -> None:  # fmt: skip
    """Abort a hanging transaction in a partition.

    Does not involve the coordinator: used on a live transaction, it would abort only a part of it. Use
    `find-hanging` to find hanging ones.

    \b
    konvene transactions abort --topic orders --partition 0 --start-offset 17
    """
    explicit = (
        _explicit_marker(producer_id, producer_epoch, coordinator_epoch) if start_offset is None else None
    )

    async def job() -> None:
        from konvene.client.admin.admin import Admin
        from konvene.client.net.cluster import TopicPartition

        where = TopicPartition(topic, partition)
        async with connect() as cluster:
            admin = Admin(cluster)
            if start_offset is not None:
                marker = await _marker_at(admin, where, start_offset)
            else:
                assert explicit is not None
                marker = explicit
            await admin.abort_transaction(where, *marker)
        if as_json:
            print_json(where._asdict() | marker._asdict())
        else:
            by = f"producer {marker.producer_id} (epoch {marker.producer_epoch})"
            click.echo(f"Aborted the transaction of {by} in {where}.")

    run(job)


def _explicit_marker(
    producer_id: int | None, producer_epoch: int | None, coordinator_epoch: int | None
) -> Marker:
    if producer_id is None:
        raise click.UsageError(
            "Give --start-offset (for brokers of 3.0 and later), or --producer-id, --producer-epoch and "
            "--coordinator-epoch."
        )
    if producer_epoch is None or coordinator_epoch is None:
        raise click.UsageError("--producer-id needs --producer-epoch and --coordinator-epoch.")
    return Marker(producer_id, producer_epoch, max(coordinator_epoch, 0))


async def _marker_at(admin: Admin, where: TopicPartition, start_offset: int) -> Marker:
    """Return the abort marker for the transaction that begins at an offset. Its coordinator epoch is 0 if the
    partition has no marker of the producer yet."""
    producers = (await admin.describe_producers([where]))[where]
    starts = {p.transaction_start_offset: p for p in producers if p.transaction_start_offset is not None}
    if start_offset not in starts:
        at = ", ".join(map(str, sorted(starts)))
        fail(
            f"no open transaction begins at offset {start_offset} of {where}",
            f"Open ones begin at {at}." if starts else "There is no open transaction in the partition.",
        )
    p = starts[start_offset]
    return Marker(p.producer_id, p.producer_epoch, max(p.coordinator_epoch, 0))
