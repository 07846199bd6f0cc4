"""A member of a group that is no consumer, written by hand: the group APIs in the versions that Kafka Connect
and Schema Registry have long spoken, with metadata and assignments as the bytes that they are.

A request is sent by one call and its answer read by another (`ask` is both), so that members on connections
of their own can wait for each other.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Any

from .brokers import HOST

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 15, 16, 42
VERSIONS = {
    JOIN_GROUP: 5, HEARTBEAT: 3, LEAVE_GROUP: 3, SYNC_GROUP: 3, DESCRIBE_GROUPS: 4, LIST_GROUPS: 2,
    DELETE_GROUPS: 1,
}  # fmt: skip
TIMES_MS = (30_000, 30_000)
"""Session and rebalance timeout."""


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def octets(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def array(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


class Answer:
    """An answer's bytes, taken from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def number(self, kind: str) -> int:
        size = struct.calcsize(">" + kind)
        taken, self.data = self.data[:size], self.data[size:]
        return int(struct.unpack(">" + kind, taken)[0])

    def take(self, size: int) -> bytes:
        taken, self.data = self.data[: max(size, 0)], self.data[max(size, 0) :]
        return taken

    def text(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else self.take(size).decode()

    def octets(self) -> bytes:
        return self.take(self.number("i"))


@dataclass(frozen=True)
class Joined:
    error: int
    generation: int
    protocol: str | None
    leader: str | None
    member_id: str
    members: dict[str, bytes]
    """Metadata by member id; empty for all but the leader."""


@dataclass(frozen=True)
class Described:
    error: int
    state: str | None
    protocol_type: str | None
    protocol: str | None
    members: dict[str, tuple[bytes, bytes]]
    """Metadata and assignment by member id."""


class Raw:
    """One connection of one member, which is not yet in the group."""

    def __init__(self, port: int, group: str, client_id: str = "raw") -> None:
        self.socket = socket.create_connection((HOST, port), timeout=40)
        self.stream = self.socket.makefile("rb")
        self.group = group
        self.client_id = client_id
        self.member_id = ""
        self.generation = -1

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.socket.close()

    def send(self, api: int, body: bytes) -> None:
        header = struct.pack(">hhi", api, VERSIONS[api], 7) + text(self.client_id)
        self.socket.sendall(octets(header + body))

    def read(self, throttled: bool = True) -> Answer:
        """The next answer, behind its correlation id and throttle time."""
        size: int = struct.unpack(">i", self.stream.read(4))[0]
        answer = Answer(self.stream.read(size))
        assert answer.number("i") == 7
        if throttled:
            answer.number("i")
        return answer

    def ask(self, api: int, body: bytes) -> Answer:
        self.send(api, body)
        return self.read()

    def send_join(self, kind: str, protocols: dict[str, bytes]) -> None:
        offered = array([text(name) + octets(metadata) for name, metadata in protocols.items()])
        body = text(self.group) + struct.pack(">ii", *TIMES_MS) + text(self.member_id)
        self.send(JOIN_GROUP, body + text(None) + text(kind) + offered)

    def joined(self) -> Joined:
        answer = self.read()
        error, generation = answer.number("h"), answer.number("i")
        protocol, leader, member_id = answer.text(), answer.text(), answer.text()
        members: dict[str, bytes] = {}
        for _ in range(answer.number("i")):
            name, _instance = answer.text(), answer.text()
            members[str(name)] = answer.octets()
        if member_id:
            self.member_id, self.generation = member_id, generation
        return Joined(error, generation, protocol, leader, str(member_id), members)

    def send_sync(self, assignments: dict[str, bytes]) -> None:
        rows = array([text(member) + octets(assignment) for member, assignment in assignments.items()])
        self.send(SYNC_GROUP, self._me() + rows)

    def synced(self) -> tuple[int, bytes]:
        answer = self.read()
        return answer.number("h"), answer.octets()

    def heartbeat(self) -> int:
        return self.ask(HEARTBEAT, self._me()).number("h")

    def leave(self) -> tuple[int, list[int]]:
        """The error of the request, and that of each member."""
        answer = self.ask(LEAVE_GROUP, text(self.group) + array([text(self.member_id) + text(None)]))
        error, errors = answer.number("h"), []
        for _ in range(answer.number("i")):
            answer.text(), answer.text()
            errors.append(answer.number("h"))
        return error, errors

    def _me(self) -> bytes:
        return text(self.group) + struct.pack(">i", self.generation) + text(self.member_id) + text(None)

    def describe(self) -> Described:
        answer = self.ask(DESCRIBE_GROUPS, array([text(self.group)]) + b"\0")
        assert answer.number("i") == 1
        error, name = answer.number("h"), answer.text()
        assert name == self.group
        state, protocol_type, protocol = answer.text(), answer.text(), answer.text()
        members: dict[str, tuple[bytes, bytes]] = {}
        for _ in range(answer.number("i")):
            member_id, _instance, client_id, _host = (answer.text() for _ in range(4))
            assert client_id
            members[str(member_id)] = (answer.octets(), answer.octets())
        return Described(error, state, protocol_type, protocol, members)

    def listed(self) -> Any:
        """The protocol type with which the group is listed, or None."""
        answer = self.ask(LIST_GROUPS, b"")
        assert answer.number("h") == 0
        groups = {answer.text(): answer.text() for _ in range(answer.number("i"))}
        return groups.get(self.group)

    def delete(self) -> int:
        answer = self.ask(DELETE_GROUPS, array([text(self.group)]))
        assert (answer.number("i"), answer.text()) == (1, self.group)
        return answer.number("h")
