"""The leader epoch cache of a partition: the start offset of each epoch, in Kafka's
`leader-epoch-checkpoint`.

Clients ask where an epoch ended to detect that records they read were truncated.
"""

from __future__ import annotations

from konvene.codec.errors import Malformed

FILE_NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    """Epochs and their start offsets, both ascending. `dirty` until the owner has written `encode()` to
    disk."""

    __slots__ = ("dirty", "starts")

    def __init__(self) -> None:
        self.starts: list[tuple[int, int]] = []
        self.dirty = False

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.starts})"

    @property
    def latest(self) -> int:
        """Newest epoch; -1 if none is known."""
        return self.starts[-1][0] if self.starts else -1

    def assign(self, epoch: int, offset: int) -> None:
        """Add `epoch` with its start offset, unless it or a newer one is known."""
        if epoch > self.latest:
            while self.starts and self.starts[-1][1] >= offset:
                self.starts.pop()
            self.starts.append((epoch, offset))
            self.dirty = True

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return `(epoch, end offset)` of the largest known epoch up to `epoch`; (-1, -1) if unknown."""
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
        """Remove epochs that begin at or above the new end."""
        kept = [entry for entry in self.starts if entry[1] < end_offset]
        if kept != self.starts:
            self.starts, self.dirty = kept, True

    def truncate_start(self, start_offset: int) -> None:
        """Remove epochs that ended below the new start; the epoch that covers it now begins there."""
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
        """Decode the file. Raise `Malformed` for any other content."""
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
