"""A broker with secured listeners in the test's process, and the certificates of its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from konvene.broker.app import open_directory
from konvene.broker.broker import Broker
from konvene.broker.net.socket_server import SocketServer
from konvene.client import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.security import client_security
from konvene.configs import BrokerConfig
from konvene.configs.listeners import broker_listeners
from konvene.testing.certificates import CertificateAuthority

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LISTENERS = "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0,SECURE://127.0.0.1:0,SASL://127.0.0.1:0"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,TLS:SSL,SECURE:SASL_SSL,SASL:SASL_PLAINTEXT"
USERS = 'user_alice="alice-secret" user_bob="bob-secret"'


class Secured:
    """A running broker with a listener of each protocol; clients trust its certificate authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority()
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_text(self.authority.certificate)
        self.keystore = self.authority.server().write(folder, "server")[2]
        self.broker: Broker
        self.server: SocketServer

    def settings(self, **changed: str) -> dict[str, str]:
        """Return the broker's settings; keyword arguments have underscores for dots."""
        defaults = {
            "listeners": LISTENERS,
            "listener.security.protocol.map": PROTOCOLS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
            "ssl.client.auth": "requested",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "connection.failed.authentication.delay.ms": "0",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
        }
        for listener in ("secure", "sasl"):
            name = f"listener.name.{listener}.plain.sasl.jaas.config"
            defaults[name] = f"{PLAIN_MODULE} required {USERS};"
        return defaults | {name.replace("_", "."): value for name, value in changed.items()}

    @asynccontextmanager
    async def running(self, settings: Mapping[str, str] | None = None) -> AsyncIterator[Broker]:
        """Start a broker with these settings on the data directory of the last one."""
        config, _ = BrokerConfig.load(overrides=list((settings or self.settings()).items()))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        directory = open_directory(data, config["node.id"])
        self.broker = Broker(config, directory, asyncio.get_running_loop())
        self.server = self.broker.socket_server()
        await self.broker.start()
        try:
            await self.server.listen_on(broker_listeners(config))
            yield self.broker
        finally:
            await self.server.close()
            await self.broker.stop()

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.server.listeners[listener].port}"

    def client(self, listener: str, properties: Mapping[str, str]) -> Cluster:
        """Return a client of a listener with these properties, which trusts the certificate authority."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
        security = client_security(trust | dict(properties))
        settings = ClientSettings(security=security, default_api_timeout_ms=30_000)
        return Cluster(self.address(listener), settings)


def plain(user: str = "alice", password: str | None = None, protocol: str = "SASL_SSL") -> dict[str, str]:
    """Return client properties for PLAIN."""
    secret = f"{user}-secret" if password is None else password
    return login("PLAIN", PLAIN_MODULE, user, secret, protocol)


def scram(
    user: str, password: str, mechanism: str = "SCRAM-SHA-256", protocol: str = "SASL_SSL"
) -> dict[str, str]:
    """Return client properties for SCRAM."""
    return login(mechanism, SCRAM_MODULE, user, password, protocol)


def login(
    mechanism: str, module: str, user: str, password: str, protocol: str, more: str = ""
) -> dict[str, str]:
    """Return client properties with a JAAS configuration."""
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}"{more};',
    }
