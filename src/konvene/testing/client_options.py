"""The options by which a client of each library connects to a secured broker of a test."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["ClientOptions"]

OAUTHBEARER: Final = "OAUTHBEARER"
_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
_MODULES: Final = "org.apache.kafka.common.security"
LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    OAUTHBEARER: f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}
"""The login module of a JAAS configuration, by SASL mechanism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How one user connects: address, protocol, credentials, and the files of the test's certificates.

    Each property returns the options under the names of one library."""

    bootstrap: str
    """Address as `host:port`."""
    security_protocol: str = "PLAINTEXT"
    mechanism: str = ""
    """SASL mechanism; empty without SASL."""
    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    """PEM file of the certificate authority; None without TLS."""
    certificate_file: Path | None = None
    """PEM file of the client's certificate; None without one."""
    key_file: Path | None = None
    keystore_file: Path | None = None
    """PEM file of the client's key and certificate together, as Java reads it."""

    @property
    def confluent_kafka(self) -> dict[str, Any]:
        """Return the options of confluent-kafka and of other clients based on librdkafka."""
        return _given(
            {
                "bootstrap.servers": self.bootstrap,
                "security.protocol": self.security_protocol,
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username if self._has_password else "",
                "sasl.password": self.password if self._has_password else "",
                "enable.sasl.oauthbearer.unsecure.jwt": "true" if self._has_token else "",
                "sasl.oauthbearer.config": f"principal={self.username}" if self._has_token else "",
                "ssl.ca.location": self.ca_file,
                "ssl.certificate.location": self.certificate_file,
                "ssl.key.location": self.key_file,
            }
        )

    @property
    def kafka_python(self) -> dict[str, Any]:
        """Return the keyword arguments of kafka-python's clients."""
        token = {"sasl_oauth_token_provider": _kafka_python_token(self)} if self._has_token else {}
        return (
            token
            | self._python()
            | _given(
                {
                    "ssl_cafile": self.ca_file,
                    "ssl_certfile": self.certificate_file,
                    "ssl_keyfile": self.key_file,
                }
            )
        )

    @property
    def aiokafka(self) -> dict[str, Any]:
        """Return the keyword arguments of aiokafka's clients."""
        token = {"sasl_oauth_token_provider": _aiokafka_token(self)} if self._has_token else {}
        if self.ca_file is None:
            return token | self._python()
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return token | self._python() | {"ssl_context": context}

    @property
    def java(self) -> dict[str, str]:
        """Return the properties of Kafka's Java clients and tools."""
        jaas = f"{LOGIN_MODULES[self.mechanism]} required" if self.mechanism else ""
        if self._has_token:
            jaas += f" {_SUBJECT}={_quoted(self.username)};"
        elif self.mechanism:
            jaas += f" username={_quoted(self.username)} password={_quoted(self.password)};"
        return _given(
            {
                "bootstrap.servers": self.bootstrap,
                "security.protocol": self.security_protocol,
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": jaas,
                "ssl.truststore.type": "PEM" if self.ca_file is not None else "",
                "ssl.truststore.location": self.ca_file,
                "ssl.keystore.type": "PEM" if self.keystore_file is not None else "",
                "ssl.keystore.location": self.keystore_file,
            }
        )

    @property
    def properties(self) -> str:
        """Return the text of a `client.properties` file, for `--command-config`."""
        lines = (
            f"{name}={_escaped(value)}" for name, value in self.java.items() if name != "bootstrap.servers"
        )
        return "\n".join(lines) + "\n"

    @property
    def _has_token(self) -> bool:
        return self.mechanism == OAUTHBEARER

    @property
    def _has_password(self) -> bool:
        return self.mechanism not in ("", OAUTHBEARER)

    @property
    def token(self) -> str:
        """Return a new access token without a signature, for a broker that accepts those in tests."""
        from konvene.client.oauth.unsecured import unsecured_token

        return unsecured_token({_SUBJECT: self.username}, time.time())

    def _python(self) -> dict[str, Any]:
        return _given(
            {
                "bootstrap_servers": self.bootstrap,
                "security_protocol": self.security_protocol,
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username if self._has_password else "",
                "sasl_plain_password": self.password if self._has_password else "",
            }
        )


def _kafka_python_token(options: ClientOptions) -> Any:
    """Return kafka-python's provider of access tokens."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return options.token

    return TokenProvider()


def _aiokafka_token(options: ClientOptions) -> Any:
    """Return aiokafka's provider of access tokens."""
    from aiokafka.abc import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return options.token

    return TokenProvider()


def _given(options: Mapping[str, str | Path | None]) -> dict[str, Any]:
    """Return the options that have a value, as text."""
    return {name: str(value) for name, value in options.items() if value not in ("", None)}


def _quoted(value: str) -> str:
    """Return a value of a JAAS option in quotes."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(value: str) -> str:
    """Return a value as a properties file has it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
