"""Authorization of topic, record, config and cluster APIs: errors per item, effects, authorized operations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.authorization_cases.cases import Case, Grant, permits, play
from tests.authorization_cases.cases_data import CASES
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.codec.schema import Struct
from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import CLUSTER, Operation, Resource, ResourceType


class FakeAuthorizer:
    """An authorizer that permits a set of rights on resources whose names have a prefix; it logs denials."""

    def __init__(self, rights: Iterable[Grant], prefix: str = "") -> None:
        self.rights = [
            r
            if r.resource == CLUSTER
            else Grant(r.operation, Resource(r.resource.type, prefix + r.resource.name))
            for r in rights
        ]
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
        self, principal: KafkaPrincipal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return any(r.operation == operation and r.resource.type == resource_type for r in self.rights)


class LocalStage:
    """A broker of this process, whose authorizer is replaced."""

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
