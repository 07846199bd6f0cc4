"""What a client is told before it connects: servers, and the settings of a properties file.

`--command-config` names a Java properties file as Kafka's own tools take it. Only what this client can follow
is followed; a file that asks for a security protocol other than PLAINTEXT is refused here, before anything is
sent in the clear that was meant to be protected. Settings that are not in the table are passed over, as
Kafka's clients do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from konvene.client.errors import Misconfigured

__all__ = ["ClientSettings", "load_command_config", "parse_bootstrap", "read_properties"]

DEFAULT_PORT = 9092


class ClientSettings(NamedTuple):
    """How a client behaves; the names are those of Kafka's client configs."""

    client_id: str = "konvene"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    """How long one call may take in all, with every retry."""
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs; an IPv6 address stands in brackets. Raises `Misconfigured`."""
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
    """Read a properties file. Raises `Misconfigured` for one that cannot be read or followed."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Misconfigured(f"{path} cannot be read: {reason}") from error
    given = read_properties(text)
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol != "PLAINTEXT":
        raise Misconfigured(
            f"{path}: security.protocol={protocol} is not supported: this client speaks PLAINTEXT only"
        )
    values: dict[str, str | int] = {}
    for name, default in ClientSettings()._asdict().items():
        key = name.replace("_", ".")
        if key not in given:
            continue
        if isinstance(default, str):
            values[name] = given[key]
        elif re.fullmatch(r"\s*\d+\s*", given[key]):
            values[name] = int(given[key])
        else:
            raise Misconfigured(f"{path}: {key}={given[key]} is not a number of milliseconds")
    return ClientSettings()._replace(**values)  # type: ignore[arg-type]


def read_properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties file: comments, continued lines, the three separators, escapes."""
    found: dict[str, str] = {}
    logical = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not logical and (not line or line[0] in "#!"):
            continue
        logical += line
        if _continues(logical):
            logical = logical[:-1]
            continue
        key, value = _split(logical)
        found[key] = value
        logical = ""
    if logical:
        key, value = _split(logical)
        found[key] = value
    return found


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", line, re.DOTALL)
    assert match is not None  # The pattern matches the empty string.
    return _unescape(match[1]), _unescape(line[match.end() :])


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", one, text, flags=re.DOTALL)
