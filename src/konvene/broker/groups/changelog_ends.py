"""Where the changelogs of tasks end, by the logs of this node: for members that cannot say so themselves.

A changelog ends at its high watermark: up to there those see who restore from it. Nothing is read for that.
A partition that is not there, or that is offline, is left out; then nothing is known of its task. Many are
looked up a few at a time, so that nobody waits for that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from konvene.groups.streams.classic.changelog_ends import EndsFound, EndsToLookUp

if TYPE_CHECKING:
    from konvene.broker.storage.partitions import Partitions

AT_A_TIME = 200


async def look_up(partitions: Partitions, wanted: EndsToLookUp) -> EndsFound:
    """The ends of all partitions that are there."""
    ends = {}
    for count, (topic, index) in enumerate(wanted.partitions):
        if count % AT_A_TIME == 0:
            await asyncio.sleep(0)
        there = partitions.get(topic, index)
        if there is not None and there.online:
            ends[topic, index] = there.high_watermark
    return EndsFound(wanted, ends)
