"""Rebalances with the causes that brokers' logs prove: `BrokerLog(["server.log"]).settled(rebalance)`.

The records of a group do not show how a member departed, nor why a member of a classic group rejoined. A
broker's application log does. A line counts for a rebalance if it names the group and

    the member that departed, at most `BEFORE_MS` before the rebalance ended, or
    the generation that the rebalance of a classic group ended; its line is also when the rebalance began

A cause that a line names is observed. What no line names stays as it was inferred.
"""

from __future__ import annotations

import gzip
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from pathlib import Path
from typing import IO

from konvene.pipeline.answers.broker_log.lines import LogEvent, LogTimes, events
from konvene.pipeline.answers.evidence import DEPARTURES, Generations, is_certain, with_causes
from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.shard import causes

__all__ = ["BrokerLog"]

BEFORE_MS = 900_000
"""A line may be this much older than the end of its rebalance: less than an hour, so that a wrong time zone
is detected."""
AFTER_MS = 5_000
"""A line may be this much newer: it is written when the record is, by another clock in the worst case."""
MAX_GENERATIONS = 1_000
"""A rebalance that covers more generations is not looked up: the log lost its past."""
_NAMES = "server.log*"


class BrokerLog:
    """Index of the group coordinators' lines in brokers' log files.

    `paths` are files, plain or gzip, or directories with files `server.log*`; `zone` is that of the brokers,
    this machine's if None. Raises FileNotFoundError for a path that does not exist."""

    def __init__(self, paths: Iterable[str | Path], zone: tzinfo | None = None) -> None:
        self._paths = [Path(path) for path in paths]
        self._times = LogTimes(zone)
        self._read: dict[tuple[int, int], int] = {}
        """Bytes that were read of each file, by device and inode."""
        self._departures: dict[tuple[str, str], list[LogEvent]] = defaultdict(list)
        self._triggers: dict[tuple[str, int], list[LogEvent]] = defaultdict(list)
        self.events = 0
        """Number of lines' events that were read."""
        self.misfits: set[tuple[str, str, int, int, int]] = set()
        """Keys of rebalances about which there are lines, but at other times than their records."""
        self.refresh()

    def __repr__(self) -> str:
        return f"<{self.events} events of {len(self._read)} log files>"

    # reading ------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read what was appended to the files, and new files of the directories."""
        for path in self._files():
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                known = (stat.st_dev, stat.st_ino)
                if path.suffix == ".gz":
                    if known not in self._read:
                        with gzip.open(file) as unpacked:
                            self._lines(unpacked)
                        self._read[known] = stat.st_size
                    continue
                at = self._read.get(known, 0)
                file.seek(at if at <= stat.st_size else 0)
                self._read[known] = file.tell() + self._lines(file)

    def _files(self) -> Iterator[Path]:
        for path in self._paths:
            yield from sorted(path.glob(_NAMES)) if path.is_dir() else [path]

    def _lines(self, file: IO[bytes] | gzip.GzipFile) -> int:
        """Read complete lines; return their total size."""
        size = 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            size += len(line)
            for event in events(line.decode("utf-8", "replace"), self._times):
                self._add(event)
        return size

    def _add(self, event: LogEvent) -> None:
        self.events += 1
        if event.generation >= 0:
            self._triggers[event.group_id, event.generation].append(event)
        if event.kind in DEPARTURES:
            self._departures[event.group_id, event.member_id].append(event)

    # settling -----------------------------------------------------------------------------------------

    def settled(self, rebalance: Rebalance, generations: Generations) -> Rebalance:
        """Return a rebalance with the causes that lines of the log prove; unchanged if there are none.

        Its evidence is `observed` if no cause is left with alternatives, and `by_broker_log` is True."""
        if rebalance.evidence != "inferred":
            return rebalance
        triggers = self._triggers_of(rebalance)
        known = [self._settled_cause(rebalance, cause) for cause in rebalance.all_causes]
        found = _ordered(known, triggers)
        start_ms = _start_ms(rebalance, triggers)
        if found == list(rebalance.all_causes) and start_ms == rebalance.start_ms:
            return rebalance
        is_settled = all(is_certain(cause) for cause in found)
        return with_causes(
            rebalance, found, start_ms=start_ms, duration_ms=_duration_ms(rebalance, start_ms),
            evidence="observed" if is_settled else rebalance.evidence, by_broker_log=True,
        )  # fmt: skip

    def _triggers_of(self, rebalance: Rebalance) -> list[LogEvent]:
        """Return what ended the generations that a rebalance of a classic group replaced, oldest first."""
        first, last = max(rebalance.from_epoch, 0), rebalance.to_epoch
        if rebalance.group_type != "classic" or last - first > MAX_GENERATIONS:
            return []
        found: list[LogEvent] = []
        for generation in range(first, last):
            candidates = self._fitting(rebalance, self._triggers.get((rebalance.group_id, generation), ()))
            if candidates:
                newest = candidates[-1].at_ms
                found += [each for each in candidates if each.at_ms == newest]
        return found

    def _settled_cause(self, rebalance: Rebalance, cause: Cause) -> Cause:
        if cause.member_id is None or is_certain(cause) or not set(cause.kinds) <= DEPARTURES:
            return cause
        lines = self._departures.get((rebalance.group_id, cause.member_id), ())
        fitting = self._fitting(rebalance, lines)
        if not fitting:
            return cause
        last = fitting[-1]
        reason = next((each.reason for each in reversed(fitting) if each.reason is not None), cause.reason)
        kind = next((e.kind for e in fitting if e.kind == causes.REMOVED_BY_ADMIN), last.kind)
        return cause._replace(kind=kind, at_ms=last.at_ms, reason=reason)

    def _fitting(self, rebalance: Rebalance, lines: Iterable[LogEvent]) -> list[LogEvent]:
        """Return the lines whose times agree with those of the records, oldest first."""
        until_ms = rebalance.until_ms
        every = sorted(lines, key=lambda event: event.at_ms)
        found = [each for each in every if until_ms - BEFORE_MS <= each.at_ms <= until_ms + AFTER_MS]
        if every and not found:
            self.misfits.add(rebalance.key)
        return found


def _ordered(known: list[Cause], triggers: list[LogEvent]) -> list[Cause]:
    """Return the causes with those that triggered the rebalance first.

    What triggered it replaces causes that were only possible ones."""
    if not triggers:
        return known
    first: list[Cause] = []
    rest = list(known)
    for event in triggers:
        same = next((c for c in rest if _is_same(c, event)), None)
        if same is not None:
            rest.remove(same)
        named = next((c for c in known if c.member_id == event.member_id), None)
        about = same or (named or Cause(""))._replace(topic=None)
        cause = about._replace(
            kind=_kind(event, same), at_ms=event.at_ms, reason=event.reason or about.reason,
            member_id=event.member_id, instance_id=event.instance_id or about.instance_id,
        )  # fmt: skip
        if all((c.kind, c.member_id) != (cause.kind, cause.member_id) for c in first):
            first.append(cause)
    return [*first, *(c for c in rest if not _is_only_possible(c))]


def _kind(event: LogEvent, same: Cause | None) -> str:
    """Return the kind of the cause that a line names.

    A line shows that a member rejoined; `same`, inferred from the records, may show why: it had to revoke
    partitions, or a topic has more partitions, which the leader detects."""
    if same is not None and event.kind in (causes.LEADER_REJOINED, causes.MEMBER_METADATA_CHANGED):
        if causes.COOPERATIVE_FOLLOW_UP in same.kinds and same.member_id == event.member_id:
            return causes.COOPERATIVE_FOLLOW_UP
        if causes.TOPIC_METADATA_CHANGED in same.kinds and event.kind == causes.LEADER_REJOINED:
            return causes.TOPIC_METADATA_CHANGED
    return event.kind


def _is_same(cause: Cause, event: LogEvent) -> bool:
    """Return True if a cause is the one that a line names, certainly or possibly."""
    if event.kind not in cause.kinds:
        return event.kind in DEPARTURES and cause.member_id == event.member_id and (
            set(cause.kinds) <= DEPARTURES
        )  # fmt: skip
    return cause.member_id in (event.member_id, None)


def _is_only_possible(cause: Cause) -> bool:
    """Return True for a cause that was inferred because no other was found."""
    return cause.kind == causes.UNKNOWN or causes.LEADER_REJOINED in cause.kinds


def _start_ms(rebalance: Rebalance, triggers: list[LogEvent]) -> int | None:
    """Return when the rebalance began; that of the last generation, if it covers several."""
    last = [each.at_ms for each in triggers if each.generation == rebalance.to_epoch - 1]
    return min(last) if rebalance.start_ms is None and last else rebalance.start_ms


def _duration_ms(rebalance: Rebalance, start_ms: int | None) -> int | None:
    if rebalance.duration_ms is not None or start_ms is None or rebalance.end_ms is None:
        return rebalance.duration_ms
    return max(rebalance.end_ms - start_ms, 0)
