"""Errors of the log, each with the Kafka error code that clients receive.

`Refused` means that nothing was written. `LogOffline` means that this process cannot use the directory again.
`DamagedLog` means that the files of one partition differ from what was written.
"""

from __future__ import annotations


class LogError(Exception):
    """Base of the log's errors. `code` is Kafka's error code."""

    code = -1


class LogOffline(LogError):
    """A disk operation failed: the directory acknowledges nothing more until the process restarts."""

    code = 56  # KAFKA_STORAGE_ERROR


class DamagedLog(LogError):
    """A partition's files are damaged, and truncating them would lose more than a torn tail."""

    code = 56  # KAFKA_STORAGE_ERROR

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {why}")
        self.path = path
        self.position = position
        self.why = why


class LogDeleted(LogError):
    """The log belongs to a partition that was deleted."""

    code = 3  # UNKNOWN_TOPIC_OR_PARTITION


class DirectoryLocked(LogError):
    """Another process uses this log directory."""


class WrongDirectory(LogError):
    """The directory belongs to another cluster or node."""


class Refused(LogError):
    """Base of the errors of a rejected append or read, which leaves the log unchanged."""

    record_errors: tuple[tuple[int, str], ...] = ()
    """Invalid records as (index in the batch, message), where Kafka reports them."""


class OffsetOutOfRange(Refused):
    """The offset is below the log's start or above its end."""

    code = 1


class MessageTooLarge(Refused):
    """A batch is larger than `max.message.bytes`."""

    code = 10


class RecordListTooLarge(Refused):
    """One append is larger than a segment may be."""

    code = 18


class InvalidTimestamp(Refused):
    """A record's timestamp is too far from the broker's clock."""

    code = 32


class OutOfOrderSequence(Refused):
    """A producer's sequence number does not follow its last one."""

    code = 45


class InvalidProducerEpoch(Refused):
    """A newer instance of the producer has already written."""

    code = 47


class InvalidTransactionState(Refused):
    """A non-transactional write by a producer with an open transaction."""

    code = 48


class TransactionCoordinatorFenced(Refused):
    """A transaction marker from a coordinator that has been replaced."""

    code = 52


class InvalidRecord(Refused):
    """A well-formed batch with content that a producer must not send."""

    code = 87
