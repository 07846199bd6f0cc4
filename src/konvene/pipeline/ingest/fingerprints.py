"""What segments look like: enough to know one again, and to tell copies from strangers.

Only a few kilobytes of a segment are read for it. Two copies of a segment look alike, so a second one need
not be looked through; and two logs that begin with the same offset begin with the same batch, unless a
cleaner was there, so what is no copy is not taken for one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from konvene.codec.batches import read_header
from konvene.codec.errors import CodecError
from konvene.pipeline.ingest.offset_spans import Range
from konvene.pipeline.ingest.splits import Extent
from konvene.pipeline.sources.files import Partition, Segment

__all__ = ["Source", "agreeing", "looks"]


class Source(NamedTuple):
    """A segment that can be read, and what it looks like."""

    of: Partition
    segment: Segment
    extent: Extent
    print: str
    begins: tuple[int, int] | None
    """The offset and checksum of its first batch; None where a cleaner may have changed it."""

    @property
    def offsets(self) -> Range:
        return Range(self.extent.first, self.extent.next - 1)


def agreeing(sources: Iterable[Source], left: list[str]) -> list[Source]:
    """The segments without those whose first batch is another than that of one before them.

    What is left out is told in `left`."""
    begins: dict[int, tuple[int, str]] = {}
    agreed = []
    for source in sources:
        if source.begins is not None:
            offset, checksum = source.begins
            other, path = begins.setdefault(offset, (checksum, source.segment.path))
            if other != checksum:
                left.append(
                    f"{source.segment.path} is no copy of {path}: offset {offset} differs; it was left out "
                    "(of clusters without meta.properties give one at a time a name)"
                )
                continue
        agreed.append(source)
    return agreed


def looks(segment: Segment, found: Extent) -> tuple[str, tuple[int, int] | None]:
    """What a segment looks like: its extent, its first and its last bytes; and how it begins.

    The second is None where a cleaner may have been."""
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
