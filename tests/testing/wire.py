"""Raw requests to a broker under test through `konvene.client`, and a group member without any automation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from konvene.client import Connection
from konvene.client.consumer.protocol import (
    Assigned,
    Partition,
    Subscription,
    write_assignment,
    write_subscription,
)
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.testing import Konvene

COMMIT_VERSION = 9
SESSION_MS = 30_000


def talk(konvene: Konvene, work: Callable[[Connection], Awaitable[None]], client: str = "ann") -> None:
    """Do something with one connection."""

    async def main() -> None:
        connection = await connect(konvene, client)
        try:
            await work(connection)
        finally:
            connection.close()

    asyncio.run(main())


async def connect(konvene: Konvene, client: str = "ann") -> Connection:
    return await Connection.open("127.0.0.1", konvene.port, client_id=client)


def commit(offset: int, group: str = "g", topic: str = "orders", **more: Any) -> OffsetCommitRequest:
    """An OffsetCommit of a group without members, or of the member that `more` names."""
    return OffsetCommitRequest(
        group_id=group,
        topics=(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=(OffsetCommitRequestPartition(partition_index=0, committed_offset=offset),),
            ),
        ),
        **more,
    )


async def committed(connection: Connection, offset: int, **more: Any) -> int:
    """The error code of an OffsetCommit."""
    answer = await connection.send(commit(offset, **more), COMMIT_VERSION)
    code: int = answer.topics[0].partitions[0].error_code
    return code


class RawMember:
    """A member of a group, static where it has an instance id. Alone it leads, and takes partition 0."""

    def __init__(self, connection: Connection, group: str = "g", instance: str | None = None) -> None:
        self.connection = connection
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1

    async def ask_to_join(self) -> JoinGroupResponse:
        metadata = write_subscription(Subscription(("orders",)))
        answer: JoinGroupResponse = await self.connection.send(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
            ),
            5,
        )
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    async def join(self) -> None:
        """Be in a generation, with an assignment."""
        answer = await self.ask_to_join()
        if answer.error_code:
            answer = await self.ask_to_join()
        assert answer.error_code == 0, answer
        given = write_assignment(Assigned((Partition("orders", 0),)))
        rows = tuple(
            SyncGroupRequestAssignment(member_id=m.member_id, assignment=given) for m in answer.members
        )
        synced = await self.connection.send(
            SyncGroupRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id,
                group_instance_id=self.instance, assignments=rows,
            ),
            3,
        )  # fmt: skip
        assert synced.error_code == 0, synced

    async def heartbeat(self, version: int = 4) -> int:
        """The error code."""
        answer = await self.connection.send(
            HeartbeatRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id,
                group_instance_id=self.instance if version > 2 else None,
            ),
            version,
        )  # fmt: skip
        code: int = answer.error_code
        return code
