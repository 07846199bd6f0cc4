"""Share session (KIP-932) of one member with one broker, and its acknowledgements. Pure.

The session remembers the partitions that the member fetches from, so that requests contain changes only. Both
sides count the requests: epoch 0 opens a session (and closes the previous one, whose records are released),
-1 closes it, and 1 follows the largest epoch. A session is opened with a ShareFetch without acknowledgements,
because records of the previous session cannot be acknowledged any more.

Acknowledgements are ranges of offsets, with one type for the range or one for each offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.messages import share_acknowledge, share_fetch
from konvene.messages.share_acknowledge import ShareAcknowledgeRequest
from konvene.messages.share_fetch import ShareFetchRequest

__all__ = ["AcknowledgeType", "Acks", "FetchTerms", "ShareSession", "Unit", "ranges"]

OPENS, CLOSES = 0, -1
_LAST_EPOCH = 2**31 - 1

_ALONE = 10
"""Minimum length of a run of one type that gets a range of its own."""

Unit = tuple[Uuid, int]
"""A partition: topic id and number."""

Acks = Mapping[Unit, Mapping[int, int]]
"""Acknowledgement types by offset, by partition."""


class AcknowledgeType(IntEnum):
    """Acknowledgement types of a delivered record."""

    GAP = 0
    """There is no record at this offset; sent by the client itself."""
    ACCEPT = 1
    RELEASE = 2
    """Release the record for another delivery."""
    REJECT = 3
    """Reject the record permanently."""
    RENEW = 4
    """Renew the acquisition lock (KIP-1222)."""


class FetchTerms(NamedTuple):
    """Limits of a ShareFetch request."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    max_records: int = 500
    record_limit: bool = False
    """Whether `max_records` is a strict limit (KIP-1206); otherwise batches are acquired as a whole."""


class ShareSession:
    """The client's side of a share session: its epoch and the partitions that the broker fetches for it."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = OPENS
        """Epoch of the next request."""
        self.units: frozenset[Unit] = frozenset()
        """Partitions of the session."""

    def __repr__(self) -> str:
        return f"<ShareSession of {self.member_id}: epoch {self.epoch}, {len(self.units)} partitions>"

    @property
    def is_new(self) -> bool:
        return self.epoch == OPENS

    def fetch(
        self, wanted: Iterable[Unit], acks: Acks, terms: FetchTerms, *, records: bool = True
    ) -> ShareFetchRequest | None:
        """Build a ShareFetch for exactly these partitions; None if there is nothing to send.

        `acks` may contain partitions that left the session: they are acknowledged and dropped in the same
        request. A new session must not have `acks`. Without `records` the request fetches none."""
        units = frozenset(wanted)
        known: frozenset[Unit] = frozenset() if self.is_new else self.units
        added, removed = units - known, (known - units) | (acks.keys() - units)
        if not (added or removed or acks or (records and units)):
            return None
        self.units = units
        renews = _renews(acks)
        asks = terms if records and not renews else FetchTerms(0, 0, 0, 0)
        return ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=asks.max_wait_ms,
            min_bytes=asks.min_bytes,
            max_bytes=asks.max_bytes,
            max_records=asks.max_records,
            batch_size=asks.max_records,
            share_acquire_mode=int(terms.record_limit),
            is_renew_ack=renews,
            topics=tuple(_fetch_topics(added | acks.keys(), acks)),
            forgotten_topics_data=tuple(
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=tuple(p for _, p in rows))
                for topic_id, rows in _by_topic(removed)
            ),
        )

    def acknowledge(self, acks: Acks, *, closes: bool = False) -> ShareAcknowledgeRequest:
        """Build a ShareAcknowledge; with `closes` it closes the session."""
        return ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=CLOSES if closes else self.epoch,
            is_renew_ack=_renews(acks),
            topics=tuple(_acknowledge_topics(acks)),
        )

    def advance_epoch(self) -> None:
        """Advance the session epoch after a successful request."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Reset the session, which the broker may not have any more: the next request opens a new one."""
        self.epoch, self.units = OPENS, frozenset()


# ranges ---------------------------------------------------------------------------------------


def ranges(types: Mapping[int, int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield acknowledgements as ranges: first offset, last offset, types.

    A range has one type for all its offsets, or one for each."""
    first, mixed = 0, list[int]()
    for start, count, kind in _runs(types):
        if mixed and start != first + len(mixed):
            yield _range(first, mixed)
            mixed = []
        if count > _ALONE:
            if mixed:
                yield _range(first, mixed)
                mixed = []
            yield start, start + count - 1, (kind,)
            continue
        if not mixed:
            first = start
        mixed += [kind] * count
    if mixed:
        yield _range(first, mixed)


def _runs(types: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of consecutive offsets with the same type: first offset, count, type."""
    start = count = kind = -1
    for offset in sorted(types):
        if count > 0 and offset == start + count and types[offset] == kind:
            count += 1
            continue
        if count > 0:
            yield start, count, kind
        start, count, kind = offset, 1, int(types[offset])
    if count > 0:
        yield start, count, kind


def _range(first: int, types: list[int]) -> tuple[int, int, tuple[int, ...]]:
    encoded = types[:1] if len(set(types)) == 1 else types
    return first, first + len(types) - 1, tuple(encoded)


# rows -----------------------------------------------------------------------------------------


def _renews(acks: Acks) -> bool:
    return any(AcknowledgeType.RENEW in types.values() for types in acks.values())


def _by_topic(units: Iterable[Unit]) -> Iterator[tuple[Uuid, Iterator[Unit]]]:
    return groupby(sorted(units), key=lambda unit: unit[0])


def _fetch_topics(units: Iterable[Unit], acks: Acks) -> Iterator[share_fetch.FetchTopic]:
    for topic_id, rows in _by_topic(units):
        partitions = (
            share_fetch.FetchPartition(
                partition_index=unit[1],
                acknowledgement_batches=tuple(
                    share_fetch.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=types)
                    for a, b, types in ranges(acks.get(unit, {}))
                ),
            )
            for unit in rows
        )
        yield share_fetch.FetchTopic(topic_id=topic_id, partitions=tuple(partitions))


def _acknowledge_topics(acks: Acks) -> Iterator[share_acknowledge.AcknowledgeTopic]:
    for topic_id, rows in _by_topic(acks):
        partitions = (
            share_acknowledge.AcknowledgePartition(
                partition_index=unit[1],
                acknowledgement_batches=tuple(
                    share_acknowledge.AcknowledgementBatch(
                        first_offset=a, last_offset=b, acknowledge_types=types
                    )
                    for a, b, types in ranges(acks[unit])
                ),
            )
            for unit in rows
        )
        yield share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=tuple(partitions))
