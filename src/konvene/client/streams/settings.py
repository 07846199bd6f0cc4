"""The settings of a member of a streams group, under the names that Kafka Streams has for them.

`streams_settings` reads what properties files give. Those that this client does not have (it runs no
topology) are handed back, so that somebody can be told that they change nothing. `topology.epoch` is the
document's (KIP-1071); Java's client has no such setting yet, and says 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from konvene.client.errors import Misconfigured

__all__ = ["StreamsMemberSettings", "StreamsSettings", "streams_settings"]

_NUMBERS = {"max.poll.interval.ms": "rebalance_timeout_ms", "topology.epoch": "topology_epoch"}
_TEXTS = {"group.instance.id": "group_instance_id", "client.rack": "client_rack"}
_TAG = "client.tag."
_MOST = 2**31 - 1


class StreamsMemberSettings(NamedTuple):
    """How a member behaves; the session and the heartbeats are the group's to say."""

    rebalance_timeout_ms: int = 300_000
    """`max.poll.interval.ms`: how long it may take to give up tasks."""
    topology_epoch: int = 0
    application_server: tuple[str, int] | None = None
    """Host and port at which others can ask for its state."""
    client_tags: Mapping[str, str] = {}
    client_rack: str | None = None
    group_instance_id: str | None = None
    """Java's client refuses it for streams groups; coordinators take it."""
    process_id: str | None = None
    """Shared by members that share their state on disk; without one it is made up."""
    member_id: str | None = None
    """The member's own name for itself; without one it is made up."""


class StreamsSettings(NamedTuple):
    """What was given, sorted by whom it is for."""

    application_id: str
    """`application.id`: the group."""
    client_id: str
    member: StreamsMemberSettings
    unknown: tuple[str, ...]


def streams_settings(properties: Mapping[str, str]) -> StreamsSettings:
    """The properties of an application. Raises `Misconfigured` for what cannot be."""
    given = {name: value.strip() for name, value in properties.items() if value.strip()}
    protocol = given.pop("group.protocol", "streams")
    if protocol.lower() != "streams":
        raise Misconfigured(f"group.protocol={protocol}: a member of a streams group speaks streams")
    if "application.id" not in given:
        raise Misconfigured('Missing required configuration "application.id" which has no default value.')
    application, client = given.pop("application.id"), given.pop("client.id", "")
    made: dict[str, Any] = {}
    for name, key in _NUMBERS.items():
        if name in given:
            made[key] = _number(name, given.pop(name))
    for name, key in _TEXTS.items():
        if name in given:
            made[key] = given.pop(name)
    if "application.server" in given:
        made["application_server"] = _server(given.pop("application.server"))
    tags = {name: given.pop(name) for name in sorted(given) if name.startswith(_TAG)}
    if tags:
        made["client_tags"] = {name.removeprefix(_TAG): value for name, value in tags.items()}
    return StreamsSettings(application, client, StreamsMemberSettings(**made), tuple(sorted(given)))


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) > _MOST:
        raise Misconfigured(f"Invalid value {value} for configuration {name}: Not a number of type INT")
    return int(value)


def _server(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([^\[\]\s]+)\]|([^:\s]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) >= 1 << 16:
        raise Misconfigured(f"application.server={text} is not host:port")
    return match[1] or match[2], int(match[3])
