"""Client quotas through the admin client and a broker that is restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.client.admin.admin import ANY_NAME, Admin, ClientQuotas
from konvene.client.errors import KafkaError
from konvene.client.net.cluster import Cluster


def _cluster(broker: Broker) -> Cluster:
    return Cluster(f"127.0.0.1:{broker.catalogue.advertised[1]}")


def test_quotas_are_altered_described_and_kept(tmp_path: Path) -> None:
    """The broker that loads the log has the same quotas; an invalid one is rejected with Kafka's message."""

    async def scenario() -> None:
        async with running(tmp_path) as broker, _cluster(broker) as cluster:
            admin = Admin(cluster)
            assert await admin.describe_client_quotas() == []
            await admin.alter_client_quotas(
                {"user": "alice", "client-id": None}, {"producer_byte_rate": 1024, "request_percentage": 50}
            )
            await admin.alter_client_quotas({"ip": "127.0.0.1"}, {"connection_creation_rate": 100})
            await admin.alter_client_quotas({"user": None}, {"consumer_byte_rate": 1}, validate_only=True)
            with pytest.raises(KafkaError, match="Invalid configuration key bad") as rejected:
                await admin.alter_client_quotas({"user": "bob"}, {"bad": 1})
            assert rejected.value.name == "INVALID_REQUEST"
            with pytest.raises(KafkaError, match="a host is not a valid IP or resolvable host"):
                await admin.alter_client_quotas({"ip": "a host"}, {"connection_creation_rate": 1})
        async with running(tmp_path) as broker, _cluster(broker) as cluster:
            admin = Admin(cluster)
            alice = ClientQuotas(
                {"client-id": None, "user": "alice"}, {"producer_byte_rate": 1024, "request_percentage": 50}
            )
            local = ClientQuotas({"ip": "127.0.0.1"}, {"connection_creation_rate": 100})
            assert await admin.describe_client_quotas() == [local, alice]
            assert await admin.describe_client_quotas({"user": ANY_NAME}) == [alice]
            assert await admin.describe_client_quotas({"user": "alice"}, strict=True) == []
            assert await admin.describe_client_quotas({"client-id": None}) == [alice]
            await admin.alter_client_quotas({"ip": "127.0.0.1"}, {"connection_creation_rate": None})
            assert await admin.describe_client_quotas() == [alice]

    asyncio.run(scenario())
