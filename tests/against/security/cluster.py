"""A secured broker with a client listener of SASL_SSL and one of mutual TLS, its users and their rights.

The administrator uses a plaintext listener as User:ANONYMOUS, a super user. A right is written as
`READ topic:orders`: operations, separated by commas, and a resource; a name that ends with * is a prefix.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.security.oauth.tokens import key_set, token

from konvene.testing.certificates import CertificateAuthority
from konvene.testing.client_options import ClientOptions

from ..brokers import HOST, Broker, Kafka, Unavailable, chosen, free_port

T = TypeVar("T")

WITHIN_S = 30
SCRAM = "SCRAM-SHA-512"
ALICE = "alice"
"""The user who may log in by every mechanism."""

MODULES = "org.apache.kafka.common.security"
ISSUER, AUDIENCE = "https://issuer", "kafka"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "CLIENTS": "SASL_SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}
"""Of each listener. The last two have certificates that clients must not accept."""

SETTINGS = {
    "listener.security.protocol.map": ",".join(f"{name}:{PROTOCOLS[name]}" for name in PROTOCOLS),
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a key of this test",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.clients.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_{ALICE}="{ALICE}-secret";'
    ),
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": AUDIENCE,
}
KAFKA_SETTINGS = {
    "listener.security.protocol.map": f"{SETTINGS['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "listener.name.clients.oauthbearer.sasl.jaas.config": (
        f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": (
        f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ),
}
"""What Kafka needs besides, and konvene has no use for."""


@dataclass(frozen=True)
class Login:
    """How a user connects; `of` has the fields of a driver's `start` command."""

    given: ClientOptions
    token_file: Path | None = None
    """File with an access token; None for logins without one."""

    def of(self, library: str) -> dict[str, Any]:
        options = {
            "java": self.given.java,
            "confluent-kafka": self.given.confluent_kafka,
            "kafka-python": self.given.kafka_python,
            "aiokafka": self.given.kafka_python,  # Its driver makes the context of the files.
        }[library]
        if self.token_file is not None:
            options |= self._token_options(library, self.token_file)
        return {"bootstrap": self.given.bootstrap, "options": options}

    @staticmethod
    def _token_options(library: str, file: Path) -> dict[str, str]:
        if library != "java":
            name = "sasl.mechanism" if library == "confluent-kafka" else "sasl_mechanism"
            return {name: "OAUTHBEARER", "token": file.read_text()}
        module = f"{MODULES}.oauthbearer.OAuthBearerLogin"
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{module}Module required;",
            "sasl.login.callback.handler.class": f"{module}CallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
            ALLOWED_URLS: file.as_uri(),
        }


class SecuredCluster:
    """The broker, its certificates, and the administrator."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ports = {name: free_port() for name in PROTOCOLS if name != "PLAINTEXT"}
        self._make_certificates()
        self.key_set = directory / "keys.json"
        self.key_set.write_bytes(key_set())
        self.broker: Broker = chosen()(directory / "broker", self._settings() | (settings or {}))
        at = {"PLAINTEXT": self.broker.port, **self.ports}
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in at.items())
        self.broker.settings["listeners"] = listeners

    def __repr__(self) -> str:
        return f"<secured {self.broker}>"

    def _make_certificates(self) -> None:
        authority = CertificateAuthority()
        self.ca_file = self.directory / "ca.pem"
        self.ca_file.write_text(authority.certificate)
        made = {
            "server": authority.server(),
            "expired": authority.server(is_expired=True),
            "elsewhere": authority.server(("elsewhere.example",)),
            ALICE: authority.client(f"CN={ALICE}"),
        }
        self.certificates = {name: made[name].write(self.directory, name) for name in made}

    def _settings(self) -> dict[str, str]:
        settings = SETTINGS | {
            "ssl.keystore.location": str(self.certificates["server"][2]),
            "listener.name.expired.ssl.keystore.location": str(self.certificates["expired"][2]),
            "listener.name.elsewhere.ssl.keystore.location": str(self.certificates["elsewhere"][2]),
            "ssl.truststore.location": str(self.ca_file),
            "sasl.oauthbearer.jwks.endpoint.url": self.key_set.as_uri(),
            ALLOWED_URLS: self.key_set.as_uri(),
        }
        if chosen() is Kafka:
            settings |= KAFKA_SETTINGS
        return settings

    def start(self) -> None:
        self.broker.start(120)
        self._admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 3})

    # Users

    def scram(self, user: str) -> Login:
        return Login(self._options(user, SCRAM))

    def plain(self) -> Login:
        return Login(self._options(ALICE, "PLAIN"))

    def mutual_tls(self) -> Login:
        certificate, key, both = self.certificates[ALICE]
        options = replace(
            self._options("", ""), bootstrap=f"{HOST}:{self.ports['MUTUAL']}", security_protocol="SSL",
            certificate_file=certificate, key_file=key, keystore_file=both,
        )  # fmt: skip
        return Login(options)

    def one_way_tls(self, listener: str) -> Login:
        """Return a login without a user, at a listener whose certificate is not to be accepted."""
        given = self._options("", "")
        return Login(replace(given, bootstrap=f"{HOST}:{self.ports[listener]}", security_protocol="SSL"))

    def oauth(self) -> Login:
        now_s = int(time.time())
        file = self.directory / "token"
        file.write_text(token({"sub": ALICE, "iat": now_s, "exp": now_s + 3600}))
        return Login(self._options("", ""), file)

    def _options(self, user: str, mechanism: str) -> ClientOptions:
        return ClientOptions(
            bootstrap=f"{HOST}:{self.ports['CLIENTS']}", security_protocol="SASL_SSL", mechanism=mechanism,
            username=user, password=f"{user}-secret", ca_file=self.ca_file,
        )  # fmt: skip

    def add_users(self, *users: str) -> None:
        """Set SCRAM credentials of users; each user's password is its name and `-secret`."""
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = [UserScramCredentialUpsertion(u, scram, f"{u}-secret".encode()) for u in users]
        finish(self._admin.alter_user_scram_credentials(wanted).values())
        until("credentials", lambda: self._has_users(users))

    def _has_users(self, users: tuple[str, ...]) -> bool:
        try:
            finish(self._admin.describe_user_scram_credentials(list(users)).values())
        except KafkaException:
            return False
        return True

    # Rights

    def allow(self, user: str, *rights: str) -> None:
        """Give a user rights, and wait until the broker's authorizer has them."""
        acls = [acl for right in rights for acl in bindings(user, right)]
        finish(self._admin.create_acls(acls).values())
        until("ACLs", lambda: set(map(str, acls)) <= self._rights_of(user))

    def revoke(self, user: str, *rights: str) -> None:
        """Take rights from a user, and wait until the broker's authorizer knows."""
        acls = [acl for right in rights for acl in bindings(user, right)]
        finish(self._admin.delete_acls([filter_of(acl) for acl in acls]).values())
        until("ACLs gone", lambda: not set(map(str, acls)) & self._rights_of(user))

    def _rights_of(self, user: str) -> set[str]:
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        return set(map(str, self._admin.describe_acls(every).result(WITHIN_S)))

    # Topics, groups and records

    def create_topics(self, *names: str, partitions: int = 1) -> None:
        finish(self._admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values())

    def set_group(self, group: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
        finish(self._admin.incremental_alter_configs([resource]).values())

    def produce(self, topic: str, values: Iterable[str]) -> None:
        """Write values as the administrator."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 3})
        for value in values:
            producer.produce(topic, value.encode())
        assert producer.flush(WITHIN_S) == 0

    def end_of(self, topic: str) -> int:
        """Return the end offset of a topic's first partition."""
        at = TopicPartition(topic, 0)
        return int(self._admin.list_offsets({at: OffsetSpec.latest()})[at].result(WITHIN_S).offset)

    def read(self, topic: str, enough: Callable[[list[str]], bool], partitions: int = 1) -> list[str]:
        """Read a topic as the administrator from its start until `enough` of its values have come."""
        settings = {
            "bootstrap.servers": self.broker.bootstrap, "group.id": "reader", "enable.auto.commit": False,
            "isolation.level": "read_committed", "log_level": 3,
        }  # fmt: skip
        reader = Consumer(settings)
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        values: list[str] = []
        deadline = time.monotonic() + WITHIN_S
        try:
            while not enough(values):
                assert time.monotonic() < deadline, f"{topic} has {values[-20:]}"
                message = reader.poll(0.2)
                if message is not None and message.error() is None:
                    values.append((message.value() or b"").decode())
        finally:
            reader.close()
        return values


def bindings(user: str, right: str) -> list[AclBinding]:
    operations, resource = right.split()
    kind, _, name = resource.partition(":")
    pattern = ResourcePatternType.LITERAL
    if len(name) > 1 and name.endswith("*"):
        name, pattern = name[:-1], ResourcePatternType.PREFIXED
    resource_type = ResourceType.BROKER if kind == "cluster" else ResourceType[kind.upper().replace("-", "_")]
    return [
        AclBinding(
            resource_type, name or "kafka-cluster", pattern, f"User:{user}", "*", AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for operation in operations.split(",")
    ]  # fmt: skip


def filter_of(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation,
        acl.permission_type,
    )  # fmt: skip


def finish(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.result(WITHIN_S)


def until(what: str, happened: Callable[[], T | None], within_s: float = WITHIN_S) -> T:
    deadline = time.monotonic() + within_s
    while not (found := happened()):
        assert time.monotonic() < deadline, f"no {what} within {within_s} s"
        time.sleep(0.02)
    return found


@contextmanager
def secured_cluster(directory: Path, settings: dict[str, str] | None = None) -> Iterator[SecuredCluster]:
    """Start a secured broker, yield it, and kill it."""
    try:
        cluster = SecuredCluster(directory, settings)
    except Unavailable as missing:
        pytest.skip(f"the broker to test against is missing: {missing}")
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.broker.kill9()
