"""Transactions left open by a power cut are completed at the next start, as decided, or aborted.

The power cut is imitated: the broker is stopped, the end of one log is truncated, and the mark of a clean
shutdown is removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.transactions.test_transactions import (
    NEW,
    OLD,
    QUICK,
    TOPIC,
    Client,
    Reader,
    consume_and_produce,
    eventually,
    started,
)

from konvene.codec.batches import batches
from konvene.errors import Errors
from konvene.log.directory import CLEAN_MARK


def cut(folder: Path, log: str, last_batches: int) -> None:
    """Truncate the last batches of a log, as if they had never been synced."""
    (folder / CLEAN_MARK).unlink()
    for name in ("recovery-point-offset-checkpoint",):
        (folder / name).unlink(missing_ok=True)
    segment = max(found for found in (folder / log).glob("*.log") if found.stat().st_size)
    data = segment.read_bytes()
    sizes = [header.size for header, _ in batches(data)]
    segment.write_bytes(data[: sum(sizes[: len(sizes) - last_batches])])
    for file in (folder / log).iterdir():
        if file.suffix in (".index", ".timeindex", ".snapshot", ".txnindex"):
            file.unlink()


def nonempty_partition(folder: Path, topic: str) -> str:
    """Return the only partition of an internal topic that has records."""
    (found,) = (p for p in folder.glob(f"{topic}-*") if any(s.stat().st_size for s in p.glob("*.log")))
    return found.name


def run_with_power_cut(
    path: Path,
    version: int,
    before: Callable[[Client, Reader], Awaitable[None]],
    lost: Callable[[Path], tuple[str, int]],
    after: Callable[[Client, Reader], Awaitable[None]],
) -> None:
    """Start a transaction, run `before`, lose the end of a log, restart, and run `after`."""
    clients: list[Client] = []

    async def first(broker_client: BrokerClient) -> None:
        client, reader = await started(broker_client, version)
        await consume_and_produce(client, 7)
        await before(client, reader)
        clients.append(client)

    async def second(broker_client: BrokerClient) -> None:
        clients[0].broker_client = broker_client
        await after(clients[0], Reader(broker_client))

    run_with_broker(path, first, QUICK)
    cut(path, *lost(path))
    run_with_broker(path, second, QUICK)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("commit", [True, False])
def test_a_lost_marker_is_written_again(tmp_path: Path, version: int, commit: bool) -> None:
    async def end(client: Client, reader: Reader) -> None:
        client_id = client.producer_id
        assert await client.end(commit=commit) == 0
        await eventually(reader.committed, (3, [] if commit else [(client_id, 0)]))

    async def check(client: Client, reader: Reader) -> None:
        assert await reader.committed() == (3, [] if commit else [(client.producer_id, 0)])
        assert await reader.offset() == (7 if commit else -1, 0)

    run_with_power_cut(tmp_path, version, end, lambda path: (f"{TOPIC}-0", 1), check)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_transaction_unknown_to_the_coordinator_is_aborted(tmp_path: Path, version: int) -> None:
    """The coordinator lost the records that added the transaction's partitions."""

    async def check_before(client: Client, reader: Reader) -> None:
        assert await reader.committed() == (0, [])

    async def check(client: Client, reader: Reader) -> None:
        assert await reader.committed() == (3, [(client.producer_id, 0)])
        assert await reader.offset() == (-1, 0)
        assert await client.end(commit=True) == Errors.INVALID_TXN_STATE

    run_with_power_cut(
        tmp_path,
        version,
        check_before,
        lambda path: (nonempty_partition(path, "__transaction_state"), 2),
        check,
    )


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_transaction_that_lost_a_partition_cannot_commit(tmp_path: Path, version: int) -> None:
    """The coordinator knows the partition of the records, but not that of the offsets."""

    async def check_before(client: Client, reader: Reader) -> None:
        assert (await reader.state()).transaction_state == "Ongoing"

    async def check(client: Client, reader: Reader) -> None:
        assert await client.end(commit=True) in (Errors.INVALID_TXN_STATE, Errors.CONCURRENT_TRANSACTIONS)
        await eventually(reader.offset, (-1, 0))
        await eventually(reader.committed, (3, [(client.producer_id, 0)]))
        assert (await reader.state()).transaction_state == "CompleteAbort"

    run_with_power_cut(
        tmp_path,
        version,
        check_before,
        lambda path: (nonempty_partition(path, "__transaction_state"), 1),
        check,
    )


@pytest.mark.parametrize("version", [OLD, NEW])
def test_an_ongoing_transaction_continues(tmp_path: Path, version: int) -> None:
    async def check_before(client: Client, reader: Reader) -> None:
        assert (await reader.state()).transaction_state == "Ongoing"

    async def check(client: Client, reader: Reader) -> None:
        assert await reader.committed() == (0, [])
        assert await client.end(commit=True) == 0
        await eventually(reader.offset, (7, 0))
        await eventually(reader.committed, (3, []))

    run_with_power_cut(tmp_path, version, check_before, lambda path: (f"{TOPIC}-0", 0), check)
