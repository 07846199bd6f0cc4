"""What a power cut leaves open in a partition is ended by the next start, as it was decided or by an abort.

The cut is made by hand: the broker is stopped, the end of one log is taken off, and the mark of a clean close
is removed.
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
    begun,
    consume_and_produce,
    eventually,
)

from konvene.codec.batches import batches
from konvene.errors import Errors
from konvene.log.directory import CLEAN_MARK


def cut(folder: Path, log: str, last_batches: int) -> None:
    """Take batches off the end of a log, as if they had never come to the disk."""
    (folder / CLEAN_MARK).unlink()
    for name in ("recovery-point-offset-checkpoint",):
        (folder / name).unlink(missing_ok=True)
    segment = max(found for found in (folder / log).glob("*.log") if found.stat().st_size)
    data = segment.read_bytes()
    sizes = [header.size for header, _ in batches(data)]
    segment.write_bytes(data[: sum(sizes[: len(sizes) - last_batches])])
    for beside in (folder / log).iterdir():
        if beside.suffix in (".index", ".timeindex", ".snapshot", ".txnindex"):
            beside.unlink()


def the_log_of(folder: Path, topic: str) -> str:
    """The partition of an internal topic that has anything in it."""
    (found,) = (p for p in folder.glob(f"{topic}-*") if any(s.stat().st_size for s in p.glob("*.log")))
    return found.name


def play(
    path: Path,
    version: int,
    before: Callable[[Client, Reader], Awaitable[None]],
    lost: Callable[[Path], tuple[str, int]],
    after: Callable[[Client, Reader], Awaitable[None]],
) -> None:
    """A transaction, a power cut, and what is there then."""
    clients: list[Client] = []

    async def first(broker_client: BrokerClient) -> None:
        client, reader = await begun(broker_client, version)
        await consume_and_produce(client, 7)
        await before(client, reader)
        clients.append(client)

    async def then(broker_client: BrokerClient) -> None:
        clients[0].broker_client = broker_client
        await after(clients[0], Reader(broker_client))

    run_with_broker(path, first, QUICK)
    cut(path, *lost(path))
    run_with_broker(path, then, QUICK)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_was_lost_is_written_again(tmp_path: Path, version: int, commit: bool) -> None:
    async def end(client: Client, reader: Reader) -> None:
        client_id = client.producer_id
        assert await client.end(commit=commit) == 0
        await eventually(reader.committed, (3, [] if commit else [(client_id, 0)]))

    async def see(client: Client, reader: Reader) -> None:
        assert await reader.committed() == (3, [] if commit else [(client.producer_id, 0)])
        assert await reader.offset() == (7 if commit else -1, 0)

    play(tmp_path, version, end, lambda path: (f"{TOPIC}-0", 1), see)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_no_coordinator_knows_is_aborted(tmp_path: Path, version: int) -> None:
    """The coordinator forgot that anything took part; so nothing of the transaction counts."""

    async def nothing(client: Client, reader: Reader) -> None:
        assert await reader.committed() == (0, [])

    async def see(client: Client, reader: Reader) -> None:
        assert await reader.committed() == (3, [(client.producer_id, 0)])
        assert await reader.offset() == (-1, 0)
        assert await client.end(commit=True) == Errors.INVALID_TXN_STATE

    play(tmp_path, version, nothing, lambda path: (the_log_of(path, "__transaction_state"), 2), see)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_who_lost_a_part_of_its_transaction_cannot_commit_the_rest(tmp_path: Path, version: int) -> None:
    """The records' partition is known to have taken part, that of the offsets is not."""

    async def nothing(client: Client, reader: Reader) -> None:
        assert (await reader.state()).transaction_state == "Ongoing"

    async def see(client: Client, reader: Reader) -> None:
        assert await client.end(commit=True) in (Errors.INVALID_TXN_STATE, Errors.CONCURRENT_TRANSACTIONS)
        await eventually(reader.offset, (-1, 0))
        await eventually(reader.committed, (3, [(client.producer_id, 0)]))
        assert (await reader.state()).transaction_state == "CompleteAbort"

    play(tmp_path, version, nothing, lambda path: (the_log_of(path, "__transaction_state"), 1), see)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_goes_on_is_left_alone(tmp_path: Path, version: int) -> None:
    async def nothing(client: Client, reader: Reader) -> None:
        assert (await reader.state()).transaction_state == "Ongoing"

    async def see(client: Client, reader: Reader) -> None:
        assert await reader.committed() == (0, [])
        assert await client.end(commit=True) == 0
        await eventually(reader.offset, (7, 0))
        await eventually(reader.committed, (3, []))

    play(tmp_path, version, nothing, lambda path: (f"{TOPIC}-0", 0), see)
