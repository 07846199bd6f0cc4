"""A broker with a user for each set of rights, and the resources of `conversations`.

The same stage serves konvene and Apache Kafka. The administrator makes the resources, and restores them after
a conversation has changed them (`PROBES`).
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.against.brokers import Broker, Kafka, Konvene
from tests.against.clients import authorizer_classpath
from tests.authorization_cases import cases, cases_data
from tests.authorization_cases.cases_groups import message
from tests.authorization_cases.conversations import (
    ANY_ACL,
    CONVERSATIONS,
    NEW_ACLS_OF,
    NEW_USER,
    Conversation,
    World,
    acls_of,
)
from tests.authorization_cases.kafka_stage import ADMIN
from tests.authorization_cases.kafka_stage import SETTINGS as WITH_AUTHORIZER
from tests.broker.hostile.wire import WITHIN_S, Client

from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.security.acls import Acl
from konvene.security.resources import Operation

USERS = tuple(dict.fromkeys(rights for row in CONVERSATIONS for rights in row.sets_of_rights()))
"""The sets of rights; the user of each is named by its index."""
SESSION = "3600000"
"""Session timeout of members, in milliseconds: they need no heartbeats while conversations are played."""
SETTINGS = {
    **WITH_AUTHORIZER,
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{ADMIN}" password="{ADMIN}" user_{ADMIN}="{ADMIN}"'
        + "".join(f' user_u{i}="u{i}"' for i in range(len(USERS)))
        + ";"
    ),
    "auto.create.topics.enable": "true",
    "group.streams.initial.rebalance.delay.ms": "0",
    "delegation.token.secret.key": "secret",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    **{
        f"group.{kind}.{which}session.timeout.ms": SESSION
        for kind in ("consumer", "share", "streams")
        for which in ("max.", "")
    },
}
MEMBERS = ("consumer", "share", "streams")
Chosen = list[tuple[Conversation, list[str]]]
"""Conversations, each with the sets of rights to try."""


class AuditedKafka(Kafka):
    """Apache Kafka whose log has the lines of the audit."""

    def java(self) -> list[str]:
        level = "-Dorg.slf4j.simpleLogger."
        java, *words = super().java()
        jars = words.pop()
        logger = next(Path(authorizer_classpath().rpartition(":")[2][:-2]).glob("slf4j-simple-*.jar"))
        return [java, f"{level}defaultLogLevel=off", f"{level}log.kafka.authorizer.logger=info", *words,
            f"{jars}:{logger}"]  # fmt: skip


class AuditedKonvene(Konvene):
    """konvene with the authenticated listener of `SETTINGS`."""

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "konvene", "serve", "--data-dir", str(self.directory / "data")]
        ours = {"listeners": f"PLAINTEXT://{self.bootstrap}", "konvene.audit.enable": "false"}
        for name, value in {**self.settings, **ours}.items():
            words += ["--set", f"{name}={value}"]
        return words


class Stage:
    """A broker with a user for each set of rights."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.settles_s = WITHIN_S if isinstance(broker, Kafka) else 0.0
        self._clients: dict[str, Client] = {}
        self._log = broker.log.open()

    def close(self) -> None:
        self._log.close()
        for client in self._clients.values():
            client.socket.close()

    def ask(self, user: str, request: Struct, version: int | None = None) -> Any:
        """Send a request as a user; return None if the connection is closed."""
        client = self._clients.get(user)
        if client is None:
            client = self._clients[user] = Client(self.broker.port)
            assert not client.ask(message("SaslHandshake", mechanism="PLAIN"), 1).error_code
            credentials = f"\0{user}\0{user}".encode()
            assert not client.ask(message("SaslAuthenticate", auth_bytes=credentials), 2).error_code
        response = client.ask(request, version)
        if response is None:
            client.socket.close()
            del self._clients[user]
        return response

    def admin(self, api: str, version: int | None = None, **fields: Any) -> Any:
        """Send a request with all rights."""
        return self.ask(ADMIN, message(api, **fields), version)

    async def send_privileged(self, request: Struct, version: int | None = None) -> Any:
        return self.ask(ADMIN, request, version)

    def log_lines(self) -> list[str]:
        """Return the lines of the broker's log since the last call."""
        return self._log.read().splitlines()

    def until(self, is_done: Callable[[], bool], what: str) -> None:
        """Wait until `is_done` returns True."""
        deadline = time.monotonic() + WITHIN_S
        while not is_done():
            assert time.monotonic() < deadline, f"not in time: {what}"
            time.sleep(0.01)


@contextmanager
def stage_of(kind: type[Broker], directory: Path, chosen: Chosen) -> Iterator[tuple[Stage, World]]:
    """Start a broker with the ACLs and resources of the chosen conversations; stop it at the end."""
    broker = kind(directory, SETTINGS)
    broker.start(60)
    stage = Stage(broker)
    try:
        yield stage, set_up(stage, dict.fromkeys(each for _, rights in chosen for each in rights))
    finally:
        stage.close()
        broker.kill9()


# --- resources --------------------------------------------------------------------------------------


def set_up(stage: Stage, rights: Iterable[str]) -> World:
    """Create the resources of the conversations, and the ACLs of the users."""
    acls = [acl for each in rights for acl in acls_of(each, f"User:u{USERS.index(each)}")]
    old = next(acls_of("READ TOPIC old", NEW_ACLS_OF))
    _create_acls(stage, [*acls, old])
    world = World("")
    restore_topics(stage, world)
    for key_type in (0, 1):  # This creates the coordinators' topics.
        stage.admin("FindCoordinator", 4, key_type=key_type, coordinator_keys=["group"])
    restore_offsets(stage)
    restore_share_offsets(stage)
    for kind in MEMBERS:
        _join(stage, kind)
    owner = {"owner_principal_type": "User", "owner_principal_name": "owner"}
    _share_fetch(stage, world)
    token = stage.admin("CreateDelegationToken", 3, max_lifetime_ms=-1, **owner)
    assert not token.error_code, token
    renew_producer(stage, world)
    return world


def _create_acls(stage: Stage, acls: list[Acl]) -> None:
    creations = [
        dict(zip(
            ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation",
                "permission_type"), acl, strict=True))
        for acl in acls
    ]  # fmt: skip
    created = stage.admin("CreateAcls", creations=creations)
    assert {result.error_code for result in created.results} == {0}

    def are_visible() -> bool:
        found = stage.admin("DescribeAcls", **ANY_ACL).resources
        return sum(len(resource.acls) for resource in found) >= len(set(acls))

    stage.until(are_visible, "ACLs")


def restore_topics(stage: Stage, world: World) -> None:
    """Create changed topics anew, with one record each."""
    intact = {name: cases_data.state() for name in cases.EXISTING} | {cases.MISSING: "absent"}
    states = asyncio.run(cases.snapshot(stage, world))  # type: ignore[arg-type]
    changed = [name for name, state in states.items() if state != intact[name]]
    topics = [{"name": name} for name in changed]
    stage.admin("DeleteTopics", 6, topics=topics, timeout_ms=10_000)

    def are_absent() -> bool:
        response = stage.admin("Metadata", 12, topics=topics, allow_auto_topic_creation=False)
        return all(topic.error_code for topic in response.topics)

    stage.until(are_absent, "deleted topics")
    missing = tuple(name for name in changed if name in cases.EXISTING)
    if missing:
        world.ids |= asyncio.run(cases.set_up(stage, "", missing)).ids  # type: ignore[arg-type]


def restore_offsets(stage: Stage, *_: object) -> None:
    """Commit the offset 5 of both topics in `group`."""
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 5}]}
        for name in cases.EXISTING
    ]

    def is_committed() -> bool:
        response = stage.admin(
            "OffsetCommit", 9, group_id="group", generation_id_or_member_epoch=-1, topics=topics
        )
        return not any(p.error_code for topic in response.topics for p in topic.partitions)

    stage.until(is_committed, "committed offsets")


def restore_share_offsets(stage: Stage, *_: object) -> None:
    """Set the start offset 0 of both topics in `shared`."""
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]}
        for name in cases.EXISTING
    ]

    def is_set() -> bool:
        response = stage.admin("AlterShareGroupOffsets", 0, group_id="shared", topics=topics)
        return not response.error_code and not any(
            p.error_code for topic in response.responses for p in topic.partitions
        )

    stage.until(is_set, "share offsets")


def restore_acls(stage: Stage, *_: object) -> None:
    stage.admin("DeleteAcls", filters=[{**ANY_ACL, "principal_filter": NEW_ACLS_OF}])
    stage.until(lambda: probe_acls(stage) == "no ACLs", "deleted ACLs")
    _create_acls(stage, list(acls_of("READ TOPIC old", NEW_ACLS_OF)))
    stage.until(lambda: probe_acls(stage) == "old", "created ACLs")


def restore_credentials(stage: Stage, *_: object) -> None:
    stage.admin("AlterUserScramCredentials", 0, deletions=[{"name": NEW_USER, "mechanism": 1}])
    stage.until(lambda: not probe_credentials(stage), "deleted credentials")


def restore_quotas(stage: Stage, *_: object) -> None:
    entity = [{"entity_type": "user", "entity_name": NEW_USER}]
    removed = [{"key": "consumer_byte_rate", "value": 0.0, "remove": True}]
    stage.admin("AlterClientQuotas", 1, entries=[{"entity": entity, "ops": removed}])
    stage.until(lambda: not probe_quotas(stage), "removed quotas")


def renew_producer(stage: Stage, world: World) -> None:
    """Start the transactional producer anew."""

    def is_renewed() -> bool:
        response = stage.admin(
            "InitProducerId", 5, transactional_id="transaction", transaction_timeout_ms=600_000
        )
        world.producer_id, world.producer_epoch = response.producer_id, response.producer_epoch
        return not response.error_code

    stage.until(is_renewed, "transactional producer")


def _share_fetch(stage: Stage, world: World) -> None:
    """Make the partitions of `shared` ready to be fetched."""
    topics = [{"topic_id": id_, "partitions": [{}]} for id_ in world.ids.values()]

    def are_ready() -> bool:
        response = stage.admin(
            "ShareFetch", 1, group_id="shared", member_id="A" * 22, share_session_epoch=0, max_wait_ms=0,
            max_records=1, max_bytes=1, topics=topics,
        )  # fmt: skip
        return len(response.responses) == len(topics)

    stage.until(are_ready, "share partitions")


def _join(stage: Stage, kind: str) -> None:
    """Make a member of the group of this name, which reads `seen`."""
    epoch = 0
    fields: dict[str, Any] = {"group_id": kind, "member_id": "A" * 22}
    subscribed = {"subscribed_topic_names": ["seen"]}
    if kind == "streams":
        api, joining = "StreamsGroupHeartbeat", {
            "rebalance_timeout_ms": 60_000, "process_id": "p",
            "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
            "topology": {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["seen"]}]},
        }  # fmt: skip
    elif kind == "consumer":
        api, joining = (
            "ConsumerGroupHeartbeat",
            {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **subscribed},
        )
    else:
        api, joining = "ShareGroupHeartbeat", subscribed

    def is_described() -> bool:
        nonlocal epoch
        response = stage.admin(api, 1, **fields, member_epoch=epoch, **(joining if epoch == 0 else {}))
        if response.error_code:
            return False
        epoch = response.member_epoch
        described = stage.admin(f"{kind.capitalize()}GroupDescribe", group_ids=[kind])
        (group,) = described.groups
        if kind == "streams":
            return any(member.assignment.active_tasks for member in group.members)
        return "seen" in rendered(group, World(""))

    stage.until(is_described, f"{kind} group")


# --- probes -----------------------------------------------------------------------------------------


def probe_topics(stage: Stage, world: World) -> str:
    states = asyncio.run(cases.snapshot(stage, world))  # type: ignore[arg-type]
    return "; ".join(f"{name}: {state}" for name, state in states.items())


def probe_offsets(stage: Stage, *_: object) -> str:
    groups = [{"group_id": "group", "topics": None}]
    (group,) = stage.admin("OffsetFetch", 9, groups=groups).groups
    offsets = sorted(f"{t.name} {p.committed_offset}" for t in group.topics for p in t.partitions)
    listed = sorted(each.group_id for each in stage.admin("ListGroups").groups)
    return f"{', '.join(offsets) or 'no offsets'}; groups {' '.join(listed)}"


def probe_share_offsets(stage: Stage, *_: object) -> str:
    groups = [{"group_id": "shared", "topics": None}]
    (group,) = stage.admin("DescribeShareGroupOffsets", groups=groups).groups
    offsets = sorted(f"{t.topic_name} {p.start_offset}" for t in group.topics for p in t.partitions)
    return ", ".join(offsets) or "no offsets"


def probe_acls(stage: Stage, *_: object) -> str:
    found = stage.admin("DescribeAcls", **{**ANY_ACL, "principal_filter": NEW_ACLS_OF})
    return " ".join(sorted(resource.resource_name for resource in found.resources)) or "no ACLs"


def probe_credentials(stage: Stage, *_: object) -> str:
    found = stage.admin("DescribeUserScramCredentials", users=None)
    return " ".join(sorted(result.user for result in found.results))


def probe_quotas(stage: Stage, *_: object) -> str:
    found = stage.admin("DescribeClientQuotas", 1, strict=False, components=[])
    return " ".join(f"{v.key}={v.value:g}" for entry in found.entries or () for v in entry.values)


class Probe(NamedTuple):
    """Shows a state as text, and restores it."""

    state: Callable[[Stage, World], str]
    restore: Callable[[Stage, World], None]


PROBES: Mapping[str, Probe] = {
    "topics": Probe(probe_topics, restore_topics),
    "offsets": Probe(probe_offsets, restore_offsets),
    "share offsets": Probe(probe_share_offsets, restore_share_offsets),
    "acls": Probe(probe_acls, restore_acls),
    "credentials": Probe(probe_credentials, restore_credentials),
    "quotas": Probe(probe_quotas, restore_quotas),
}


# --- responses --------------------------------------------------------------------------------------

_NAMES = frozenset(
    ("name", "topic", "topic_name", "resource_name", "group_id", "key", "transactional_id", "user",
        "principal_name", "principal", "entity_name")
)  # fmt: skip
_PARTITIONS = frozenset(("partition_index", "partition", "partition_id", "index"))
_SKIPPED = frozenset(
    ("brokers", "nodes", "node_endpoints", "current_voters", "observers", "synonyms", "api_keys", "endpoints",
        "supported_features", "finalized_features", "renewers", "acquired_records")
)  # fmt: skip


def rendered(response: Any, world: World) -> str:
    """Return names, errors, operations and offsets of a response as text; list items are sorted.

    "closed" if there is none."""
    return "closed" if response is None else " ".join(_tokens(response, world))


def _tokens(struct: Struct, world: World) -> Iterator[str]:
    fields = {field.name: getattr(struct, field.name) for field in struct.__fields__}
    for name, value in fields.items():
        if name in _SKIPPED:
            continue
        if name in _NAMES and value:
            yield "alice" if re.fullmatch(r"u\d+", value) else value
        elif isinstance(value, Uuid):
            if value != ZERO_UUID:
                yield "#" + {id_: short for short, id_ in world.ids.items()}.get(value, "id")
        elif name in _PARTITIONS:
            yield str(value)
        elif name.endswith("error_code"):
            yield Errors(value).name if value else "ok"
        elif name.endswith("authorized_operations") and value != cases.NO_OPERATIONS:
            yield "operations " + cases.operations_text(o for o in Operation if value >> o & 1)
        elif name == "committed_offset":
            yield f"@{value}"
        elif name == "status":
            yield from (f"status {each.status_code}" for each in value or ())
        elif name == "configs" and value:
            yield "with configs"
        elif name == "records" and value and "acquired_records" not in fields:
            yield "with records"  # Those of share groups may be acquired already.
        elif isinstance(value, Struct):
            yield from _tokens(value, world)
        elif isinstance(value, tuple) and value and isinstance(value[0], Struct):
            yield "[" + "; ".join(sorted(" ".join(_tokens(item, world)) for item in value)) + "]"
