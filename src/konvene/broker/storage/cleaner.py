"""Cleans the logs of compacted topics: when, which one, and what becomes of it.

Every `log.cleaner.backoff.ms` it looks at the compacted logs and cleans the dirtiest one, and goes on without
a pause as long as one is dirty enough; so do `log.cleaner.threads` at a time. What a cleaning is decides
`konvene.log.cleaner`; how it is done, `cleaning_ways`: a small log in slices beside requests, a large one in
a process, so that nobody waits for it. It never touches the segment that grows, and it never waits for a
request, nor a request for it: only its last step, a few renames, happens on the loop.

A cleaning that fails leaves the log as it was. A log that cannot be cleaned (its bytes are damaged, or nobody
knows why) is left alone from then on, which is said and counted; a process that is lost is given a second
try. The disk's errors take the directory out of use, as anywhere, but for a full one: it is tried again.

Segments that are cleaned are offered to the archive first, and stay as they are while it cannot take them.
Retention of compacted logs happens here too, as in Kafka, so that both never meet.

A broker that has nothing to clean imports nothing of it and starts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from konvene.broker.storage.cleaner_statistics import Cleaner, Removed, said
from konvene.broker.storage.retention import retain
from konvene.broker.storage.throttle import Throttle
from konvene.log.checkpoints import TopicPartition
from konvene.log.cleaner.contract import CleanedSegment, CleanerStats
from konvene.log.disk.files import RealDisk
from konvene.log.errors import DamagedLog, LogError

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices
    from konvene.broker.storage.archive import Archive
    from konvene.broker.storage.cleaner_executor import CleanerExecutor
    from konvene.broker.storage.disk_threads import DiskThreads
    from konvene.broker.storage.partitions import Partition
    from konvene.log.cleaner.contract import CleaningTask
    from konvene.log.cleaner.selection import LogToClean
    from konvene.log.directory import LogDirectory
    from konvene.log.partition import PartitionLog

__all__ = ["Cleaner", "LogCleaner"]

log = logging.getLogger("konvene.cleaner")

LOOKS_A_TURN = 100
"""So many logs are looked at before others have their turn."""
LEAST_BACKOFF_S = 0.02
LARGEST_MAP = 2**31 - 1
TIDIES_AFTER_S = 10.0
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class GivenUp(Exception):
    """The log is not any more what was to be cleaned."""


class LogCleaner:
    """See the top of this file. One of a broker."""

    def __init__(
        self, node: NodeServices, directory: LogDirectory, disk: DiskThreads, archive: Archive
    ) -> None:
        self._node = node
        self._directory = directory
        self._disk = disk
        self._archive = archive
        self._wake = asyncio.Event()
        self._throttle = Throttle(node.settings.config["log.cleaner.io.max.bytes.per.second"])
        self._tidying: asyncio.Task[None] | None = None
        self._running = False
        self._lost: dict[TopicPartition, PartitionLog] = {}
        """Logs whose last cleaning ended with its process."""
        self.processes = True
        """Whether a process can be had."""
        self.cleaners: list[Cleaner] = []
        self.in_progress: dict[TopicPartition, Cleaner] = {}
        self.uncleanable: dict[TopicPartition, PartitionLog] = {}
        self.dirtiest_ratio = 0.0
        self.last_run_ms = node.environment.wall_clock_ms()
        self.removed: defaultdict[str, Removed] = defaultdict(Removed)

    def __repr__(self) -> str:
        going = ", ".join(map(str, self.in_progress)) or "nothing"
        return f"<cleaning {going} by {len(self.cleaners)}, {len(self.uncleanable)} uncleanable>"

    # --- its life ---

    @property
    def is_enabled(self) -> bool:
        return bool(self._node.settings.static_config["log.cleaner.enable"])

    @property
    def threads(self) -> int:
        """How many logs may be cleaned at a time."""
        return int(self._node.settings.config["log.cleaner.threads"]) if self._running else 0

    def start(self) -> None:
        """Look after the logs from now on."""
        if not self.is_enabled:
            log.warning(
                "log.cleaner.enable is false: compacted topics, the internal ones too, only grow. Kafka will "
                "ignore this setting from 5.0 on."
            )
            return
        self._running = True
        if self.threads < 1:
            log.warning(
                "log.cleaner.threads is 0: nothing is compacted; Kafka asks for at least 1 from 5.0 on"
            )
        self._staff()

    def _staff(self) -> None:
        """As many cleaners as there should be; those above that number end when they have done their log."""
        self.cleaners = [cleaner for cleaner in self.cleaners if not cleaner.dead]
        taken = {cleaner.number for cleaner in self.cleaners}
        for number in range(self.threads):
            if number not in taken:
                cleaner = Cleaner(number)
                self.cleaners.append(cleaner)
                cleaner.task = self._node.loop.create_task(self._run(cleaner), name=f"cleaner-{number}")

    def reconfigured(self) -> None:
        """Settings of the broker have changed."""
        self._throttle.become(self._node.settings.config["log.cleaner.io.max.bytes.per.second"])
        if self._running:
            self._staff()
            self._wake.set()
            self._wake.clear()

    def stop(self) -> None:
        """Stop at once, without a word to anybody: what is being written goes at the next start."""
        if not self._running:
            return
        self._running = False
        for cleaner in self.cleaners:
            for way in (cleaner.way, cleaner.worker):
                if way is not None:
                    way.abort()
            if cleaner.task is not None:
                cleaner.task.cancel()
        if self._tidying is not None:
            self._tidying.cancel()

    async def close(self) -> None:
        """Stop, and return when nobody works on a log any more."""
        self.stop()
        tasks = [self._tidying, *(cleaner.task for cleaner in self.cleaners)]
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        self.cleaners = []

    def abort(self, name: TopicPartition) -> None:
        """This log is about to be deleted: nobody may write beside it any more."""
        cleaner = self.in_progress.get(name)
        if cleaner is not None and cleaner.way is not None:
            cleaner.way.abort()
        self.uncleanable.pop(name, None)
        self._lost.pop(name, None)

    # --- a cleaner ---

    async def _run(self, cleaner: Cleaner) -> None:
        try:
            while cleaner.number < self.threads:
                if not await self._clean_the_dirtiest(cleaner):
                    await self._end_worker(cleaner)
                    await self._rest()
        except Exception:
            log.exception("a cleaner has stopped")
            cleaner.dead = True
        else:
            self.cleaners.remove(cleaner)
        finally:
            await self._end_worker(cleaner)

    async def _end_worker(self, cleaner: Cleaner) -> None:
        if cleaner.worker is not None:
            await cleaner.worker.end()
            cleaner.worker = None

    async def _rest(self) -> None:
        """Until it is time to look again, or settings have changed."""
        backoff_s = max(self._node.settings.config["log.cleaner.backoff.ms"] / 1000, LEAST_BACKOFF_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(backoff_s):
                await self._wake.wait()

    async def _clean_the_dirtiest(self, cleaner: Cleaner) -> bool:
        """Whether one was cleaned."""
        found = await self._dirtiest(cleaner)
        cleaned = False
        if found is not None:
            partition, seen = found
            name = _name(partition)
            self.in_progress[name] = cleaner
            try:
                cleaned = await self._clean(cleaner, partition, seen)
            finally:
                del self.in_progress[name]
        await self._retain()
        return cleaned

    # --- which log ---

    def _compacted(self) -> Iterator[Partition]:
        """Those that may be looked at: nobody cleans them, and nothing is known against it."""
        for partition in list(self._node.partitions):
            if partition.log.config.compacts and partition.online:
                name = _name(partition)
                if name not in self.in_progress and self.uncleanable.get(name) is not partition.log:
                    yield partition

    async def _dirtiest(self, cleaner: Cleaner) -> tuple[Partition, LogToClean] | None:
        """The log that most needs to be cleaned, if one does."""
        self.last_run_ms = self._node.environment.wall_clock_ms()
        looks: list[tuple[Partition, LogToClean]] = []
        for at, partition in enumerate(self._compacted()):
            if at % LOOKS_A_TURN == LOOKS_A_TURN - 1:
                await asyncio.sleep(0)
            if len(partition.log.segments) > 1 and self._is_ours(partition):
                seen = self._look(partition)
                if seen is not None and seen.total_bytes > 0:
                    looks.append((partition, seen))
        self.dirtiest_ratio = max((seen.ratio for _, seen in looks), default=0.0)
        if not looks:
            return None
        from konvene.log.cleaner.selection import filthiest_log, is_cleanable

        due = [
            ((partition, seen), seen)
            for partition, seen in looks
            if is_cleanable(seen, partition.log.config)
            and self._is_ours(partition)
            and _name(partition) not in self.in_progress
        ]
        # Those that the archive could not take come last: they would keep all others from being cleaned.
        taken = [each for each in due if _name(each[0][0]) not in self._archive.failing]
        chosen = filthiest_log(taken or due)
        if chosen is not None:
            cleaner.delay_ms = max(seen.compaction_delay_ms for _, seen in looks)
        return chosen

    def _look(self, partition: Partition) -> LogToClean | None:
        """What cleaning this log would give; None if it cannot be said."""
        from konvene.log.cleaner.selection import log_to_clean

        of, name, directory = partition.log, _name(partition), self._directory
        cleaned_to, now_ms = directory.cleaned_to(name), self._node.environment.wall_clock_ms()
        try:
            seen = log_to_clean(of, cleaned_to, partition.high_watermark, now_ms)
            if seen.must_reset_checkpoint:
                if not of.config.deletes:
                    log.warning(
                        "%s was cleaned up to %s, which does not lie within it: all of it is taken for dirty",
                        name, cleaned_to,
                    )  # fmt: skip
                directory.set_cleaned_offset(name, seen.first_dirty_offset)
            return seen
        except DamagedLog as damage:
            self._leave_alone(partition, damage)
        except LogError as error:
            log.error("%s cannot be looked at: %s", name, error)
        return None

    def uncleanable_bytes(self) -> int:
        """How much of what cannot be cleaned is dirty."""
        count = 0
        for partition in self._node.partitions:
            of = partition.log
            if self.uncleanable.get(_name(partition)) is of:
                cleaned_to = self._directory.cleaned_to(_name(partition)) or of.start_offset
                count += sum(each.size for each in of.segments[:-1] if each.next_offset > cleaned_to)
        return count

    def _is_ours(self, partition: Partition) -> bool:
        """It has not been deleted, or deleted and made again."""
        return self._node.partitions.get(partition.topic, partition.index) is partition

    def _leave_alone(self, partition: Partition, why: BaseException) -> None:
        known = isinstance(why, LogError)
        log.error(
            "%s cannot be cleaned and will be left as it is: %s",
            partition,
            why,
            exc_info=None if known else why,
        )
        self.uncleanable[_name(partition)] = partition.log

    # --- one cleaning ---

    async def _clean(self, cleaner: Cleaner, partition: Partition, seen: LogToClean) -> bool:
        """Whether it was cleaned. Where it was not, the log is as it was, and it has been said why."""
        name, of = _name(partition), partition.log
        try:
            stats = await self._carry_out(cleaner, partition, seen)
        except GivenUp as why:
            log.info("%s: the cleaning was given up: %s", name, why)
            return False
        except Exception as error:
            if self._is_ours(partition):
                self._failed(partition, error)
            return False
        self._lost.pop(name, None)
        cleaner.stats = stats
        self.removed[partition.topic].add(stats)
        log.info("cleaned %s, %s", name, said(seen.first_dirty_offset, stats))
        if stats.invalid_messages_read:
            log.warning("%s: %d records had no key, and went", name, stats.invalid_messages_read)
        if stats.end_offset <= seen.first_dirty_offset:
            self._leave_alone(partition, GivenUp(f"no key fits into the memory at offset {stats.end_offset}"))
        return of.health.failure is None

    def _failed(self, partition: Partition, error: Exception) -> None:
        from konvene.broker.storage.cleaner_executor import NoProcess, WorkerLost

        name, of = _name(partition), partition.log
        if isinstance(error, NoProcess):
            log.warning("no process can be had for cleaning, it is done in this one: %s", error)
            self.processes = False
        elif isinstance(error, WorkerLost) and self._lost.get(name) is not of:
            log.warning("%s: %s, and will be cleaned again", name, error)
            self._lost[name] = of
        elif isinstance(error, OSError) and error.errno in FULL:
            log.warning("%s cannot be cleaned now: %s", name, error)
        elif isinstance(error, OSError):
            with contextlib.suppress(LogError):
                of.health.fail(f"cannot clean {of.directory}", error)
            log.error("%s could not be cleaned: %s", name, error)
        elif isinstance(error, LogError) and not isinstance(error, DamagedLog):
            log.error("%s could not be cleaned: %s", name, error)
        else:
            self._leave_alone(partition, error)

    async def _carry_out(self, cleaner: Cleaner, partition: Partition, seen: LogToClean) -> CleanerStats:
        from konvene.log.cleaner import segment_swap as swapping
        from konvene.log.cleaner import selection

        node, of = self._node, partition.log
        if not await self._handed_over(partition, seen):
            raise GivenUp("its segments cannot be handed over")
        began_s, now_ms = node.loop.time(), node.environment.wall_clock_ms()
        task = selection.cleaning_task(of, seen, partition.high_watermark, now_ms, self._map_bytes())
        swapping.begin_cleaning(self._directory, _name(partition), task)
        try:
            stats = await self._work_off(cleaner, partition, task)
            self._check(partition, of.cleaning is task)
            self._directory.set_cleaned_offset(_name(partition), stats.end_offset)
        except Exception:
            if of.cleaning is task and of.health.failure is None:
                await self._discard(of)
            raise
        finally:
            cleaner.way = None
            if of.cleaning is task:
                swapping.finish_cleaning(of)
        stats.elapsed_s = node.loop.time() - began_s
        return stats

    async def _handed_over(self, partition: Partition, seen: LogToClean) -> bool:
        """Whether what will be replaced may be."""
        archive, of = self._archive, partition.log
        if not archive.wants(of):
            return True
        segments = [each for each in of.segments[:-1] if each.base_offset < seen.first_uncleanable_offset]
        handed: bool = await self._in_thread(partial(archive.hand_over, of, segments))
        self._check(partition, True)
        return handed

    def _map_bytes(self) -> int:
        """Each cleaner's part of the memory for keys, as full as it may become."""
        config = self._node.settings.config
        part = config["log.cleaner.dedupe.buffer.size"] // max(config["log.cleaner.threads"], 1)
        return int(min(part, LARGEST_MAP) * config["log.cleaner.io.buffer.load.factor"])

    async def _work_off(self, cleaner: Cleaner, partition: Partition, task: CleaningTask) -> CleanerStats:
        """Clean, and put in place what has become of it."""
        of, loop = partition.log, self._node.loop
        way = cleaner.way = self._way(cleaner, task)
        try:
            await way.begin(task)
            while not isinstance(told := await way.told(), CleanerStats):
                self._check(partition, of.cleaning is task)
                if isinstance(told, CleanedSegment):
                    await self._swap(partition, task, told)
                elif pause_s := self._throttle.took(sum(told), loop.time()):
                    await way.pause(pause_s)
            return told
        except GeneratorExit:  # Nobody is there any more to wait for anything.
            raise
        except BaseException as error:
            await way.give_up()
            if isinstance(error, Exception):
                self._check(partition, of.cleaning is task)  # What fails upon that is no failure.
            raise

    def _way(self, cleaner: Cleaner, task: CleaningTask) -> CleanerExecutor:
        from konvene.broker.storage.cleaner_executor import InSlices, WorkerProcess, can_have_processes

        node = self._node
        size = sum(source.size for source in task.sources)
        if (
            size < node.settings.config["konvene.log.cleaner.process.min.bytes"]
            or not isinstance(self._directory.disk, RealDisk)
            or not (self.processes and can_have_processes())
        ):
            return InSlices(self._directory.disk, self._disk, node.loop)
        if cleaner.worker is None:
            cleaner.worker = WorkerProcess(node.loop)
        return cleaner.worker

    def _check(self, partition: Partition, goes_on: bool) -> None:
        """Whether there is still something to clean. Raises `GivenUp`."""
        if not self._is_ours(partition):
            raise GivenUp("it was deleted")
        if not goes_on:
            raise GivenUp("it was cut back")
        if partition.log.health.failure is not None:
            raise partition.log.health.refusal()

    async def _swap(self, partition: Partition, task: CleaningTask, group: CleanedSegment) -> None:
        """Put a new segment in the place of old ones. Before the last step nothing of the log has changed."""
        from konvene.log.cleaner import segment_swap as swapping

        of, disk = partition.log, self._directory.disk
        try:
            await self._in_thread(partial(swapping.prepare_swap, disk, of.directory, group))
        except OSError as error:
            self._check(partition, of.cleaning is task)
            of.health.fail(f"cannot put a cleaned segment in place in {of.directory}", error)
        self._check(partition, of.cleaning is task)
        if not swapping.swap_segments(of, group):
            raise GivenUp("its segments are not those that were cleaned")
        await self._in_thread(partial(swapping.sync_swap, of))
        self._tidy()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Do it in a thread of the disk. Who is cancelled meanwhile goes when it is done."""
        job = self._disk.run(work)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await job
            raise

    async def _discard(self, of: PartitionLog) -> None:
        from konvene.log.cleaner import segment_swap as swapping

        try:
            await self._in_thread(partial(swapping.remove_cleaned_files, self._directory.disk, of.directory))
        except OSError as error:
            with contextlib.suppress(LogError):
                of.health.fail(f"cannot tidy {of.directory}", error)

    # --- what is left ---

    def _tidy(self) -> None:
        """Remove replaced segments when they have been so for long enough."""
        if self._tidying is None and self._running:
            self._tidying = self._node.loop.create_task(self._tidy_up(), name="cleaner-tidying")

    async def _tidy_up(self) -> None:
        from konvene.log.cleaner.segment_swap import remove_deleted

        node = self._node
        try:
            while waiting := [partition.log for partition in node.partitions if partition.log.replaced]:
                for of in waiting:
                    with contextlib.suppress(LogError):  # Whose disk failed is offline, and has said so.
                        await self._in_thread(partial(remove_deleted, of, node.environment.wall_clock_ms()))
                waiting = [of for of in waiting if of.replaced and of.health.failure is None]
                if not waiting:
                    return
                shortest_s = min(of.config.file_delete_delay_ms for of in waiting) / 1000
                await asyncio.sleep(min(max(shortest_s, LEAST_BACKOFF_S), TIDIES_AFTER_S))
        finally:
            self._tidying = None

    async def _retain(self) -> None:
        """Retention of compacted logs; who is being cleaned waits until that is over."""
        now_ms = self._node.environment.wall_clock_ms()
        for at, partition in enumerate(self._compacted()):
            if at % LOOKS_A_TURN == LOOKS_A_TURN - 1:
                await asyncio.sleep(0)
            if self._is_ours(partition):
                try:
                    await retain(self._disk, self._archive, partition, now_ms)
                except LogError as error:
                    log.error("retention of %s could not be done: %s", partition, error)


def _name(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)
