"""Captures konvene's log lines by thread, so that each broker in this process has a log of its own."""

from __future__ import annotations

import logging
import threading

MAX_LINES = 2_000
"""Maximum number of lines kept for a thread; older lines are dropped."""


class _ThreadLogHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.by_thread: dict[int, list[str]] = {}
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        lines = self.by_thread.get(record.thread or 0)
        if lines is not None:
            lines.append(self.format(record))
            del lines[:-MAX_LINES]
        if record.levelno >= logging.WARNING:
            logging.getLogger().callHandlers(record)


_handler = _ThreadLogHandler()
_lock = threading.Lock()
_saved_level_and_propagate: tuple[int, bool] = (logging.NOTSET, True)


def start_capture(thread: int, lines: list[str]) -> None:
    """Append the lines that konvene logs in `thread` (its identifier) to `lines` from now on."""
    global _saved_level_and_propagate
    logger = logging.getLogger("konvene")
    with _lock:
        if not _handler.by_thread:
            _saved_level_and_propagate = (logger.level, logger.propagate)
            logger.addHandler(_handler)
            logger.propagate = False
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.INFO)
        _handler.by_thread[thread] = lines


def stop_capture(thread: int) -> None:
    """Stop capturing the log lines of `thread`."""
    logger = logging.getLogger("konvene")
    with _lock:
        if _handler.by_thread.pop(thread, None) is not None and not _handler.by_thread:
            logger.removeHandler(_handler)
            logger.setLevel(_saved_level_and_propagate[0])
            logger.propagate = _saved_level_and_propagate[1]
