"""Groups from logs of `__consumer_offsets` for `konvene migrate`, read as a coordinator loads them.

The coordinator's code replays the records of each partition up to the end, or up to a time. The log does not
contain the number of partitions of topics: it is the maximum of the partition directories, the assignments
and the committed offsets, unless the caller gives a larger one.

Two logs of one partition are replicas: the one with the higher end offset is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from konvene.cli.options import fail
from konvene.cli.output import Progress, note
from konvene.codec.errors import CodecError
from konvene.internal_topics import OFFSETS_TOPIC

if TYPE_CHECKING:
    from konvene.groups.group_type import Group
    from konvene.groups.shard import GroupShard
    from konvene.log.disk.read_only import ReadOnlyDisk
    from konvene.log.inspect.dump import Folder
    from konvene.shard.contract import Context

__all__ = ["Loaded", "context_of", "load"]


class Loaded(NamedTuple):
    """What `load` found in the logs: the groups, and the topics that they name."""

    groups: Mapping[str, Group]
    """Groups of all types by id."""
    topics: Mapping[str, int]
    """Known number of partitions by topic."""
    newest_ms: int
    """Timestamp of the last record."""
    damaged: bool
    """Whether a part of the logs could not be read."""


class _Partition(NamedTuple):
    shard: GroupShard
    end: int
    newest_ms: int


def load(paths: Sequence[str], at_ms: int | None) -> Loaded:
    """Load all groups of the logs as of `at_ms`. Raises UsageError if there is no log of groups."""
    from konvene.log.disk.read_only import ReadOnlyDisk
    from konvene.log.inspect.dump import NotALog

    disk = ReadOnlyDisk()
    try:
        folders = _folders(disk, paths)
        offsets = [folder for folder in folders if folder.topic in (OFFSETS_TOPIC, None)]
        if not offsets:
            raise click.UsageError(f"There is no {OFFSETS_TOPIC} in {', '.join(paths)}.")
        return _loaded(_Reader(disk, offsets, at_ms), folders, offsets)
    except NotALog as error:
        raise click.UsageError(f"{error}.") from None
    except OSError as error:
        fail(f"cannot read {error.filename or ', '.join(paths)}: {error.strerror}")


def _folders(disk: ReadOnlyDisk, paths: Sequence[str]) -> list[Folder]:
    """Return the partition directories of the paths, each once, even if several of its segments are given."""
    from konvene.log.inspect.dump import find

    found: dict[str, Folder] = {}
    for path in paths:
        for folder in find(disk, path):
            known = found.get(folder.path)
            logs = {*folder.logs, *(known.logs if known is not None else ())}
            found[folder.path] = folder._replace(logs=tuple(sorted(n for n in logs if n.endswith(".log"))))
    return list(found.values())


def _loaded(reader: _Reader, folders: Iterable[Folder], offsets: Sequence[Folder]) -> Loaded:
    by_partition: dict[int | str, _Partition] = {}
    for folder in offsets:
        key = folder.path if folder.partition is None else folder.partition
        read = reader.partition(folder)
        if key not in by_partition or read.end > by_partition[key].end:
            by_partition[key] = read
    reader.progress.clear()
    groups: dict[str, Group] = {}
    topics: dict[str, int] = {}
    for partition in by_partition.values():
        groups |= partition.shard.groups
        for name, count in _partition_counts(partition.shard):
            topics[name] = max(count, topics.get(name, 0))
    for folder in folders:
        if folder.topic is not None and folder.partition is not None:
            topics[folder.topic] = max(folder.partition + 1, topics.get(folder.topic, 0))
    newest_ms = max(each.newest_ms for each in by_partition.values())
    return Loaded(groups, topics, newest_ms, reader.damaged)


class _Reader:
    def __init__(self, disk: ReadOnlyDisk, folders: Iterable[Folder], at_ms: int | None) -> None:
        self._disk = disk
        self._at_ms = at_ms
        self.damaged = False
        sizes = (disk.size(f"{folder.path}/{name}") for folder in folders for name in folder.logs)
        self.progress = Progress(sum(sizes), beside_output=True)

    def partition(self, folder: Folder) -> _Partition:
        from konvene.groups.shard import GroupShard

        shard, end, newest_ms = GroupShard(), -1, -1
        for name in folder.logs:
            path = f"{folder.path}/{name}"
            for offset, at_ms, record in self._records(path):
                end = offset
                if self._at_ms is None or at_ms <= self._at_ms:
                    newest_ms = max(newest_ms, at_ms)
                    shard.replay(record)
        return _Partition(shard, end, newest_ms)

    def _records(self, path: str) -> Iterator[tuple[int, int, Any]]:
        from konvene.broker.groups.record_serde import read
        from konvene.log.inspect.dump import Damage, base_offset_of, walk

        file = self._disk.open(path)
        done = 0
        try:
            for part in walk(file, self._disk.size(path), base_offset_of(path.rpartition("/")[2])):
                if isinstance(part, Damage):
                    self._report_damage(f"{path}, byte {part.position}, offset {part.offset}: {part.why}")
                    continue
                try:
                    yield from read(part.view, part.header)
                except CodecError as error:
                    self._report_damage(f"{path}, offset {part.header.base_offset}: {error}")
                end = part.position + part.header.size
                self.progress.add(end - done, path)
                done = end
        finally:
            file.close()

    def _report_damage(self, text: str) -> None:
        self.damaged = True
        self.progress.clear()
        note(f"konvene: damaged: {text}")


def _partition_counts(shard: GroupShard) -> Iterator[tuple[str, int]]:
    """Yield each topic in committed offsets or assignments, with the least number of partitions it can have.

    That is one more than the largest partition number. A topic may occur several times.
    """
    from konvene.groups.classic.group import ClassicGroup
    from konvene.groups.classic.subscriptions import CONSUMER, read_assignment

    for offsets in shard.offsets.values():
        for topic, partitions in offsets.items():
            yield topic, max(partitions) + 1
    for group in shard.groups.values():
        if isinstance(group, ClassicGroup) and group.protocol_type == CONSUMER:
            for member in group.members.values():
                assignment = read_assignment(member.assignment)
                for topic, some in assignment.partitions if assignment is not None else ():
                    yield topic, max(some, default=-1) + 1


# context --------------------------------------------------------------------------------------


def context_of(
    topics: Mapping[str, int], groups: Iterable[str], settings: Iterable[tuple[str, str]], now_ms: int
) -> Context:
    """Return the context in which the coordinator's code decides the dry run. `settings` are broker or group
    settings. Raises UsageError for invalid ones."""
    from konvene.broker.groups.assignors import SETTING, load_assignors, offered_task_assignors
    from konvene.codec.uuid import Uuid
    from konvene.configs import BrokerConfig, ConfigError
    from konvene.configs.group import GROUP
    from konvene.configs.group_configs import GroupConfigs
    from konvene.shard.contract import Context
    from konvene.shard.image import Topic, Topics

    pairs = list(settings)
    group_settings = {name: value for name, value in pairs if name in GROUP}
    try:
        config, _ = BrokerConfig.load(overrides=[(n, v) for n, v in pairs if n not in GROUP])
        assignors, task_assignors = load_assignors(config[SETTING]), offered_task_assignors(config)
    except ConfigError as error:
        raise click.UsageError(f"--set: {error}") from None
    group_configs = GroupConfigs(config, dict.fromkeys(groups, group_settings) if group_settings else None)
    if group_configs.warnings:
        raise click.UsageError(f"--set: {group_configs.warnings[0]}.")
    rows = [
        Topic(name, Uuid(number.to_bytes(16, "big")), count)
        for number, (name, count) in enumerate(sorted(topics.items()), 1)
    ]
    return Context(
        now_ms, config, topics=Topics(rows, len(rows)), group_configs=group_configs,
        assignors=assignors, task_assignors=task_assignors,
    )  # fmt: skip
