"""A broker in its own process, and clients that send arbitrary bytes.

With `KONVENE_AGAINST=kafka` the same tests run against Apache Kafka (see tests/against). The expected
responses are Kafka's, except where a test names konvene's own.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.against.brokers import Broker, Kafka, chosen

from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.messages import API_KEYS, BY_NAME
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

WITHIN_S = 20
"""Seconds that a response may take before the test fails."""


class Client:
    """A connection that sends bytes without checking them."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_if_open(self, data: bytes) -> None:
        """Send bytes; the broker may close the connection before it has received all of them."""
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def is_closed(self) -> bool:
        """Return True if the broker closes the connection without a response."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def frame(self) -> bytes | None:
        """Return the next response without its length; None if the broker closes the connection instead."""
        try:
            size = self._exactly(4)
            return self._exactly(int.from_bytes(size, "big"))
        except ConnectionError:
            return None

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError
            parts += part
        return bytes(parts)

    def ask(self, request: Struct, version: int | None = None, client_id: str = "c") -> Any:
        """Send a valid request; return the decoded response, None if the connection is closed instead."""
        api = BY_NAME[type(request).__name__.removesuffix("Request")]
        version = api.latest_stable if version is None else version
        self.send(frame(header(api.key, version, client_id) + encode(request, version)))
        response = self.frame()
        if response is None:
            return None
        return decode(api.response, version, response, 5 if api.response_header_version(version) else 4)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def header(key: int, version: int, client_id: str = "c") -> bytes:
    """Encode a request header, with empty tagged fields if the version is flexible."""
    encoded_id = client_id.encode()
    tags = b"\0" if version >= API_KEYS[key].first_flexible else b""
    return (
        key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7" + len(encoded_id).to_bytes(2, "big")
    ) + (encoded_id + tags)


class Target:
    """The broker under test."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.is_kafka = isinstance(broker, Kafka)

    @cached_property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The first and last version of each API that the broker serves, by API key."""
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        response = self.ask(request, 4)
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def client(self) -> Client:
        return Client(self.broker.port)

    def ask(self, request: Struct, version: int | None = None, client_id: str = "c") -> Any:
        with self.client() as client:
            return client.ask(request, version, client_id)

    def topic(self, name: str, partitions: int = 1) -> Uuid:
        """Create a topic unless it exists, wait until its partitions are led, and return its id."""
        from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic

        made = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        self.ask(CreateTopicsRequest(topics=(made,), timeout_ms=10_000))
        deadline = time.monotonic() + WITHIN_S
        while True:
            known = self.ask(MetadataRequest(topics=(MetadataRequestTopic(name=name),)))
            (topic,) = known.topics
            latest_offsets = ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)
                ),
            )
            led = self.ask(ListOffsetsRequest(replica_id=-1, topics=(latest_offsets,))).topics[0].partitions
            if not topic.error_code and not any(p.error_code for p in led):
                return Uuid(topic.topic_id)
            assert time.monotonic() < deadline, topic

    def coordinator(self, group: str) -> None:
        """Wait until the group's coordinator is available."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=(group,)))
            error = self.ask(DescribeGroupsRequest(groups=(group,)), 5).groups[0].error_code
            if not error:
                return
            assert time.monotonic() < deadline, error
            time.sleep(0.05)

    @property
    def rss_mib(self) -> float:
        """Resident memory of the broker's process, in MiB."""
        return self._status("VmRSS")

    @property
    def peak_rss_mib(self) -> float:
        """Peak resident memory since the last `forget_the_peak`, in MiB."""
        return self._status("VmHWM")

    def forget_the_peak(self) -> None:
        (self._proc / "clear_refs").write_text("5")

    def _status(self, name: str) -> float:
        found = re.search(rf"{name}:\s+(\d+) kB", (self._proc / "status").read_text())
        assert found
        return int(found[1]) / 1024

    @property
    def _proc(self) -> Path:
        process = self.broker.process
        assert process is not None
        return Path(f"/proc/{process.pid}")


@contextmanager
def started(path: Path, settings: dict[str, str] | None = None) -> Iterator[Target]:
    """Start the broker that `KONVENE_AGAINST` selects, in its own process."""
    broker = chosen()(path, settings)
    broker.start()
    try:
        yield Target(broker)
    finally:
        broker.stop()
