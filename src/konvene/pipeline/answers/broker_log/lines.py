"""Lines of the group coordinator in a broker's application log, as values. Pure.

These are Apache Kafka's messages of level INFO, of versions 3.0 to 4.4, in any layout that begins with a
time, as Kafka's own configuration does: `[2026-11-28 20:15:00,123] INFO …`. Lines of other kinds, stack
traces included, yield nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import NamedTuple

from konvene.shard import causes

__all__ = ["LogEvent", "LogTimes", "events"]


class LogEvent(NamedTuple):
    """What one line states about one member of a group."""

    at_ms: int
    group_id: str
    kind: str
    """The cause of a rebalance, as in `konvene.shard.causes`."""
    member_id: str
    instance_id: str | None = None
    reason: str | None = None
    """The reason that the client gave."""
    generation: int = -1
    """For an event that triggered a rebalance of a classic group: the generation that it ended."""


class LogTimes:
    """Converter of the times of a log, which are in the broker's time zone; None is this machine's."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._minutes: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"LogTimes({self._zone or 'local time'})"

    def ms(self, minute: str, seconds: int, fraction: str) -> int:
        """Return a time in ms since 1970; `minute` is written as `2026-11-28 20:15`."""
        known = self._minutes.get(minute)
        if known is None:
            moment = datetime.fromisoformat(minute).replace(tzinfo=self._zone)
            known = self._minutes[minute] = int(moment.timestamp()) * 1000
        return known + seconds * 1000 + int(fraction[:3].ljust(3, "0"))


_TIME = re.compile(r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)[,.](\d+)")
_LOGGER = re.compile(r" \((?:[\w$]+\.)+[\w$]+\)\s*$")
_PREPARING = re.compile(
    r"Preparing to rebalance group (.+?) in state \w+ with old generation (\d+) (?:\(\S+-\d+\) )?"
    r"\(reason: (.*)\)\.?$"
)
_FENCED = (
    r"\[GroupId (?P<group>.+?)\] (?:Streams member|Member) (?P<member>.+?) fenced from the group because"
)
_CLIENT_REASON = r"(?:; client reason: (?P<reason>.*))?$"

_TRIGGERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (rf"Adding new member (?P<member>.+?) with group instance id (?P<instance>.+?){_CLIENT_REASON}",
         causes.MEMBER_JOINED),
        (rf"Updating metadata for member (?P<member>.+?) during \w+{_CLIENT_REASON}",
         causes.MEMBER_METADATA_CHANGED),
        (rf"Leader (?P<member>.+?) re-joining group during \w+{_CLIENT_REASON}", causes.LEADER_REJOINED),
        (rf"Updating metadata for static member (?P<member>.+?) with instance id (?P<instance>.+?)"
         rf"{_CLIENT_REASON}", causes.STATIC_MEMBER_REJOINS),
        (rf"Group's selectedProtocol will change because static member (?P<member>.+?) with instance id "
         rf"(?P<instance>.+?) joined with change of protocol{_CLIENT_REASON}", causes.STATIC_MEMBER_REJOINS),
        (r"removing member (?P<member>.+?) on heartbeat expiration", causes.SESSION_EXPIRED),
        (r"removing member (?P<member>.+?) on LeaveGroup", causes.MEMBER_LEFT),
        (r"explicit `LeaveGroup` request for (?P<members>.+) members", causes.MEMBER_LEFT),
        (r"Removing (?P<members>.+) on pending sync request expiration", causes.SYNC_TIMEOUT),
    )
)  # fmt: skip
"""Reasons for which a classic group prepares to rebalance."""

_DEPARTURES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (rf"\[Group (?P<group>.+?)\] Member (?P<member>.+?) has left group through explicit `LeaveGroup` "
         rf"request{_CLIENT_REASON}", causes.MEMBER_LEFT),
        (rf"\[GroupId (?P<group>.+?)\] (?:Dynamic|Static) member (?P<member>.+?)"
         rf"(?: with instance id (?P<instance>.+?))? has left group through explicit `LeaveGroup` request"
         rf"{_CLIENT_REASON}", causes.MEMBER_LEFT),
        (r"\[GroupId (?P<group>.+?)\](?:\[MemberId .+?\])? (?:Static member|Member) (?P<member>.+?)"
         r"(?: with instance id (?P<instance>.+?))?(?<! temporarily) left the \w+ group", causes.MEMBER_LEFT),
        (r"Member (?P<member>.+?) in group (?P<group>.+?) has failed, removing it from the group",
         causes.SESSION_EXPIRED),
        (r"Group (?P<group>.+?) removed dynamic members who haven't joined: (?P<members>.+)$",
         causes.REBALANCE_TIMEOUT),
        (r"Group (?P<group>.+?) removed members who haven't sent their sync requests?: (?P<members>.+)$",
         causes.SYNC_TIMEOUT),
        (rf"{_FENCED} the member session expired", causes.SESSION_EXPIRED),
        (rf"{_FENCED} it failed to transition from epoch", causes.REBALANCE_TIMEOUT),
        (rf"{_FENCED} the classic member failed to join", causes.REBALANCE_TIMEOUT),
        (rf"{_FENCED} the member failed to sync", causes.SYNC_TIMEOUT),
    )
)  # fmt: skip
"""Messages about a member that departs."""

_BY_CLIENT_REASON = (
    ("need to revoke partitions", causes.COOPERATIVE_FOLLOW_UP),
    ("cached metadata has changed", causes.TOPIC_METADATA_CHANGED),
    ("member was removed by an admin", causes.REMOVED_BY_ADMIN),
)
"""Beginnings of reasons that Java's clients give, and the cause that they state."""
_NO_VALUE = frozenset({"null", "None", "Optional.empty", "not provided", ""})


def events(line: str, times: LogTimes) -> Iterator[LogEvent]:
    """Yield what a line states about members of groups."""
    if "roup" not in line:
        return
    time = _TIME.match(line)
    if time is None:
        return
    try:
        at_ms = times.ms(time[1].replace("T", " "), int(time[2]), time[3])
    except (ValueError, OverflowError):
        return
    text = _LOGGER.sub("", line.rstrip())
    preparing = _PREPARING.search(text)
    if preparing is not None:
        group_id, generation, reason = preparing.groups()
        yield from _matching(_TRIGGERS, reason, at_ms, group_id, int(generation))
        return
    yield from _matching(_DEPARTURES, text, at_ms)


def _matching(
    patterns: tuple[tuple[re.Pattern[str], str], ...], text: str, at_ms: int, group_id: str = "",
    generation: int = -1,
) -> Iterator[LogEvent]:  # fmt: skip
    for pattern, kind in patterns:
        match = pattern.search(text)
        if match is None:
            continue
        found = match.groupdict()
        reason = _value(found.get("reason"))
        members = [found["member"]] if found.get("member") else _listed(found["members"])
        for member_id in members:
            yield LogEvent(
                at_ms, group_id or found["group"], _kind(kind, reason), member_id,
                _value(found.get("instance")), reason, generation,
            )  # fmt: skip
        return


def _kind(kind: str, reason: str | None) -> str:
    """Return the cause that a client's reason states more precisely, if it does."""
    rejoins = (causes.MEMBER_METADATA_CHANGED, causes.LEADER_REJOINED)
    for beginning, stated in _BY_CLIENT_REASON:
        if reason is not None and reason.startswith(beginning):
            departs = stated == causes.REMOVED_BY_ADMIN
            return stated if (kind == causes.MEMBER_LEFT if departs else kind in rejoins) else kind
    return kind


def _listed(text: str) -> list[str]:
    """Return the elements of a collection as Java or Scala print it: `[a, b]`, `(a, b)`, `Set(a, b)`."""
    match = re.fullmatch(r"\w*[(\[{](.*)[)\]}]\.?", text)
    return [each for each in (match[1] if match else text).split(", ") if each]


def _value(text: str | None) -> str | None:
    """Return an optional value; None for the texts that stand for none."""
    if text is None or text in _NO_VALUE:
        return None
    some = re.fullmatch(r"(?:Some\((.*)\)|Optional\[(.*)\])", text)
    return (some[1] or some[2]) if some else text
