"""Decodes a part of a segment window by window, so that memory holds a fraction of it.

A window has some more bytes than are decoded from it, because a batch is judged by the next one. Where one
finds damage, the rest of the part is decoded as a whole: so the result never depends on windows.
"""

from __future__ import annotations

from collections.abc import Iterator

from konvene.pipeline.codec.bronze import Decoded, blocks
from konvene.pipeline.ingest.splits import Split, read_bytes

__all__ = ["decoded"]

WINDOW_BYTES = 16 << 20
AHEAD_BYTES = 2 << 20
"""Bytes after a window that show the batch after its last one; most batches are smaller."""


def decoded(split: Split) -> Iterator[Decoded]:
    """Yield the records of a part, some ten thousand at a time.

    Raises `Replaced` if its file was replaced, FileNotFoundError if it was deleted."""
    at, last, size = 0, -1, WINDOW_BYTES
    while True:
        is_rest = at + size >= split.size
        origin = split.position + at
        window = split._replace(
            position=origin, end=split.end if is_rest else min(origin + size + AHEAD_BYTES, split.end)
        )
        end = window.size if is_rest else size
        reached = 0
        for found in blocks(
            read_bytes(window), segment_base=split.segment_base, end=end, origin=origin, last_offset=last
        ):
            if found.has_damage and not is_rest:
                size = split.size
                break
            yield found
            reached, last = found.next_position, max(last, found.last_offset)
        if is_rest:
            return
        if not reached:
            size = split.size
        at += reached
