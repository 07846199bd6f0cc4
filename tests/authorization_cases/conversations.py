"""The conversations that are recorded from Apache Kafka: each served API with many sets of rights.

A row is a request and the types of resources that matter for it. Its sets of rights follow from the types
(`sets_of_rights`): none, each single right, each as PREFIXED, all, all but one denied right, and, where two
types matter, all of one and a single right on the other. `recorded.json` has Kafka's outcomes (see
`outcomes`).

The broker has these resources: the topics of `cases`; `group`, a classic group with offsets; `consumer`,
`share` and `streams`, groups with a member each; `shared`, a share group with offsets; `transaction`; a
delegation token of `User:owner`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tests.authorization_cases import cases_cluster, cases_data, cases_groups
from tests.authorization_cases.cases import World as Topics
from tests.authorization_cases.cases_groups import message

from konvene.broker.net.authorizer import REQUIRED_PERMISSIONS
from konvene.codec.schema import Struct
from konvene.messages import BY_NAME
from konvene.security.acls import Acl, PatternType, PermissionType
from konvene.security.resources import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, ResourceType

_T = ResourceType
NONE, ALL = "none", "all"
OWNER = "User:owner"
NEW_ACLS_OF, NEW_USER = "User:new", "new"
"""Principal of created ACLs, and user of created credentials and quotas."""


class World(Topics):
    """What requests refer to: topics by name and id, and a transactional producer."""

    producer_id = -1
    producer_epoch = -1

    @property
    def seen_id(self) -> object:
        return self.ids["seen"]

    @property
    def other_id(self) -> object:
        return self.ids["other"]


class Conversation(NamedTuple):
    """A request that is sent with many sets of rights."""

    name: str
    version: int
    request: Callable[[World], Struct]
    types: tuple[ResourceType, ...]
    effect: str = ""
    """The probe of `outcomes.PROBES` that shows what the request has changed."""
    group: str = "group"
    """The group to which the rights refer."""

    @property
    def api_name(self) -> str:
        return type(self.request(_EXAMPLE)).__name__.removesuffix("Request")

    def sets_of_rights(self) -> list[str]:
        """Return the sets of rights to try, as texts that `acls_of` parses."""
        found = [NONE, ALL]
        for kind in self.types:
            others = ", ".join(
                f"ALL {other.name} {CLUSTER_NAME if other is _T.CLUSTER else '*'}"
                for other in self.types
                if other is not kind
            )
            name = self._name(kind)
            for operation in (*SUPPORTED_OPERATIONS[kind], Operation.ALL):
                single = f"{operation.name} {kind.name} {name}"
                found.append(single)
                found.append(f"{ALL}, DENY {single}")
                if others:
                    found.append(f"{others}, {single}")
                if kind not in (_T.CLUSTER, _T.DELEGATION_TOKEN):
                    found.append(f"{operation.name} {kind.name} {name[:3]}..")
            if kind not in (_T.CLUSTER, _T.DELEGATION_TOKEN):
                found.append(f"{ALL}, DENY ALL {kind.name} {name[:3]}..")
        return found

    def _name(self, kind: ResourceType) -> str:
        return self.group if kind is _T.GROUP else NAMES[kind]


NAMES: Mapping[ResourceType, str] = {
    _T.TOPIC: "seen",
    _T.CLUSTER: CLUSTER_NAME,
    _T.TRANSACTIONAL_ID: "transaction",
    _T.DELEGATION_TOKEN: "*",
    _T.USER: OWNER,
}
"""Names of the resources to which single rights refer."""


def acls_of(rights: str, principal: str) -> Iterator[Acl]:
    """Yield the ACLs of a set of rights: "READ TOPIC seen, DENY WRITE TOPIC se..", where ".." is a prefix."""
    for right in rights.split(", ") if rights != NONE else ():
        if right == ALL:
            for kind in SUPPORTED_OPERATIONS:
                name = CLUSTER_NAME if kind is _T.CLUSTER else "*"
                yield _acl(principal, kind, name, Operation.ALL)
            continue
        words = right.split()
        denies = words[0] == "DENY"
        operation, kind_name, name = words[1:] if denies else words
        yield _acl(principal, ResourceType[kind_name], name, Operation[operation], denies=denies)


def _acl(principal: str, kind: ResourceType, name: str, operation: Operation, *, denies: bool = False) -> Acl:
    pattern = PatternType.PREFIXED if name.endswith("..") else PatternType.LITERAL
    permission = PermissionType.DENY if denies else PermissionType.ALLOW
    return Acl(kind, name.removesuffix(".."), pattern, principal, "*", operation, permission)


# --- requests of `cases` ---------------------------------------------------------------------------

_MORE_TYPES: Mapping[str, tuple[ResourceType, ...]] = {
    "Fetch": (_T.CLUSTER,),
    "Metadata": (_T.CLUSTER,),
    "FindCoordinator": (_T.TRANSACTIONAL_ID, _T.CLUSTER),
    "ListGroups": (_T.GROUP,),
    "CreateTopics": (_T.CLUSTER,),
    "DeleteTopics": (_T.CLUSTER,),
    "InitProducerId": (_T.CLUSTER, _T.TOPIC),
    "OffsetForLeaderEpoch": (_T.CLUSTER,),
    "DescribeConfigs": (_T.TOPIC, _T.GROUP),
    "AlterConfigs": (_T.TOPIC, _T.GROUP),
    "IncrementalAlterConfigs": (_T.TOPIC, _T.GROUP),
    "CreateDelegationToken": (_T.USER,),
    "DescribeDelegationToken": (_T.DELEGATION_TOKEN, _T.USER),
    "DescribeCluster": (_T.CLUSTER,),
    "AlterClientQuotas": (_T.CLUSTER,),
    "DescribeTransactions": (_T.TOPIC,),
    "ListTransactions": (_T.TRANSACTIONAL_ID,),
    "ConsumerGroupDescribe": (_T.TOPIC,),
    "ShareGroupDescribe": (_T.TOPIC,),
    "StreamsGroupDescribe": (_T.TOPIC,),
    "StreamsGroupHeartbeat": (_T.CLUSTER,),
    "AddPartitionsToTxn": (_T.CLUSTER,),
}
"""Types of resources that matter besides those of `REQUIRED_PERMISSIONS`."""


def _types(api: str) -> tuple[ResourceType, ...]:
    required = (permission.type for permission in REQUIRED_PERMISSIONS.get(BY_NAME[api].key, ()))
    return tuple(sorted({*required, *_MORE_TYPES.get(api, ())}))


class _Example(World):
    """A world to find the API of a request."""

    def __init__(self) -> None:
        super().__init__("")
        self.ids = dict.fromkeys(("seen", "other"), cases_data.UNKNOWN_ID)


_EXAMPLE = _Example()

_EFFECTS = {
    **dict.fromkeys(("CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords"), "topics"),
    **dict.fromkeys(("AlterConfigs", "IncrementalAlterConfigs"), "topics"),
    **dict.fromkeys(("OffsetCommit", "OffsetDelete", "DeleteGroups"), "offsets"),
    **dict.fromkeys(("AlterShareGroupOffsets", "DeleteShareGroupOffsets"), "share offsets"),
    "CreateAcls": "acls",
    "DeleteAcls": "acls",
    "AlterUserScramCredentials": "credentials",
    "AlterClientQuotas": "quotas",
}
"""Probes by API."""


def _row(
    name: str, version: int, request: Callable[[World], Struct], group: str = "group", effect: str = ""
) -> Conversation:
    api = type(request(_EXAMPLE)).__name__.removesuffix("Request")
    return Conversation(name, version, request, _types(api), effect or _EFFECTS.get(api, ""), group)


def _message(
    api: str, version: int, group: str = "group", effect: str = "", **fields: object
) -> Conversation:
    name = api if version == BY_NAME[api].latest_stable else f"{api}, version {version}"
    return _row(name, version, lambda world: message(api, **fields), group, effect)


def _of_cases() -> Iterator[Conversation]:
    for case in (*cases_data.CASES, *cases_cluster.CASES):
        if case.name not in _LEFT_OUT:
            # With automatic creation, any version before 4 creates missing topics.
            effect = "topics" if case.name == "Metadata, version 0" else ""
            yield _row(case.name, case.version, case.request, effect=effect)
    for group_case in cases_groups.CASES:
        if group_case.name not in _LEFT_OUT:
            yield _row(group_case.name, group_case.version, group_case.request)


_LEFT_OUT = frozenset(
    (
        # A connection per request, or as many topics as there are:
        "Produce without acknowledgement", "Metadata of all topics, version 0",
        # Their rights are on other resources; rows of their own below:
        "streams heartbeat with a topology", "alter share offsets", "delete share offsets",
        "describe share offsets", "share fetch of topics",
    )
)  # fmt: skip


# --- further requests -------------------------------------------------------------------------------

ANY_ACL: Mapping[str, object] = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_NEW_ACL = {
    "resource_type": _T.TOPIC, "resource_name": "new", "resource_pattern_type": PatternType.LITERAL,
    "principal": NEW_ACLS_OF, "host": "*", "operation": Operation.READ,
    "permission_type": PermissionType.ALLOW,
}  # fmt: skip
_CREDENTIALS = {"mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": b"p" * 32}
_TOKEN_OWNER = {"principal_type": "User", "principal_name": "owner"}
MEMBER = "A" * 22


def _two_topics(**fields: object) -> list[dict[str, object]]:
    return [{"topic_name": name, **fields} for name in ("seen", "other")]


_MORE = (
    _message("ApiVersions", 4, client_software_name="t", client_software_version="1"),
    _message("ListGroups", 5, types_filter=[]),
    _message("DescribeGroups", 6, groups=["group", "absent"], include_authorized_operations=True),
    *(
        _message(api, BY_NAME[api].latest_stable, group, group_ids=[group, "absent"],
            include_authorized_operations=True)
        for api, group in (
            ("ConsumerGroupDescribe", "consumer"), ("ShareGroupDescribe", "share"),
            ("StreamsGroupDescribe", "streams"),
        )
    ),
    _row("ShareFetch of topics", 1, lambda w: message(
        "ShareFetch", group_id="shared", member_id=MEMBER, share_session_epoch=0, max_records=1, max_bytes=1,
        topics=[{"topic_id": id_, "partitions": [{}]} for id_ in (w.seen_id, w.other_id)]), "shared"),
    _message("DescribeShareGroupOffsets", 1, "shared", groups=[
        {"group_id": "shared", "topics": _two_topics(partitions=[0])}]),
    _row("DescribeShareGroupOffsets of all topics", 1, lambda w: message(
        "DescribeShareGroupOffsets", groups=[{"group_id": "shared", "topics": None}]), "shared"),
    _message("AlterShareGroupOffsets", 0, "shared", group_id="shared",
        topics=_two_topics(partitions=[{"partition_index": 0, "start_offset": 1}])),
    _message("DeleteShareGroupOffsets", 0, "shared", group_id="shared", topics=_two_topics()),
    _row("StreamsGroupHeartbeat of an unknown member", 1, lambda w: message(
        "StreamsGroupHeartbeat", group_id="group", member_id=MEMBER, member_epoch=5, topology={
            "epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["seen"],
                "repartition_sink_topics": ["seen"], "repartition_source_topics": [{"name": "seen"}],
                "state_changelog_topics": [{"name": "seen"}]}]},
        active_tasks=[], standby_tasks=[], warmup_tasks=[], rebalance_timeout_ms=1_000, process_id="p")),
    _message("DescribeAcls", 3, **{**ANY_ACL, "principal_filter": NEW_ACLS_OF}),
    _message("CreateAcls", 3, creations=[_NEW_ACL, {**_NEW_ACL, "resource_name": ""}]),
    _message("DeleteAcls", 3, filters=[{**ANY_ACL, "principal_filter": NEW_ACLS_OF}]),
    *(
        _row(f"{api} with an unknown code", 3, lambda w, api=api, fields=fields: message(api, **fields))
        for api, fields in (
            ("DeleteAcls", {"filters": [{**ANY_ACL, "operation": 0}]}),
            ("DescribeAcls", {**ANY_ACL, "permission_type": 0}),
            ("CreateAcls", {"creations": [{**_NEW_ACL, "resource_type": 0}]}),
        )
    ),
    _message("AlterClientQuotas", 1, entries=[{
        "entity": [{"entity_type": "user", "entity_name": NEW_USER}],
        "ops": [{"key": "consumer_byte_rate", "value": 1000.0, "remove": False}]}]),
    _message("DescribeUserScramCredentials", 0, users=[{"name": "absent"}]),
    # Kafka does not answer a denied request whose `users` is null.
    _row("DescribeUserScramCredentials of all users", 0, lambda w: message(
        "DescribeUserScramCredentials", users=[])),
    _message("AlterUserScramCredentials", 0, deletions=[{"name": "absent", "mechanism": 1}],
        upsertions=[{"name": NEW_USER, **_CREDENTIALS}, {"name": "", **_CREDENTIALS}]),
    _message("DescribeClientQuotas", 1, strict=False, components=[
        {"entity_type": "user", "match_type": 0, "match": "absent"}]),
    _message("DescribeDelegationToken", 3, owners=[_TOKEN_OWNER]),
    _row("DescribeDelegationToken of all owners", 3, lambda w: message(
        "DescribeDelegationToken", owners=None)),
    _message("CreateDelegationToken", 3, owner_principal_type="", owner_principal_name="",
        max_lifetime_ms=-1),
    _row("CreateDelegationToken for another owner", 3, lambda w: message(
        "CreateDelegationToken", owner_principal_type="User", owner_principal_name="owner",
        renewers=[], max_lifetime_ms=-1)),
    _message("RenewDelegationToken", 2, hmac=b"unknown", renew_period_ms=-1),
    _message("ExpireDelegationToken", 2, hmac=b"unknown", expiry_time_period_ms=-1),
    _message("GetTelemetrySubscriptions", 0, client_instance_id=cases_data.UNKNOWN_ID),
    _message("PushTelemetry", 0, client_instance_id=cases_data.UNKNOWN_ID, metrics=b""),
    _row("Metadata that creates a topic", 12, lambda w: message(
        "Metadata", topics=[{"name": "seen"}, {"name": "new"}], allow_auto_topic_creation=True),
        effect="topics"),
    _row("DescribeTopicPartitions of existing topics", 0, lambda w: message(
        "DescribeTopicPartitions", topics=[{"name": "seen"}, {"name": "other"}])),
    _message("FindCoordinator", 6, key_type=0, coordinator_keys=["group", "other"]),
    _row("InitProducerId with two-phase commit", 6, lambda w: message(
        "InitProducerId", transactional_id="transaction", transaction_timeout_ms=10_000, enable2_pc=True)),
    _row("AddPartitionsToTxn of a broker", 5, lambda w: message("AddPartitionsToTxn", transactions=[
        {"transactional_id": "transaction", "producer_id": w.producer_id, "producer_epoch": w.producer_epoch,
            "verify_only": False,
            "topics": [{"name": name, "partitions": [0]} for name in ("seen", "new")]}])),
    _row("WriteTxnMarkers of a topic", 2, lambda w: message("WriteTxnMarkers", markers=[
        {"producer_id": 7, "producer_epoch": 0, "topics": [{"name": "new", "partition_indexes": [0]}]}])),
    _row("ListTransactions by pattern", 2, lambda w: message(
        "ListTransactions", transactional_id_pattern="trans.*")),
)  # fmt: skip

CONVERSATIONS = tuple(sorted((*_of_cases(), *_MORE), key=lambda row: row.effect == "topics"))
"""All rows; at the end those that change topics, of which the members' assignments consist."""
WITHOUT_ROWS = frozenset((17, 36))
"""SaslHandshake and SaslAuthenticate: each user's connection begins with them."""
