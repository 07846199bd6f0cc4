"""A hanging transaction, made with raw requests: its records are in the log, but no coordinator knows of
them.

No current client makes one, and brokers refuse such records. A broker accepts them where
`transaction.partition.verification.enable` is false, as brokers before 3.6 always did. Requests are
InitProducerId 1 and Produce 3.
"""

import socket
import struct
import time

from ..brokers import HOST
from ..raw import Answer, array, octets, text

PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID = 0, 10, 22
TRANSACTIONAL = 16
"""The bit of a batch's attributes."""

NOT_YET = {14, 15, 16, 51}
"""COORDINATOR_LOAD_IN_PROGRESS, _NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS."""

NOT_LED_YET = {3, 6}
"""UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER: of a topic that was made a moment ago."""


def leave_hanging(port: int, transactional_id: str, topic: str, partition: int, value: str) -> int:
    """Write this value in a transaction that is never completed; return its producer id."""
    with socket.create_connection((HOST, port), timeout=20) as connection:
        _ask(connection, FIND_COORDINATOR, 1, text(transactional_id) + b"\1")
        producer_id, epoch = _producer_id(connection, transactional_id)
        batch = _batch(producer_id, epoch, value.encode())
        parts = array([struct.pack(">i", partition) + octets(batch)])
        body = text(transactional_id) + struct.pack(">hi", -1, 10_000) + array([text(topic) + parts])
        _produce(connection, body)
        return producer_id


def _producer_id(connection: socket.socket, transactional_id: str) -> tuple[int, int]:
    deadline = time.monotonic() + 20
    while True:
        answer = _ask(connection, INIT_PRODUCER_ID, 1, text(transactional_id) + struct.pack(">i", 60_000))
        answer.number("i")
        error, producer_id, epoch = answer.number("h"), answer.number("q"), answer.number("h")
        if error not in NOT_YET:
            assert error == 0, f"InitProducerId: error {error}"
            return producer_id, epoch
        assert time.monotonic() < deadline, f"InitProducerId: error {error}"
        time.sleep(0.05)


def _produce(connection: socket.socket, body: bytes) -> None:
    deadline = time.monotonic() + 20
    while True:
        answer = _ask(connection, PRODUCE, 3, body)
        answer.number("i"), answer.text(), answer.number("i"), answer.number("i")
        error = answer.number("h")
        if error not in NOT_LED_YET:
            assert error == 0, f"Produce: error {error}"
            return
        assert time.monotonic() < deadline, f"Produce: error {error}"
        time.sleep(0.05)


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> Answer:
    """An answer, behind its correlation id."""
    connection.sendall(octets(struct.pack(">hhi", api, version, 7) + text("hanging") + body))
    with connection.makefile("rb", buffering=0) as stream:
        size: int = struct.unpack(">i", stream.read(4))[0]
        data = b""
        while len(data) < size:
            data += stream.read(size - len(data))
    answer = Answer(data)
    assert answer.number("i") == 7
    return answer


def _batch(producer_id: int, epoch: int, value: bytes) -> bytes:
    """A record batch (magic 2) of one record without a key."""
    now_ms = int(time.time() * 1000)
    fields = b"\0\0\0" + _varint(-1) + _varint(len(value)) + value + b"\0"
    record = _varint(len(fields)) + fields
    head = struct.pack(">hiqqqhii", TRANSACTIONAL, 0, now_ms, now_ms, producer_id, epoch, 0, 1)
    behind = head + record
    summed = struct.pack(">ibI", 0, 2, _crc32c(behind)) + behind
    return struct.pack(">qi", 0, len(summed)) + summed


def _varint(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
