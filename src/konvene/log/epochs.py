"""The leader epoch cache of a partition: the start offset of each epoch, in Kafka's
`leader-epoch-checkpoint`.

A client that asks for the end of an epoch detects that records which it has read were truncated.
"""

from __future__ import annotations

from konvene.codec.errors import Malformed

FILE_NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    """The leader epochs of a log with their start offsets, both ascending.

    `dirty` is True after a change, until the owner has written `encode()` to disk.
    """

    __slots__ = ("dirty", "starts")

    def __init__(self) -> None:
        self.starts: list[tuple[int, int]] = []
        self.dirty = False

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.starts})"

    @property
    def latest(self) -> int:
        """Newest epoch; -1 without epochs."""
        return self.starts[-1][0] if self.starts else -1

    def assign(self, epoch: int, offset: int) -> None:
        """Add `epoch` with its start offset, unless it or a newer epoch has been added before."""
        if epoch > self.latest:
            while self.starts and self.starts[-1][1] >= offset:
                self.starts.pop()
            self.starts.append((epoch, offset))
            self.dirty = True

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return `(epoch, end offset)` of the newest epoch of the log that is not above `epoch`.

        `end_offset` is the end of the log. Returns (-1, -1) if `epoch` is negative, above the latest, or
        below the first epoch.
        """
        if epoch < 0 or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, end_offset
        floor = epoch
        for known, start in self.starts:
            if known > epoch:
                return floor, start
            floor = known
        return -1, -1

    def truncate_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or above the log's new end offset."""
        kept = [entry for entry in self.starts if entry[1] < end_offset]
        if kept != self.starts:
            self.starts, self.dirty = kept, True

    def truncate_start(self, start_offset: int) -> None:
        """Remove the epochs below the log's new start; the one that contains the start now begins there."""
        covering = [entry for entry in self.starts if entry[1] <= start_offset]
        kept = [entry for entry in self.starts if entry[1] > start_offset]
        if covering:
            kept.insert(0, (covering[-1][0], start_offset))
        if kept != self.starts:
            self.starts, self.dirty = kept, True

    def encode(self) -> bytes:
        starts = list(self.starts)
        return "".join(
            ["0\n", f"{len(starts)}\n", *(f"{epoch} {start}\n" for epoch, start in starts)]
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        """Decode `leader-epoch-checkpoint`. Raises `Malformed` if it is invalid."""
        epochs = cls()
        try:
            lines = data.decode("ascii").split("\n")
            rows = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines[2:] if line)]
            if int(lines[0]) != 0 or int(lines[1]) != len(rows):
                raise ValueError("wrong version or count")
        except (ValueError, IndexError) as error:
            raise Malformed(f"leader epochs: {error}") from None
        epochs.starts = rows
        return epochs
