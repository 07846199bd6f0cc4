"""Cleans the logs of compacted topics: chooses the dirtiest log, has it cleaned, and swaps in the result.

Each cleaner examines the compacted logs and cleans the dirtiest one, again and again. If none is dirty
enough, it waits for `log.cleaner.backoff.ms`. There are `log.cleaner.threads` cleaners, so as many logs are
cleaned at the same time. `konvene.log.cleaner` defines a cleaning, `cleaner_executor` runs it: of a small log
in steps between requests, of a large one in a process. The active segment is never touched. Cleanings and
requests never wait for each other: only the last step of a cleaning, a few renames, runs on the event loop.

A cleaning that fails leaves the log as it was. If the log is damaged, or the error is unexpected, the log is
uncleanable from then on, which is logged and counted. If the process of a cleaning ended, the cleaning is
retried once. Errors of the disk take the directory offline, except for a full disk, after which the cleaning
is retried.

Segments are handed over to the archive before they are replaced, and stay as they are while the archive
cannot take them. Retention of compacted logs happens here as well, as in Kafka, so that both never overlap.

The modules of the cleaner are imported, and its processes started, only when there is a log to clean.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from konvene.broker.storage.cleaner_statistics import Cleaner, RemovalTotals, summary
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

T = TypeVar("T")

log = logging.getLogger("konvene.cleaner")

LOGS_PER_SLICE = 100
"""Number of logs that are examined before other tasks may run."""
MIN_BACKOFF_S = 0.02
MAX_MAP_BYTES = 2**31 - 1
MAX_DELETION_INTERVAL_S = 10.0
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class CleaningAborted(Exception):
    """A cleaning cannot continue: its log was deleted, truncated or changed, or could not be archived."""


class LogCleaner:
    """The log cleaner of a broker: its cleaners, the cleanings in progress, and the uncleanable logs."""

    def __init__(
        self, node: NodeServices, directory: LogDirectory, disk: DiskThreads, archive: Archive
    ) -> None:
        self._node = node
        self._directory = directory
        self._disk = disk
        self._archive = archive
        self._reconfigured = asyncio.Event()
        self._throttle = Throttle(node.settings.config["log.cleaner.io.max.bytes.per.second"])
        self._deletion: asyncio.Task[None] | None = None
        self._running = False
        self._worker_lost: dict[TopicPartition, PartitionLog] = {}
        """Logs whose last cleaning ended because its process was lost."""
        self.can_start_processes = True
        """False after the system refused to start a process."""
        self.cleaners: list[Cleaner] = []
        self.in_progress: dict[TopicPartition, Cleaner] = {}
        self.uncleanable: dict[TopicPartition, PartitionLog] = {}
        """Logs that are not cleaned any more."""
        self.dirtiest_ratio = 0.0
        self.last_run_ms = node.environment.wall_clock_ms()
        self.removed: defaultdict[str, RemovalTotals] = defaultdict(RemovalTotals)
        """What cleanings have removed since the start, by topic."""

    def __repr__(self) -> str:
        current = ", ".join(map(str, self.in_progress)) or "nothing"
        return f"<{len(self.cleaners)} cleaners of {current}, {len(self.uncleanable)} uncleanable>"

    @property
    def is_enabled(self) -> bool:
        return bool(self._node.settings.static_config["log.cleaner.enable"])

    @property
    def threads(self) -> int:
        """Return how many cleaners should run: `log.cleaner.threads`, or 0 while cleaning is stopped."""
        return int(self._node.settings.config["log.cleaner.threads"]) if self._running else 0

    def start(self) -> None:
        """Start the cleaners, unless `log.cleaner.enable` is false."""
        if not self.is_enabled:
            log.warning(
                "log.cleaner.enable is false: compacted topics, including internal ones, grow without limit. "
                "Kafka ignores this setting from 5.0 on."
            )
            return
        self._running = True
        if self.threads < 1:
            log.warning("log.cleaner.threads is 0: nothing is compacted. Kafka 5.0 will require at least 1.")
        self._start_cleaners()

    def _start_cleaners(self) -> None:
        """Start cleaners until `threads` run. Surplus ones end by themselves after their current log."""
        self.cleaners = [cleaner for cleaner in self.cleaners if not cleaner.dead]
        numbers = {cleaner.number for cleaner in self.cleaners}
        for number in range(self.threads):
            if number not in numbers:
                cleaner = Cleaner(number)
                self.cleaners.append(cleaner)
                cleaner.task = self._node.loop.create_task(self._run(cleaner), name=f"cleaner-{number}")

    def reconfigured(self) -> None:
        """Apply changed settings: the number of cleaners and their I/O limit."""
        self._throttle.set_rate(self._node.settings.config["log.cleaner.io.max.bytes.per.second"])
        if self._running:
            self._start_cleaners()
            self._reconfigured.set()
            self._reconfigured.clear()

    def stop(self) -> None:
        """Cancel all cleanings. The files that they leave are deleted when the broker starts again."""
        if not self._running:
            return
        self._running = False
        for cleaner in self.cleaners:
            for executor in (cleaner.executor, cleaner.worker):
                if executor is not None:
                    executor.abort()
            if cleaner.task is not None:
                cleaner.task.cancel()
        if self._deletion is not None:
            self._deletion.cancel()

    async def close(self) -> None:
        """Stop, and wait until no task works on a log any more."""
        self.stop()
        tasks = [self._deletion, *(cleaner.task for cleaner in self.cleaners)]
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        self.cleaners = []

    def abort(self, name: TopicPartition) -> None:
        """Abort the cleaning of a log that is about to be deleted."""
        cleaner = self.in_progress.get(name)
        if cleaner is not None and cleaner.executor is not None:
            cleaner.executor.abort()
        self.uncleanable.pop(name, None)
        self._worker_lost.pop(name, None)

    # --- the task of a cleaner ---

    async def _run(self, cleaner: Cleaner) -> None:
        try:
            while cleaner.number < self.threads:
                if not await self._clean_dirtiest(cleaner):
                    await self._close_worker(cleaner)
                    await self._back_off()
        except Exception:
            log.exception("cleaner %d has stopped", cleaner.number)
            cleaner.dead = True
        else:
            self.cleaners.remove(cleaner)
        finally:
            await self._close_worker(cleaner)

    async def _close_worker(self, cleaner: Cleaner) -> None:
        if cleaner.worker is not None:
            await cleaner.worker.close()
            cleaner.worker = None

    async def _back_off(self) -> None:
        """Wait for `log.cleaner.backoff.ms`, or until settings have changed."""
        backoff_s = max(self._node.settings.config["log.cleaner.backoff.ms"] / 1000, MIN_BACKOFF_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(backoff_s):
                await self._reconfigured.wait()

    async def _clean_dirtiest(self, cleaner: Cleaner) -> bool:
        """Clean the dirtiest log and apply retention; return True if a log was cleaned."""
        selected = await self._select_dirtiest(cleaner)
        cleaned = False
        if selected is not None:
            partition, candidate = selected
            name = _name(partition)
            self.in_progress[name] = cleaner
            try:
                cleaned = await self._clean(cleaner, partition, candidate)
            finally:
                del self.in_progress[name]
        await self._retain()
        return cleaned

    # --- selecting a log ---

    def _compacted(self) -> Iterator[Partition]:
        """Yield the compacted partitions that are online, neither being cleaned nor uncleanable."""
        for partition in list(self._node.partitions):
            if partition.log.config.compacts and partition.online:
                name = _name(partition)
                if name not in self.in_progress and self.uncleanable.get(name) is not partition.log:
                    yield partition

    async def _select_dirtiest(self, cleaner: Cleaner) -> tuple[Partition, LogToClean] | None:
        """Return the log that most needs cleaning, or None if no log does."""
        self.last_run_ms = self._node.environment.wall_clock_ms()
        candidates: list[tuple[Partition, LogToClean]] = []
        for number, partition in enumerate(self._compacted()):
            if number % LOGS_PER_SLICE == LOGS_PER_SLICE - 1:
                await asyncio.sleep(0)
            with contextlib.suppress(LogError):  # The log is offline, which has been logged, or deleted.
                await partition.sync_finished()
            if len(partition.log.segments) > 1 and partition.online and self._is_current(partition):
                candidate = self._examine(partition)
                if candidate is not None and candidate.total_bytes > 0:
                    candidates.append((partition, candidate))
        self.dirtiest_ratio = max((candidate.ratio for _, candidate in candidates), default=0.0)
        if not candidates:
            return None
        from konvene.log.cleaner.selection import filthiest_log, is_cleanable

        due = [
            ((partition, candidate), candidate)
            for partition, candidate in candidates
            if is_cleanable(candidate, partition.log.config)
            and self._is_current(partition)
            and _name(partition) not in self.in_progress
        ]
        # Logs that the archive could not take come last, so that they do not block all others.
        archivable = [row for row in due if _name(row[0][0]) not in self._archive.failing]
        selected = filthiest_log(archivable or due)
        if selected is not None:
            cleaner.delay_ms = max(candidate.compaction_delay_ms for _, candidate in candidates)
        return selected

    def _examine(self, partition: Partition) -> LogToClean | None:
        """Return what could be cleaned in a log; None if its files cannot be read."""
        from konvene.log.cleaner.selection import log_to_clean

        of, name, directory = partition.log, _name(partition), self._directory
        cleaned_to, now_ms = directory.cleaned_to(name), self._node.environment.wall_clock_ms()
        try:
            candidate = log_to_clean(of, cleaned_to, partition.high_watermark, now_ms)
            if candidate.must_reset_checkpoint:
                if not of.config.deletes:
                    log.warning(
                        "%s: the cleaner checkpoint %s is outside of the log, the whole log counts as dirty",
                        name, cleaned_to,
                    )  # fmt: skip
                directory.set_cleaned_offset(name, candidate.first_dirty_offset)
            return candidate
        except DamagedLog as damage:
            self._mark_uncleanable(partition, damage)
        except LogError as error:
            log.error("%s: cannot examine the log for cleaning: %s", name, error)
        return None

    def uncleanable_bytes(self) -> int:
        """Return the dirty bytes of the uncleanable logs."""
        count = 0
        for partition in self._node.partitions:
            of = partition.log
            if self.uncleanable.get(_name(partition)) is of:
                cleaned_to = self._directory.cleaned_to(_name(partition)) or of.start_offset
                count += sum(s.size for s in of.segments[:-1] if s.next_offset > cleaned_to)
        return count

    def _is_current(self, partition: Partition) -> bool:
        """Return True unless the partition was deleted, even if another one has its name now."""
        return self._node.partitions.get(partition.topic, partition.index) is partition

    def _mark_uncleanable(self, partition: Partition, reason: BaseException) -> None:
        details = None if isinstance(reason, LogError) else reason
        log.error("%s is uncleanable from now on: %s", partition, reason, exc_info=details)
        self.uncleanable[_name(partition)] = partition.log

    # --- cleaning a log ---

    async def _clean(self, cleaner: Cleaner, partition: Partition, candidate: LogToClean) -> bool:
        """Clean a log; return False if it is unchanged, after logging the reason."""
        name, of = _name(partition), partition.log
        try:
            stats = await self._carry_out(cleaner, partition, candidate)
        except CleaningAborted as aborted:
            log.info("%s: cleaning aborted: %s", name, aborted)
            return False
        except Exception as error:
            if self._is_current(partition):
                self._handle_failure(partition, error)
            return False
        self._worker_lost.pop(name, None)
        cleaner.stats = stats
        self.removed[partition.topic].add(stats)
        log.info("cleaned %s, %s", name, summary(candidate.first_dirty_offset, stats))
        if stats.invalid_messages_read:
            log.warning("%s: %d records without a key were removed", name, stats.invalid_messages_read)
        if stats.end_offset <= candidate.first_dirty_offset:
            reason = f"the key map has no space for a key at offset {stats.end_offset}"
            self._mark_uncleanable(partition, CleaningAborted(reason))
        return of.health.failure is None

    def _handle_failure(self, partition: Partition, error: Exception) -> None:
        from konvene.broker.storage.cleaner_executor import CannotStartProcess, WorkerLost

        name, of = _name(partition), partition.log
        if isinstance(error, CannotStartProcess):
            log.warning("cannot start a process, logs are cleaned in the broker's process: %s", error)
            self.can_start_processes = False
        elif isinstance(error, WorkerLost) and self._worker_lost.get(name) is not of:
            log.warning("%s: %s; the cleaning will be retried", name, error)
            self._worker_lost[name] = of
        elif isinstance(error, OSError) and error.errno in DISK_FULL:
            log.warning("%s: cleaning failed and will be retried: %s", name, error)
        elif isinstance(error, OSError):
            with contextlib.suppress(LogError):
                of.health.fail(f"cannot clean {of.directory}", error)
            log.error("%s: cleaning failed: %s", name, error)
        elif isinstance(error, LogError) and not isinstance(error, DamagedLog):
            log.error("%s: cleaning failed: %s", name, error)
        else:
            self._mark_uncleanable(partition, error)

    async def _carry_out(self, cleaner: Cleaner, partition: Partition, candidate: LogToClean) -> CleanerStats:
        from konvene.log.cleaner import segment_swap as swapping
        from konvene.log.cleaner import selection

        node, of = self._node, partition.log
        if not await self._hand_over(partition, candidate):
            raise CleaningAborted("the archive cannot take its segments")
        began_s, now_ms = node.loop.time(), node.environment.wall_clock_ms()
        task = selection.cleaning_task(of, candidate, partition.high_watermark, now_ms, self._map_bytes())
        swapping.begin_cleaning(self._directory, _name(partition), task)
        try:
            stats = await self._run_task(cleaner, partition, task)
            self._check(partition, is_intact=of.cleaning is task)
            self._directory.set_cleaned_offset(_name(partition), stats.end_offset)
        except Exception:
            if of.cleaning is task and of.health.failure is None:
                await self._discard(of)
            raise
        finally:
            cleaner.executor = None
            if of.cleaning is task:
                swapping.finish_cleaning(of)
        stats.elapsed_s = node.loop.time() - began_s
        return stats

    async def _hand_over(self, partition: Partition, candidate: LogToClean) -> bool:
        """Hand over to the archive what a cleaning may replace; return True if the cleaning may begin."""
        archive, of = self._archive, partition.log
        if not archive.accepts(of):
            return True
        segments = [s for s in of.segments[:-1] if s.base_offset < candidate.first_uncleanable_offset]
        may_replace = await self._in_thread(partial(archive.hand_over, of, segments))
        self._check(partition)
        return may_replace

    def _map_bytes(self) -> int:
        """Return how many bytes each cleaner's key map may take of `log.cleaner.dedupe.buffer.size`."""
        config = self._node.settings.config
        share = config["log.cleaner.dedupe.buffer.size"] // max(config["log.cleaner.threads"], 1)
        return int(min(share, MAX_MAP_BYTES) * config["log.cleaner.io.buffer.load.factor"])

    async def _run_task(self, cleaner: Cleaner, partition: Partition, task: CleaningTask) -> CleanerStats:
        """Run a cleaning and swap in its segments; return its statistics."""
        of, loop = partition.log, self._node.loop
        executor = cleaner.executor = self._executor(cleaner, task)
        try:
            await executor.start(task)
            while not isinstance(result := await executor.next_result(), CleanerStats):
                self._check(partition, is_intact=of.cleaning is task)
                if isinstance(result, CleanedSegment):
                    await self._swap(partition, task, result)
                elif pause_s := self._throttle.pause_after(sum(result), loop.time()):
                    await executor.pause(pause_s)
            return result
        except GeneratorExit:  # The loop is closed, so that nothing can be awaited.
            raise
        except BaseException as error:
            await executor.abandon()
            if isinstance(error, Exception):  # An error after a deletion is no failure.
                self._check(partition, is_intact=of.cleaning is task)
            raise

    def _executor(self, cleaner: Cleaner, task: CleaningTask) -> CleanerExecutor:
        from konvene.broker.storage import cleaner_executor

        node = self._node
        size = sum(source.size for source in task.sources)
        if (
            size < node.settings.config["konvene.log.cleaner.process.min.bytes"]
            or not isinstance(self._directory.disk, RealDisk)
            or not (self.can_start_processes and cleaner_executor.can_start_processes())
        ):
            return cleaner_executor.SteppedCleaning(self._directory.disk, self._disk, node.loop)
        if cleaner.worker is None:
            cleaner.worker = cleaner_executor.WorkerProcess(node.loop)
        return cleaner.worker

    def _check(self, partition: Partition, *, is_intact: bool = True) -> None:
        """Raise `CleaningAborted` if a log is deleted or truncated (not intact), `LogOffline` if offline."""
        if not self._is_current(partition):
            raise CleaningAborted("the partition was deleted")
        if not is_intact:
            raise CleaningAborted("the log was truncated")
        if partition.log.health.failure is not None:
            raise partition.log.health.refusal()

    async def _swap(self, partition: Partition, task: CleaningTask, group: CleanedSegment) -> None:
        """Replace the segments that `group` was cleaned from by its file. The log changes in one step."""
        from konvene.log.cleaner import segment_swap as swapping

        of, disk = partition.log, self._directory.disk
        try:
            await self._in_thread(partial(swapping.prepare_swap, disk, of.directory, group))
        except OSError as error:
            self._check(partition, is_intact=of.cleaning is task)
            of.health.fail(f"cannot swap in a cleaned segment in {of.directory}", error)
        self._check(partition, is_intact=of.cleaning is task)
        if not swapping.swap_segments(of, group):
            raise CleaningAborted("its segments have changed")
        await self._in_thread(partial(swapping.sync_swap, of))
        self._schedule_deletion()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a disk thread and return its result. If cancelled, wait for it to finish first."""
        job = self._disk.run(work)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await job
            raise

    async def _discard(self, of: PartitionLog) -> None:
        from konvene.log.cleaner.recovery import remove_unfinished_files

        try:
            await self._in_thread(partial(remove_unfinished_files, self._directory.disk, of.directory))
        except OSError as error:
            with contextlib.suppress(LogError):
                of.health.fail(f"cannot remove the cleaner's files from {of.directory}", error)

    # --- deleting replaced segments, and retention ---

    def _schedule_deletion(self) -> None:
        """Start the task, unless it runs, that deletes replaced segments after `file.delete.delay.ms`."""
        if self._deletion is None and self._running:
            self._deletion = self._node.loop.create_task(self._delete_replaced(), name="cleaner-deletion")

    async def _delete_replaced(self) -> None:
        from konvene.log.cleaner.segment_swap import remove_deleted

        node = self._node
        try:
            while waiting := [partition.log for partition in node.partitions if partition.log.replaced]:
                for of in waiting:
                    with contextlib.suppress(LogError):  # The log is offline, which has been logged.
                        await self._in_thread(partial(remove_deleted, of, node.environment.wall_clock_ms()))
                waiting = [of for of in waiting if of.replaced and of.health.failure is None]
                if not waiting:
                    return
                shortest_s = min(of.config.file_delete_delay_ms for of in waiting) / 1000
                await asyncio.sleep(min(max(shortest_s, MIN_BACKOFF_S), MAX_DELETION_INTERVAL_S))
        finally:
            self._deletion = None

    async def _retain(self) -> None:
        """Apply retention to the compacted logs that are not being cleaned."""
        now_ms = self._node.environment.wall_clock_ms()
        for number, partition in enumerate(self._compacted()):
            if number % LOGS_PER_SLICE == LOGS_PER_SLICE - 1:
                await asyncio.sleep(0)
            if self._is_current(partition):
                try:
                    await retain(self._disk, self._archive, partition, now_ms)
                except LogError as error:
                    log.error("%s: retention failed: %s", partition, error)


def _name(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)
