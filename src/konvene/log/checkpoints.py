"""Kafka's checkpoint files: one offset for each partition of a directory.

There is a file for recovery points, one for log start offsets and one for the cleaner's progress. A file is
replaced as a whole, and its offsets may lag behind the logs, which go on after it was written.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.log.disk.files import Disk
from konvene.log.errors import DamagedLog

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"


class TopicPartition(NamedTuple):
    """A partition of a topic; its text form, `topic-0`, is the name of its folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def encode_checkpoint(offsets: dict[TopicPartition, int]) -> bytes:
    """Encode a checkpoint: a version, a count and a row for each partition."""
    rows = [f"{partition.topic} {partition.partition} {at}" for partition, at in sorted(offsets.items())]
    return "\n".join(["0", str(len(rows)), *rows, ""]).encode()


def read_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition in a checkpoint file.

    There are none if the file is missing or empty (Kafka creates it empty). Raises `DamagedLog` if it cannot
    be decoded: the file is replaced atomically, so no crash leaves it torn.
    """
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
