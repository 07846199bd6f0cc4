"""A cleaned log replays to the same state: Apache Kafka's own logs, cleaned by ours.

Cleaned up to anywhere, from anywhere on, with their tombstones and without; and read half before and half
after, as a coordinator does that loads while the cleaner works (KAFKA-19862). Logs of the simulator are held
to the same wherever it looks at one (`konvene.sim.world.compaction`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from konvene.broker.transactions.coordinators import TRANSACTION_SERDE
from konvene.codec.batches import batches, read_header
from konvene.sim.world.cleaner import cleaned
from konvene.sim.world.compaction import observable_state, read_bytes
from konvene.transactions.shard import TransactionShard

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
PLACES = sorted(
    f"{place.parent.name}/{place.name}"
    for pattern in ("*/__consumer_offsets-*", "*/__transaction_state-*")
    for place in LOGS.glob(pattern)
)


@cache
def the_log(place: str) -> list[bytes]:
    return [
        bytes(batch)
        for file in sorted((LOGS / place).glob("*.log"))
        for _, batch in batches(file.read_bytes())
    ]


def groups(log: Sequence[bytes]) -> Any:
    return observable_state(read_bytes(log))


def transactions(log: Sequence[bytes]) -> Any:
    shard = TransactionShard()
    for batch in log:
        for _, _, record in TRANSACTION_SERDE.read(memoryview(batch), read_header(batch)):
            shard.replay(record)
    return shard.transactions


def answers(place: str) -> Callable[[Sequence[bytes]], Any]:
    return transactions if "__transaction_state" in place else groups


def records_of(log: Sequence[bytes]) -> int:
    return sum(read_header(batch).record_count for batch in log)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("drop_tombstones", [False, True])
def test_cleaned_up_to_anywhere(place: str, drop_tombstones: bool) -> None:
    log, shown = the_log(place), answers(place)
    expected = shown(log)
    for end in range(1, len(log) + 1):
        left = cleaned(log, end=end, segment=1 + end % 7, drop_tombstones=drop_tombstones)
        assert shown(left) == expected, f"cleaned up to batch {end}"
    assert records_of(left) < records_of(log) or len(log) < 5, "there was something to clean"


@pytest.mark.parametrize("place", PLACES)
def test_cleaned_from_anywhere_on(place: str) -> None:
    """What is in front of the window was not looked at, but what the window has of its keys replaces it."""
    log, shown = the_log(place), answers(place)
    expected = shown(log)
    for begin in range(1, len(log)):
        for end in {len(log), (begin + len(log) + 1) // 2}:
            left = cleaned(log, begin=begin, end=end, segment=1 + begin % 5)
            assert shown(left) == expected, f"batches {begin} to {end} were cleaned"


@pytest.mark.parametrize("place", PLACES)
def test_read_half_before_and_half_after(place: str) -> None:
    log, shown = the_log(place), answers(place)
    expected = shown(log)
    left = cleaned(log, segment=3)
    for batch in log:
        at = read_header(batch).base_offset
        before = [b for b in log if read_header(b).base_offset < at]
        after = [b for b in left if read_header(b).base_offset >= at]
        assert shown([*before, *after]) == expected, f"cleaned when the reader was at {at}"


@pytest.mark.parametrize("place", PLACES)
def test_cleaned_with_little_memory_and_again_and_again(place: str) -> None:
    """A map of few keys gives the same result. The first cleaning drops superseded records, the second sets
    the delete horizon of markers without records, and the third changes nothing."""
    log, shown = the_log(place), answers(place)
    expected = shown(log)
    left = cleaned(log, segment=2, map_bytes=3_000)
    assert shown(left) == expected
    whole = cleaned(cleaned(log, segment=2), segment=2)
    assert cleaned(whole, segment=2) == whole
