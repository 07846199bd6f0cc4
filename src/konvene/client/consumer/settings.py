"""Consumer settings under Kafka's names, from `--consumer-property` and properties files.

They are converted to arguments of `Consumer`. A setting that the chosen group protocol lacks is rejected with
the message of Kafka's client, whatever its value. The names of settings that this client does not have are
returned, so that the caller can warn about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from konvene.client.consumer.classic_member import MemberSettings
from konvene.client.consumer.fetch import READ_COMMITTED, READ_UNCOMMITTED
from konvene.client.errors import Misconfigured

__all__ = ["PROTOCOLS", "ConsumerSettings", "consumer_settings", "protocol_of", "refuse_settings"]

PROTOCOLS = ("classic", "consumer")

_LACKS = {
    "classic": ("group.remote.assignor",),
    "consumer": ("partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms"),
}
"""Settings that a protocol lacks, in the order of Kafka's error message."""

_NUMBERS = {
    "auto.commit.interval.ms": "auto_commit_interval_ms",
    "max.poll.records": "max_poll_records",
}
_MEMBER = {
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
    "max.poll.interval.ms": "rebalance_timeout_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}
_ISOLATION = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}

_ASSIGNORS = {
    "RangeAssignor": "range", "RoundRobinAssignor": "roundrobin", "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}  # fmt: skip
"""Names of assignors by their Java class."""


V = TypeVar("V")


class ConsumerSettings(NamedTuple):
    """Consumer properties as arguments of `Consumer`, with the names of properties that this client lacks."""

    group_id: str | None
    client_id: str
    consumer: dict[str, Any]
    """Keyword arguments of `Consumer`."""
    unknown: tuple[str, ...]


def protocol_of(text: str) -> str:
    """Normalize `group.protocol`. Raises `Misconfigured`."""
    if text.lower() not in PROTOCOLS:
        raise Misconfigured(
            f"Invalid value {text} for configuration group.protocol: "
            f"String must be one of (case insensitive): {', '.join(each.upper() for each in PROTOCOLS)}"
        )
    return text.lower()


def refuse_settings(protocol: str, given: Collection[str]) -> None:
    """Raise `Misconfigured` if `given` has settings that the protocol lacks."""
    lacking = [name for name in _LACKS[protocol] if name in given]
    if lacking:
        raise Misconfigured(f"{', '.join(lacking)} cannot be set when group.protocol={protocol.upper()}")


def consumer_settings(properties: Mapping[str, str]) -> ConsumerSettings:
    """Parse consumer properties. Raises `Misconfigured` for an invalid value or combination."""
    given = {name: value.strip() for name, value in properties.items() if value.strip()}
    protocol = protocol_of(given.pop("group.protocol", "classic"))
    refuse_settings(protocol, given)
    made: dict[str, Any] = {"group_protocol": protocol}
    member: dict[str, Any] = {}
    for name, key in _NUMBERS.items():
        if name in given:
            made[key] = _number(name, given.pop(name))
    for name, key in _MEMBER.items():
        if name in given:
            member[key] = _number(name, given.pop(name))
    for name, key in (("group.instance.id", "group_instance_id"), ("client.rack", "client_rack")):
        if name in given:
            member[key] = given.pop(name)
    if member:
        made["member"] = MemberSettings(**member)
    if "auto.offset.reset" in given:
        made["auto_offset_reset"] = given.pop("auto.offset.reset")
    if "group.remote.assignor" in given:
        made["group_remote_assignor"] = given.pop("group.remote.assignor")
    if "enable.auto.commit" in given:
        made["auto_commit"] = _one_of("enable.auto.commit", given, {"true": True, "false": False})
    if "isolation.level" in given:
        made["isolation_level"] = _one_of("isolation.level", given, _ISOLATION)
    if "partition.assignment.strategy" in given:
        names = (each.strip() for each in given.pop("partition.assignment.strategy").split(","))
        made["assignors"] = tuple(_ASSIGNORS.get(each.rpartition(".")[2], each) for each in names)
    group, client = given.pop("group.id", None), given.pop("client.id", "")
    return ConsumerSettings(group, client, made, tuple(sorted(given)))


def _one_of(name: str, given: dict[str, str], known: Mapping[str, V]) -> V:
    value = given.pop(name)
    if value.lower() not in known:
        raise Misconfigured(f"Invalid value {value} for configuration {name}: it is {' or '.join(known)}")
    return known[value.lower()]


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise Misconfigured(f"Invalid value {value} for configuration {name}: Not a number of type INT")
    return int(value)
