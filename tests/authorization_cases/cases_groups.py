"""Cases of authorization in the APIs of groups, offsets, transactions, share groups and streams groups.

A case is data, so that it can be played against any broker: with konvene and a fake authorizer, or with a
live Kafka whose ACLs are set before each request. `outcomes` has the rendered response for each set of rights
that matters. Every single right that it does not name has the outcome of no right at all (`NO_RIGHT`).

Resources: the topics `seen` and `other` exist with one partition each. Of both, `group` has committed offset
5, and the share group `share` has start offset 0. `transaction` is a transactional id, whose producer is in
the world. Rights refer to `seen`, never to `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.security.resources import CLUSTER, SUPPORTED_OPERATIONS, Operation, Resource, ResourceType

ALL = "all"
NO_RIGHT = ""
Right = tuple[Operation, Resource]

SINGLE_RIGHTS: tuple[Right, ...] = tuple(
    (operation, resource)
    for resource in (
        Resource(ResourceType.TOPIC, "seen"),
        CLUSTER,
        Resource(ResourceType.GROUP, "group"),
        Resource(ResourceType.TRANSACTIONAL_ID, "transaction"),
    )
    for operation in SUPPORTED_OPERATIONS[resource.type]
)


class World(NamedTuple):
    """What the requests of a play refer to, besides names."""

    seen_id: Uuid
    other_id: Uuid
    producer_id: int
    producer_epoch: int


class Case(NamedTuple):
    name: str
    version: int
    request: Callable[[World], Struct]
    outcomes: Mapping[str, str]
    """Rendered responses by rights (`rights_of`), or `ALL`."""


def rights_of(text: str) -> Iterator[tuple[Right, ...]]:
    """Yield the sets of rights of a key of `outcomes`.

    "A|B TOPIC t" stands for one right of each operation; with ", " between them, rights belong together."""
    first, *others = text.split(", ") if text else [""]
    if not first:
        yield ()
        return
    operations, _, resource = first.partition(" ")
    for operation in operations.split("|"):
        yield (_right(f"{operation} {resource}"), *map(_right, others))


def _right(text: str) -> Right:
    operation, kind, *name = text.split()
    return Operation[operation], Resource(ResourceType[kind], name[0]) if name else CLUSTER


def rendered(response: Any) -> str:
    """Return names, errors and authorized operations of a response as text; list items are sorted."""
    return "closed" if response is None else " ".join(_tokens(response))


_NAMES = frozenset(("name", "topic", "topic_name", "group_id", "key", "transactional_id"))
_NOT_REQUESTED = -(1 << 31)


def _tokens(struct: Struct) -> Iterator[str]:
    for field in struct.__fields__:
        name, value = field.name, getattr(struct, field.name)
        if name in _NAMES and value:
            yield value
        elif name.endswith("error_code"):
            yield Errors(value).name if value else "ok"
        elif name == "committed_offset":
            yield f"@{value}"
        elif name == "authorized_operations" and value != _NOT_REQUESTED:
            yield "operations " + "+".join(sorted(o.name for o in Operation if value >> o & 1))
        elif name == "status":
            yield from (f"status {each.status_code} {each.status_detail}" for each in value or ())
        elif isinstance(value, tuple) and value and isinstance(value[0], Struct) and name != "node_endpoints":
            yield "[" + "; ".join(sorted(" ".join(_tokens(item)) for item in value)) + "]"


# --- requests --------------------------------------------------------------------------------------


def message(api: str, **fields: Any) -> Struct:
    """Return a request; dictionaries in its arrays become the structs of their fields."""
    return _struct(BY_NAME[api].request, fields)


def _struct(kind: Any, fields: Mapping[str, Any]) -> Struct:
    declared = {field.name: field for field in kind.__fields__}
    values: dict[str, Any] = {}
    for name, value in fields.items():
        element: Any = declared[name].element
        if isinstance(value, dict):
            value = _struct(element, value)
        elif isinstance(value, list):
            value = tuple(_struct(element, item) if isinstance(item, dict) else item for item in value)
        values[name] = value
    built: Struct = kind(**values)
    return built


def _case(
    name: str, api: str, version: int, fields: Callable[[World], dict[str, Any]], outcomes: Mapping[str, str]
) -> Case:
    return Case(name, version, lambda world: message(api, **fields(world)), outcomes)


TX = "transaction"
READ_GROUP = "READ GROUP group"
DESCRIBE_GROUP = "DESCRIBE|READ|DELETE GROUP group"
WRITE_TX = "WRITE TRANSACTIONAL_ID transaction"
READ_TOPIC = "READ TOPIC seen"
CLUSTER_ACTION = "CLUSTER_ACTION CLUSTER"
NO_GROUP = "GROUP_AUTHORIZATION_FAILED"
NO_TX = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NO_CLUSTER = "CLUSTER_AUTHORIZATION_FAILED"
NO_TOPIC = "TOPIC_AUTHORIZATION_FAILED"


def _topics(**partition: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [{"partition_index": 0} | partition]} for name in ("seen", "other")]


def _by_id(world: World, **partition: Any) -> list[dict[str, Any]]:
    return [
        {"topic_id": each, "partitions": [{"partition_index": 0} | partition]}
        for each in (world.seen_id, world.other_id)
    ]


def _producer(world: World) -> dict[str, Any]:
    return {"producer_id": world.producer_id, "producer_epoch": world.producer_epoch}


def _state(world: World) -> dict[str, Any]:
    return {
        "group_id": "group",
        "topics": [{"topic_id": world.seen_id, "partitions": [{"partition": 0}]}],
    }


def _member(**fields: Any) -> dict[str, Any]:
    return {"group_id": "modern", "member_id": "AAAAAAAAAAAAAAAAAAAAAA"} | fields


def _streams_member() -> dict[str, Any]:
    changelog = {"name": "streams-store-changelog"}
    return {
        "group_id": "streams", "member_id": "A" * 22, "member_epoch": 0, "rebalance_timeout_ms": 1_000,
        "process_id": "p", "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
        "topology": {"epoch": 0, "subtopologies": [
            {"subtopology_id": "0", "source_topics": ["seen"], "state_changelog_topics": [changelog]}]},
    }  # fmt: skip


MISSING = "Internal topics are missing: streams-store-changelog"
COMMITTED = {"group_id": "group", "generation_id_or_member_epoch": -1}
NO_GROUP_COMMIT = f"[other [{NO_GROUP}]; seen [{NO_GROUP}]]"
ONLY_SEEN = f"[other [{NO_TOPIC}]; seen [ok]]"
NEITHER = f"[other [{NO_TOPIC}]; seen [{NO_TOPIC}]]"

OFFSETS = [
    _case("commit offsets", "OffsetCommit", 9,
        lambda world: COMMITTED | {"topics": _topics(committed_offset=5)},
        {
            NO_RIGHT: NO_GROUP_COMMIT, READ_GROUP: NEITHER, f"{READ_GROUP}, {READ_TOPIC}": ONLY_SEEN,
            ALL: "[other [ok]; seen [ok]]",
        }),
    _case("commit offsets by id", "OffsetCommit", 10,
        lambda world: COMMITTED | {"topics": _by_id(world, committed_offset=5)},
        {
            NO_RIGHT: f"[[{NO_GROUP}]; [{NO_GROUP}]]", READ_GROUP: f"[[{NO_TOPIC}]; [{NO_TOPIC}]]",
            f"{READ_GROUP}, {READ_TOPIC}": f"[[{NO_TOPIC}]; [ok]]", ALL: "[[ok]; [ok]]",
        }),
    _case("fetch offsets", "OffsetFetch", 9,
        lambda world: {"groups": [{"group_id": "group", "topics": [
            {"name": name, "partition_indexes": [0]} for name in ("seen", "other")]}]},
        {
            NO_RIGHT: f"ok [group {NO_GROUP}]",
            DESCRIBE_GROUP: f"ok [group [other [@-1 {NO_TOPIC}]; seen [@-1 {NO_TOPIC}]] ok]",
            f"{DESCRIBE_GROUP}, DESCRIBE TOPIC seen": f"ok [group [other [@-1 {NO_TOPIC}]; seen [@5 ok]] ok]",
            ALL: "ok [group [other [@5 ok]; seen [@5 ok]] ok]",
        }),
    _case("fetch all offsets", "OffsetFetch", 9,
        lambda world: {"groups": [{"group_id": "group", "topics": None}]},
        {
            NO_RIGHT: f"ok [group {NO_GROUP}]", DESCRIBE_GROUP: "ok [group ok]",
            f"{DESCRIBE_GROUP}, DESCRIBE TOPIC seen": "ok [group [seen [@5 ok]] ok]",
            ALL: "ok [group [other [@5 ok]; seen [@5 ok]] ok]",
        }),
    _case("fetch offsets of one group", "OffsetFetch", 5,
        lambda world: {"group_id": "group", "topics": [{"name": "seen", "partition_indexes": [0]}]},
        {
            NO_RIGHT: NO_GROUP, DESCRIBE_GROUP: f"[seen [@-1 {NO_TOPIC}]] ok",
            f"{DESCRIBE_GROUP}, DESCRIBE TOPIC seen": "[seen [@5 ok]] ok", ALL: "[seen [@5 ok]] ok",
        }),
    _case("delete offsets", "OffsetDelete", 0,
        lambda world: {"group_id": "group", "topics": _topics()},
        {
            NO_RIGHT: NO_GROUP, "DELETE GROUP group": f"ok {NEITHER}",
            f"DELETE GROUP group, {READ_TOPIC}": f"ok {ONLY_SEEN}", ALL: "ok [other [ok]; seen [ok]]",
        }),
]  # fmt: skip

GROUPS = [
    _case("find a group", "FindCoordinator", 4, lambda world: {"coordinator_keys": ["group", "more"]},
        {
            NO_RIGHT: f"ok [group {NO_GROUP}; more {NO_GROUP}]",
            DESCRIBE_GROUP: f"ok [group ok; more {NO_GROUP}]", ALL: "ok [group ok; more ok]",
        }),
    _case("find a transactional id", "FindCoordinator", 3, lambda world: {"key": TX, "key_type": 1},
        {NO_RIGHT: NO_TX, "DESCRIBE|WRITE TRANSACTIONAL_ID transaction": "ok", ALL: "ok"}),
    _case("find a share partition", "FindCoordinator", 6,
        lambda world: {"coordinator_keys": ["group:x:0"], "key_type": 2},
        {
            NO_RIGHT: f"ok [group:x:0 {NO_CLUSTER}]", CLUSTER_ACTION: "ok [group:x:0 INVALID_REQUEST]",
            ALL: "ok [group:x:0 INVALID_REQUEST]",
        }),
    _case("join", "JoinGroup", 9,
        lambda world: {"group_id": "group", "session_timeout_ms": 10_000, "protocol_type": "consumer",
            "rebalance_timeout_ms": 10_000, "protocols": [{"name": "range", "metadata": b""}]},
        {NO_RIGHT: NO_GROUP, READ_GROUP: "MEMBER_ID_REQUIRED", ALL: "MEMBER_ID_REQUIRED"}),
    _case("sync", "SyncGroup", 5,
        lambda world: {"group_id": "group", "member_id": "m", "protocol_type": "consumer",
            "protocol_name": "range"},
        {NO_RIGHT: NO_GROUP, READ_GROUP: "UNKNOWN_MEMBER_ID", ALL: "UNKNOWN_MEMBER_ID"}),
    _case("heartbeat", "Heartbeat", 4, lambda world: {"group_id": "group", "member_id": "m"},
        {NO_RIGHT: NO_GROUP, READ_GROUP: "UNKNOWN_MEMBER_ID", ALL: "UNKNOWN_MEMBER_ID"}),
    _case("leave", "LeaveGroup", 5,
        lambda world: {"group_id": "group", "members": [{"member_id": "m"}]},
        {NO_RIGHT: NO_GROUP, READ_GROUP: "ok [UNKNOWN_MEMBER_ID]", ALL: "ok [UNKNOWN_MEMBER_ID]"}),
    _case("describe", "DescribeGroups", 5,
        lambda world: {"groups": ["group"], "include_authorized_operations": True},
        {
            NO_RIGHT: f"[{NO_GROUP} group]",
            "DESCRIBE GROUP group": "[ok group operations DESCRIBE]",
            "READ GROUP group": "[ok group operations DESCRIBE+READ]",
            "DELETE GROUP group": "[ok group operations DELETE+DESCRIBE]",
            ALL: "[ok group operations ALTER_CONFIGS+DELETE+DESCRIBE+DESCRIBE_CONFIGS+READ]",
        }),
    _case("list groups", "ListGroups", 4, lambda world: {},
        {NO_RIGHT: "ok", "DESCRIBE|ALTER CLUSTER": "ok [group; share]", DESCRIBE_GROUP: "ok [group]",
            ALL: "ok [group; share]"}),
    _case("delete groups", "DeleteGroups", 2, lambda world: {"groups_names": ["group", "more"]},
        {
            NO_RIGHT: f"[group {NO_GROUP}; more {NO_GROUP}]",
            "DELETE GROUP group": f"[group ok; more {NO_GROUP}]",
            ALL: "[group ok; more GROUP_ID_NOT_FOUND]",
        }),
    _case("consumer heartbeat", "ConsumerGroupHeartbeat", 1,
        lambda world: _member(group_id="group", member_epoch=5, subscribed_topic_names=["seen"]),
        {NO_RIGHT: NO_GROUP, READ_GROUP: NO_TOPIC,
            f"{READ_GROUP}, DESCRIBE TOPIC seen": "GROUP_ID_NOT_FOUND", ALL: "GROUP_ID_NOT_FOUND"}),
    _case("describe a consumer group", "ConsumerGroupDescribe", 1,
        lambda world: {"group_ids": ["group", "more"]},
        {
            NO_RIGHT: f"[{NO_GROUP} group; {NO_GROUP} more]",
            DESCRIBE_GROUP: f"[{NO_GROUP} more; GROUP_ID_NOT_FOUND group]",
            ALL: "[GROUP_ID_NOT_FOUND group; GROUP_ID_NOT_FOUND more]",
        }),
]  # fmt: skip

MODERN = [
    _case("share heartbeat", "ShareGroupHeartbeat", 1,
        lambda world: _member(group_id="group", member_epoch=5, subscribed_topic_names=["seen"]),
        {NO_RIGHT: NO_GROUP, READ_GROUP: NO_TOPIC,
            f"{READ_GROUP}, DESCRIBE TOPIC seen": "GROUP_ID_NOT_FOUND", ALL: "GROUP_ID_NOT_FOUND"}),
    _case("describe a share group", "ShareGroupDescribe", 1, lambda world: {"group_ids": ["group"]},
        {NO_RIGHT: f"[{NO_GROUP} group]", DESCRIBE_GROUP: "[GROUP_ID_NOT_FOUND group]",
            ALL: "[GROUP_ID_NOT_FOUND group]"}),
    _case("share fetch", "ShareFetch", 1,
        lambda world: {"group_id": "group", "member_id": "A" * 22, "share_session_epoch": 7},
        {NO_RIGHT: NO_GROUP, READ_GROUP: "SHARE_SESSION_NOT_FOUND", ALL: "SHARE_SESSION_NOT_FOUND"}),
    _case("share acknowledge", "ShareAcknowledge", 1,
        lambda world: {"group_id": "group", "member_id": "A" * 22, "share_session_epoch": 7},
        {NO_RIGHT: NO_GROUP, READ_GROUP: "SHARE_SESSION_NOT_FOUND", ALL: "SHARE_SESSION_NOT_FOUND"}),
    _case("share fetch of topics", "ShareFetch", 1,
        lambda world: {"group_id": "share", "member_id": "A" * 22, "share_session_epoch": 0,
            "max_records": 1, "max_bytes": 1, "topics": _by_id(world)},
        {
            NO_RIGHT: NO_GROUP, "READ GROUP share": f"ok [[{NO_TOPIC} ok]; [{NO_TOPIC} ok]]",
            f"READ GROUP share, {READ_TOPIC}": f"ok [[{NO_TOPIC} ok]; [ok ok]]", ALL: "ok [[ok ok]; [ok ok]]",
        }),
    _case("describe share offsets", "DescribeShareGroupOffsets", 0,
        lambda world: {"groups": [{"group_id": "share", "topics": [
            {"topic_name": name, "partitions": [0]} for name in ("seen", "other")]}]},
        {
            NO_RIGHT: f"[share {NO_GROUP}]",
            "DESCRIBE GROUP share": f"[share [other [{NO_TOPIC}]; seen [{NO_TOPIC}]] ok]",
            "DESCRIBE GROUP share, DESCRIBE TOPIC seen": f"[share [other [{NO_TOPIC}]; seen [ok]] ok]",
            ALL: "[share [other [ok]; seen [ok]] ok]",
        }),
    _case("alter share offsets", "AlterShareGroupOffsets", 0,
        lambda world: {"group_id": "share", "topics": [
            {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]}
            for name in ("seen", "other")]},
        {
            NO_RIGHT: NO_GROUP, "READ GROUP share": f"ok {NEITHER}",
            "READ GROUP share, READ TOPIC seen": f"ok {ONLY_SEEN}", ALL: "ok [other [ok]; seen [ok]]",
        }),
    _case("delete share offsets", "DeleteShareGroupOffsets", 0,
        lambda world: {"group_id": "share", "topics": [{"topic_name": "seen"}]},
        {NO_RIGHT: NO_GROUP, "DELETE GROUP share": f"ok [seen {NO_TOPIC}]",
            "DELETE GROUP share, READ TOPIC seen": "ok [seen ok]", ALL: "ok [seen ok]"}),
    _case("streams heartbeat", "StreamsGroupHeartbeat", 0,
        lambda world: {"group_id": "group", "member_id": "A" * 22, "member_epoch": 5},
        {NO_RIGHT: NO_GROUP, READ_GROUP: "GROUP_ID_NOT_FOUND", ALL: "GROUP_ID_NOT_FOUND"}),
    _case("streams heartbeat with a topology", "StreamsGroupHeartbeat", 0,
        lambda world: _streams_member(),
        {
            NO_RIGHT: "GROUP_AUTHORIZATION_FAILED", "READ GROUP streams": NO_TOPIC,
            "READ GROUP streams, DESCRIBE TOPIC seen": NO_TOPIC,
            "READ GROUP streams, DESCRIBE TOPIC seen, DESCRIBE TOPIC streams-store-changelog":
                f"ok status 3 {MISSING}; Unauthorized to CREATE on topics streams-store-changelog.",
            "READ GROUP streams, DESCRIBE TOPIC seen, CREATE CLUSTER, DESCRIBE TOPIC streams-store-changelog":
                f"ok status 3 {MISSING}",
        }),
    _case("update a topology description", "StreamsGroupTopologyDescriptionUpdate", 0,
        lambda world: {"group_id": "group", "member_id": "A" * 22},
        {NO_RIGHT: NO_GROUP, READ_GROUP: "UNSUPPORTED_VERSION", ALL: "UNSUPPORTED_VERSION"}),
    _case("describe a streams group", "StreamsGroupDescribe", 0, lambda world: {"group_ids": ["group"]},
        {NO_RIGHT: f"[{NO_GROUP} group]", DESCRIBE_GROUP: "[GROUP_ID_NOT_FOUND group]",
            ALL: "[GROUP_ID_NOT_FOUND group]"}),
    *(
        _case(api, api, 0, _state,
            {NO_RIGHT: f"[[{NO_CLUSTER}]]", CLUSTER_ACTION: permitted, ALL: permitted})
        for api, permitted in (
            ("InitializeShareGroupState", "[[ok]]"), ("ReadShareGroupStateSummary", "[[ok]]"),
            ("DeleteShareGroupState", "[[ok]]"), ("ReadShareGroupState", "[[INVALID_REQUEST]]"),
            ("WriteShareGroupState", "[[INVALID_REQUEST]]"),
        )
    ),
]  # fmt: skip

TRANSACTIONS = [
    _case("initialize a transactional producer", "InitProducerId", 5,
        lambda world: {"transactional_id": TX, "transaction_timeout_ms": 10_000},
        {NO_RIGHT: NO_TX, WRITE_TX: "ok", ALL: "ok"}),
    _case("initialize an idempotent producer", "InitProducerId", 5,
        lambda world: {"transactional_id": None, "transaction_timeout_ms": 10_000},
        {NO_RIGHT: NO_CLUSTER, "IDEMPOTENT_WRITE CLUSTER": "ok", "WRITE TOPIC seen": "ok", ALL: "ok"}),
    _case("add partitions", "AddPartitionsToTxn", 3,
        lambda world: {
            "v3_and_below_transactional_id": TX,
            "v3_and_below_producer_id": world.producer_id,
            "v3_and_below_producer_epoch": world.producer_epoch,
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in ("seen", "other")],
        },
        {
            NO_RIGHT: f"ok [other [{NO_TX}]; seen [{NO_TX}]]", WRITE_TX: f"ok {NEITHER}",
            f"{WRITE_TX}, WRITE TOPIC seen": f"ok [other [{NO_TOPIC}]; seen [OPERATION_NOT_ATTEMPTED]]",
            ALL: "ok [other [ok]; seen [ok]]",
        }),
    _case("verify partitions", "AddPartitionsToTxn", 5,
        lambda world: {"transactions": [
            {"transactional_id": TX, "verify_only": True, "topics": [{"name": "seen", "partitions": [0]}]}
            | _producer(world)]},
        {NO_RIGHT: NO_CLUSTER, CLUSTER_ACTION: f"ok [{TX} [seen [TRANSACTION_ABORTABLE]]]",
            ALL: f"ok [{TX} [seen [TRANSACTION_ABORTABLE]]]"}),
    _case("add offsets", "AddOffsetsToTxn", 3,
        lambda world: {"transactional_id": TX, "group_id": "group"} | _producer(world),
        {NO_RIGHT: NO_TX, WRITE_TX: NO_GROUP, f"{WRITE_TX}, {READ_GROUP}": "ok", ALL: "ok"}),
    _case("end a transaction", "EndTxn", 3,
        lambda world: {"transactional_id": TX, "committed": True} | _producer(world),
        {NO_RIGHT: NO_TX, WRITE_TX: "INVALID_TXN_STATE", ALL: "INVALID_TXN_STATE"}),
    _case("commit offsets in a transaction", "TxnOffsetCommit", 5,
        lambda world: {"transactional_id": TX, "group_id": "group", "topics": _topics(committed_offset=5)}
        | _producer(world),
        {
            NO_RIGHT: f"[other [{NO_TX}]; seen [{NO_TX}]]", WRITE_TX: NO_GROUP_COMMIT,
            f"{WRITE_TX}, {READ_GROUP}": NEITHER,
            f"{WRITE_TX}, {READ_GROUP}, {READ_TOPIC}": ONLY_SEEN, ALL: "[other [ok]; seen [ok]]",
        }),
    _case("write markers", "WriteTxnMarkers", 1,
        lambda world: {"markers": [{"topics": [{"name": "none", "partition_indexes": [0]}]}]},
        {
            NO_RIGHT: f"[[none [{NO_CLUSTER}]]]",
            "ALTER|CLUSTER_ACTION CLUSTER": "[[none [UNKNOWN_TOPIC_OR_PARTITION]]]",
            ALL: "[[none [UNKNOWN_TOPIC_OR_PARTITION]]]",
        }),
    _case("describe transactions", "DescribeTransactions", 0, lambda world: {"transactional_ids": [TX]},
        {NO_RIGHT: f"[{NO_TX} {TX}]", "DESCRIBE|WRITE TRANSACTIONAL_ID transaction": f"[ok {TX}]",
            ALL: f"[ok {TX}]"}),
    _case("list transactions", "ListTransactions", 1, lambda world: {},
        {NO_RIGHT: "ok", "DESCRIBE|WRITE TRANSACTIONAL_ID transaction": f"ok [{TX}]", ALL: f"ok [{TX}]"}),
]  # fmt: skip

CASES = [*OFFSETS, *GROUPS, *MODERN, *TRANSACTIONS]
