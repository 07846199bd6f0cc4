"""The state of the catalogue: topics, settings, features, the registered broker."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.records.metadata import RegisterBrokerRecord
from konvene.security.acls import Acl
from konvene.security.quotas.entities import QuotaEntity
from konvene.security.sasl.credentials import ScramCredential
from konvene.security.tokens import DelegationToken
from konvene.shard.image import Topic, Topics


class ResourceType(IntEnum):
    """Kafka's codes of the types of resources that have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class TopicState(NamedTuple):
    """A topic: its name, its id, its number of partitions."""

    name: str
    id: Uuid
    partitions: int = 0
    since: int = 0
    """Number of broker starts up to the creation of the topic; see `registration`."""


class CatalogueState:
    """The cluster's metadata as replayed from the log; only the catalogue's `replay` changes it."""

    __slots__ = (
        "_image", "acls", "broker", "client_quotas", "configs", "created", "features", "names",
        "next_producer_id", "scram", "starts", "tokens", "topics",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.names: dict[Uuid, str] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        """Settings by resource type and name; cluster-wide broker defaults have the name ''."""
        self.features: dict[str, int] = {}
        self.acls: dict[Uuid, Acl] = {}
        """ACLs by id."""
        self.scram: dict[tuple[str, str], ScramCredential] = {}
        """SCRAM credentials by user and mechanism."""
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        """Client quotas by entity and key."""
        self.tokens: dict[str, DelegationToken] = {}
        """Delegation tokens by id."""
        self.next_producer_id = 0
        self.broker: RegisterBrokerRecord | None = None
        self.starts = 0
        """Number of broker registrations."""
        self.created = 0
        """Number of topics ever created."""
        self._image: Topics | None = None

    def put_broker(self, record: RegisterBrokerRecord) -> None:
        """Apply a broker registration. If the broker's rack changed, the topics image is rebuilt."""
        if (self.broker.rack if self.broker is not None else None) != record.rack:
            self._image = None
        self.broker = record
        self.starts += 1

    def put_topic(self, topic: TopicState) -> None:
        """Add a topic, or replace it after its partitions changed."""
        known = self.topics.get(topic.name)
        if known == topic:
            return
        if known is None or known.id != topic.id:
            self.created += 1
        self.topics[topic.name] = topic
        self.names[topic.id] = topic.name
        self._image = None

    def drop_topic(self, name: str) -> None:
        del self.names[self.topics.pop(name).id]
        self.configs.pop((ResourceType.TOPIC, name), None)
        self._image = None

    def leader_epoch(self, topic: str) -> int:
        """Return the leader epoch of all partitions of a topic; 0 for an unknown topic."""
        known = self.topics.get(topic)
        return 0 if known is None else self.starts - known.since

    @property
    def image(self) -> Topics:
        """Return all topics as an immutable value for the coordinators, rebuilt only after a change.

        All replicas are in the rack of the one broker.
        """
        if self._image is None:
            rack = self.broker.rack if self.broker is not None else None
            each = ((rack,),) if rack is not None else ()
            topics = (Topic(t.name, t.id, t.partitions, each * t.partitions) for t in self.topics.values())
            self._image = Topics(topics, self.created)
        return self._image
