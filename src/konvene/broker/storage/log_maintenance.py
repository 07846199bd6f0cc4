"""Periodic work on all logs, as Kafka's `LogManager`: flush, retention and checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from konvene.broker.storage.retention import retain_all
from konvene.log.config import LONG_MAX
from konvene.log.errors import LogError

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices
    from konvene.broker.storage.archive import Archive
    from konvene.broker.storage.cleaner import LogCleaner
    from konvene.broker.storage.disk_threads import DiskThreads
    from konvene.log.directory import LogDirectory

log = logging.getLogger("konvene.broker")


class LogMaintenance:
    """The flush, retention and checkpoint jobs for the logs of one data directory."""

    def __init__(
        self,
        node: NodeServices,
        directory: LogDirectory,
        disk: DiskThreads,
        archive: Archive,
        cleaner: LogCleaner,
    ) -> None:
        self._node = node
        self._directory = directory
        self._disk = disk
        self._archive = archive
        self.cleaner = cleaner

    def __repr__(self) -> str:
        return f"<log maintenance of {self._directory.path}>"

    async def flush_periodically(self) -> None:
        """Every `log.flush.scheduler.interval.ms`, sync the logs with records unsynced for `flush.ms`."""
        interval_ms = self._node.settings.config["log.flush.scheduler.interval.ms"]
        while interval_ms < LONG_MAX:
            await asyncio.sleep(interval_ms / 1000)
            now_ms = self._node.environment.wall_clock_ms()
            for partition in [p for p in self._node.partitions if p.is_due(now_ms)]:
                with contextlib.suppress(LogError):  # The log is offline, which has been logged.
                    await partition.sync()

    async def retain(self) -> None:
        """Delete segments beyond retention; of compacted logs only while the cleaner is disabled."""
        with _logged_errors("retention"):
            await retain_all(
                self._node.environment,
                self._disk,
                self._node.partitions,
                self._archive,
                cleaner_enabled=self.cleaner.is_enabled,
            )

    async def checkpoint(self) -> None:
        """Sync finished segments and write the recovery points, which shortens recovery after a crash."""
        with _logged_errors("the checkpoint"):
            await self._disk.run(self._directory.sync_finished)
            self._directory.checkpoint()


@contextlib.contextmanager
def _logged_errors(work: str) -> Iterator[None]:
    try:
        yield
    except LogError as error:
        log.error("%s failed: %s", work, error)
