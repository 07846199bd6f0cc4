"""Looks up the end offsets of changelogs in the logs of this node, for members that cannot report them.

The end of a changelog is its high watermark: consumers that restore from it read up to there. It is kept in
memory, so no log is read. A partition that does not exist or is offline is left out, and the lag of its task
stays unknown. Long lists are processed in slices, so that no other work waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from konvene.groups.streams.classic.changelog_ends import EndsFound, EndsToLookUp

if TYPE_CHECKING:
    from konvene.broker.storage.partitions import Partitions

SLICE = 200
"""Number of partitions that are looked up before other tasks may run."""


async def look_up(partitions: Partitions, request: EndsToLookUp) -> EndsFound:
    """Return the end offsets of the partitions that are online."""
    ends = {}
    for count, (topic, index) in enumerate(request.partitions):
        if count % SLICE == 0:
            await asyncio.sleep(0)
        partition = partitions.get(topic, index)
        if partition is not None and partition.online:
            ends[topic, index] = partition.high_watermark
    return EndsFound(request, ends)
