"""Services of a simulated broker for share partitions and the request handlers of share groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from konvene.broker.handlers import share_acknowledge, share_fetch
from konvene.broker.net.authorization import Authorization
from konvene.broker.node_services import NodeServices
from konvene.broker.services import bind
from konvene.broker.shares.background_work import ShareStateWork
from konvene.broker.shares.share_partition import SharePartitionServer
from konvene.broker.shares.state_coordinators import ShareCoordinators
from konvene.cluster.features import SHARE_VERSION
from konvene.configs.group_configs import GroupConfigs
from konvene.delivery.contract import DeadLetter
from konvene.messages.share_acknowledge import ShareAcknowledgeRequest
from konvene.messages.share_fetch import ShareFetchRequest
from konvene.runtime.environment import Environment
from konvene.share_state.requests import SharePartitionKey
from konvene.sim.share.recording import RecordingSharePartitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from konvene.configs import BrokerConfig
    from konvene.shard.image import Topics
    from konvene.sim.event_queue import Entry
    from konvene.sim.share.node import ShareNode
    from konvene.sim.world.process import Process

HANDLE: dict[type, Callable[..., Any]] = {
    ShareFetchRequest: share_fetch.handle,
    ShareAcknowledgeRequest: share_acknowledge.handle,
}

Connection = tuple[str, int, int]
"""A connection: the name of the client, its life, and the number of the connection in it."""


class _Loop:
    """An event loop, on the simulator's event queue, for one life of the share partitions; its callbacks run
    only while `alive`."""

    def __init__(self, node: ShareNode) -> None:
        self.alive = True
        self._event_queue = node.world.event_queue
        self.time = self._event_queue.time

    def call_later(self, delay: float, call: Callable[..., object], *args: object) -> Entry:
        return self.call_at(self.time() + delay, call, *args)

    def call_at(self, when: float, call: Callable[..., object], *args: object) -> Entry:
        return self._event_queue.call_at(when, self._call, call, *args)

    def _call(self, call: Callable[..., object], *args: object) -> None:
        if self.alive:
            call(*args)


class _States(ShareCoordinators):
    """A stand-in for the broker's table of share coordinators, which has only one: that of the share node."""

    def __init__(self, services: NodeServices, share_node: ShareNode) -> None:
        super().__init__(services)
        self._share_node = share_node
        self._coordinators = [cast("Any", share_node)]

    def _of(self, key: SharePartitionKey) -> Any:
        return self._share_node


class _DeadLetters:
    """A stand-in for the dead letter queue: it writes nothing, and reports each letter as written after a
    delay."""

    def __init__(self, node: ShareNode, loop: _Loop) -> None:
        self._node = node
        self._loop = loop

    def send(self, served: SharePartitionServer, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            takes_ms = self._node.world.latency_ms("work.ms")
            self._loop.call_later(takes_ms / 1000, served.dead_letter_done, letter)


class _Catalogue:
    """A stand-in for the broker's catalogue, with the topics and features that share partitions and their
    handlers use."""

    node_id = 0
    advertised = ("localhost", 9092)

    def advertised_to(self, listener: str) -> tuple[str, int]:
        """Return the address that responses name for clients of a listener."""
        return self.advertised

    def __init__(self, node: ShareNode) -> None:
        self._node = node
        self.state = node

    @property
    def topics(self) -> Topics:
        return self._node.world.topics

    def feature_level(self, feature: str) -> int:
        return 2 if feature == SHARE_VERSION else 0


class _Settings:
    """A stand-in for the settings of the broker and of its groups: those that the run has drawn."""

    def __init__(self, node: ShareNode) -> None:
        self.node = node
        self._config: BrokerConfig | None = None
        self._group_configs: GroupConfigs | None = None

    @property
    def config(self) -> BrokerConfig:
        return self.node.world.config

    @property
    def group_configs(self) -> GroupConfigs:
        """The effective configs of every group; a new object only after a change of the broker's configs."""
        if self._group_configs is None or self._config is not self.config:
            world, self._config = self.node.world, self.config
            settings = {"share.auto.offset.reset": "earliest"}
            if world.options["read.committed"]:
                settings["share.isolation.level"] = "read_committed"
            if world.options["dead.letters"]:
                settings["errors.deadletterqueue.topic.name"] = "dlq.lost"
            names = {f"g{number + 1}": settings for number in range(world.options["groups"])}
            self._group_configs = GroupConfigs(self.config, names)
        return self._group_configs


class Deliveries:
    """One life of a broker's share partitions, which ends with their failover: with the services that they
    use, and the request handlers that use them."""

    def __init__(self, node: ShareNode) -> None:
        self.node = node
        self.loop = _Loop(node)
        self.settings = cast("Any", _Settings(node))
        self.catalogue = cast("Any", _Catalogue(node))
        environment = Environment(wall_clock_ms=node.world.event_queue.wall_clock_ms)
        self.authorization = Authorization()
        services = NodeServices(
            cast("Any", self.loop), environment, self.settings, self.authorization, self.catalogue,
            cast("Any", None), cast("Any", node), None,
        )  # fmt: skip
        self.share_coordinators = _States(services, node)
        self.share_partitions = RecordingSharePartitions(
            services, self.share_coordinators, node.ledger, node.check_removed_member
        )
        self.share_partitions.sessions.limit = node.world.options["share.sessions"]
        if node.world.options["dead.letters"]:
            self.share_partitions.dead_letters = cast("Any", _DeadLetters(node, self.loop))
        self.work = ShareStateWork(self.catalogue, self.share_coordinators, self.share_partitions)
        self.handlers = {request: bind(handle, self) for request, handle in HANDLE.items()}
        self.connections: dict[Connection, Process] = {}
