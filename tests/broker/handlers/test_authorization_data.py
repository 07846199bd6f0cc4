"""Authorization of topic, record, config and cluster APIs: errors, effects and authorized operations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.authorization_cases.cases import Case, Grant, World, grant, permits, play, produce_to, set_up
from tests.authorization_cases.cases_cluster import CASES as CLUSTER_CASES
from tests.authorization_cases.cases_data import CASES as DATA_CASES
from tests.authorization_cases.cases_data import TRANSACTIONAL
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.net.raw_connections import until

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.describe_acls import DescribeAclsRequest
from konvene.messages.describe_client_quotas import DescribeClientQuotasRequest
from konvene.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import Operation, Resource, ResourceType

CASES = (*DATA_CASES, *CLUSTER_CASES)


class FakeAuthorizer:
    """An authorizer that permits a set of rights on resources whose names have a prefix; it logs denials."""

    def __init__(self, rights: Iterable[Grant], prefix: str = "") -> None:
        self.rights = [right.prefixed(prefix) for right in rights]
        self.denials: list[str] = []

    def authorize(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource: Resource,
        *,
        api_key: int = -1,
        logs_denied: bool = True,
    ) -> bool:
        is_permitted = permits(self.rights, operation, resource)
        if not is_permitted and logs_denied:
            self.denials.append(str(Grant(operation, resource)))
        return is_permitted

    def authorize_by_resource_type(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        api_key: int = -1,
    ) -> bool:
        return any(r.operation == operation and r.resource.type == resource_type for r in self.rights)


class LocalStage:
    """A broker of this process, whose authorizer is replaced."""

    settles_s = 0.0

    def __init__(self, client: BrokerClient) -> None:
        self.client = client
        self.authorization = client.broker.services.authorization
        self.authorizer: FakeAuthorizer | None = None

    async def send(self, request: Struct, version: int | None = None) -> Any:
        self.authorization.replace(self.authorizer)
        try:
            return await self.client.send(request, version)
        finally:
            self.authorization.replace(None)

    async def send_privileged(self, request: Struct, version: int | None = None) -> Any:
        return await self.client.send(request, version)

    async def allow(self, rights: Iterable[Grant] | None, prefix: str) -> None:
        self.authorizer = None if rights is None else FakeAuthorizer(rights, prefix)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_response_and_effect_for_each_right(case: Case, tmp_path: Path) -> None:
    """No right, each single right, and all rights."""

    async def scenario(client: BrokerClient) -> None:
        outcomes = await play(LocalStage(client), case, "t")
        different = [(rights, want, got) for rights, want, got in outcomes if want != got]
        assert different == []

    run_with_broker(tmp_path, scenario)


def rights(*texts: str) -> FakeAuthorizer:
    return FakeAuthorizer(map(grant, texts))


async def with_topics(client: BrokerClient, *names: str) -> dict[str, Uuid]:
    """Create topics with one record each; return their ids."""
    ids = {}
    for name in names:
        ids[name] = await client.topic(name)
        client.write(name, b"v")
    return ids


def wanted(*ids: Uuid, offset: int = 0) -> tuple[FetchTopic, ...]:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return tuple(FetchTopic(topic_id=id_, partitions=(partition,)) for id_ in ids)


def errors(response: Any) -> dict[Uuid, tuple[str, bool]]:
    """Return for each topic of a Fetch response its error and whether it has records."""
    return {
        topic.topic_id: (Errors(p.error_code).name, bool(p.records))
        for topic in response.responses
        for p in topic.partitions
    }


DENIED, READ = ("TOPIC_AUTHORIZATION_FAILED", False), ("NONE", True)


def test_fetch_session_checks_all_its_topics_at_each_fetch(tmp_path: Path) -> None:
    """A revoked right shows at the next fetch, and so does a granted one; a forgotten topic shows no more."""

    async def scenario(client: BrokerClient) -> None:
        stage = LocalStage(client)
        ids = await with_topics(client, "a", "b")
        a, b = ids["a"], ids["b"]

        async def fetch(
            epoch: int, *topics: FetchTopic, session: int = 0, forget: tuple[Uuid, ...] = ()
        ) -> Any:
            forgotten = tuple(ForgottenTopic(topic_id=id_, partitions=(0,)) for id_ in forget)
            return await stage.send(
                FetchRequest(
                    session_id=session, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten
                ),
                17,
            )

        stage.authorizer = rights("READ TOPIC a", "READ TOPIC b")
        first = await fetch(0, *wanted(a, b))
        session = first.session_id
        assert (session != 0, errors(first)) == (True, {a: READ, b: READ})
        stage.authorizer = rights("READ TOPIC b")
        assert errors(await fetch(1, session=session)) == {a: DENIED, b: READ}
        stage.authorizer = rights("READ TOPIC a")
        assert errors(await fetch(2, session=session)) == {a: READ, b: DENIED}
        assert errors(await fetch(3, session=session, forget=(b,))) == {a: READ}
        assert errors(await fetch(4, *wanted(b), session=session)) == {a: READ, b: DENIED}
        stage.authorizer = rights()
        assert errors(await fetch(5, session=session)) == {a: DENIED, b: DENIED}

    run_with_broker(tmp_path, scenario)


def test_waiting_fetch_sends_no_records_after_a_right_is_revoked(tmp_path: Path) -> None:
    """A fetch that waits is checked again before it reads, if ACLs have changed."""

    async def scenario(client: BrokerClient) -> None:
        ids = await with_topics(client, "a", "b")
        authorization = client.broker.services.authorization
        authorization.replace(rights("READ TOPIC a", "READ TOPIC b"))
        request = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=wanted(*ids.values(), offset=1))
        fetch = asyncio.create_task(client.send(request, 17))
        partition = client.broker.partitions.get("a", 0)
        assert partition is not None
        await until(lambda: partition.waiting, 30)
        authorization.replace(rights("READ TOPIC b"))
        client.write("a", b"secret")
        assert errors(await fetch) == {ids["a"]: DENIED, ids["b"]: ("NONE", False)}

    run_with_broker(tmp_path, scenario)


def test_denied_topics_do_not_complete_a_fetch(tmp_path: Path) -> None:
    """The other topics are waited for. A fetch of denied topics only is answered at once."""

    async def scenario(client: BrokerClient) -> None:
        ids = await with_topics(client, "a", "b")
        client.broker.services.authorization.replace(rights("READ TOPIC a"))
        request = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=wanted(*ids.values(), offset=1))
        fetch = asyncio.create_task(client.send(request, 17))
        partition = client.broker.partitions.get("a", 0)
        assert partition is not None
        await until(lambda: partition.waiting, 30)
        client.write("a", b"v")
        assert errors(await fetch) == {ids["a"]: READ, ids["b"]: DENIED}
        alone = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=wanted(ids["b"]))
        assert errors(await client.send(alone, 17)) == {ids["b"]: DENIED}

    run_with_broker(tmp_path, scenario)


@pytest.mark.parametrize("right", ["READ TOPIC a", "CLUSTER_ACTION CLUSTER"])
def test_fetch_of_a_replica_needs_cluster_action(right: str, tmp_path: Path) -> None:
    """READ on the topic does not help; the unknown topic is denied too."""

    async def scenario(client: BrokerClient) -> None:
        ids = await with_topics(client, "a")
        unknown = Uuid(b"u" * 16)
        client.broker.services.authorization.replace(rights(right))
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=7), topics=wanted(ids["a"], unknown), max_wait_ms=0
        )
        expected = (
            {ids["a"]: DENIED, unknown: DENIED}
            if right.startswith("READ")
            else {ids["a"]: ("NOT_LEADER_OR_FOLLOWER", False), unknown: ("UNKNOWN_TOPIC_ID", False)}
        )
        assert errors(await client.send(request, 17)) == expected

    run_with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("granted", "outcome"),
    [
        ((), {"new": "TOPIC_AUTHORIZATION_FAILED", "more": "TOPIC_AUTHORIZATION_FAILED"}),
        (("CREATE TOPIC new",), {"new": "TOPIC_AUTHORIZATION_FAILED", "more": "TOPIC_AUTHORIZATION_FAILED"}),
        (
            ("DESCRIBE TOPIC new", "DESCRIBE TOPIC more"),
            {"new": "TOPIC_AUTHORIZATION_FAILED", "more": "TOPIC_AUTHORIZATION_FAILED"},
        ),
        (
            ("DESCRIBE TOPIC new", "DESCRIBE TOPIC more", "CREATE TOPIC new"),
            {"new": "NONE", "more": "TOPIC_AUTHORIZATION_FAILED"},
        ),
        (
            ("DESCRIBE TOPIC new", "CREATE CLUSTER"),
            {"new": "NONE", "more": "TOPIC_AUTHORIZATION_FAILED"},
        ),
    ],
)
def test_metadata_creates_permitted_topics_only(
    granted: tuple[str, ...], outcome: dict[str, str], tmp_path: Path
) -> None:
    """Missing topics need DESCRIBE, and CREATE on the cluster or on the topic."""

    async def scenario(client: BrokerClient) -> None:
        client.broker.services.authorization.replace(rights(*granted))
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in ("new", "more")),
            allow_auto_topic_creation=True,
        )
        response = await client.send(request, 12)
        assert {t.name: Errors(t.error_code).name for t in response.topics} == outcome
        existing = set(client.broker.catalogue.topics.by_name)
        assert existing == {name for name, error in outcome.items() if error == "NONE"}

    run_with_broker(tmp_path, scenario)


def test_transactional_records_need_both_rights(tmp_path: Path) -> None:
    """WRITE on the transactional id and on the topic: then the transaction itself is verified."""

    async def scenario(client: BrokerClient) -> None:
        await with_topics(client, "seen")
        world = World("")
        request = produce_to(world, "seen", attributes=TRANSACTIONAL, transactional_id="transaction")
        client.broker.services.authorization.replace(
            rights("WRITE TRANSACTIONAL_ID transaction", "WRITE TOPIC seen")
        )
        (topic,) = (await client.send(request, 11)).responses
        error = topic.partition_responses[0].error_code
        assert error not in (
            Errors.TOPIC_AUTHORIZATION_FAILED, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )  # fmt: skip

    run_with_broker(tmp_path, scenario)


def test_denials_are_logged_once_per_resource(tmp_path: Path) -> None:
    """Checks whose denial only narrows the answer are not logged as denials."""

    async def scenario(client: BrokerClient) -> None:
        stage = LocalStage(client)
        world = await set_up(stage, "")
        expected = {
            "Produce": ["WRITE TOPIC new", "WRITE TOPIC other", "WRITE TOPIC seen"],
            "Metadata of all topics": [],
            "CreateTopics": ["CREATE TOPIC new", "CREATE TOPIC seen"],
            "OffsetForLeaderEpoch": ["DESCRIBE TOPIC new", "DESCRIBE TOPIC other", "DESCRIBE TOPIC seen"],
            "DescribeCluster": ["DESCRIBE CLUSTER"],
            "ElectLeaders": ["ALTER CLUSTER"],
        }
        for case in CASES:
            if case.name in expected:
                stage.authorizer = rights()
                await stage.send(case.request(world), case.version)
                assert sorted(stage.authorizer.denials) == expected[case.name], case.name

    run_with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("name", "right", "order"),
    [
        ("ListOffsets", "DESCRIBE TOPIC seen", ["seen", "new", "other"]),
        ("OffsetForLeaderEpoch", "DESCRIBE TOPIC seen", ["seen", "new", "other"]),
        ("DeleteRecords", "DELETE TOPIC seen", ["new", "other", "seen"]),
        ("Metadata", "DESCRIBE TOPIC seen", ["seen", "new", "other"]),
        ("DescribeTopicPartitions", "DESCRIBE TOPIC seen", ["seen", "new", "other"]),
        ("CreateTopics", "CREATE TOPIC seen", ["seen", "__cluster_metadata", "new"]),
        ("DeleteTopics by name", "DELETE TOPIC other", ["other", "new", "seen"]),
        ("CreatePartitions", "ALTER TOPIC new", ["other", "seen", "new"]),
        ("DescribeConfigs", "DESCRIBE_CONFIGS TOPIC other", ["other", "seen", "new", "group", "1"]),
        ("IncrementalAlterConfigs", "ALTER_CONFIGS TOPIC other", ["seen", "other", "new", "group", ""]),
    ],
)
def test_order_of_results(name: str, right: str, order: list[str], tmp_path: Path) -> None:
    """Denied items come last or first, as in Kafka, where its order is defined; else where they were."""

    async def scenario(client: BrokerClient) -> None:
        stage = LocalStage(client)
        world = await set_up(stage, "")
        (case,) = (case for case in CASES if case.name == name)
        stage.authorizer = rights(right)
        response = await stage.send(case.request(world), case.version)
        (items,) = (
            value
            for field in response.__fields__
            if field.name in ("topics", "responses", "results")
            and (value := getattr(response, field.name)) != ()
        )
        keys = ("name", "topic", "resource_name")
        assert [next(getattr(item, key) for key in keys if hasattr(item, key)) for item in items] == order

    run_with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    "request_",
    [
        DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1),
        DescribeClientQuotasRequest(),
        DescribeUserScramCredentialsRequest(),
    ],
)
def test_a_denied_description_has_no_message_of_its_own(request_: Struct, tmp_path: Path) -> None:
    """The message is null: tools then print that of the error code, and for an empty one nothing."""

    async def scenario(client: BrokerClient) -> None:
        stage = LocalStage(client)
        stage.authorizer = rights()
        response = await stage.send(request_)
        assert (response.error_code, response.error_message) == (Errors.CLUSTER_AUTHORIZATION_FAILED, None)

    run_with_broker(tmp_path, scenario)
