"""Cases of authorization: a request, the rights to try, and the rendered response and effect for each.

A case is data, so that it can be played against any broker (`Stage`): with konvene and a fake authorizer, or
with a live Kafka whose ACLs are set before each request. `outcomes` has the outcome for each set of rights
that matters. Every single right that it does not name has the outcome of no right at all.

Topics: `seen`, to which the rights refer, and `other` exist with one record each; `new` does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from tests.broker.hostile.forged import batch, record

from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from konvene.security.resources import CLUSTER, SUPPORTED_OPERATIONS, Operation, Resource, ResourceType

ALL = "all"
NO_RIGHT = ""
DESCRIBING = "DESCRIBE|READ|WRITE|DELETE|ALTER"
"""Operations that include DESCRIBE."""
EXISTING, MISSING = ("seen", "other"), "new"
GROUP, TRANSACTIONAL_ID = "group", "transaction"
NO_OPERATIONS = -(1 << 31)


class Grant(NamedTuple):
    """A right: an operation on a resource, whose name lacks the prefix of the play."""

    operation: Operation
    resource: Resource

    def prefixed(self, prefix: str) -> Grant:
        """Return the right on the resource of one play; the cluster has no prefix."""
        kind, name = self.resource
        return self if self.resource == CLUSTER else Grant(self.operation, Resource(kind, prefix + name))

    def __str__(self) -> str:
        kind, name = self.resource
        return f"{self.operation.name} {kind.name}" + ("" if kind is ResourceType.CLUSTER else f" {name}")


def grant(text: str) -> Grant:
    """Return the right written as "READ TOPIC seen" or "ALTER CLUSTER"."""
    operation, kind, *name = text.split()
    resource = Resource(ResourceType[kind], name[0]) if name else CLUSTER
    return Grant(Operation[operation], resource)


def grants(text: str) -> Iterator[tuple[Grant, ...]]:
    """Yield the sets of rights of a key of `outcomes`.

    "A|B TOPIC t" stands for one right of each operation; with ", " between them, rights belong together."""
    first, *others = text.split(", ") if text else [""]
    if not first:
        yield ()
        return
    operations, _, resource = first.partition(" ")
    for operation in operations.split("|"):
        yield (grant(f"{operation} {resource}"), *map(grant, others))


SINGLE_RIGHTS = tuple(
    Grant(operation, resource)
    for resource in (
        Resource(ResourceType.TOPIC, "seen"),
        CLUSTER,
        Resource(ResourceType.GROUP, GROUP),
        Resource(ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID),
    )
    for operation in SUPPORTED_OPERATIONS[resource.type]
)


class World:
    """The topics of one play: their names have a prefix of their own, their ids are the broker's."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.ids: dict[str, Uuid] = {}

    def name(self, short: str) -> str:
        return self.prefix + short

    def id(self, short: str) -> Uuid:
        return self.ids[short]


class Outcome(NamedTuple):
    """A rendered response, and the changes of topics, "" if there are none."""

    response: str
    effect: str = ""


class Case(NamedTuple):
    name: str
    version: int
    request: Callable[[World], Struct]
    outcomes: Mapping[str, Outcome]
    """Outcomes by rights (`grants`), or `ALL`. `{operations}` stands for the rights on `seen`, and
    `{cluster}` for those on the cluster."""


class Stage(Protocol):
    """A broker to play cases against."""

    settles_s: float
    """Time in seconds within which the effect of a request becomes visible; 0 if it is visible at once."""

    async def send(self, request: Struct, version: int | None = None) -> Any:
        """Send a request as the client whose rights are tried; return None if the connection is closed."""

    async def send_privileged(self, request: Struct, version: int | None = None) -> Any:
        """Send a request with all rights."""

    async def allow(self, rights: Iterable[Grant] | None, prefix: str) -> None:
        """Give the client these rights and no others; all if None."""


async def set_up(stage: Stage, prefix: str, names: tuple[str, ...] = EXISTING) -> World:
    """Create the topics of a play, with one record each."""
    world = World(prefix)
    topics = tuple(CreatableTopic(name=prefix + n, num_partitions=1, replication_factor=1) for n in names)
    created = await stage.send_privileged(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    assert not any(topic.error_code for topic in created.topics), created
    world.ids = {topic.name.removeprefix(prefix): topic.topic_id for topic in created.topics}
    for name in names:
        while (await _write(stage, world, name)).error_code:
            assert stage.settles_s, f"{name} cannot be written"
            await asyncio.sleep(0.01)
    return world


async def _write(stage: Stage, world: World, name: str) -> PartitionProduceResponse:
    (topic,) = (await stage.send_privileged(produce_to(world, name), 12)).responses
    result: PartitionProduceResponse = topic.partition_responses[0]
    return result


def produce_to(
    world: World, *names: str, by_id: bool = False, attributes: int = 0, **fields: Any
) -> ProduceRequest:
    """Return a request that writes one record to each topic; `attributes` are those of its batch."""
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if attributes else {}
    records = batch(record(), attributes=attributes, **producer)
    data = (PartitionProduceData(index=0, records=records),)
    return ProduceRequest(
        **{"acks": 1, "timeout_ms": 5_000} | fields,
        topic_data=tuple(
            TopicProduceData(topic_id=world.id(n), partition_data=data)
            if by_id
            else TopicProduceData(name=world.name(n), partition_data=data)
            for n in names
        ),
    )


async def snapshot(stage: Stage, world: World) -> dict[str, str]:
    """Return the state of each topic: its partitions, offsets and `retention.ms`, or "absent"."""
    names = (*EXISTING, MISSING)
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=world.name(n)) for n in names), allow_auto_topic_creation=False
    )
    states = dict.fromkeys(names, "absent")
    for topic in (await stage.send_privileged(request)).topics:
        if topic.error_code:
            continue
        short = topic.name.removeprefix(world.prefix)
        offsets = [
            (await stage.send_privileged(_offset_request(topic.name, timestamp)))
            .topics[0]
            .partitions[0]
            .offset
            for timestamp in (-2, -1)
        ]
        resource = DescribeConfigsResource(
            resource_type=2, resource_name=topic.name, configuration_keys=("retention.ms",)
        )
        configs = await stage.send_privileged(DescribeConfigsRequest(resources=(resource,)))
        # A topic that is being deleted may be in the metadata but have no configs.
        retention = [config.value for config in configs.results[0].configs]
        states[short] = (
            f"{len(topic.partitions)} partitions, {offsets[0]}-{offsets[1]}, {retention[0]} ms"
            if retention
            else "changing"
        )
    return states


def _offset_request(name: str, timestamp: int) -> ListOffsetsRequest:
    partitions = (ListOffsetsPartition(partition_index=0, timestamp=timestamp),)
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=name, partitions=partitions),))


def rendered(response: Any, world: World) -> str:
    """Return names, errors and authorized operations of a response as text; list items are sorted.

    "closed" if there is none."""
    return "closed" if response is None else " ".join(_tokens(response, world))


_SKIPPED = frozenset(
    ("brokers", "nodes", "error_message", "cluster_id", "log_dir", "current_voters", "observers", "synonyms")
)
_PARTITION = frozenset(("partition_index", "partition", "partition_id", "index"))


def _tokens(struct: Struct, world: World) -> Iterator[str]:
    for field in struct.__fields__:
        name, value = field.name, getattr(struct, field.name)
        if name in _SKIPPED:
            continue
        if name in ("name", "topic", "topic_name", "resource_name") and value:
            yield value.removeprefix(world.prefix)
        elif isinstance(value, Uuid) and value != ZERO_UUID:
            known = {id_: short for short, id_ in world.ids.items()}
            yield "#" + known.get(value, "id")
        elif name in _PARTITION:
            yield str(value)
        elif name == "error_code":
            yield Errors(value).name if value else "ok"
        elif name == "topic_config_error_code" and value:
            yield f"configs {Errors(value).name}"
        elif name.endswith("authorized_operations") and value != NO_OPERATIONS:
            yield "operations " + operations_text(o for o in Operation if value >> o & 1)
        elif name in ("num_partitions", "replication_factor") and value >= 0:
            yield f"{name}={value}"
        elif name == "configs" and value:
            yield "with configs"
        elif name == "records" and value:
            yield "records"
        elif isinstance(value, tuple) and value and isinstance(value[0], Struct):
            yield "[" + "; ".join(sorted(" ".join(_tokens(item, world)) for item in value)) + "]"


def operations_text(operations: Iterable[Operation]) -> str:
    return "+".join(sorted(o.name for o in operations)) or "none"


_INCLUDING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def permits(rights: Iterable[Grant], operation: Operation, resource: Resource) -> bool:
    """Return True if one of the rights includes the operation on the resource, as in Kafka."""
    sufficient = {operation} | _INCLUDING.get(operation, set())
    return any(right.resource == resource and right.operation in sufficient for right in rights)


def operations_on(rights: tuple[Grant, ...] | None, resource: Resource) -> str:
    """Return the operations on a resource that the rights permit, as text; all if `rights` is None."""
    supported = SUPPORTED_OPERATIONS[resource.type]
    return operations_text(o for o in supported if rights is None or permits(rights, o, resource))


def plays(case: Case) -> Iterator[tuple[str, tuple[Grant, ...] | None, Outcome]]:
    """Yield all sets of rights to try, as text and as rights, with the expected outcome of each."""
    tried = set()
    for key, outcome in case.outcomes.items():
        for rights in (None,) if key == ALL else grants(key):
            tried.add(rights)
            yield ALL if rights is None else ", ".join(map(str, rights)), rights, _filled(outcome, rights)
    for right in SINGLE_RIGHTS:
        if (right,) not in tried:
            yield str(right), (right,), _filled(case.outcomes[NO_RIGHT], (right,))


def _filled(outcome: Outcome, rights: tuple[Grant, ...] | None) -> Outcome:
    response = outcome.response.replace(
        "{operations}", operations_on(rights, Resource(ResourceType.TOPIC, "seen"))
    )
    return outcome._replace(response=response.replace("{cluster}", operations_on(rights, CLUSTER)))


async def play(stage: Stage, case: Case, prefix: str) -> list[tuple[str, Outcome, Outcome]]:
    """Play a case with all sets of rights; return rights, expected and actual outcome of each."""
    found = []
    world: World | None = None
    number = 0
    for text, rights, expected in plays(case):
        if world is None:
            number += 1
            world = await set_up(stage, f"{prefix}{number}-")
            before = await snapshot(stage, world)
        await stage.allow(rights, world.prefix)
        response = await stage.send(case.request(world), case.version)
        effect = await _effect(stage, world, before)
        deadline = asyncio.get_running_loop().time() + stage.settles_s
        while effect != expected.effect and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
            effect = await _effect(stage, world, before)
        found.append((text, expected, Outcome(rendered(response, world), effect)))
        if effect:
            world = None
    return found


async def _effect(stage: Stage, world: World, before: dict[str, str]) -> str:
    after = await snapshot(stage, world)
    return "; ".join(f"{name}: {after[name]}" for name in before if after[name] != before[name])
