"""A secured broker in one line of a test, and real clients that connect to it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import TopicAuthorizationFailedError

from konvene.security.acls import Acl, PatternType, PermissionType
from konvene.security.resources import Operation, ResourceType
from konvene.testing import Konvene, VirtualKonvene
from konvene.testing.security import parse_acl

WAIT_S = 60.0


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true. Raises AssertionError after a minute."""
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, "the condition was not met in time"
        time.sleep(0.02)


def values_of(consumer: Consumer, count: int, *, skips_errors: bool = False) -> list[bytes | int]:
    """Return the next values that a consumer receives, and the codes of errors instead of them."""
    values: list[bytes | int] = []

    def complete() -> bool:
        message = consumer.poll(0.1)
        if message is not None and not (skips_errors and message.error()):
            values.append(message.error().code() if message.error() else message.value())
        return len(values) >= count

    eventually(complete)
    return values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "alice READ topic:orders",
            (ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, "ALLOW"),
        ),
        (
            "deny Group:g WRITE topic:or* from 10.0.0.0/8",
            (
                ResourceType.TOPIC, "or", PatternType.PREFIXED, "Group:g", "10.0.0.0/8", Operation.WRITE,
                "DENY",
            ),
        ),
        (
            "allow * ALTER cluster",
            (
                ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:*", "*", Operation.ALTER,
                "ALLOW",
            ),
        ),
        (
            "a WRITE transactional-id:*",
            (
                ResourceType.TRANSACTIONAL_ID, "*", PatternType.LITERAL, "User:a", "*", Operation.WRITE,
                "ALLOW",
            ),
        ),
    ],
)  # fmt: skip
def test_acls_in_one_line(text: str, expected: tuple[Any, ...]) -> None:
    assert parse_acl(text) == (Acl(*expected[:-1], PermissionType[expected[-1]]),)


def test_several_operations() -> None:
    assert [acl.operation for acl in parse_acl("a READ,WRITE topic:t")] == [Operation.READ, Operation.WRITE]


@pytest.mark.parametrize(
    "text", ["", "alice", "alice READ", "alice FLY topic:t", "alice READ thing:t", "a READ topic:"]
)
def test_other_lines_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"write an ACL|unknown|no name"):
        parse_acl(text)


@pytest.mark.parametrize(
    ("security", "mechanism"),
    [
        ("SSL", "PLAIN"),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_SSL", "OAUTHBEARER"),
    ],
)
def test_clients_of_three_libraries_produce(security: str, mechanism: str) -> None:
    users = {"alice": 'a "quoted", secret'}
    with Konvene(security=security, users=users, mechanism=mechanism) as konvene:
        konvene.create_topic("t")
        options = konvene.client_options("alice")
        producer = Producer(options.confluent_kafka)
        producer.produce("t", b"1")
        assert producer.flush(WAIT_S) == 0
        admin = KafkaAdminClient(**options.kafka_python)
        assert "t" in admin.list_topics()
        admin.close()

        async def produce() -> None:
            from aiokafka import AIOKafkaProducer

            async with AIOKafkaProducer(**options.aiokafka) as producer:
                await producer.send_and_wait("t", b"2")

        asyncio.run(produce())
        assert [record.value for record in konvene.records("t")] == [b"1", b"2"]


@pytest.mark.konvene(security="SASL_SSL", users={"alice": "secret"}, topics={"t": 1})
def test_the_marker_secures_the_broker(konvene: Konvene) -> None:
    metadata = AdminClient(konvene.client_options("alice").confluent_kafka).list_topics(timeout=WAIT_S)
    assert "t" in metadata.topics
    with pytest.raises(ValueError, match="user 'bob' is unknown"):
        konvene.client_options("bob")


def test_rights_are_revoked_while_a_consumer_reads() -> None:
    acls = ["alice READ topic:orders", "alice READ group:*"]
    with Konvene(security="SASL_PLAINTEXT", users={"alice": "secret"}, acls=acls) as konvene:
        konvene.create_topic("orders")
        konvene.produce("orders", [b"1"])
        options = konvene.client_options("alice").confluent_kafka
        settings = {
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
        consumer = Consumer(options | settings)
        consumer.subscribe(["orders"])
        values: list[bytes] = []
        errors: list[int] = []

        def poll() -> None:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value())
            elif message is not None:
                errors.append(message.error().code())

        def received() -> bool:
            poll()
            return values == [b"1"]

        def denied() -> bool:
            poll()
            return KafkaError.TOPIC_AUTHORIZATION_FAILED in errors

        eventually(received)
        konvene.revoke("alice READ topic:orders")
        konvene.produce("orders", [b"2"])
        eventually(denied)
        assert values == [b"1"]
        consumer.close()


def test_a_right_is_taken_by_a_fault_and_given_back() -> None:
    """A DENY ACL overrides a right from a prefix; cancelling, also by `clear`, removes it."""
    acls = ["alice READ topic:ord*", "alice READ group:*"]
    with Konvene(security="SASL_PLAINTEXT", users={"alice": "secret"}, acls=acls) as konvene:
        konvene.create_topic("orders")
        konvene.produce("orders", [b"1", b"2"])
        options = konvene.client_options("alice").confluent_kafka | {"group.id": "g"}
        consumer = Consumer(options | {"auto.offset.reset": "earliest", "fetch.error.backoff.ms": 0})
        consumer.assign([TopicPartition("orders", 0, 0)])
        assert values_of(consumer, 2) == [b"1", b"2"]

        (taken,) = konvene.faults.run("take READ on orders from alice")
        assert repr(taken) == "<fault 'take READ on orders from alice': armed, applied 1 times>"
        konvene.produce("orders", [b"3"])
        assert values_of(consumer, 1) == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        taken.cancel()
        assert values_of(consumer, 1, skips_errors=True) == [b"3"]

        konvene.faults.take_right("read", "group:g", "alice")
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit(asynchronous=False)
        konvene.faults.clear()
        consumer.commit(asynchronous=False)
        assert konvene.group("g").offsets == {"orders": {0: 3}}
        consumer.close()


def test_a_taken_right_ends_with_its_broker() -> None:
    """Closing a stopped broker gives nothing back, and raises nothing."""
    konvene = Konvene(security="SASL_PLAINTEXT", users={"alice": "secret"}, acls=["alice READ topic:t"])
    konvene.start()
    konvene.faults.take_right("READ", "topic:t", "alice")
    konvene.stop()
    konvene.close()


def test_rights_are_taken_only_where_there_are_acls(virtual_konvene: VirtualKonvene) -> None:
    with pytest.raises(ValueError, match="no ACLs"):
        virtual_konvene.faults.take_right("READ", "topic:t", "alice")
    with Konvene() as konvene, pytest.raises(ValueError, match="no authorizer"):
        konvene.faults.take_right("READ", "topic:t", "alice")


def test_users_without_rights_are_denied() -> None:
    users = {"alice": "a-secret", "bob": "b-secret"}
    with Konvene(security="SASL_PLAINTEXT", users=users, acls=["alice CREATE cluster"]) as konvene:
        from kafka.admin import NewTopic

        for user, is_allowed in (("alice", True), ("bob", False)):
            admin = KafkaAdminClient(**konvene.client_options(user).kafka_python)
            topic = NewTopic(f"t-{user}", num_partitions=1, replication_factor=1)
            if is_allowed:
                admin.create_topics([topic])
            else:
                with pytest.raises(TopicAuthorizationFailedError):
                    admin.create_topics([topic])
            admin.close()
        konvene.allow("bob DESCRIBE topic:t-alice")
        bob = AdminClient(konvene.client_options("bob").confluent_kafka)
        assert list(bob.list_topics(timeout=WAIT_S).topics) == ["t-alice"]


@pytest.mark.parametrize("certificate", ["expired", "wrong-host"])
def test_a_bad_certificate_is_refused_by_clients(certificate: str) -> None:
    with Konvene(security="SASL_SSL", users={"alice": "secret"}, certificate=certificate) as konvene:
        konvene.create_topic("t")
        failures: list[str] = []
        options = konvene.client_options("alice").confluent_kafka
        client = AdminClient(options | {"error_cb": lambda error: failures.append(error.name())})

        def refused() -> bool:
            client.poll(0.1)
            return "_SSL" in failures

        eventually(refused)
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.5)


def test_credentials_outlive_a_kill() -> None:
    """SCRAM credentials are in the metadata log; a password is not."""
    with Konvene(
        security="SASL_PLAINTEXT",
        users={"alice": "secret"},
        mechanism="SCRAM-SHA-512",
        acls=["alice READ topic:t"],
    ) as konvene:
        konvene.create_topic("t")
        konvene.revoke("alice READ topic:t")
        konvene.allow("alice DESCRIBE topic:t")
        konvene.restart(kill=True)
        client = AdminClient(konvene.client_options("alice").confluent_kafka)
        assert list(client.list_topics(timeout=WAIT_S).topics) == ["t"]


def test_tokens_without_a_signature_are_announced() -> None:
    with Konvene(security="SASL_PLAINTEXT", users={"alice": ""}, mechanism="OAUTHBEARER") as konvene:
        assert "without a signature, which anyone can make" in "\n".join(konvene.log)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_command_uses_the_properties_of_a_user(mechanism: str) -> None:
    with Konvene(security="SASL_SSL", users={"alice": "secret"}, mechanism=mechanism) as konvene:
        konvene.create_topic("orders")
        path = konvene.client_properties("alice")
        arguments = ["--bootstrap-server", konvene.bootstrap, "--command-config", str(path)]
        command = [sys.executable, "-m", "konvene", "topics", "list", *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert "orders" in completed.stdout
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"security": "TLS"}, "use one of SSL"),
        ({"users": {"a": "b"}}, "SASL_SSL"),
        ({"security": "SSL", "certificate": "old"}, "valid, expired, wrong-host"),
        ({"security": "SASL_SSL", "mechanism": "GSSAPI"}, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ({"security": "SSL", "acls": ["a"]}, "write an ACL"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Konvene(**arguments)


def test_secrets_are_in_no_log() -> None:
    with Konvene(security="SASL_SSL", users={"alice": "hush-hush"}) as konvene:
        konvene.create_topic("t")
        options = konvene.client_options("alice")
        Producer(options.confluent_kafka).flush(WAIT_S)
        assert "hush-hush" not in "\n".join(konvene.log)
        assert "hush-hush" not in repr((konvene, options))
