"""Share consumer settings under Kafka's names, from `--consumer-property` and properties files.

They are converted to arguments of `ShareConsumer`. The start position and the isolation level are settings of
the share group, and there are no commits: such settings are rejected with the message of Kafka's client. The
names of settings that this client does not have are returned, so that the caller can warn about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from konvene.client.errors import Misconfigured
from konvene.client.share.session import FetchTerms

__all__ = ["ShareSettings", "share_settings"]

_LACKING = (
    "auto.offset.reset", "enable.auto.commit", "group.instance.id", "isolation.level",
    "partition.assignment.strategy", "interceptor.classes", "session.timeout.ms", "heartbeat.interval.ms",
    "group.protocol", "group.remote.assignor",
)  # fmt: skip
"""Settings that share consumers lack, in the order of Kafka's error message."""

_NUMBERS = {
    "max.poll.records": "max_records", "fetch.max.wait.ms": "max_wait_ms", "fetch.min.bytes": "min_bytes",
    "fetch.max.bytes": "max_bytes",
}  # fmt: skip
_MOST = 2**31 - 1


class ShareSettings(NamedTuple):
    """Share consumer properties as arguments of `ShareConsumer`, with the names of those that this client
    lacks."""

    group_id: str | None
    client_id: str
    consumer: dict[str, Any]
    """Keyword arguments of `ShareConsumer`."""
    unknown: tuple[str, ...]


def share_settings(properties: Mapping[str, str]) -> ShareSettings:
    """Parse share consumer properties. Raises `Misconfigured` for an invalid value."""
    given = {name: value.strip() for name, value in properties.items() if value.strip()}
    lacking = [name for name in _LACKING if name in given]
    if lacking:
        raise Misconfigured(f"{', '.join(lacking)} cannot be set when using a share group.")
    terms: dict[str, Any] = {}
    for name, key in _NUMBERS.items():
        if name in given:
            terms[key] = _number(name, given.pop(name))
    if "share.acquire.mode" in given:
        modes = {"batch_optimized": False, "record_limit": True}
        terms["record_limit"] = _one_of("share.acquire.mode", given, modes)
    made: dict[str, Any] = {"terms": FetchTerms(**terms)}
    if "share.acknowledgement.mode" in given:
        made["explicit"] = _one_of("share.acknowledgement.mode", given, {"implicit": False, "explicit": True})
    if "client.rack" in given:
        made["client_rack"] = given.pop("client.rack")
    group, client = given.pop("group.id", None), given.pop("client.id", "")
    return ShareSettings(group, client, made, tuple(sorted(given)))


def _one_of(name: str, given: dict[str, str], known: Mapping[str, bool]) -> bool:
    value = given.pop(name)
    if value.lower() not in known:
        raise Misconfigured(f"Invalid value {value} for configuration {name}: it is {' or '.join(known)}")
    return known[value.lower()]


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) > _MOST:
        raise Misconfigured(f"Invalid value {value} for configuration {name}: Not a number of type INT")
    if name == "max.poll.records" and int(value) < 1:
        raise Misconfigured(f"Invalid value {value} for configuration {name}: Value must be at least 1")
    return int(value)
