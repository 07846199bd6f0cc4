"""Configures what a broker's process writes: log lines as text or as JSON, and the levels of loggers.

As JSON, each line of standard error and of standard output is one object with `timestamp` (ISO 8601, UTC),
`level`, `logger` and `message`. A traceback is the field `exception`. A call of a logger may add fields:
`extra={"fields": {...}, "sentence": ...}` adds the fields and replaces the message, which is then often the
same fields as text. Warnings, exceptions that end the process or a thread, and exceptions in destructors
become log lines too.

Limitation: errors of usage (exit code 2) that click reports precede the configuration and are plain text.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = [
    "FORMATS", "JSON", "LEVELS", "LOGGERS", "TEXT", "JsonFormatter", "LogLevels", "configure", "json_line",
    "parse_levels", "unknown_loggers",
]  # fmt: skip

TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)

TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

LOGGERS: Final = (
    "konvene", "konvene.archive", "konvene.broker", "konvene.cleaner", "konvene.connection",
    "konvene.coordinator", "konvene.groups", "konvene.metrics", "konvene.oauth", "konvene.rebalance",
    "konvene.security", "konvene.share_states", "konvene.sharing", "konvene.transactions",
)  # fmt: skip
"""The loggers of a broker."""

log = logging.getLogger("konvene")


class LogLevels(NamedTuple):
    """The level of all loggers, and those of some loggers by name."""

    root: int = logging.INFO
    by_logger: Mapping[str, int] = {}


def parse_levels(text: str) -> LogLevels:
    """Parse `KONVENE_LOG`: a level, or `logger=level`, or several of them with commas between.

    Raises ValueError with a message that lists the levels."""
    root, by_logger = logging.INFO, {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, level_name = entry.rpartition("=")
        level = LEVELS.get(level_name.strip().lower())
        if level is None or (separator and not name.strip()):
            raise ValueError(
                f"{entry}: write a level or LOGGER=LEVEL; levels are {', '.join(LEVELS)}"
                " (KONVENE_LOG=info,konvene.groups=debug)"
            )
        if separator:
            by_logger[name.strip()] = level
        else:
            root = level
    return LogLevels(root, by_logger)


def unknown_loggers(levels: LogLevels) -> list[str]:
    """Return the names that look like loggers of a broker and are none."""
    return [name for name in levels.by_logger if name.startswith("konvene") and name not in LOGGERS]


def configure(format_: str, levels_text: str = "") -> None:
    """Write all log lines to standard error, in a format of `FORMATS` and with the levels of `KONVENE_LOG`.

    If the program has configured logging already, its handlers and its level stay. Raises ValueError if
    `levels_text` is invalid; the level is INFO then."""
    root = logging.getLogger()
    is_configured = bool(root.handlers)
    if not is_configured:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if format_ == JSON else logging.Formatter(TEXT_FORMAT))
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    if format_ == JSON:
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        sys.unraisablehook = _log_unraisable
        threading.excepthook = _log_uncaught_in_thread
    levels = parse_levels(levels_text)
    if not is_configured:
        root.setLevel(levels.root)
    for name, level in levels.by_logger.items():
        logging.getLogger(name).setLevel(level)
    for name in unknown_loggers(levels):
        log.warning("KONVENE_LOG: there is no logger %s; loggers are %s", name, ", ".join(LOGGERS))


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "timestamp": _iso(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": getattr(record, "sentence", None) or record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            document["stack"] = self.formatStack(record.stack_info)
        document.update(
            (name, value) for name, value in getattr(record, "fields", {}).items() if name not in document
        )
        return json.dumps(document, default=str)


def json_line(message: str, fields: Mapping[str, object], created_s: float) -> str:
    """Return a line for standard output, of the same form as a log line. `created_s`: seconds since 1970."""
    record = logging.makeLogRecord(
        {"name": log.name, "levelno": logging.INFO, "levelname": "INFO", "msg": message, "fields": fields}
    )
    record.created = created_s
    return JsonFormatter().format(record) + "\n"


def _iso(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds, such as `2026-11-24T02:10:00.123Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- exceptions that no code handles ---------------------------------------------------------------


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    log.critical("uncaught exception: %r", error, exc_info=(kind, error, traceback))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        name = args.thread.name if args.thread is not None else "unknown"
        log.error(
            "uncaught exception in thread %s: %r", name, args.exc_value,
            exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
        )  # fmt: skip


def _log_unraisable(args: UnraisableHookArgs) -> None:
    if args.exc_value is not None:
        log.error(
            "%s: %r", args.err_msg or "exception ignored in a destructor", args.exc_value,
            exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
        )  # fmt: skip
