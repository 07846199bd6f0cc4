"""Play a conversation with a broker over sockets.

A request may stay pending until a later line completes it, so no fixed number of responses ends a step. After
each line the player commits an offset to another group, twice, on a connection of its own, and waits for the
responses. These commits pass through the same coordinator after all work that the line caused; when they are
answered, all responses of the step have been sent. If the number of responses to a line is known, the player
waits for them first. No step depends on measured time.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.differential.answers import Reader
from tests.differential.language import Line, Memory, text
from tests.differential.shares import SHARE_VERBS, ShareSpeaker
from tests.differential.streams import GROUP
from tests.differential.transactions import ENDS, VERBS
from tests.differential.written import SHARES, STATE, Log, ShareLog, TransactionLog

from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import BY_NAME, Api
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

HOST = "127.0.0.1"
WITHIN_S = 20
LATE_S = 4
"""How long to wait for a response that the other broker sent."""

READING = ("written", "look")
"""Verbs without a request of a client: the player reads a log or a topic."""

CLOSING = "-1"
"""The epoch that ends a share session."""

DISCONNECT_S = 0.1
"""How long a broker takes to notice a closed connection."""

NO_CLIENT_ID = "null"
"""Value of `client=` for a request header with a null client id."""

TRANSACTION = 1
"""Coordinator type of transactions, as in FindCoordinator."""

SHARE = 2
"""Coordinator type of share partition states."""

TOPIC = 2
"""Resource type of topic configs."""

LATEST_OFFSET = -1
"""Timestamp that requests the end offset of a partition."""

UPGRADE, SAFE_DOWNGRADE = 1, 2

TOPICS = {"orders": 6, "audit": 2}


class Wire:
    """A connection with at most one request in flight."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending: tuple[Api, int] | None = None
        self._bytes = b""

    def send(self, request: Struct, version: int, client_id: str) -> None:
        api = BY_NAME[type(request).__name__.removesuffix("Request")]
        encoded_id = client_id.encode()
        size = len(encoded_id) if client_id != NO_CLIENT_ID else -1
        head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7"
        head += (
            size.to_bytes(2, "big", signed=True)
            + encoded_id[: max(size, 0)]
            + (b"\0" if version >= api.first_flexible else b"")
        )
        body = head + encode(request, version)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)
        self.pending = (api, version)

    def read(self) -> Struct | str | None:
        """Receive bytes; return the response, "closed", or None if the response is incomplete."""
        assert self.pending is not None
        try:
            part = self.socket.recv(1 << 20)
        except ConnectionError:
            part = b""
        if not part:
            self.pending = None
            return "closed"
        self._bytes += part
        if len(self._bytes) < 4 or len(self._bytes) < 4 + int.from_bytes(self._bytes[:4], "big"):
            return None
        frame, self._bytes = self._bytes[4:], b""
        (api, version), self.pending = self.pending, None
        return decode(api.response, version, frame, 5 if api.response_header_version(version) else 4)

    def ask(self, request: Struct, version: int) -> Any:
        self.send(request, version, "probe")
        while (answer := self.read()) is None:
            pass
        assert answer != "closed"
        return answer

    def close(self) -> None:
        self.socket.close()


@dataclass
class Player:
    """Plays one conversation with one broker."""

    port: int
    tag: str
    settle_s: float = 0.0
    """How long to wait for further responses after each line, while recording."""
    restart: Callable[[bool, dict[str, str]], None] | None = None
    transactional: bool = False
    """Whether the profile has transactions, and so a `__transaction_state` topic."""
    shares: bool = False
    """Whether the profile has share groups, and so a `__share_group_state` topic."""
    wires: dict[str, Wire] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.speaker = ShareSpeaker(self.tag)
        self.reader = Reader(self.tag, self.port)
        self.log = Log(self.tag, self.reader)
        self.transactions = TransactionLog(self.tag, self.reader)
        self.share_states = ShareLog(self.tag, self.reader)
        self._connect()
        self.log.begin(self.probe.ask)
        if self.transactional:
            self.transactions.begin(self.probe.ask)
        if self.shares:
            self.share_states.begin(self.probe.ask)

    def _connect(self) -> None:
        self.probe = Wire(self.port)
        for name in TOPICS:
            self._learn_topic(name)

    def close(self) -> None:
        for wire in [*self.wires.values(), self.probe]:
            wire.close()

    @property
    def waiting(self) -> set[str]:
        """Clients with a pending request."""
        return {client.partition("/")[0] for client, wire in self.wires.items() if wire.pending is not None}

    def play(self, line: str, expected: int | None = None) -> list[str]:
        """Play a line; return the rendered responses that the broker sent until it was idle."""
        command = Line.read(line)
        answers: list[tuple[str, Struct | str, int]] = []
        if command.client:
            memory = self.speaker.of(command.client)
            self._send(command, memory)
        elif command.verb not in READING:
            getattr(self, f"_do_{command.verb}")(*command.plain)
        if command.verb == "alter":
            self._await_metadata()
        if command.verb in VERBS or command.verb in SHARE_VERBS:
            expected = expected or 1
        wanted = 0 if command.verb in READING else expected or 0
        deadline = time.monotonic() + LATE_S
        while len(answers) < wanted and self.waiting and time.monotonic() < deadline:
            answers += self._listen(0.2)
        self._barrier()
        answers += self._listen(self.settle_s, every=True)
        if command.verb in ENDS:
            self._settle(self.speaker.transactional_id(command))
        if command.verb == "share":
            self._wait_for_states()
        if command.options.get("session") == CLOSING:
            time.sleep(self.settle_s)  # Kafka releases the member's records after the response.
        if command.verb == "written":
            log = {STATE: self.transactions, SHARES: self.share_states}.get(" ".join(command.plain), self.log)
            responses = self._render(answers)
            return responses + log.read(self.probe.ask, (expected or 0) - len(responses), LATE_S)
        return self._render(answers) + (self._look(*command.plain) if command.verb == "look" else [])

    def _send(self, line: Line, memory: Memory) -> None:
        wire = self.wires.get(line.client)
        if wire is not None and wire.pending is not None:
            wire.close()
            wire = None
        if wire is None:
            wire = self.wires[line.client] = Wire(self.port)
            wire.ask(ApiVersionsRequest(), 0)  # from now on the broker reads it as quickly as the probe
        request = self.speaker.request(line)
        wire.send(request, line.version, text(line.options.get("client", line.client.partition("/")[0])))

    def _listen(self, within_s: float, *, every: bool = False) -> list[tuple[str, Struct | str, int]]:
        """Receive responses for `within_s`; return with the first ones, unless `every` is set."""
        answers: list[tuple[str, Struct | str, int]] = []
        until = time.monotonic() + within_s
        while True:
            waiting = {w.socket: (name, w) for name, w in self.wires.items() if w.pending is not None}
            left = until - time.monotonic()
            if not waiting:
                return answers
            ready, _, _ = select.select(list(waiting), [], [], max(left, 0))
            for readable in ready:
                name, wire = waiting[readable]
                version = wire.pending[1] if wire.pending else 0
                answer = wire.read()
                if answer is not None:
                    answers.append((name, answer, version))
                    if answer == "closed":
                        self.wires.pop(name).close()
            if (not ready and left <= 0) or (answers and not every):
                return answers

    def _barrier(self) -> None:
        commit = OffsetCommitRequest(
            group_id="barrier",
            topics=(
                OffsetCommitRequestTopic(
                    name="orders", partitions=(OffsetCommitRequestPartition(committed_metadata=""),)
                ),
            ),
        )
        for _ in range(2):
            self.probe.ask(commit, 8)

    def _settle(self, transactional_id: str) -> None:
        """Wait until the coordinator has completed the transaction of this id."""
        description_request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
        deadline = time.monotonic() + LATE_S
        while (
            self.probe.ask(description_request, 0)
            .transaction_states[0]
            .transaction_state.startswith("Prepare")
        ):
            assert time.monotonic() < deadline, transactional_id
            time.sleep(0.02)

    def _wait_for_states(self) -> None:
        """Wait until no state of a share partition is being initialized."""
        deadline = time.monotonic() + LATE_S
        while self.log.initializing(self.probe.ask):
            assert time.monotonic() < deadline, self.tag
            time.sleep(0.02)

    # --- responses ---

    def _render(self, answers: list[tuple[str, Struct | str, int]]) -> list[str]:
        answers.sort(key=lambda a: a[0])
        for _, answer, _ in answers:
            if isinstance(answer, Struct):
                self.reader.number_member_id(answer)
        rendered = []
        for client, answer, version in answers:
            if isinstance(answer, str):
                rendered.append(f"{client} <- {answer}")
                continue
            self._learn(self.speaker.of(client), answer)
            rendered.append(f"{client} <- {self.reader.render(answer, version)}")
        return rendered

    def _learn(self, memory: Memory, answer: Any) -> None:
        kind = type(answer).__name__
        self.speaker.learn(memory, answer)
        if kind in ("JoinGroupResponse", "SyncGroupResponse", "HeartbeatResponse"):
            memory.last = (kind.removesuffix("Response"), Errors(answer.error_code))
        if kind != "JoinGroupResponse":
            return
        if answer.error_code == Errors.MEMBER_ID_REQUIRED:
            memory.member_id = answer.member_id
        elif answer.error_code == Errors.NONE:
            memory.member_id, memory.generation = answer.member_id, answer.generation_id
            memory.led = tuple(sorted((m.member_id for m in answer.members), key=self.reader.sort_key))
            memory.protocol = answer.protocol_name
            memory.protocol_type = answer.protocol_type or "consumer"

    # --- lines without a request of a client ---

    def _do_wait(self, ms: str) -> None:
        time.sleep(int(ms) / 1000)

    def _do_hang(self, client: str) -> None:
        """Close a client's connection and wait until the broker notices; its share session starts anew."""
        memory = self.speaker.of(client)
        memory.session = 0
        memory.held.clear()
        if client in self.wires:
            self.wires.pop(client).close()
        time.sleep(DISCONNECT_S + 2 * self.settle_s)

    def _do_restart(self, *settings: str) -> None:
        self._restart(cleanly=True, settings=dict(each.split("=", 1) for each in settings))

    def _do_kill(self) -> None:
        self._restart(cleanly=False, settings={})

    def _restart(self, *, cleanly: bool, settings: dict[str, str]) -> None:
        assert self.restart is not None, "this conversation has no broker of its own"
        if cleanly:
            self.close()
        self.restart(cleanly, settings)
        self.close()
        self.wires.clear()
        await_ready(self.port, transactions=self.transactional, shares=self.shares)
        self._connect()

    def _do_topic(self, name: str, count: str) -> None:
        make_topic(self.probe, self.speaker.topic(name), int(count))
        self._learn_topic(name)
        self._await_metadata(self.speaker.topic(name))

    def _await_metadata(self, *topics: str) -> None:
        """Wait until the coordinators see a change of topics: Kafka updates them after its metadata cache."""
        for name in topics:
            deadline = time.monotonic() + WITHIN_S
            while self.settle_s and not has_leaders(self.probe, name) and time.monotonic() < deadline:
                time.sleep(0.02)
        time.sleep(4 * self.settle_s)

    def _do_grow(self, name: str, count: str) -> None:
        name = self.speaker.topic(name)
        more = CreatePartitionsTopic(name=name, count=int(count), assignments=None)
        answer = self.probe.ask(CreatePartitionsRequest(topics=(more,), timeout_ms=10_000), 3)
        assert answer.results[0].error_code == Errors.NONE, answer
        deadline = time.monotonic() + WITHIN_S
        while len(topic_metadata(self.probe, name).partitions) < int(count):
            assert time.monotonic() < deadline, name
            time.sleep(0.02)
        self._await_metadata(name)

    def _do_config(self, group: str, *settings: str) -> None:
        named = (setting.partition("=") for setting in settings)
        resource = AlterConfigsResource(
            resource_type=GROUP,
            resource_name=self.speaker.group(group),
            configs=tuple(AlterableConfig(name=n, config_operation=0, value=v) for n, _, v in named),
        )
        answer = self.probe.ask(IncrementalAlterConfigsRequest(resources=(resource,)), 1)
        assert answer.responses[0].error_code == Errors.NONE, answer
        self._await_metadata()

    def _do_topology(self, name: str, *spelled: str) -> None:
        self.speaker.topologies[name] = spelled

    def _do_until(self, names: str) -> None:
        """Wait until the broker has created these topics of itself."""
        for name in names.split(","):
            deadline = time.monotonic() + LATE_S
            while (
                topic_metadata(self.probe, self.speaker.topic(name)).error_code
                and time.monotonic() < deadline
            ):
                time.sleep(0.02)
            if not topic_metadata(self.probe, self.speaker.topic(name)).error_code:
                self._learn_topic(name)
        self._await_metadata(*(self.speaker.topic(name) for name in names.split(",")))

    def _look(self, name: str, settings: str = "") -> list[str]:
        real = self.speaker.topic(name)
        topic = topic_metadata(self.probe, real)
        if topic.error_code:
            return [f"{name} {Errors(topic.error_code).name}"]
        description_request = DescribeConfigsResource(
            resource_type=TOPIC,
            resource_name=real,
            configuration_keys=tuple(filter(None, settings.split(","))),
        )
        answer = self.probe.ask(DescribeConfigsRequest(resources=(description_request,)), 4)
        command = sorted(f"{c.name}={c.value}" for c in answer.results[0].configs) if settings else []
        return [" ".join([name, f"partitions={len(topic.partitions)}", *command])]

    def _do_feature(self, name: str, level: str) -> None:
        for kind in (UPGRADE, SAFE_DOWNGRADE):
            update = FeatureUpdateKey(feature=name, max_version_level=int(level), upgrade_type=kind)
            answer = self.probe.ask(UpdateFeaturesRequest(feature_updates=(update,)), 1)
            if answer.error_code == Errors.NONE:
                break
        assert answer.error_code == Errors.NONE, answer
        time.sleep(4 * self.settle_s)

    def _do_untopic(self, name: str) -> None:
        name = self.speaker.topic(name)
        self.probe.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name=name),), timeout_ms=10_000), 6)
        deadline = time.monotonic() + WITHIN_S
        while not topic_metadata(self.probe, name).error_code:
            assert time.monotonic() < deadline, name
            time.sleep(0.02)
        self._await_metadata()

    def _learn_topic(self, name: str) -> None:
        real = self.speaker.topic(name)
        topic_id = Uuid(topic_metadata(self.probe, real).topic_id)
        self.speaker.topic_ids[real] = topic_id
        self.reader.topic_names[topic_id] = f"id({name})"


def topic_metadata(wire: Wire, name: str) -> Any:
    description_request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
    return wire.ask(description_request, 12).topics[0]


def has_leaders(wire: Wire, name: str) -> bool:
    """Return True if the leader of every partition of the topic answers ListOffsets."""
    partitions = tuple(
        ListOffsetsPartition(partition_index=p.partition_index, timestamp=LATEST_OFFSET)
        for p in topic_metadata(wire, name).partitions
    )
    topic = ListOffsetsTopic(name=name, partitions=partitions)
    answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=(topic,)), 3)
    return all(p.error_code == Errors.NONE for t in answer.topics for p in t.partitions)


def make_topic(wire: Wire, name: str, count: int) -> None:
    """Create a topic and wait until it is in the metadata."""
    made = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    wire.ask(CreateTopicsRequest(topics=(made,), timeout_ms=10_000), 7)
    deadline = time.monotonic() + WITHIN_S
    while topic_metadata(wire, name).error_code:
        assert time.monotonic() < deadline, name
        time.sleep(0.02)


def await_ready(port: int, *, transactions: bool = False, shares: bool = False) -> None:
    """Create the shared topics and wait until the coordinators of groups and, if requested, of transactions
    and share partitions are available."""
    wire = Wire(port)
    for name, count in TOPICS.items():
        if topic_metadata(wire, name).error_code:
            make_topic(wire, name, count)
    commit = OffsetCommitRequest(
        group_id="barrier",
        topics=(
            OffsetCommitRequestTopic(
                name="orders", partitions=(OffsetCommitRequestPartition(committed_metadata=""),)
            ),
        ),
    )
    deadline = time.monotonic() + 2 * WITHIN_S
    while True:
        wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("barrier",)), 6)
        if wire.ask(commit, 8).topics[0].partitions[0].error_code == Errors.NONE:
            break
        assert time.monotonic() < deadline, "no group coordinator became available"
        time.sleep(0.05)
    if transactions:
        wire.ask(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=("barrier",)), 6)
        init = InitProducerIdRequest(transactional_id="barrier", transaction_timeout_ms=60_000)
        while wire.ask(init, 5).error_code != Errors.NONE:
            assert time.monotonic() < deadline, "no transaction coordinator became available"
            time.sleep(0.05)
    if shares:
        key = f"barrier:{Uuid(topic_metadata(wire, 'orders').topic_id)}:0"
        find = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=(key,))
        while wire.ask(find, 6).coordinators[0].error_code != Errors.NONE:
            assert time.monotonic() < deadline, "no share coordinator became available"
            time.sleep(0.05)
    wire.close()
