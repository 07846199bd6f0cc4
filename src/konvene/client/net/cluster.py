"""Cluster: connections to brokers, metadata, and the lookup of leaders and coordinators.

A `Cluster` keeps the connections (one per broker), the last metadata, and the coordinators that it has found.
It retries with exponential backoff, until the timeout of the call, if a broker is unavailable, a leader or
coordinator has moved, or a coordinator is loading. Every other error is raised at once.

One connection per broker is enough for short requests. As a broker processes the requests of a connection in
order, requests that block on purpose (Fetch, JoinGroup) use a lane of their own: a separate connection.

Time is that of the event loop, and backoff has no jitter, so that a simulation is reproducible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from konvene.client.errors import (
    BadResponse,
    CannotConnect,
    ClientError,
    ConnectionLost,
    KafkaError,
    Misconfigured,
    RequestTimedOut,
    raise_for,
)
from konvene.client.net.connection import Connection
from konvene.client.net.settings import ClientSettings, parse_bootstrap
from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from konvene.plurals import counted

__all__ = [
    "GROUP", "SHARE", "TRANSACTION", "Cluster", "Connect", "Lane", "Metadata", "Node", "Partition",
    "Patience", "Request", "Topic", "TopicPartition",
]  # fmt: skip

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types of FindCoordinator."""

COORDINATOR_MOVED = frozenset(
    {Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR}
)
"""Errors after which a request is retried with the current coordinator."""

Connect = Callable[[str, int], Awaitable[Connection]]
R = TypeVar("R", bound=Struct)

Lane = object | None
"""Owner of a connection: None for the shared one; any other object gets its own connection to each broker."""
Request = Struct | Callable[[Connection], tuple[Struct, int]]
"""A request, or a function that returns (request, version) for a connection if it depends on the version."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    """Address of a broker in the cluster."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


class Partition(NamedTuple):
    """A partition in the metadata; `leader` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


class Topic(NamedTuple):
    """A topic in the metadata. It has no partitions if `error_code` is set."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[Partition, ...]
    error_code: int


class Metadata(NamedTuple):
    """Brokers, controller and topics of a cluster, from the last metadata response."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Node] = {}
    topics: Mapping[str, Topic] = {}
    names: Mapping[bytes, str] = {}
    """Topic names by id."""


class Patience:
    """Deadline of a call, with exponential backoff between its attempts."""

    def __init__(self, settings: ClientSettings, timeout_ms: int | None = None) -> None:
        wait_ms = settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self.loop = asyncio.get_running_loop()
        self.deadline = self.loop.time() + wait_ms / 1000
        self._pause = settings.retry_backoff_ms / 1000
        self._longest = settings.retry_backoff_max_ms / 1000

    @property
    def left_ms(self) -> int:
        return max(0, round((self.deadline - self.loop.time()) * 1000))

    async def after(self, error: ClientError) -> None:
        """Wait before the next attempt. Raises `error` if it is not retriable or the time is over."""
        if not error.retriable:
            raise error
        await self.pause(error)

    async def pause(self, error: ClientError) -> None:
        """Back off as `after` does, for an error that the caller knows to be retriable."""
        if self.loop.time() + self._pause > self.deadline:
            raise error
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, self._longest)


class Cluster:
    """Connections to the brokers of a Kafka cluster, and its metadata.

    Use as `async with Cluster("localhost:9092") as cluster`. `connect` replaces how connections are opened,
    for simulations."""

    def __init__(
        self, bootstrap: str | Sequence[tuple[str, int]], settings: ClientSettings | None = None, *,
        connect: Connect | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings or ClientSettings()
        self.bootstrap = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        if not self.bootstrap:
            raise Misconfigured("no bootstrap server is given")
        self.metadata = Metadata()
        self._connect = connect or self._open
        self._connections: dict[tuple[str, int, Lane], asyncio.Future[Connection]] = {}
        self._coordinators: dict[tuple[int, str], Node] = {}
        self._closed = False

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.bootstrap)
        return f"<Cluster {servers}: {len(self.metadata.nodes)} nodes, {len(self._connections)} connections>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; pending calls raise `ConnectionLost`."""
        self._closed = True
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            if not task.done():
                task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Connection):
                outcome.close()
        await asyncio.sleep(0)  # Let the transports close before the loop may end.

    # connections

    async def _open(self, host: str, port: int) -> Connection:
        s = self.settings
        return await Connection.open(
            host, port, client_id=s.client_id, request_timeout_ms=s.request_timeout_ms,
            connect_timeout_ms=s.connect_timeout_ms, security=s.security,
        )  # fmt: skip

    async def connection(self, host: str, port: int, lane: Lane = None) -> Connection:
        """Return the connection to an address, opened if needed.

        Connections of different lanes are separate: a blocking request delays only its own lane."""
        if self._closed:
            raise ConnectionLost("this client was closed")
        task = self._connections.get((host, port, lane))
        if task is None or _is_over(task):
            task = asyncio.ensure_future(self._connect(host, port))
            self._connections[host, port, lane] = task
        return await asyncio.shield(task)

    def release(self, lane: Lane) -> None:
        """Close the connections of a lane."""
        for place in [place for place in self._connections if place[2] is lane]:
            task = self._connections.pop(place)
            if not task.done():
                task.cancel()
            elif not _is_over(task):
                task.result().close()

    async def node(self, node_id: int, lane: Lane = None) -> Connection:
        """Return the connection to the broker with this id. Raises `ConnectionLost` for an unknown id."""
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise ConnectionLost(f"no broker with id {node_id} is in the cluster's metadata")
        return await self.connection(node.host, node.port, lane)

    async def any_node(self) -> Connection:
        """Return a connection to any available broker: open ones first, then new ones to the brokers of the
        metadata, then to the bootstrap servers."""
        known = [(n.host, n.port) for n in self.metadata.nodes.values()]
        connected = [(host, port) for host, port, lane in self._connections if lane is None]
        places = list(dict.fromkeys([*connected, *known, *self.bootstrap]))
        errors: list[ClientError] = []
        for host, port in places:
            try:
                return await self.connection(host, port)
            except (ConnectionLost, RequestTimedOut, BadResponse) as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise CannotConnect("; ".join(dict.fromkeys(str(e) for e in errors)))

    # asking

    def patience(self, timeout_ms: int | None = None) -> Patience:
        return Patience(self.settings, timeout_ms)

    async def ask(
        self, request: Request, *, node_id: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send a request to a broker (any if `node_id` is None); retry if the connection fails.

        If no broker was ever reached, the error is raised at once."""
        patience = self.patience(timeout_ms)
        while True:
            try:
                connection = await (self.any_node() if node_id is None else self.node(node_id))
                return await _deliver(connection, request)
            except ClientError as error:
                if isinstance(error, CannotConnect) and not self.metadata.nodes:
                    raise
                await patience.after(error)

    async def ask_coordinator(
        self, key: str, request: Request, code: Callable[[R], int], *, kind: int = GROUP,
        timeout_ms: int | None = None, answer_timeout_ms: int | None = None, lane: Lane = None,
    ) -> R:  # fmt: skip
        """Send a request to the coordinator of `key`; find it again and retry if it has moved or is loading.

        `code` extracts the error code of a response. `timeout_ms` bounds the search and `answer_timeout_ms`
        the wait for one response (JoinGroup may take long). A response with any other error code is returned.
        """
        patience = self.patience(timeout_ms)
        while True:
            try:
                connection = await self.coordinator(key, kind, lane)
                answer: R = await _deliver(connection, request, answer_timeout_ms)
                if code(answer) not in COORDINATOR_MOVED:
                    return answer
                raise KafkaError(code(answer), about=f"the coordinator of {key}")
            except ClientError as error:
                if isinstance(error, CannotConnect) and not self.metadata.nodes:
                    raise
                await self._lost_coordinator(kind, key, error, patience)

    async def _lost_coordinator(self, kind: int, key: str, error: ClientError, patience: Patience) -> None:
        if not (isinstance(error, KafkaError) and error.code == Errors.COORDINATOR_LOAD_IN_PROGRESS):
            self.forget_coordinator(key, kind)
        await patience.after(error)

    async def coordinator(self, key: str, kind: int = GROUP, lane: Lane = None) -> Connection:
        """Return the connection to the coordinator of `key`; `kind` is GROUP, TRANSACTION or SHARE.

        Raises `KafkaError` if the cluster has none."""
        node = self._coordinators.get((kind, key))
        if node is None:
            node = self._coordinators[kind, key] = await self.find_coordinator(key, kind)
        return await self.connection(node.host, node.port, lane)

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        self._coordinators.pop((kind, key), None)

    async def find_coordinator(self, key: str, kind: int = GROUP) -> Node:
        """Find the coordinator of `key` (a group, transactional id or share key) with one request."""
        connection = await self.any_node()
        api = BY_NAME["FindCoordinator"].key
        version = connection.version_of(api)
        if version >= 4:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        else:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        answer: FindCoordinatorResponse = await connection.send(request, version)
        about = f"the coordinator of {key}"
        if version < 4:
            raise_for(answer.error_code, answer.error_message, about=about)
            return Node(answer.node_id, answer.host, answer.port)
        if len(answer.coordinators) != 1:
            raise BadResponse(
                f"FindCoordinator for one key answered {counted(len(answer.coordinators), 'row')}"
            )
        found = answer.coordinators[0]
        raise_for(found.error_code, found.error_message, about=about)
        return Node(found.node_id, found.host, found.port)

    # metadata

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> Metadata:
        """Request the metadata of `topics`, or of all topics if None; other known topics are kept.

        A topic with an error is in `metadata.topics` with its error code. `create` lets the broker create
        missing topics."""
        names = None if topics is None else sorted(set(topics))
        wanted = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
        answer: MetadataResponse = await self.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        )
        raise_for(answer.error_code, about="metadata")
        fresh = {t.name: t for t in _topics(answer)}
        known = {} if wanted is None else dict(self.metadata.topics)
        known.update(fresh)
        self.metadata = Metadata(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            nodes={b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers},
            topics=known,
            names={bytes(t.topic_id): t.name for t in known.values() if t.topic_id != ZERO_UUID},
        )
        return self.metadata

    async def topic(self, name: str, *, timeout_ms: int | None = None, create: bool = False) -> Topic:
        """Return a topic from the metadata; request it if it is not there or a partition has no leader.

        All partitions of the result have leaders. `create` lets the broker create the topic. Raises
        `KafkaError` if it does not exist, or if a leader is still missing when the call times out."""
        known = self.metadata.topics.get(name)
        patience = self.patience(timeout_ms)
        while True:
            if known is not None and known.error_code == 0 and all(p.leader >= 0 for p in known.partitions):
                return known
            known = (await self.refresh([name], create=create)).topics[name]
            code = known.error_code
            if code == Errors.UNKNOWN_TOPIC_OR_PARTITION and not create:
                raise KafkaError(code, f"there is no topic {name}", about=f"topic {name}")
            leaderless = any(p.leader < 0 for p in known.partitions)
            if code != 0 or leaderless:
                await patience.after(KafkaError(code or Errors.LEADER_NOT_AVAILABLE, about=f"topic {name}"))

    async def leader(self, topic: str, partition: int) -> int:
        """Return the broker id of a partition's leader; refresh the metadata if the partition is unknown."""
        for is_new in (False, True):
            if is_new:
                self.forget_topic(topic)
            found = await self.topic(topic)
            for each in found.partitions:
                if each.partition == partition:
                    return each.leader
        raise KafkaError(
            Errors.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic} has {counted(len(found.partitions), 'partition')}, none is number {partition}",
            about=f"topic {topic}",
        )

    async def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by the broker id of their leader."""
        grouped: dict[int, list[TopicPartition]] = {}
        leaders: dict[str, dict[int, int]] = {}
        for each in sorted(set(partitions)):
            if each.topic not in leaders:
                found = await self.topic(each.topic)
                leaders[each.topic] = {p.partition: p.leader for p in found.partitions}
            leader = leaders[each.topic].get(each.partition)
            if leader is None:
                leader = await self.leader(*each)
            grouped.setdefault(leader, []).append(each)
        return dict(sorted(grouped.items()))

    def forget_topic(self, name: str) -> None:
        """Drop a topic from the metadata, because its leader has moved or it was recreated."""
        known = dict(self.metadata.topics)
        if known.pop(name, None) is not None:
            self.metadata = self.metadata._replace(topics=known)


async def _deliver(connection: Connection, request: Request, timeout_ms: int | None = None) -> Any:
    if isinstance(request, Struct):
        return await connection.send(request, timeout_ms=timeout_ms)
    made, version = request(connection)
    return await connection.send(made, version, timeout_ms=timeout_ms)


def _is_over(task: asyncio.Future[Connection]) -> bool:
    """Return True if a connection has ended or could not be opened."""
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().is_closed)


def _topics(answer: MetadataResponse) -> Iterable[Topic]:
    for t in answer.topics:
        partitions = sorted(
            (
                Partition(
                    p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes,
                    p.offline_replicas, p.error_code,
                )
                for p in t.partitions
            ),
            key=lambda p: p.partition,
        )  # fmt: skip
        yield Topic(t.name or "", Uuid(t.topic_id), t.is_internal, tuple(partitions), t.error_code)
