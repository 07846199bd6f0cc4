"""GSSAPI with a KDC: Java's client, kafka-python, aiokafka and konvene's own client.

confluent-kafka is missing: its wheels are built without GSSAPI. Without a KDC or the library `gssapi`, which
no other test needs, all tests are skipped.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from tests.broker.net.secured import Secured
from tests.security.kerberos.kdc import BROKER, HOST, MODULE, REALM, Realm, missing, running_realm

from konvene.client.errors import AuthenticationFailed
from konvene.configs import ConfigError
from konvene.messages.metadata import MetadataRequest
from konvene.security.principal import KafkaPrincipal

from .tools import Tools, tools, why_no_tools

LACKS = missing()
pytestmark = pytest.mark.skipif(LACKS is not None, reason=str(LACKS))
LIMIT_S = 120


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await work

    asyncio.run(limited())


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with running_realm(tmp_path_factory.mktemp("kdc")) as realm:
        yield realm


class OnLocalhost(Secured):
    """A broker whose clients connect to a name, as tickets are for names."""

    def address(self, listener: str) -> str:
        return super().address(listener).replace("127.0.0.1", HOST)


def settings(secured: Secured, realm: Realm, principal: str = BROKER, **changed: str) -> dict[str, str]:
    """Return the settings of a broker whose listeners with SASL take GSSAPI."""
    kerberos = {
        f"listener.name.{name}.gssapi.sasl.jaas.config": realm.jaas(principal) for name in ("secure", "sasl")
    }
    common = {"sasl.enabled.mechanisms": "GSSAPI", "sasl.kerberos.service.name": "kafka"}
    common["listeners"] = secured.settings()["listeners"].replace("127.0.0.1", HOST)
    return secured.settings(**changed) | common | kerberos


async def metadata(secured: Secured, listener: str, properties: dict[str, str]) -> KafkaPrincipal:
    """Send a request, and return the principal of its connection."""
    async with secured.client(listener, properties) as client:
        connection = await client.any_node()
        await connection.send(MetadataRequest(topics=()))
        (served,) = secured.broker.network.connections
        return served.session.principal


def test_a_ticket_authenticates(realm: Realm, tmp_path: Path) -> None:
    """With a key table and with the ticket cache of kinit, over TLS and without."""
    keytab = realm.keytab(f"bob@{REALM}")
    tickets = tmp_path / "tickets"
    subprocess.run(["kinit", "-k", "-t", keytab, "-c", tickets, f"bob@{REALM}"], check=True)
    cached = f'{MODULE} required useTicketCache=true ticketCache="{tickets}";'

    async def scenario() -> None:
        secured = OnLocalhost(tmp_path)
        alice, bob = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
        async with secured.running(settings(secured, realm)):
            assert await metadata(secured, "SASL", realm.client("alice")) == alice
            assert await metadata(secured, "SECURE", realm.client("alice", "SASL_SSL")) == alice
            of_cache = realm.client("bob") | {"sasl.jaas.config": cached}
            assert await metadata(secured, "SASL", of_cache) == bob

    run(scenario())


def test_a_session_is_renewed(realm: Realm, tmp_path: Path) -> None:
    """With a new ticket, while requests wait."""

    async def scenario() -> None:
        secured = OnLocalhost(tmp_path)
        async with secured.running(settings(secured, realm, connections_max_reauth_ms="600000")):
            client = secured.client("SASL", realm.client("alice"))
            async with client:
                connection = await client.any_node()
                (served,) = secured.broker.network.connections
                first = served.session
                connection._begin_reauthentication(client.settings.security)
                await connection.send(MetadataRequest(topics=()))
                assert served.session is not first
                assert served.session.principal == first.principal
                assert list(secured.broker.network.connections) == [served]

    run(scenario())


def test_rules_name_the_principal(realm: Realm, tmp_path: Path) -> None:
    rules = rf"RULE:[1:$1@$0](bob@.*)s/@.*//U,RULE:[1:$1@$0](.*@{REALM})s/@.*/-kdc/"

    async def scenario() -> None:
        secured = OnLocalhost(tmp_path)
        with_rules = settings(secured, realm, sasl_kerberos_principal_to_local_rules=rules)
        async with secured.running(with_rules):
            assert (await metadata(secured, "SASL", realm.client("bob"))).name == "BOB"
            assert (await metadata(secured, "SASL", realm.client("alice"))).name == "alice-kdc"

    run(scenario())


def test_rejected_clients(realm: Realm, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker's message is general, as in Kafka; its log has the reason. The client names its own."""
    general = "due to invalid credentials with SASL mechanism GSSAPI"
    caplog.set_level(logging.INFO, "konvene.connection")

    async def scenario() -> None:
        secured = OnLocalhost(tmp_path)
        no_rule = settings(secured, realm, sasl_kerberos_principal_to_local_rules="RULE:[2:$1]")
        async with secured.running(no_rule):
            with pytest.raises(AuthenticationFailed, match=general):
                await metadata(secured, "SASL", realm.client("alice"))
        realm.keytab(BROKER)
        async with secured.running(settings(secured, realm, f"other/{HOST}@{REALM}")):
            with pytest.raises(AuthenticationFailed, match=general):
                await metadata(secured, "SASL", realm.client("alice"))
            unknown = realm.client("alice") | {"sasl.kerberos.service.name": "nobody"}
            with pytest.raises(AuthenticationFailed, match=f"nobody/{HOST}.* not found"):
                await metadata(secured, "SASL", unknown)
            no_tickets = f"{MODULE} required useTicketCache=true;"
            with pytest.raises(AuthenticationFailed, match="cannot get a Kerberos ticket"):
                await metadata(secured, "SASL", realm.client("alice") | {"sasl.jaas.config": no_tickets})

    run(scenario())
    assert caplog.text.count(general) == 2


def test_a_broker_needs_its_key(realm: Realm, tmp_path: Path) -> None:
    jaas = realm.jaas(f"stranger@{REALM}", realm.keytab(BROKER))

    async def scenario() -> None:
        secured = OnLocalhost(tmp_path)
        wrong = settings(secured, realm) | {"listener.name.sasl.gssapi.sasl.jaas.config": jaas}
        with pytest.raises(ConfigError, match="no key of stranger"):
            async with secured.running(wrong):
                pass

    run(scenario())


def kafka_python_round(address: str) -> list[bytes]:
    """Produce a record with kafka-python, and return all records of the topic."""
    options = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    producer = KafkaProducer(**options)
    producer.send("orders", b"kafka-python").get(LIMIT_S)
    producer.close()
    consumer = KafkaConsumer("orders", group_id="g", auto_offset_reset="earliest", **options)
    try:
        return [next(consumer).value]
    finally:
        consumer.close()


async def aiokafka_round(address: str) -> list[bytes]:
    """Produce a record with aiokafka, and return all records of the topic."""
    options = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait("orders", b"aiokafka")
    consumer = AIOKafkaConsumer("orders", group_id="g", auto_offset_reset="earliest", **options)
    async with consumer:
        return [(await consumer.getone()).value]


@pytest.mark.parametrize("library", ["kafka-python", "aiokafka"])
def test_libraries_of_python(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """They produce and consume with the tickets of kinit."""
    tickets = tmp_path / "tickets"
    keytab = realm.keytab(f"alice@{REALM}")
    subprocess.run(["kinit", "-k", "-t", keytab, "-c", tickets, f"alice@{REALM}"], check=True)
    monkeypatch.setenv("KRB5CCNAME", str(tickets))

    async def scenario() -> None:
        secured = OnLocalhost(tmp_path)
        async with secured.running(settings(secured, realm)):
            address = secured.address("SASL")
            if library == "aiokafka":
                assert await aiokafka_round(address) == [b"aiokafka"]
            else:
                assert await asyncio.to_thread(kafka_python_round, address) == [b"kafka-python"]

    run(scenario())


@pytest.fixture(scope="module")
def jvm(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    lacks = why_no_tools()
    if lacks:
        pytest.skip(f"Kafka's tools are missing: {lacks}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.config}")
        with tools(tmp_path_factory.mktemp("tools") / "tools.log") as jvm:
            yield jvm


@pytest.mark.java
def test_the_client_of_java(realm: Realm, tmp_path: Path, jvm: Tools) -> None:
    """Its login module takes the same settings; it sends an authorization id, which is its own name."""
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in realm.client("alice").items()))

    def scenario_of_java(address: str) -> None:
        broker: Any = SimpleNamespace(bootstrap=address, directory=tmp_path)
        jvm.run(broker, f"kafka-console-producer --topic orders --command-config {config}", "one\ntwo\n")
        consumed = jvm.run(
            broker,
            "kafka-console-consumer --topic orders --group g --from-beginning --max-messages 2"
            f" --timeout-ms {LIMIT_S * 1000} --command-config {config}",
        )
        assert consumed.out == "one\ntwo\n", consumed
        groups = jvm.run(broker, f"kafka-consumer-groups --list --command-config {config}")
        assert groups.out == "g\n", groups

    async def scenario() -> None:
        secured = OnLocalhost(tmp_path)
        async with secured.running(settings(secured, realm)):
            await asyncio.to_thread(scenario_of_java, secured.address("SASL"))

    run(scenario())
