"""Kafka's checkpoint: an offset for each partition of a directory, in a file that is replaced whole.

What an offset means is said by the file's name: how far a log is durable, where it starts, how far it has
been cleaned. Each is a promise that was true when it was written; none knows more than that.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.log.disk.files import Disk
from konvene.log.errors import DamagedLog

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"


class TopicPartition(NamedTuple):
    """One partition, as a name on disk."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def encode_checkpoint(offsets: dict[TopicPartition, int]) -> bytes:
    """Kafka's checkpoint: a version, a count and a row for each partition."""
    rows = [f"{partition.topic} {partition.partition} {at}" for partition, at in sorted(offsets.items())]
    return "\n".join(["0", str(len(rows)), *rows, ""]).encode()


def read_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """A checkpoint that is missing says nothing; a damaged one says so (it is replaced whole, never torn).

    An empty one says nothing either: so Kafka makes it, before it has something to write."""
    data = disk.read(path) if disk.exists(path) else b""
    if not data:
        return {}
    try:
        lines = data.decode("ascii").split("\n")
        rows = [line.split(" ") for line in lines[2:] if line]
        if int(lines[0]) != 0 or int(lines[1]) != len(rows):
            raise ValueError("wrong version or count")
        return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except (ValueError, IndexError) as error:
        raise DamagedLog(path, 0, str(error)) from None
