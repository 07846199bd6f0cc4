"""Limits for a micro-batch of a stream: whole batches, up to a number of records, bytes or files.

Each partition that is behind gets an equal share in turn, so that none waits for another to catch up. At
least one batch is taken whatever the limit is: a small limit is slow but not stuck. Batches are measured by
their headers; if those cannot be read, the segment is taken to its end, and the reader reports the damage.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from konvene.codec.batches import HEADER_SIZE, BatchHeader, read_header
from konvene.codec.errors import CodecError
from konvene.log.disk.read_only import ReadOnlyFile
from konvene.pipeline.ingest.splits import Extent

__all__ = ["Limit", "Part", "limited"]

P = TypeVar("P", bound=Hashable)
_CHUNK = 1 << 18


class Limit(NamedTuple):
    """Limits of a micro-batch; None means unlimited."""

    records: int | None = None
    bytes: int | None = None
    files: int | None = None


class Part(NamedTuple):
    """Offsets `[first, last]` of a segment to read next."""

    path: str
    extent: Extent
    first: int
    last: int


class _Taken(NamedTuple):
    records: int = 0
    bytes: int = 0
    files: int = 0

    def plus(self, records: int = 0, size: int = 0, files: int = 0) -> _Taken:
        return _Taken(self.records + records, self.bytes + size, self.files + files)

    def exceeds(self, limit: Limit) -> bool:
        return any(most is not None and have > most for have, most in zip(self, limit, strict=True))

    def reaches(self, limit: Limit) -> bool:
        return any(most is not None and have >= most for have, most in zip(self, limit, strict=True))


def limited(ahead: Mapping[P, Sequence[Part]], start: Mapping[P, int], limit: Limit) -> dict[P, int]:
    """Return the offsets up to which the next micro-batch reads each partition.

    `ahead` are the parts available from `start` on."""
    reached = dict(start)
    behind = [of for of, parts in ahead.items() if parts]
    turn = sum(start.values()) % len(behind) if behind else 0
    taken = _Taken()
    for number, of in enumerate(behind[turn:] + behind[:turn]):
        share = _share(limit, taken, len(behind) - number)
        reached[of], more = _take_batches(
            ahead[of], reached.get(of, ahead[of][0].first), share, taken == _Taken()
        )
        taken = taken.plus(*more)
        if taken.reaches(limit):
            break
    return reached


def _share(limit: Limit, taken: _Taken, among: int) -> Limit:
    left = (None if most is None else max(0, most - have) for most, have in zip(limit, taken, strict=True))
    records, size, files = (None if each is None else -(-each // among) for each in left)
    return Limit(records, size, files)


def _take_batches(parts: Sequence[Part], at: int, share: Limit, must: bool) -> tuple[int, _Taken]:
    """Return the offset reached with a share of the limit, and the amount used.

    With `must` at least one batch is taken, even if it exceeds the share."""
    taken = _Taken()
    for part in parts:
        if taken.plus(files=1).exceeds(share) and not (must and taken == _Taken()):
            return at, taken
        taken = taken.plus(files=1)
        for header in _headers(part):
            more = taken.plus(header.record_count, header.size)
            if more.exceeds(share) and not (must and taken.records == 0):
                return at, taken
            taken = more
            at = header.next_offset
        at = part.last + 1
    return at, taken


def _headers(part: Part) -> Iterator[BatchHeader]:
    """Yield the headers of the batches that overlap the part, up to the first invalid one."""
    position = max((cut.position for cut in part.extent.cuts if cut.offset <= part.first), default=0)
    file = ReadOnlyFile(part.path)
    try:
        while position < part.extent.end:
            chunk = file.pread(min(_CHUNK, part.extent.end - position), position)
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                header = read_header(chunk, at)
                if header.base_offset > part.last:
                    return
                if header.next_offset > part.first:
                    yield header
                at += header.size
            if at == 0:
                return
            position += at
    except CodecError:
        return
    finally:
        file.close()
