"""A broker under load: start, idle, and requests per CPU second of its process.

The load comes from this process: plain sockets, one request in flight on each of many connections, which
is the shape of real clients. The broker's CPU time is read from /proc, so these figures need Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from konvene.codec.batches import build_simple
from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.messages import API_KEYS
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.sync_group import SyncGroupRequest

SECONDS = 5.0
CONNECTIONS = 64
TICK = os.sysconf("SC_CLK_TCK")

KAFKA = {
    "api-versions": 20_020,
    "heartbeat": 38_503,
    "heartbeat on one connection": 9_582,
    "commit of 1": 26_076,
    "commit of 100": 4_742,
    "produce of 1 x 100 B": 20_741,
    "produce of 100 x 100 B": 13_075,
}
"""Requests per CPU second of Apache Kafka 4.4.0 on two cores with a 1 GB heap, commits without fsync."""


def request_bytes(request: Struct, version: int, correlation_id: int = 1) -> bytes:
    """A request as a frame, with the client id "bench"."""
    api = API_KEYS[type(request).__key__]
    head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big")
    head += correlation_id.to_bytes(4, "big") + b"\0\5bench"
    if version >= api.first_flexible:
        head += b"\0"
    body = head + encode(request, version)
    return len(body).to_bytes(4, "big") + body


class Peer:
    """A blocking connection, for setting things up."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))

    def ask(self, request: Struct, version: int) -> Struct:
        self.send(request, version)
        return self.receive(type(request).__key__, version)

    def send(self, request: Struct, version: int) -> None:
        self.socket.sendall(request_bytes(request, version))

    def receive(self, key: int, version: int) -> Struct:
        size = int.from_bytes(self._exactly(4), "big")
        data = self._exactly(size)
        api = API_KEYS[key]
        return decode(api.response, version, data, 5 if api.response_header_version(version) else 4)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


class Running(NamedTuple):
    """A broker process."""

    process: subprocess.Popen[bytes]
    port: int
    ready_s: float

    def cpu_s(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def rss_mib(self) -> float:
        with open(f"/proc/{self.process.pid}/status") as file:
            for line in file:
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) / 1024
        return 0.0


@contextlib.contextmanager
def broker(*settings: str) -> Iterator[Running]:
    """A broker of its own on an empty directory, ready when ApiVersions is answered."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="konvene-bench-") as directory:
        command = [sys.executable, "-m", "konvene", "serve", "--port", str(port), "--data-dir", directory]
        for setting in ("group.initial.rebalance.delay.ms=300", "offsets.topic.num.partitions=4", *settings):
            command += ["--set", setting]
        began = time.perf_counter()
        environment = os.environ | {"KONVENE_LOG": "WARNING"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed package has its bytecode.
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        try:
            while True:
                try:
                    Peer(port).ask(
                        ApiVersionsRequest(client_software_name="b", client_software_version="1"), 3
                    )
                    break
                except OSError:
                    if process.poll() is not None or time.perf_counter() - began > 20:
                        raise RuntimeError("the broker does not start") from None
                    time.sleep(0.002)
            yield Running(process, port, time.perf_counter() - began)
        finally:
            process.terminate()
            process.wait(30)


def row(name: str, per_cpu_s: float, per_s: float, note: str = "") -> None:
    kafka = KAFKA.get(name)
    beside = f"Kafka {kafka:>7,}  ratio {per_cpu_s / kafka:5.2f}" if kafka else ""
    print(f"{name:<34}{per_cpu_s:>10,.0f} per CPU s {per_s:>10,.0f} per s  {beside} {note}", flush=True)


def load(running: Running, frames: list[bytes], seconds: float = SECONDS) -> tuple[float, float]:
    """Send each connection's frame again and again, one in flight; (per CPU second, per second)."""

    async def one(frame: bytes, until: float) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        count = 0
        while time.perf_counter() < until:
            writer.write(frame)
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)
            count += 1
        writer.close()
        return count

    async def all_of_them() -> tuple[int, float, float]:
        await asyncio.gather(*(one(f, time.perf_counter() + 0.5) for f in frames))
        cpu, began = running.cpu_s(), time.perf_counter()
        counts = await asyncio.gather(*(one(f, began + seconds) for f in frames))
        return sum(counts), running.cpu_s() - cpu, time.perf_counter() - began

    try:
        import uvloop

        count, cpu, wall = uvloop.run(all_of_them())
    except ImportError:
        count, cpu, wall = asyncio.run(all_of_them())
    return count / max(cpu, 1 / TICK), count / wall


def stable_group(port: int, name: str, members: int) -> list[HeartbeatRequest]:
    """Make a stable classic group; a heartbeat for each of its members."""
    protocols = (JoinGroupRequestProtocol(name="range", metadata=b""),)
    peers = [Peer(port) for _ in range(members)]

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=name,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        )

    ids = []
    for peer in peers:
        response = peer.ask(join(""), 9)
        assert isinstance(response, JoinGroupResponse)
        ids.append(response.member_id)
    for peer, member_id in zip(peers, ids, strict=True):
        peer.send(join(member_id), 9)
    answers = [peer.receive(JoinGroupRequest.__key__, 9) for peer in peers]
    generations = {a.generation_id for a in answers if isinstance(a, JoinGroupResponse)}
    assert len(generations) == 1, "the members came too slowly to be one generation"
    generation = generations.pop()
    leader = next(a.leader for a in answers if isinstance(a, JoinGroupResponse))
    order = sorted(range(members), key=lambda i: ids[i] == leader)
    for i in order:
        peers[i].send(SyncGroupRequest(group_id=name, generation_id=generation, member_id=ids[i]), 5)
    for peer in peers:
        peer.receive(SyncGroupRequest.__key__, 5)
    return [HeartbeatRequest(group_id=name, generation_id=generation, member_id=i) for i in ids]


def start() -> None:
    """Process start to the first ApiVersions answer; the bar is 0.35 s."""
    times = []
    for _ in range(7):
        with broker() as running:
            times.append(running.ready_s)
    times.sort()
    name = "start to first ApiVersions answer"
    print(f"{name:<34}{times[3]:>10.3f} s (min {times[0]:.3f}, bar 0.350; Kafka 2.630)")


def idle() -> None:
    """Memory and CPU of a broker that nobody talks to; the bar is 60 MB."""
    with broker() as running:
        Peer(running.port).ask(FindCoordinatorRequest(coordinator_keys=("g",)), 4)
        time.sleep(1)
        cpu = running.cpu_s()
        time.sleep(5)
        used = (running.cpu_s() - cpu) / 5
        told = f"{running.rss_mib():>10.1f} MiB RSS, {100 * used:.1f} % CPU"
        print(f"{'idle':<34}{told} (bar 60 MB, 0 %; Kafka 376)")


def api_versions() -> None:
    with broker() as running:
        ask = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        row("api-versions", *load(running, [request_bytes(ask, 3)] * CONNECTIONS))


def heartbeat() -> None:
    """Classic heartbeats of ten stable groups; the bar is 20,000 per CPU second."""
    with broker() as running:
        Peer(running.port).ask(FindCoordinatorRequest(coordinator_keys=("g",)), 4)
        beats: list[HeartbeatRequest] = []
        for i in range(8):
            beats += stable_group(running.port, f"bench-{i}", 8)
        frames = [request_bytes(b, 4) for b in beats[:CONNECTIONS]]
        row("heartbeat", *load(running, frames), note="bar 20,000")
        row("heartbeat on one connection", *load(running, frames[:1]))


def commit() -> None:
    """OffsetCommit of a group without members, with and without waiting for the disk."""
    for fsync in ("true", "false"):
        with broker(f"konvene.log.fsync.internal={fsync}") as running:
            _make_topic(running, "t", 100)
            Peer(running.port).ask(FindCoordinatorRequest(coordinator_keys=("g",)), 4)
            for partitions in (1, 100):
                frames = [request_bytes(_commit(f"g{i}", partitions), 9) for i in range(CONNECTIONS)]
                row(f"commit of {partitions}", *load(running, frames), note=f"fsync {fsync}")


def _commit(group: str, partitions: int) -> OffsetCommitRequest:
    asked = tuple(
        OffsetCommitRequestPartition(partition_index=i, committed_offset=i, committed_metadata="")
        for i in range(partitions)
    )
    return OffsetCommitRequest(group_id=group, topics=(OffsetCommitRequestTopic(name="t", partitions=asked),))


def produce() -> None:
    with broker() as running:
        _make_topic(running, "t", 8)
        for count in (1, 100):
            batch = build_simple([(None, b"x" * 100)] * count, int(time.time() * 1000))
            frames = [request_bytes(_produce(i % 8, batch), 9) for i in range(40)]
            row(f"produce of {count} x 100 B", *load(running, frames))


def _produce(partition: int, batch: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=(TopicProduceData(name="t", partition_data=(data,)),)
    )


def _make_topic(running: Running, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    Peer(running.port).ask(CreateTopicsRequest(topics=(topic,)), 7)
