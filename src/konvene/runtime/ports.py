"""What a coordinator needs of its log, and how its shard's records stand in it.

The log of a broker is `runtime.journal`; the simulator and tests have others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from konvene.codec.batches import BatchHeader, records
from konvene.errors import Errors
from konvene.shard.contract import Ending, Producer

Pair = tuple[bytes | None, bytes | None]

Observe = Callable[[int, int, Any], None]
"""Is shown each record of a batch that is loaded: offset, timestamp, and what it says."""


class RecordTooLarge(Exception):
    """An outcome that does not fit into one batch of its topic."""


class AppendRefused(Exception):
    """The log does not take what a producer's transaction would write. Nothing was written."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


class Journal(Protocol):
    """The log of a coordinator's partition, as the runtime needs it."""

    @property
    def end_offset(self) -> int: ...

    @property
    def synced_offset(self) -> int: ...

    @property
    def online(self) -> bool:
        """False once its directory had an I/O error: nothing can be made durable any more."""

    def append_pairs(self, pairs: list[Pair], now_ms: int, producer: Producer | None = None) -> int:
        """Append one batch, of a producer's transaction if one is named; give the offset behind it.

        Raises `RecordTooLarge`, `AppendRefused`, `OSError` or `LogOffline`."""

    def append_marker(self, ending: Ending, now_ms: int) -> int:
        """Append a transaction marker; give the offset behind it. Raises as `append_pairs`."""

    def write(self) -> None:
        """What was appended outlives this process from here on. Raises `OSError` or `LogOffline`."""

    async def sync(self) -> None:
        """Make everything appended so far durable."""

    def read_back(self) -> Iterable[tuple[BatchHeader, memoryview]]:
        """All batches of the log."""


class RecordSerde(NamedTuple):
    """How a shard's records stand in its log."""

    encode: Callable[[Any], Pair]
    read: Callable[[memoryview, BatchHeader], Iterable[tuple[int, int, Any]]]
    """Offset, timestamp and record of what is in a batch; a record of an unknown type is passed over."""


def one_by_one(
    decode: Callable[[Any, Any], Any],
) -> Callable[[memoryview, BatchHeader], Iterator[tuple[int, int, Any]]]:
    """A reader of batches that reads each record by its key and value; None is passed over."""

    def read(batch: memoryview, header: BatchHeader) -> Iterator[tuple[int, int, Any]]:
        for entry in () if header.is_control else records(batch, header):
            record = decode(entry.key, entry.value)
            if record is not None:
                yield entry.offset, entry.timestamp, record

    return read
