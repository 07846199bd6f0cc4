"""A client of a broker in this process: sends requests over a real connection and decodes the responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.broker.running import exchange, running

from konvene.broker.broker import Broker
from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.messages import BY_NAME
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState


class BrokerClient:
    """Sends requests to a running broker, each on a connection of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def send(self, request: Struct, version: int | None = None) -> Any:
        """Return the response, None if the broker closes the connection. `version`: the latest by default."""
        api = BY_NAME[type(request).__name__.removesuffix("Request")]
        version = api.latest_stable if version is None else version
        header = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\1c"
        tags = b"\0" if version >= api.first_flexible else b""
        frame = header + tags + bytes(encode(request, version))
        response = await asyncio.wait_for(exchange(self.broker.catalogue.advertised[1], frame), 10)
        if not response:
            return None
        return decode(api.response, version, response, 5 if api.response_header_version(version) else 4)

    async def topic(self, name: str, partitions: int = 1) -> Uuid:
        """Create a topic and return its id."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        response = await self.send(CreateTopicsRequest(topics=(topic,)))
        return Uuid(response.topics[0].topic_id)

    async def drop(self, name: str) -> None:
        """Delete a topic."""
        await self.send(DeleteTopicsRequest(topics=(DeleteTopicState(name=name),)))

    def write(self, topic: str, *values: bytes, index: int = 0) -> None:
        """Append one batch of records."""
        partition = self.broker.partitions.get(topic, index)
        assert partition is not None
        partition.append([(None, value) for value in values], 1_000)


def run_with_broker(
    path: Path, scenario: Callable[[BrokerClient], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    """Run a scenario with a broker whose data is in `path`."""

    async def main() -> None:
        async with running(path, settings) as broker:
            await scenario(BrokerClient(broker))

    asyncio.run(main())
