"""`konvene transactions`: the commands of `kafka-transactions`, with its column names.

This module has `list`, `describe`, `describe-producers` and `force-terminate`, which uses the coordinator.
`hanging` has `find-hanging` and `abort`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import TypeVar

import click

from konvene.cli.name_completion import complete_topics, complete_transactional_ids
from konvene.cli.options import Connect, cluster_options, json_option, run
from konvene.cli.output import Table, print_json, print_tables
from konvene.cli.positional import one_name
from konvene.cli.transactions.hanging import abort, find_hanging

F = TypeVar("F", bound=Callable[..., object])

STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
    "PrepareEpochFence",
)  # fmt: skip
"""States of transactions."""


one_transactional_id = one_name(
    "transactional_id", complete_transactional_ids, aliases=("--transactionalId",)
)
"""Adds TRANSACTIONAL-ID and --transactional-id to a command, passed as the parameter `transactional_id`."""


@click.group()
def transactions() -> None:
    """List and describe transactions, and abort hanging ones."""


@transactions.command("list")
@click.option(
    "--duration-filter", "duration_ms", type=int, default=-1, metavar="MS",
    help="Only transactions that have been open for longer; all if negative.",
)  # fmt: skip
@click.option(
    "--transactional-id-pattern", "pattern", metavar="REGEX",
    help="Only transactional ids that match this RE2 expression as a whole.",
)  # fmt: skip
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False),
    help="Only transactions in this state; may be repeated.",
)  # fmt: skip
@cluster_options
@json_option
def list_(
    connect: Connect, as_json: bool, duration_ms: int, pattern: str | None, states: tuple[str, ...]
) -> None:
    """List transactional ids with their states.

    \b
    konvene transactions list --state Ongoing
    konvene transactions list --duration-filter 60000 --transactional-id-pattern 'orders-.*'
    """

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            found = await Admin(cluster).list_transactions(
                states=states, duration_ms=max(duration_ms, -1), pattern=pattern
            )
        if as_json:
            print_json([t._asdict() for t in found])
        else:
            columns = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
            print_tables([Table(columns, [tuple(t) for t in found])])

    run(job)


@transactions.command()
@one_transactional_id
@cluster_options
@json_option
def describe(connect: Connect, as_json: bool, transactional_id: str) -> None:
    """Describe a transactional id: its producer, state and partitions.

    \b
    konvene transactions describe orders-1
    """

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            t = await Admin(cluster).describe_transaction(transactional_id)
        start = t.start_time_ms
        duration = None if start is None else time.time_ns() // 1_000_000 - start
        if as_json:
            partitions = [tp._asdict() for tp in t.partitions]
            print_json(t._asdict() | {"duration_ms": duration, "partitions": partitions})
            return
        columns = (
            "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
            "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs",
            "TopicPartitions",
        )  # fmt: skip
        row = (
            t.coordinator_id, t.transactional_id, t.producer_id, t.producer_epoch, t.state, t.timeout_ms,
            start, duration, ",".join(map(str, t.partitions)),
        )  # fmt: skip
        print_tables([Table(columns, [row])])

    run(job)


@transactions.command("describe-producers")
@one_name("topic", complete_topics)
@click.option("--partition", required=True, type=click.IntRange(0), help="The partition.")
@click.option("--broker-id", type=int, help="Use the replica on this broker instead of the leader.")
@cluster_options
@json_option
def describe_producers(
    connect: Connect, as_json: bool, topic: str, partition: int, broker_id: int | None
) -> None:
    """Show the active producers of a partition and the first offsets of their open transactions."""

    async def job() -> None:
        from konvene.client.admin.admin import Admin
        from konvene.client.net.cluster import TopicPartition

        tp = TopicPartition(topic, partition)
        async with connect() as cluster:
            found = (await Admin(cluster).describe_producers([tp], broker_id=broker_id))[tp]
        if as_json:
            print_json([p._asdict() for p in found])
            return
        columns = (
            "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
            "CurrentTransactionStartOffset",
        )  # fmt: skip
        rows = [
            (
                p.producer_id, p.producer_epoch, p.coordinator_epoch, p.last_sequence, p.last_timestamp,
                p.transaction_start_offset,
            )
            for p in found
        ]  # fmt: skip
        print_tables([Table(columns, rows)])

    run(job)


@transactions.command("force-terminate")
@one_transactional_id
@cluster_options
@json_option
def force_terminate(connect: Connect, as_json: bool, transactional_id: str) -> None:
    """Fence the producer of a transactional id and abort its open transaction.

    The coordinator aborts the transaction in all partitions. Use `abort` for a hanging transaction that no
    coordinator knows.

    \b
    konvene transactions force-terminate orders-1
    """

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            identity = await Admin(cluster).fence_producer(transactional_id)
        if as_json:
            print_json({"transactional_id": transactional_id} | identity._asdict())
        else:
            click.echo(f"Fenced the producer of {transactional_id}; its open transaction is aborted.")

    run(job)


def _hidden_alias(command: click.Command, name: str) -> click.Command:
    alias = copy.copy(command)
    alias.name, alias.hidden = name, True
    return alias


for _command in (find_hanging, abort, _hidden_alias(force_terminate, "forceTerminateTransaction")):
    transactions.add_command(_command)
