"""AssignmentInfo: the user data of an assignment for a member of Kafka Streams.

The fields, in their order:

    field                                                     versions
    version                                                   all
    latest version that all members support                   3 and later
    active tasks                                              all
    standby tasks, each with its partitions                   all
    active partitions by host                                 2 and later; from 5 on topics are numbers of a
                                                              dictionary, which precedes them
    standby partitions by host                                6 and later
    error code                                                4 and later
    time of the next rejoin                                   7 and later

A text has a 16-bit length and is in Java's modified UTF-8, where zero and characters beyond 16 bits are
encoded differently. From version 10 on a task has the name of its topology in UTF-16; it is empty unless the
application uses named topologies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from konvene.groups.streams.classic.user_data.subscription import (
    FIRST_VERSION_WITH_LATEST_SUPPORTED,
    FIRST_VERSION_WITH_NAMED_TOPOLOGIES,
    LATEST_VERSION,
    Task,
    UserDataError,
)

NO_REBALANCE_MS = 2**63 - 1
"""The value of `next_rebalance_ms` for no scheduled rejoin."""

TopicPartition = tuple[str, int]
HostInfo = tuple[str, int]
ByHost = Mapping[HostInfo, tuple[TopicPartition, ...]]

FIRST_WITH_HOSTS = 2
FIRST_WITH_ERROR = 4
FIRST_WITH_DICTIONARY = 5
FIRST_WITH_STANDBY_HOSTS = 6
FIRST_WITH_NEXT_REBALANCE = 7

MAX_TEXT_BYTES = 0xFFFF

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AssignmentInfo:
    """The user data of an assignment, decoded."""

    version: int
    commonly_supported_version: int
    """-1 in versions 1 and 2, which lack it."""
    active: tuple[tuple[Task, TopicPartition], ...] = ()
    """Each partition with its task, by topic and partition. The user data has only the tasks, in this order;
    the partitions are in the assignment itself."""
    standby: Mapping[Task, tuple[TopicPartition, ...]] = field(default_factory=dict)
    partitions_by_host: ByHost = field(default_factory=dict)
    """Version 2 and later."""
    standby_partitions_by_host: ByHost = field(default_factory=dict)
    """Version 6 and later."""
    error_code: int = 0
    """Version 4 and later: 1 for a missing source topic, 4 for a requested shutdown of the application."""
    next_rebalance_ms: int = NO_REBALANCE_MS
    """Version 7 and later: timestamp at which the member is to rejoin on its own."""


# --- read ------------------------------------------------------------------------------------------


class _Reader:
    """A decoder of Java's DataOutputStream format. Raises `UserDataError` if the data ends prematurely."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        try:
            (found,) = struct.unpack_from(form, self.data, self.at)
        except struct.error:
            raise UserDataError("it ends too early") from None
        self.at += size
        return int(found)

    def int32(self) -> int:
        return self.number(">i")

    def text(self) -> str:
        raw = self.take(self.number(">H"))
        try:
            return (
                raw.replace(b"\xc0\x80", b"\0")
                .decode("utf-8", "surrogatepass")
                .encode("utf-16-be", "surrogatepass")
                .decode("utf-16-be")
            )
        except UnicodeDecodeError:
            raise UserDataError("it has text that cannot be read") from None

    def take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if size < 0 or len(found) < size:
            raise UserDataError("it ends too early")
        self.at += size
        return found

    def many(self, read: Callable[[], T], at_least: int) -> list[T]:
        """Read a count, and as many elements with `read`. Each has at least `at_least` bytes."""
        count = self.int32()
        if not 0 <= count <= (len(self.data) - self.at) // at_least:
            raise UserDataError(f"it announces {count} entries, more than its size allows")
        return [read() for _ in range(count)]


def read_assignment_info(
    data: bytes, partitions: tuple[TopicPartition, ...], *, tasks_alone: bool = False
) -> AssignmentInfo:
    """Decode the user data of an assignment. Raises `UserDataError`.

    `partitions`: the partitions of the assignment; when they are sorted, each belongs to the active task at
    the same index. `tasks_alone`: skip the fields after the member's own tasks, which are most of the data if
    members have endpoints.
    """
    reader = _Reader(data)
    version = reader.int32()
    if not 1 <= version <= LATEST_VERSION:
        raise UserDataError(f"the assignment's version is {version}")
    common = reader.int32() if version >= FIRST_VERSION_WITH_LATEST_SUPPORTED else -1
    tasks = reader.many(lambda: _read_task(reader, version), 8)
    if len(tasks) != len(partitions):
        raise UserDataError(f"it has {len(tasks)} tasks for {len(partitions)} partitions")
    standby = dict(reader.many(lambda: (_read_task(reader, version), _read_partitions(reader)), 12))
    active = tuple(zip(tasks, sorted(partitions), strict=True))
    if tasks_alone:
        return AssignmentInfo(version, common, active, standby)
    active_hosts, standby_hosts = _read_hosts(reader, version)
    return AssignmentInfo(
        version,
        common,
        active,
        standby,
        active_hosts,
        standby_hosts,
        reader.int32() if version >= FIRST_WITH_ERROR else 0,
        reader.number(">q") if version >= FIRST_WITH_NEXT_REBALANCE else NO_REBALANCE_MS,
    )


def _read_task(reader: _Reader, version: int) -> Task:
    name, partition = reader.int32(), reader.int32()
    if version >= FIRST_VERSION_WITH_NAMED_TOPOLOGIES and (length := reader.int32()):
        topology = reader.take(2 * length).decode("utf-16-be", "replace")
        raise UserDataError(f"it has a task of the named topology {topology}")
    return str(name), partition


def _read_partitions(reader: _Reader) -> tuple[TopicPartition, ...]:
    return tuple(sorted(set(reader.many(lambda: (reader.text(), reader.int32()), 6))))


def _read_hosts(reader: _Reader, version: int) -> tuple[ByHost, ByHost]:
    if version < FIRST_WITH_HOSTS:
        return {}, {}
    if version < FIRST_WITH_DICTIONARY:
        return _read_by_host(reader, lambda: _read_partitions(reader)), {}
    topics = dict(reader.many(lambda: (reader.int32(), reader.text()), 6))

    def partition() -> TopicPartition:
        number = reader.int32()
        if number not in topics:
            raise UserDataError("it has a topic that is not in its dictionary")
        return topics[number], reader.int32()

    def read_partitions() -> tuple[TopicPartition, ...]:
        return tuple(sorted(set(reader.many(partition, 8))))

    active = _read_by_host(reader, read_partitions)
    return active, _read_by_host(reader, read_partitions) if version >= FIRST_WITH_STANDBY_HOSTS else {}


def _read_by_host(reader: _Reader, read_partitions: Callable[[], tuple[TopicPartition, ...]]) -> ByHost:
    return dict(reader.many(lambda: ((reader.text(), reader.int32()), read_partitions()), 10))


# --- write -----------------------------------------------------------------------------------------


def write_assignment_info(info: AssignmentInfo, hosts: bytes | None = None) -> bytes:
    """Encode the user data in its version, without fields that this version does not have.

    `hosts`: the result of `write_hosts`, if it is known already.
    """
    version = info.version
    parts = [_int32(version)]
    if version >= FIRST_VERSION_WITH_LATEST_SUPPORTED:
        parts.append(_int32(info.commonly_supported_version))
    parts.append(_int32(len(info.active)))
    parts += (_task(task, version) for task, _ in info.active)
    parts.append(_int32(len(info.standby)))
    for task in sorted(info.standby):
        parts += (_task(task, version), _partitions(info.standby[task]))
    parts.append(write_hosts(info) if hosts is None else hosts)
    if version >= FIRST_WITH_ERROR:
        parts.append(_int32(info.error_code))
    if version >= FIRST_WITH_NEXT_REBALANCE:
        parts.append(struct.pack(">q", info.next_rebalance_ms))
    return b"".join(parts)


def write_hosts(info: AssignmentInfo) -> bytes:
    """Encode the fields with partitions by host, which are the same for all members of a version."""
    return b"".join(_hosts(info))


def _int32(number: int) -> bytes:
    return struct.pack(">i", number)


def _text(text: str) -> bytes:
    utf16 = text.encode("utf-16-be", "surrogatepass")
    letters = (utf16[at : at + 2] for at in range(0, len(utf16), 2))
    if text.isascii() and "\0" not in text:
        raw = text.encode()
    else:
        raw = b"".join(
            letter.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass") for letter in letters
        ).replace(b"\0", b"\xc0\x80")
    if len(raw) > MAX_TEXT_BYTES:
        raise UserDataError(f"text of {len(raw)} bytes is longer than {MAX_TEXT_BYTES}")
    return struct.pack(">H", len(raw)) + raw


def _task(task: Task, version: int) -> bytes:
    written = struct.pack(">ii", int(task[0]), task[1])
    return written + _int32(0) if version >= FIRST_VERSION_WITH_NAMED_TOPOLOGIES else written


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    rows = sorted(partitions)
    return b"".join((_int32(len(rows)), *(_text(topic) + _int32(p) for topic, p in rows)))


def _hosts(info: AssignmentInfo) -> Iterable[bytes]:
    if info.version < FIRST_WITH_HOSTS:
        return
    if info.version < FIRST_WITH_DICTIONARY:
        yield from _by_host(info.partitions_by_host, _partitions)
        return
    dictionaries = [info.partitions_by_host]
    if info.version >= FIRST_WITH_STANDBY_HOSTS:
        dictionaries.append(info.standby_partitions_by_host)
    topics = sorted({topic for hosts in dictionaries for some in hosts.values() for topic, _ in some})
    numbers = {topic: number for number, topic in enumerate(topics)}
    yield _int32(len(topics))
    yield from (_int32(number) + _text(topic) for topic, number in numbers.items())

    def numbered(partitions: Iterable[TopicPartition]) -> bytes:
        rows = sorted(partitions)
        return b"".join((_int32(len(rows)), *(struct.pack(">ii", numbers[topic], p) for topic, p in rows)))

    for hosts in dictionaries:
        yield from _by_host(hosts, numbered)


def _by_host(
    hosts: ByHost, encode_partitions: Callable[[Iterable[TopicPartition]], bytes]
) -> Iterable[bytes]:
    yield _int32(len(hosts))
    for host, port in sorted(hosts):
        yield _text(host) + _int32(port) + encode_partitions(hosts[host, port])
