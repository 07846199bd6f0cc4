"""Clients of a broker with an authorizer: users that are members of groups, read, write, and steal.

Their requests are made here and not by the client libraries, because a member that is denied shall continue:
it repeats its heartbeats, over sessions that end too early or are renewed too late. All clients have the same
client id, so a replayed heartbeat equals the member's byte for byte. `acl_churn` has the users' rights.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from konvene.client.errors import ClientError
from konvene.client.net.authentication import authenticate
from konvene.client.net.connection import Connection
from konvene.client.net.settings import ClientSettings
from konvene.client.security import ClientSecurity
from konvene.codec.batches import Record, build
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import consumer_group_heartbeat as consumer
from konvene.messages import share_fetch
from konvene.messages import streams_group_heartbeat as streams
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.sim.end_to_end.acl_churn import (
    ACL_ADMIN,
    CHANGELOG,
    CLASSIC_GROUP,
    CONSUMER_GROUP,
    EXPRESSION,
    INVOICES,
    ORDERS,
    PARTITIONS,
    PASSWORD,
    SECRET,
    SECURED_TOPICS,
    SHARE_GROUP,
    STREAMS_GROUP,
)
from konvene.sim.end_to_end.broker import BROKER, SASL_PORT
from konvene.sim.end_to_end.history import recording_connector

if TYPE_CHECKING:
    from konvene.sim.end_to_end.clients import Client

__all__ = ["SECURED_JOBS", "draw_clients", "run_secured"]

CLIENT_ID = "application"


# --- connections -----------------------------------------------------------------------------------


async def connect(client: Client) -> Connection:
    """Open an authenticated connection, which renews its session before its end, or too late."""
    chance = client.chance

    class RenewingConnection(Connection):
        async def _authenticate(self, security: ClientSecurity) -> None:
            lifetime_ms = await authenticate(self, security, "")
            if lifetime_ms > 0 and self._loop is not None:
                delay_s = lifetime_ms / 1000 * chance.choice((0.5, 0.9, 0.9, 1.3))
                self._reauthentication = self._loop.call_later(
                    delay_s, self._begin_reauthentication, security
                )

    t = client.world.timeouts
    security = ClientSecurity(
        protocol="SASL_PLAINTEXT", mechanism="PLAIN", username=client.spec.user, password=PASSWORD
    )
    settings = ClientSettings(
        client_id=CLIENT_ID, request_timeout_ms=t.rebalance_ms + t.request_ms,
        connect_timeout_ms=t.request_ms, security=security,
    )  # fmt: skip
    open_connection = recording_connector(
        client.world.history, client.client_id, settings, RenewingConnection
    )
    return await open_connection(BROKER, SASL_PORT)


class Sender:
    """One connection of a client, and the heartbeats that all clients of the run have sent over theirs."""

    def __init__(self, client: Client, connection: Connection) -> None:
        self.client = client
        self.chance = client.chance
        self._connection = connection
        self.interval_s = client.world.timeouts.heartbeat_ms / 1000
        self._is_prompt = client.chance.random() < 0.5  # Heartbeats at the interval that the broker requests.

    @property
    def ends(self) -> bool:
        return self.client.leaving or self.client.world.faults_disabled

    async def send(self, request: Struct, version: int | None = None) -> Any:
        return await self._connection.send(request, version)

    async def heartbeat(self, request: Struct) -> Any:
        """Send a heartbeat, and return its response when the next one is due."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.client.world.heartbeats[self.client.spec.name] = request
        response = await self.send(request)
        requested_ms = getattr(response, "heartbeat_interval_ms", 0)
        interval_s = requested_ms / 1000 if requested_ms and self._is_prompt else self.interval_s
        await self.sleep(max(0.0, interval_s - (loop.time() - began)))
        return response

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


async def run_secured(client: Client, work: Callable[[Sender], Awaitable[None]]) -> None:
    """Do the work over one connection, which is closed at the end."""
    connection = await connect(client)
    try:
        await work(Sender(client, connection))
    finally:
        connection.close()
    client.leaving = client.leaving or client.world.faults_disabled


# --- members ---------------------------------------------------------------------------------------


async def _classic(sender: Sender) -> None:
    """Be a member of a classic group; commit and fetch offsets at times."""
    t, group, member_id, generation = sender.client.world.timeouts, sender.client.spec.group, "", -1
    while not sender.ends:
        if generation < 0:
            response = await sender.send(
                JoinGroupRequest(
                    group_id=group, session_timeout_ms=t.session_ms, rebalance_timeout_ms=t.rebalance_ms,
                    member_id=member_id, protocol_type="application",
                    protocols=(JoinGroupRequestProtocol(name="own", metadata=b""),),
                )
            )  # fmt: skip
            if response.error_code:
                member_id = response.member_id if _keeps_id(response.error_code) else ""
                await sender.sleep(sender.chance.random() * sender.interval_s)
                continue
            member_id = response.member_id
            synced = await sender.send(
                SyncGroupRequest(
                    group_id=group, generation_id=response.generation_id, member_id=member_id,
                    protocol_type="application", protocol_name="own",
                    assignments=tuple(
                        SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"all")
                        for each in response.members
                    ),
                )
            )  # fmt: skip
            generation = -1 if synced.error_code else response.generation_id
            continue
        beat = await sender.heartbeat(
            HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        )
        if beat.error_code in (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION):
            member_id, generation = "", -1
        elif beat.error_code == Errors.REBALANCE_IN_PROGRESS:
            generation = -1
        elif sender.chance.random() < 0.2:
            await _commit(sender, group, member_id, generation)
    leaving = MemberIdentity(member_id=member_id)
    with contextlib.suppress(ClientError):
        await sender.send(LeaveGroupRequest(group_id=group, members=(leaving,)))


def _keeps_id(error: int) -> bool:
    return error in (Errors.MEMBER_ID_REQUIRED, Errors.REBALANCE_IN_PROGRESS)


async def _commit(sender: Sender, group: str, member_id: str, epoch: int) -> None:
    rows = (OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None),)
    await sender.send(
        OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id,
            topics=tuple(OffsetCommitRequestTopic(name=name, partitions=rows) for name in SECURED_TOPICS),
        ),
        9,
    )  # fmt: skip
    await _ask(sender, group)


async def _ask(sender: Sender, group: str) -> None:
    """Fetch offsets and metadata, and look for the coordinator."""
    requested = tuple(OffsetFetchRequestTopics(name=name, partition_indexes=(0,)) for name in SECURED_TOPICS)
    await sender.send(
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=requested),)), 9
    )
    await sender.send(FindCoordinatorRequest(key_type=0, coordinator_keys=(group,)))
    topics = tuple(MetadataRequestTopic(name=name) for name in SECURED_TOPICS)
    named = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    await sender.send(sender.chance.choice((named, MetadataRequest(topics=None))))


LOST_MEMBERSHIP = (
    Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH, Errors.GROUP_ID_NOT_FOUND,
)  # fmt: skip


async def _consumer(sender: Sender) -> None:
    """Be a member of a consumer group that subscribes by names or by an expression."""
    group, chance = sender.client.spec.group, sender.chance
    names = {"subscribed_topic_names": chance.choice(((ORDERS,), (ORDERS, INVOICES)))}
    subscription: dict[str, Any] = chance.choice((names, {"subscribed_topic_regex": EXPRESSION}))
    member_id = str(Uuid(chance.randbytes(16)))
    timeout_ms = sender.client.world.timeouts.rebalance_ms
    epoch, owned, reports = 0, None, True
    while not sender.ends:
        request = consumer.ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch,
            rebalance_timeout_ms=-1 if epoch else timeout_ms,
            topic_partitions=() if not epoch else owned if reports else None,
            **(subscription if reports else {}),
        )  # fmt: skip
        response = await sender.heartbeat(request)
        reports = bool(response.error_code) and reports
        if response.error_code in LOST_MEMBERSHIP:
            epoch, owned, reports = 0, None, True
        elif not response.error_code:
            epoch = response.member_epoch
            if response.assignment is not None:
                owned, reports = response.assignment.topic_partitions, True
            elif chance.random() < 0.1:
                await _commit(sender, group, member_id, epoch)
    with contextlib.suppress(ClientError):
        await sender.send(
            consumer.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
        )


async def _share(sender: Sender) -> None:
    """Be a member of a share group, and read over a connection of its own."""
    client, chance, member_id = sender.client, sender.chance, str(Uuid(sender.chance.randbytes(16)))
    names = chance.choice(((ORDERS,), (ORDERS, INVOICES)))
    reading = asyncio.ensure_future(run_secured(client, lambda own: _share_reader(own, member_id)))
    epoch = 0
    try:
        while not sender.ends and not reading.done():
            request = ShareGroupHeartbeatRequest(
                group_id=client.spec.group, member_id=member_id, member_epoch=epoch,
                subscribed_topic_names=names if not epoch else None,
            )  # fmt: skip
            response = await sender.heartbeat(request)
            if response.error_code in LOST_MEMBERSHIP:
                epoch = 0
            elif not response.error_code:
                epoch = response.member_epoch
        leaving = ShareGroupHeartbeatRequest(group_id=client.spec.group, member_id=member_id, member_epoch=-1)
        with contextlib.suppress(ClientError):
            await sender.send(leaving)
    finally:
        if not reading.done():
            reading.cancel()
        with contextlib.suppress(ClientError, asyncio.CancelledError):
            await reading


async def _share_reader(sender: Sender, member_id: str) -> None:
    """Fetch as a share member; records are acknowledged by letting their locks expire."""
    world, epoch = sender.client.world, 0
    while not sender.ends:
        topics = tuple(
            share_fetch.FetchTopic(
                topic_id=world.topic_ids[name],
                partitions=tuple(share_fetch.FetchPartition(partition_index=i) for i in range(PARTITIONS)),
            )
            for name in SECURED_TOPICS
        )
        response = await sender.send(
            share_fetch.ShareFetchRequest(
                group_id=sender.client.spec.group, member_id=member_id, share_session_epoch=epoch,
                max_wait_ms=sender.chance.choice((100, 2_000)), min_bytes=1, max_bytes=1_000_000,
                max_records=10, batch_size=10, topics=topics if not epoch else (),
            ),
            1,
        )  # fmt: skip
        epoch = 0 if response.error_code else epoch + 1
        await sender.sleep(sender.chance.random() * sender.interval_s / 2)


async def _streams(sender: Sender) -> None:
    """Be a member of a streams group whose application needs a changelog topic."""
    group, member_id = sender.client.spec.group, str(Uuid(sender.chance.randbytes(16)))
    changelog = streams.TopicInfo(name=CHANGELOG)
    subtopology = streams.Subtopology(
        subtopology_id="0", source_topics=(ORDERS,), state_changelog_topics=(changelog,)
    )
    topology = streams.Topology(epoch=0, subtopologies=(subtopology,))
    epoch, owned = 0, ()
    changed = False
    while not sender.ends:
        is_joining = epoch == 0
        tasks: dict[str, Any] = {}
        if is_joining or changed:
            tasks = {"active_tasks": () if is_joining else owned, "standby_tasks": (), "warmup_tasks": ()}
        joining: dict[str, Any] = {
            "topology": topology, "process_id": member_id,
            "rebalance_timeout_ms": sender.client.world.timeouts.rebalance_ms,
        } if is_joining else {}  # fmt: skip
        response = await sender.heartbeat(
            streams.StreamsGroupHeartbeatRequest(
                group_id=group, member_id=member_id, member_epoch=epoch, **joining, **tasks
            )
        )
        changed = bool(response.error_code) and changed
        if response.error_code in LOST_MEMBERSHIP:
            epoch, owned = 0, ()
        elif not response.error_code:
            epoch = response.member_epoch
            if response.active_tasks is not None:
                owned, changed = response.active_tasks, True
    with contextlib.suppress(ClientError):
        await sender.send(
            streams.StreamsGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
        )


# --- readers, writers and thieves ------------------------------------------------------------------


async def _read(sender: Sender) -> None:
    """Fetch all topics in an incremental session, and wait for records."""
    session_id, epoch, positions = 0, 0, dict.fromkeys(SECURED_TOPICS, 0)
    while not sender.ends:
        max_bytes = sender.chance.choice((100, 10_000))
        topics = tuple(
            FetchTopic(
                topic=name,
                partitions=(
                    FetchPartition(
                        partition=0, fetch_offset=positions[name], partition_max_bytes=max_bytes
                    ),
                ),
            )
            for name in SECURED_TOPICS
        )  # fmt: skip
        response = await sender.send(
            FetchRequest(
                max_wait_ms=sender.chance.choice((100, 3_000)), min_bytes=sender.chance.choice((1, 400)),
                max_bytes=100_000, session_id=session_id, session_epoch=epoch,
                topics=topics if not epoch or sender.chance.random() < 0.5 else (),
            ),
            12,
        )  # fmt: skip
        if response.error_code:
            session_id = epoch = 0
        else:
            session_id, epoch = response.session_id, epoch + 1 if response.session_id else 0
        for topic in response.responses:
            for row in topic.partitions:
                if not row.error_code:
                    positions[topic.topic] = max(positions[topic.topic], row.high_watermark - 3)
        await sender.sleep(sender.chance.random() * sender.interval_s / 4)


async def _write(sender: Sender) -> None:
    """Write small batches to all topics."""
    number = 0
    while not sender.ends:
        number += 1
        record = Record(0, sender.client.world.wall_ms(), None, b"%d" % number, ())
        rows = tuple(
            PartitionProduceData(index=index, records=build([record]))
            for index in range(PARTITIONS)
        )  # fmt: skip
        await sender.send(
            ProduceRequest(
                acks=-1, timeout_ms=sender.client.world.timeouts.request_ms,
                topic_data=tuple(
                    TopicProduceData(name=name, partition_data=rows) for name in (ORDERS, SECRET)
                ),
            ),
            12,
        )  # fmt: skip
        await sender.sleep(sender.chance.expovariate(1.0) * sender.interval_s / 2)


async def _steal(sender: Sender) -> None:
    """Send the heartbeats of members again, byte for byte, as another user."""
    heartbeats = sender.client.world.heartbeats
    while not sender.ends:
        if heartbeats:
            await sender.send(heartbeats[sender.chance.choice(sorted(heartbeats))])
        await sender.sleep(sender.chance.expovariate(1.0) * sender.interval_s)


# --- what is drawn ---------------------------------------------------------------------------------


def draw_clients(chance: Random) -> list[tuple[str, str, str, str]]:
    """Return (name, job, group, user) of each client."""
    members = (
        (CLASSIC, CLASSIC_GROUP), (CONSUMER, CONSUMER_GROUP), (SHARE, SHARE_GROUP), (STREAMS, STREAMS_GROUP),
    )  # fmt: skip
    rows = [("acl-admin", ACL_ADMIN, "", "")]
    for job, group in members:
        for user in ("alice", "bob"):
            if user == "alice" or chance.random() < 0.7:
                rows.append((f"{group}-{user}", job, group, user))
    rows += [("writer-alice", WRITER, "", "alice"), ("reader-alice", READER, "", "alice")]
    if chance.random() < 0.5:
        rows.append(("reader-bob", READER, "", "bob"))
    rows.append(("thief-mallory", THIEF, "", "mallory"))
    if chance.random() < 0.5:
        rows.append(("thief-bob", THIEF, "", "bob"))
    return rows


CLASSIC, CONSUMER, SHARE, STREAMS = (
    "secured-classic", "secured-consumer", "secured-share", "secured-streams",
)  # fmt: skip
READER, WRITER, THIEF = "secured-reader", "secured-writer", "thief"

SECURED_JOBS: Mapping[str, Callable[[Sender], Awaitable[None]]] = {
    CLASSIC: _classic, CONSUMER: _consumer, SHARE: _share, STREAMS: _streams,
    READER: _read, WRITER: _write, THIEF: _steal,
}  # fmt: skip
"""What a client with a user does over its connection, by job."""
