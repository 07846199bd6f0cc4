"""Fingerprints of segments: recognise a segment, and distinguish copies from unrelated files.

Only a few kilobytes of a segment are read. Two copies of a segment have the same fingerprint, so a second one
need not be searched. Two logs that begin with the same offset begin with the same batch unless one was
compacted, so unrelated files are not taken for copies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from konvene.codec.batches import read_header
from konvene.codec.errors import CodecError
from konvene.pipeline.ingest.offset_spans import Range
from konvene.pipeline.ingest.splits import Extent
from konvene.pipeline.sources.files import Partition, Segment

__all__ = ["Source", "agreeing", "fingerprint"]


class Source(NamedTuple):
    """A readable segment and its fingerprint."""

    of: Partition
    segment: Segment
    extent: Extent
    fingerprint: str
    begins: tuple[int, int] | None
    """Offset and checksum of its first batch; None if the cleaner may have changed it."""

    @property
    def offsets(self) -> Range:
        return Range(self.extent.first, self.extent.next - 1)


def agreeing(sources: Iterable[Source], messages: list[str]) -> list[Source]:
    """Return the segments, without those whose first batch differs from an earlier segment's at the same
    offset.

    Messages about the omitted ones are appended to `messages`."""
    begins: dict[int, tuple[int, str]] = {}
    agreed = []
    for source in sources:
        if source.begins is not None:
            offset, checksum = source.begins
            other, path = begins.setdefault(offset, (checksum, source.segment.path))
            if other != checksum:
                messages.append(
                    f"{source.segment.path} is not a copy of {path}: offset {offset} differs, so it was "
                    "skipped "
                    "(name clusters without meta.properties one at a time with --cluster)"
                )
                continue
        agreed.append(source)
    return agreed


def fingerprint(segment: Segment, found: Extent) -> tuple[str, tuple[int, int] | None]:
    """Return a segment's fingerprint (extent and digest of both ends), and offset and checksum of its first
    batch.

    The second value is None if the segment may have been compacted."""
    with open(segment.path, "rb") as file:
        file.seek(found.start)
        head = file.read(min(4096, found.end - found.start))
        file.seek(max(found.start, found.end - 4096))
        tail = file.read(found.end - file.tell())
    digest = hashlib.sha256(head + tail).hexdigest()[:16]
    name = f"{found.first}-{found.next}-{found.end - found.start}-{digest}"
    try:
        header = read_header(head)
    except CodecError:
        return name, None
    as_written = header.record_count == header.last_offset_delta + 1 and header.delete_horizon is None
    return name, (header.base_offset, header.crc) if as_written else None
