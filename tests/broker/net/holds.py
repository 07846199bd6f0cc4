"""A broker that holds heartbeats, and members whose heartbeats it holds.

Intervals are long, so that an answer that comes at all within two seconds came because of what the test did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.broker.net.raw_connections import HEARTBEAT, Line, joining, staying, until
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.groups.consumer.decision import session_key
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

ALTER_CONFIGS = 44

SETTINGS = {
    "konvene.heartbeat.policy": "responsive",
    "konvene.heartbeat.interval.ms": "5000",
    "group.consumer.assignment.interval.ms": "0",
    "num.partitions": "2",
}


@asynccontextmanager
async def responsive(path: Path, **more: str) -> AsyncIterator[Broker]:
    """A broker that holds heartbeats, with a topic `orders` of two partitions."""
    settings = {name.replace("_", "."): value for name, value in more.items()}
    async with running(path, SETTINGS | settings) as broker:
        await broker.groups.make_ready()
        await broker.groups.loaded()
        await broker.topic_creator.create_missing(["orders"])
        yield broker


async def join_and_hold(broker: Broker, line: Line, member: str = "a", *topics: str, **more: Any) -> int:
    """Let a member join and have a heartbeat held. Return its epoch."""
    before = len(broker.heartbeat_purgatory)
    response = await line.beat(joining(member, *(topics or ("orders",)), **more))
    assert (response.error_code, response.heartbeat_interval_ms) == (0, 5000)
    quiet = await line.beat(staying(member, response.member_epoch, **more))
    assert (quiet.assignment, quiet.member_epoch) == (None, response.member_epoch)
    line.send(HEARTBEAT, 1, staying(member, response.member_epoch, **more))
    await until(lambda: len(broker.heartbeat_purgatory) == before + 1)
    return response.member_epoch


def deadline(broker: Broker, member: str = "a", group: str = "g") -> float:
    """Return the deadline of the member's session."""
    coordinator = broker.groups.of(group)
    assert coordinator is not None
    return coordinator.deadlines[session_key(group, member)]


def hold_left(broker: Broker) -> float:
    """Return the remaining seconds of the only hold."""
    (ends,) = broker.heartbeat_purgatory.ends.values()
    return ends - broker.loop.time()


async def alter(broker: Broker, **settings: str) -> None:
    admin = await Line.to(broker, None)
    configs = tuple(AlterableConfig(name=k.replace("_", "."), value=v) for k, v in settings.items())
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    answer = await admin.ask(ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=(resource,)))
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message
    admin.close()
