"""Client settings and bootstrap servers, from the command line and from properties files.

`--command-config` is a Java properties file as for Kafka's tools, with the settings of TLS and SASL
(`konvene.client.security`). Other unknown settings are ignored, as in Kafka's clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from konvene.client.errors import Misconfigured
from konvene.client.security import PLAINTEXT_SECURITY, ClientSecurity, client_security
from konvene.properties import UnreadableProperties, properties_mapping

__all__ = ["ClientSettings", "load_command_config", "parse_bootstrap"]

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


def load_command_config(path: Path) -> ClientSettings:
    """Read the client settings of a properties file. Raises `Misconfigured` if it is unreadable or
    invalid."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Misconfigured(f"{path} cannot be read: {reason}") from error
    try:
        given = properties_mapping(text, str(path))
    except UnreadableProperties as error:
        raise Misconfigured(str(error)) from error
    try:
        security = client_security(given)
    except Misconfigured as error:
        raise Misconfigured(f"{path}: {error}") from None
    values: dict[str, Any] = {"security": security}
    for name, default in ClientSettings()._asdict().items():
        key = name.replace("_", ".")
        if key not in given or name == "security":
            continue
        if isinstance(default, str):
            values[name] = given[key]
        elif re.fullmatch(r"\s*\d+\s*", given[key]):
            values[name] = int(given[key])
        else:
            raise Misconfigured(f"{path}: {key}={given[key]} is not a number of milliseconds")
    return ClientSettings()._replace(**values)
