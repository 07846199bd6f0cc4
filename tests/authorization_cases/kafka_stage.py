"""Apache Kafka with its `StandardAuthorizer` as a stage: rights are ACLs of the user `alice`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.against.brokers import Kafka
from tests.authorization_cases.cases import Grant
from tests.broker.hostile.wire import WITHIN_S, Client

from konvene.codec.schema import Struct
from konvene.messages.create_acls import AclCreation, CreateAclsRequest
from konvene.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from konvene.messages.describe_acls import DescribeAclsRequest
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest
from konvene.messages.sasl_handshake import SaslHandshakeRequest
from konvene.security.resources import CLUSTER_NAME, Operation, Resource, ResourceType

ALICE, ADMIN = "alice", "admin"
"""Users, each with its name as the password. The administrator is a super user."""

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{ADMIN}" password="{ADMIN}" user_{ADMIN}="{ADMIN}" user_{ALICE}="{ALICE}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "log.initial.task.delay.ms": "3600000",  # The records of the cases are old: retention would delete them.
}
ANY, LITERAL, ALLOW = 1, 3, 3
EVERYTHING = (
    Grant(Operation.ALL, Resource(ResourceType.TOPIC, "*")),
    Grant(Operation.ALL, Resource(ResourceType.GROUP, "*")),
    Grant(Operation.ALL, Resource(ResourceType.TRANSACTIONAL_ID, "*")),
    Grant(Operation.ALL, Resource(ResourceType.CLUSTER, CLUSTER_NAME)),
)


class KafkaStage:
    """Sends requests as alice, and privileged ones as the administrator."""

    settles_s = 10.0
    """Time within which effects become visible: brokers follow the metadata log asynchronously."""

    def __init__(self, broker: Kafka) -> None:
        self.broker = broker
        self._admin = self._connect(ADMIN)
        self._alice: Client | None = None

    def _connect(self, user: str) -> Client:
        client = Client(self.broker.port)
        assert not client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
        credentials = f"\0{user}\0{user}".encode()
        assert not client.ask(SaslAuthenticateRequest(auth_bytes=credentials), 2).error_code
        return client

    def close(self) -> None:
        for client in (self._admin, self._alice):
            if client is not None:
                client.socket.close()

    async def send(self, request: Struct, version: int | None = None) -> Any:
        if self._alice is None:
            self._alice = self._connect(ALICE)
        response = self._alice.ask(request, version)
        if response is None:
            self._alice.socket.close()
            self._alice = None
        return response

    async def send_privileged(self, request: Struct, version: int | None = None) -> Any:
        return self._admin.ask(request, version)

    async def allow(self, rights: Iterable[Grant] | None, prefix: str) -> None:
        every = DeleteAclsFilter(
            resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
            principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
        )  # fmt: skip
        self._admin.ask(DeleteAclsRequest(filters=(every,)))
        wanted = EVERYTHING if rights is None else tuple(right.prefixed(prefix) for right in rights)
        created = self._admin.ask(
            CreateAclsRequest(
                creations=tuple(
                    AclCreation(
                        resource_type=right.resource.type,
                        resource_name=right.resource.name,
                        resource_pattern_type=LITERAL,
                        principal=f"User:{ALICE}",
                        host="*",
                        operation=right.operation,
                        permission_type=ALLOW,
                    )
                    for right in wanted
                )
            )
        )
        assert not any(result.error_code for result in created.results), created
        deadline = asyncio.get_running_loop().time() + WITHIN_S
        while self._visible() != {(*right.resource, right.operation) for right in wanted}:
            assert asyncio.get_running_loop().time() < deadline, "the ACLs did not become visible in time"
            await asyncio.sleep(0.005)

    def _visible(self) -> set[tuple[int, str, int]]:
        """Return resource type, name and operation of each ACL that the broker's authorizer has."""
        found = self._admin.ask(
            DescribeAclsRequest(
                resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
                principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
            )
        )  # fmt: skip
        return {
            (resource.resource_type, resource.resource_name, acl.operation)
            for resource in found.resources
            for acl in resource.acls
        }


@contextmanager
def kafka_stage(directory: Path) -> Iterator[KafkaStage]:
    """Start Apache Kafka with an authorizer, yield it as a stage, and stop it."""
    broker = Kafka(directory, SETTINGS)
    broker.start(60)
    try:
        stage = KafkaStage(broker)
        yield stage
        stage.close()
    finally:
        broker.kill9()
