"""A journal that injects faults into appends: a failed write, or a coordinator crash after a successful one.

`FaultyJournal` implements the runtime's `Journal`. Both faults raise an error from an append, so all waiting
requests fail with NOT_COORDINATOR and the shard is loaded from the log again. After a failed write the batch
is not in the log; after a crash it is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING

from konvene.codec.batches import BatchHeader
from konvene.codec.errors import CodecError
from konvene.records.commits import OffsetCommitted, decode_group_record
from konvene.records.coordinator import Record
from konvene.runtime.ports import Journal, Pair
from konvene.shard.contract import Ending, Producer
from konvene.testing.rules import Match

if TYPE_CHECKING:
    from konvene.testing.faults import Faults

APPENDS = {
    "OffsetCommit": OffsetCommitted, "JoinGroup": Record, "SyncGroup": Record, "LeaveGroup": Record,
}  # fmt: skip
"""The type of record that each API writes to the group log: an offset commit, or group metadata."""


class CoordinatorDied(Exception):
    """Raised from an append as the injected crash of a coordinator; the runtime then loads its shard from the
    log."""


class Append:
    """A batch that is about to be appended to a coordinator's log, in the form that fault rules can match."""

    api_name = "append"
    client_id = ""

    def __init__(self, pairs: list[Pair]) -> None:
        self.records = [record for key, value in pairs if (record := _decode(key, value)) is not None]

    def __repr__(self) -> str:
        return f"<append of {len(self.records)} records>"

    def matches(self, match: Match) -> bool:
        """Return True if the batch has a record of the group in `match`, of the type that the API in `match`
        writes; a field that is None does not restrict."""
        record_type = APPENDS.get(match.api) if match.api is not None else None
        return any(
            (match.group is None or _group(record) == match.group)
            and (record_type is None or type(record) is record_type)
            for record in self.records
        )


class FaultyJournal:
    """A journal that forwards all calls to another one, and applies armed faults to appends."""

    def __init__(self, inner: Journal, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __repr__(self) -> str:
        return f"<faulty journal on {self._inner!r}>"

    @property
    def end_offset(self) -> int:
        return self._inner.end_offset

    @property
    def synced_offset(self) -> int:
        return self._inner.synced_offset

    @property
    def online(self) -> bool:
        return self._inner.online

    def append_marker(self, ending: Ending, now_ms: int) -> int:
        return self._inner.append_marker(ending, now_ms)

    def append_pairs(self, pairs: list[Pair], now_ms: int, producer: Producer | None = None) -> int:
        fault = self._faults.for_append(lambda: Append(pairs))
        if fault is None:
            return self._inner.append_pairs(pairs, now_ms, producer)
        if fault.action.verb == "fail":
            raise OSError(errno.EIO, "injected fault: the append fails")
        self._inner.append_pairs(pairs, now_ms, producer)
        self._inner.write()
        raise CoordinatorDied("injected fault: the coordinator restarts between append and reply")

    def write(self) -> None:
        self._inner.write()

    async def sync(self) -> None:
        await self._inner.sync()

    def read_back(self) -> Iterable[tuple[BatchHeader, memoryview]]:
        return self._inner.read_back()


def _decode(key: bytes | None, value: bytes | None) -> Record | OffsetCommitted | None:
    try:
        return decode_group_record(key, value)
    except CodecError:
        return None


def _group(record: Record | OffsetCommitted) -> str | None:
    if isinstance(record, OffsetCommitted):
        return record.group
    return getattr(record.key, "group", None)
