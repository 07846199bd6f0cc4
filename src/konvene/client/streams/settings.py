"""Settings of a member of a streams group, under the names that Kafka Streams has for them.

`streams_settings` reads the properties of an application. It returns the names of properties that this client
does not have (it runs no topology), so that the caller can warn about them. `topology.epoch` is from
KIP-1071; Java's client has no such setting yet and sends 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from konvene.client.errors import Misconfigured

__all__ = ["StreamsMemberSettings", "StreamsSettings", "streams_settings"]

_INTEGERS = {"max.poll.interval.ms": "rebalance_timeout_ms", "topology.epoch": "topology_epoch"}
_STRINGS = {"group.instance.id": "group_instance_id", "client.rack": "client_rack"}
_TAG_PREFIX = "client.tag."
_MAX_INT32 = 2**31 - 1


class StreamsMemberSettings(NamedTuple):
    """Settings of a member. The session timeout and heartbeat interval are settings of the group."""

    rebalance_timeout_ms: int = 300_000
    """`max.poll.interval.ms`: how long the member may take to release tasks."""
    topology_epoch: int = 0
    application_server: tuple[str, int] | None = None
    """Host and port at which the state of this member can be queried."""
    client_tags: Mapping[str, str] = {}
    client_rack: str | None = None
    group_instance_id: str | None = None
    """Coordinators accept static members of streams groups; Java's client does not allow them."""
    process_id: str | None = None
    """Id that members sharing their state on disk have in common; random if None."""
    member_id: str | None = None
    """Member id that the client sends; random if None."""


class StreamsSettings(NamedTuple):
    """The properties of a Kafka Streams application, as settings of a client and of its group member."""

    application_id: str
    """`application.id`: the group id."""
    client_id: str
    member: StreamsMemberSettings
    unknown: tuple[str, ...]
    """Names of properties that this client does not have."""


def streams_settings(properties: Mapping[str, str]) -> StreamsSettings:
    """Parse the properties of an application. Raises `Misconfigured` for an invalid value."""
    given = {name: value.strip() for name, value in properties.items() if value.strip()}
    protocol = given.pop("group.protocol", "streams")
    if protocol.lower() != "streams":
        raise Misconfigured(f"group.protocol={protocol}: a member of a streams group needs streams")
    if "application.id" not in given:
        raise Misconfigured('Missing required configuration "application.id" which has no default value.')
    application_id, client_id = given.pop("application.id"), given.pop("client.id", "")
    member: dict[str, Any] = {}
    for name, field in _INTEGERS.items():
        if name in given:
            member[field] = _integer(name, given.pop(name))
    for name, field in _STRINGS.items():
        if name in given:
            member[field] = given.pop(name)
    if "application.server" in given:
        member["application_server"] = _host_and_port(given.pop("application.server"))
    tags = {name: given.pop(name) for name in sorted(given) if name.startswith(_TAG_PREFIX)}
    if tags:
        member["client_tags"] = {name.removeprefix(_TAG_PREFIX): value for name, value in tags.items()}
    return StreamsSettings(application_id, client_id, StreamsMemberSettings(**member), tuple(sorted(given)))


def _integer(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) > _MAX_INT32:
        raise Misconfigured(f"Invalid value {value} for configuration {name}: Not a number of type INT")
    return int(value)


def _host_and_port(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([^\[\]\s]+)\]|([^:\s]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) >= 1 << 16:
        raise Misconfigured(f"application.server={text} is not host:port")
    return match[1] or match[2], int(match[3])
