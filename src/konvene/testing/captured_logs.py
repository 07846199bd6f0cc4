"""Keeps the log lines of the brokers in this process apart, by the thread that they run on."""

from __future__ import annotations

import logging
import threading

MOST_LINES = 2_000
"""Older ones are dropped."""


class _ThreadLogHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.by_thread: dict[int, list[str]] = {}
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        lines = self.by_thread.get(record.thread or 0)
        if lines is not None:
            lines.append(self.format(record))
            del lines[:-MOST_LINES]
        if record.levelno >= logging.WARNING:
            logging.getLogger().callHandlers(record)


_keeper = _ThreadLogHandler()
_lock = threading.Lock()
_before: tuple[int, bool] = (logging.NOTSET, True)


def listen(thread: int, lines: list[str]) -> None:
    """Collect in `lines` what is logged on a thread from now on."""
    global _before
    logger = logging.getLogger("konvene")
    with _lock:
        if not _keeper.by_thread:
            _before = (logger.level, logger.propagate)
            logger.addHandler(_keeper)
            logger.propagate = False
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.INFO)
        _keeper.by_thread[thread] = lines


def forget(thread: int) -> None:
    """Stop collecting for a thread."""
    logger = logging.getLogger("konvene")
    with _lock:
        if _keeper.by_thread.pop(thread, None) is not None and not _keeper.by_thread:
            logger.removeHandler(_keeper)
            logger.setLevel(_before[0])
            logger.propagate = _before[1]
