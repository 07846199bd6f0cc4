"""A broker to ask: requests go over a real connection, answers come back as values."""

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


class Asking:
    """A running broker and a client of it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def ask(self, request: Struct, version: int | None = None) -> Any:
        """The answer; None if the connection is closed instead."""
        api = BY_NAME[type(request).__name__.removesuffix("Request")]
        version = api.latest_stable if version is None else version
        head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\1c"
        tags = b"\0" if version >= api.first_flexible else b""
        frame = head + tags + bytes(encode(request, version))
        answer = await asyncio.wait_for(exchange(self.broker.catalogue.advertised[1], frame), 10)
        if not answer:
            return None
        return decode(api.response, version, answer, 5 if api.response_header_version(version) else 4)

    async def topic(self, name: str, partitions: int = 1) -> Uuid:
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = await self.ask(CreateTopicsRequest(topics=(wanted,)))
        return Uuid(answer.topics[0].topic_id)

    async def drop(self, name: str) -> None:
        await self.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name=name),)))

    def write(self, topic: str, *values: bytes, index: int = 0) -> None:
        """Append one batch of records."""
        partition = self.broker.partitions.get(topic, index)
        assert partition is not None
        partition.append([(None, value) for value in values], 1_000)


def told(
    path: Path, story: Callable[[Asking], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    """Run a story with a broker whose data is in `path`."""

    async def main() -> None:
        async with running(path, settings) as broker:
            await story(Asking(broker))

    asyncio.run(main())
