"""Client settings and bootstrap servers, from the command line and from properties files.

`--command-config` is a Java properties file as for Kafka's tools, with the settings of TLS and SASL
(`konvene.client.security`). Other unknown settings are ignored, as in Kafka's clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from konvene.client.errors import Misconfigured
from konvene.client.security import PLAINTEXT_SECURITY, ClientSecurity, TokenProvider, client_security
from konvene.client.security_names import check_names, is_security
from konvene.properties import UnreadableProperties, properties_mapping

__all__ = [
    "ClientSettings", "client_settings", "is_client_setting", "load_command_config", "parse_bootstrap",
    "read_properties", "settings_in", "settings_of",
]  # fmt: skip

DEFAULT_PORT = 9092


class ClientSettings(NamedTuple):
    """Settings of a client, under the names of Kafka's client configs."""

    client_id: str = "konvene"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    """Maximum time of one call, including all retries."""
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    security: ClientSecurity = PLAINTEXT_SECURITY
    """Protocol, TLS settings and credentials."""


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Parse `host:port,host:port`; IPv6 addresses are in brackets. Raises `Misconfigured`."""
    servers = []
    for part in (p.strip() for p in text.split(",")):
        if not part:
            continue
        part = re.sub(r"^[A-Za-z_]+://", "", part)
        match = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]+)\](?::(\d+))?|([^:\[\]\s]+)(?::(\d+))?", part)
        port = int(match[2] or match[4] or DEFAULT_PORT) if match else -1
        if match is None or not 0 < port < 65536:
            raise Misconfigured(f"{part!r} is not a server: write host:port, such as localhost:9092")
        servers.append((match[1] or match[3], port))
    if not servers:
        raise Misconfigured("no bootstrap server is given: write host:port, such as localhost:9092")
    return servers


def client_settings(token_provider: TokenProvider | None = None, **settings: str | int) -> ClientSettings:
    """Return client settings from keyword arguments: Kafka's or librdkafka's names with underscores for dots.

    For example `client_settings(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="alice",
    sasl_password=password)`. Raises `Misconfigured` for an unknown name, with the nearest one."""
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    check_names(given, all_names=True, others=_OTHER_NAMES)
    return settings_of(given, token_provider)


def load_command_config(path: Path) -> ClientSettings:
    """Read the client settings of a properties file. Raises `Misconfigured` if it is unreadable or
    invalid."""
    return settings_in(read_properties(path), path)


def settings_in(given: Mapping[str, str], path: Path | None) -> ClientSettings:
    """Return client settings; an error names the file that they are from. Raises `Misconfigured`."""
    try:
        return settings_of(given)
    except Misconfigured as error:
        raise Misconfigured(f"{path}: {error}" if path is not None else str(error)) from None


def is_client_setting(name: str) -> bool:
    """Return True for a setting of connections: security, timeouts and retries."""
    return is_security(name) or (name in _OTHER_NAMES and name != "client.id")


def read_properties(path: Path) -> dict[str, str]:
    """Return the settings of a properties file. Raises `Misconfigured` if it is unreadable."""
    try:
        return properties_mapping(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Misconfigured(f"{path} cannot be read: {reason}") from error
    except UnreadableProperties as error:
        raise Misconfigured(str(error)) from error


def settings_of(given: Mapping[str, str], token_provider: TokenProvider | None = None) -> ClientSettings:
    """Return client settings by Kafka's names. Raises `Misconfigured`."""
    values: dict[str, Any] = {"security": client_security(given, token_provider)}
    for key in _OTHER_NAMES:
        name = key.replace(".", "_")
        if key not in given:
            continue
        if isinstance(getattr(ClientSettings(), name), str):
            values[name] = given[key]
        elif re.fullmatch(r"\s*\d+\s*", given[key]):
            values[name] = int(given[key])
        else:
            raise Misconfigured(f"{key}={given[key]} is not a number of milliseconds")
    return ClientSettings()._replace(**values)


_OTHER_NAMES: Final = tuple(name.replace("_", ".") for name in ClientSettings._fields if name != "security")
"""Names of the settings that are not about security."""
