"""A share consumer's settings as Kafka names them: what `--consumer-property` and properties files give.

They become the arguments of `ShareConsumer`. A share group decides for all of its members where it begins and
what it may read, and nobody commits: settings about that are refused with the words of Kafka's client,
whatever their value. Settings that this client does not have are handed back, so that somebody can be told
that they change nothing.
"""

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
"""What there is not for a share group, in the order in which Kafka's client says so."""

_NUMBERS = {
    "max.poll.records": "max_records", "fetch.max.wait.ms": "max_wait_ms", "fetch.min.bytes": "min_bytes",
    "fetch.max.bytes": "max_bytes",
}  # fmt: skip
_MOST = 2**31 - 1


class ShareSettings(NamedTuple):
    """What was given, sorted by whom it is for."""

    group_id: str | None
    client_id: str
    consumer: dict[str, Any]
    """Arguments of `ShareConsumer`."""
    unknown: tuple[str, ...]


def share_settings(properties: Mapping[str, str]) -> ShareSettings:
    """The properties of a share consumer. Raises `Misconfigured` for what cannot be."""
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
