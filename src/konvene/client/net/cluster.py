"""A cluster as a client sees it: who is there, who leads what, who coordinates whom.

Holds the connections (one per broker), the last metadata, and the coordinators that were found. Decides when
to ask again: a broker that is gone, a leader or coordinator that moved, a coordinator that is still loading
are tried again with a growing pause until the call's time is over; every other error is the caller's at once.

One connection per broker is enough for short requests. A broker answers the requests of a connection one
after another, though, so whoever lets it wait on purpose (a Fetch for records, a JoinGroup for the others)
does so in a lane of its own: a connection that nobody else's requests queue up in.

Time is the event loop's; there is no chance in it (pauses are not jittered), so a simulation repeats itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

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

__all__ = [
    "GROUP", "SHARE", "TRANSACTION", "Cluster", "Connect", "Lane", "Metadata", "Node", "Partition",
    "Patience", "Request", "Topic", "TopicPartition",
]  # fmt: skip

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""What a coordinator can be asked for (FindCoordinator's key types)."""

COORDINATOR_MOVED = frozenset(
    {Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR}
)
"""Answers after which the same request is sent again, to the coordinator as it is then."""

Connect = Callable[[str, int], Awaitable[Connection]]
Lane = object | None
"""Whose connection: None is everybody's; any object gets one of its own per broker."""
Request = Struct | Callable[[Connection], tuple[Struct, int]]
"""A request; or, where its shape depends on the version, what makes (request, version) for a connection."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    """A broker."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


class Partition(NamedTuple):
    """A partition as the metadata has it; `leader` -1 where there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


class Topic(NamedTuple):
    """A topic as the metadata has it. With an `error_code` there are no partitions."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[Partition, ...]
    error_code: int


class Metadata(NamedTuple):
    """What a broker last said about the cluster."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Node] = {}
    topics: Mapping[str, Topic] = {}
    names: Mapping[bytes, str] = {}
    """Topic names by id."""


class Patience:
    """How long one call goes on trying, with pauses that double up to a limit."""

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
        """Wait before the next try; raises `error` where it is final or no time is left."""
        if not error.retriable:
            raise error
        await self.pause(error)

    async def pause(self, error: ClientError) -> None:
        """As `after`, where the caller knows that trying again may help."""
        if self.loop.time() + self._pause > self.deadline:
            raise error
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, self._longest)


class Cluster:
    """The way to a cluster. Use as `async with Cluster("localhost:9092") as cluster`.

    `connect` makes a connection to (host, port); a simulator gives its own.
    """

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
        """End all connections. Calls that wait get `ConnectionLost`."""
        self._closed = True
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            if not task.done():
                task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Connection):
                outcome.close()
        await asyncio.sleep(0)  # Lets the transports say goodbye before the loop may end.

    # connections

    async def _open(self, host: str, port: int) -> Connection:
        s = self.settings
        return await Connection.open(
            host, port, client_id=s.client_id, request_timeout_ms=s.request_timeout_ms,
            connect_timeout_ms=s.connect_timeout_ms,
        )  # fmt: skip

    async def connection(self, host: str, port: int, lane: Lane = None) -> Connection:
        """The connection to an address, made where there is none or the last one ended."""
        if self._closed:
            raise ConnectionLost("this client was closed")
        task = self._connections.get((host, port, lane))
        if task is None or _is_over(task):
            task = asyncio.ensure_future(self._connect(host, port))
            self._connections[host, port, lane] = task
        return await asyncio.shield(task)

    def release(self, lane: Lane) -> None:
        """End the connections of a lane that is no longer used."""
        for place in [place for place in self._connections if place[2] is lane]:
            task = self._connections.pop(place)
            if not task.done():
                task.cancel()
            elif not _is_over(task):
                task.result().close()

    async def node(self, node_id: int, lane: Lane = None) -> Connection:
        """The connection to a broker by id. Raises `ConnectionLost` for one that the metadata lacks."""
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise ConnectionLost(f"no broker with id {node_id} is in the cluster's metadata")
        return await self.connection(node.host, node.port, lane)

    async def any_node(self) -> Connection:
        """A connection to whichever broker answers: known ones first, then the bootstrap servers."""
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
        """Send a request to one broker (any, where `node_id` is None), again where the connection failed.

        A cluster that was never reached is told at once, one that was is waited for."""
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
        self, key: str, request: Request, code: Callable[[Any], int], *, kind: int = GROUP,
        timeout_ms: int | None = None, answer_timeout_ms: int | None = None, lane: Lane = None,
    ) -> Any:  # fmt: skip
        """Send a request to the coordinator of `key`, wherever it is, until one answers that is in charge.

        `code` reads from an answer the code that may say NOT_COORDINATOR; every other code is handed back.
        `timeout_ms` bounds the search, `answer_timeout_ms` the wait for one answer (JoinGroup takes long)."""
        patience = self.patience(timeout_ms)
        while True:
            try:
                connection = await self.coordinator(key, kind, lane)
                answer = await _deliver(connection, request, answer_timeout_ms)
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
        """The connection to the coordinator of `key`. Raises `KafkaError` where the cluster names none."""
        node = self._coordinators.get((kind, key))
        if node is None:
            node = self._coordinators[kind, key] = await self.find_coordinator(key, kind)
        return await self.connection(node.host, node.port, lane)

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        self._coordinators.pop((kind, key), None)

    async def find_coordinator(self, key: str, kind: int = GROUP) -> Node:
        """Ask once who coordinates `key` (a group, a transactional id, a share key)."""
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
            raise BadResponse(f"FindCoordinator for one key answered {len(answer.coordinators)} rows")
        found = answer.coordinators[0]
        raise_for(found.error_code, found.error_message, about=about)
        return Node(found.node_id, found.host, found.port)

    # metadata

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> Metadata:
        """Ask for metadata: of `topics`, or of all where None. Known other topics stay known.

        `create`: a topic that does not exist is created where the broker does so by itself.
        Topics that cannot be described stay in `metadata.topics` with their error code."""
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
        """A topic that exists and whose partitions all have leaders, from the cache or asked for.

        Raises `KafkaError`: for a topic that does not exist at once (unless `create`), for a leader that
        is missing after the call's time."""
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
        """The id of the broker that leads a partition; one that is not known may have been added since."""
        for is_new in (False, True):
            if is_new:
                self.forget_topic(topic)
            found = await self.topic(topic)
            for each in found.partitions:
                if each.partition == partition:
                    return each.leader
        raise KafkaError(
            Errors.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic} has {len(found.partitions)} partitions, none is number {partition}",
            about=f"topic {topic}",
        )

    async def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions, grouped by the broker that leads them, in order."""
        grouped: dict[int, list[TopicPartition]] = {}
        for each in sorted(set(partitions)):
            grouped.setdefault(await self.leader(*each), []).append(each)
        return dict(sorted(grouped.items()))

    def forget_topic(self, name: str) -> None:
        """Make the next look-up of a topic ask again: its leader moved, or it was made anew."""
        known = dict(self.metadata.topics)
        if known.pop(name, None) is not None:
            self.metadata = self.metadata._replace(topics=known)


async def _deliver(connection: Connection, request: Request, timeout_ms: int | None = None) -> Any:
    if isinstance(request, Struct):
        return await connection.send(request, timeout_ms=timeout_ms)
    made, version = request(connection)
    return await connection.send(made, version, timeout_ms=timeout_ms)


def _is_over(task: asyncio.Future[Connection]) -> bool:
    """Whether a connection that was begun failed or has ended since."""
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
