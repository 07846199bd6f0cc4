"""How the log refuses: one family, each leaf with the error code that a client is told.

A refusal (`Refused`) leaves no trace: nothing was written. `LogOffline` and `DamagedLog` are
about the disk: the first says that a directory may not be used again in this process, the
second that one partition's bytes cannot be what was once written.
"""

from __future__ import annotations


class LogError(Exception):
    """Anything the log refuses or cannot do. `code` is Kafka's number for it."""

    code = -1


class LogOffline(LogError):
    """A write, a sync or a read failed: nothing in this directory is acknowledged any more."""

    code = 56  # KAFKA_STORAGE_ERROR


class DamagedLog(LogError):
    """Stored bytes are not what was written, and cutting them would lose more than a torn tail."""

    code = 56  # KAFKA_STORAGE_ERROR

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {why}")
        self.path = path
        self.position = position
        self.why = why


class LogGone(LogError):
    """The partition has been deleted while somebody still held its log."""

    code = 3  # UNKNOWN_TOPIC_OR_PARTITION


class DirectoryLocked(LogError):
    """Another process uses this log directory."""


class WrongDirectory(LogError):
    """The directory belongs to another cluster or node."""


class Refused(LogError):
    """The append or read is not allowed; the log is as it was."""

    record_errors: tuple[tuple[int, str], ...] = ()
    """The records at fault by their place in the batch, and what is wrong with each; where Kafka tells."""


class OffsetOutOfRange(Refused):
    """The offset is before the log's start or behind its end."""

    code = 1


class MessageTooLarge(Refused):
    """A batch has more than `max.message.bytes`."""

    code = 10


class RecordListTooLarge(Refused):
    """One append has more bytes than a segment may have."""

    code = 18


class InvalidTimestamp(Refused):
    """A record's time is too far from the broker's clock."""

    code = 32


class OutOfOrderSequence(Refused):
    """A producer's sequence number does not follow its last one."""

    code = 45


class InvalidProducerEpoch(Refused):
    """A newer instance of this producer has written already."""

    code = 47


class InvalidTransactionState(Refused):
    """A plain write of a producer whose transaction is open."""

    code = 48


class TransactionCoordinatorFenced(Refused):
    """A transaction marker from a coordinator that has been replaced."""

    code = 52


class InvalidRecord(Refused):
    """A batch that is sound and still not what a producer may send."""

    code = 87
