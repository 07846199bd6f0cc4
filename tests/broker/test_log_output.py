"""Log lines as JSON, and the levels of `KONVENE_LOG`."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import konvene
from konvene.broker.log_output import (
    LOGGERS,
    JsonFormatter,
    LogLevels,
    json_line,
    parse_levels,
    unknown_loggers,
)

SOURCE = Path(konvene.__file__).parent


def formatted(message: str, *args: object, **attributes: Any) -> Any:
    """Return the document of a formatted log record."""
    record = logging.LogRecord("konvene.groups", logging.WARNING, "file.py", 1, message, args, None)
    record.created = 1_764_000_000.25
    for name, value in attributes.items():
        setattr(record, name, value)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_line_has_time_level_logger_and_message() -> None:
    assert formatted("group %s: %d members\n", "ä\x1b", 2) == {
        "timestamp": "2025-11-24T16:00:00.250Z",
        "level": "WARNING",
        "logger": "konvene.groups",
        "message": "group ä\x1b: 2 members\n",
    }


def test_fields_are_added_and_do_not_replace_the_first_four() -> None:
    """A sentence replaces the message; values that JSON does not have are text."""
    fields = {"event": "rebalance", "level": 7, "path": Path("/data")}
    found = formatted("%s", json.dumps({"event": "rebalance"}), fields=fields, sentence="group readers")
    assert (found["message"], found["level"]) == ("group readers", "WARNING")
    assert (found["event"], found["path"]) == ("rebalance", "/data")


def test_traceback_is_a_field() -> None:
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        found = formatted("failed", exc_info=sys.exc_info())
    assert found["message"] == "failed"
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("\nZeroDivisionError: division by zero")


def test_line_for_standard_output() -> None:
    line = json_line("konvene listens", {"event": "started", "metrics_url": None}, 1_764_000_000)
    assert line.endswith("}\n")
    assert json.loads(line) == {
        "timestamp": "2025-11-24T16:00:00.000Z",
        "level": "INFO",
        "logger": "konvene",
        "message": "konvene listens",
        "event": "started",
        "metrics_url": None,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", LogLevels()),
        ("WARNING", LogLevels(logging.WARNING)),
        ("info, konvene.groups=debug", LogLevels(logging.INFO, {"konvene.groups": logging.DEBUG})),
        ("asyncio=Error,critical,", LogLevels(logging.CRITICAL, {"asyncio": logging.ERROR})),
    ],
)
def test_levels(text: str, expected: LogLevels) -> None:
    assert parse_levels(text) == expected


@pytest.mark.parametrize("text", ["loud", "info,konvene=loud", "=debug", "konvene.groups=", "10"])
def test_invalid_level_lists_the_levels(text: str) -> None:
    with pytest.raises(ValueError, match=r"debug, info, warning, error, critical") as raised:
        parse_levels(text)
    assert str(raised.value).startswith(text.rpartition(",")[2] + ": ")
    assert "\n" not in str(raised.value)


def test_table_of_loggers_is_complete() -> None:
    """It has the loggers that the broker and the runtime use, and no other."""
    used = {
        name
        for package in ("broker", "runtime")
        for path in sorted((SOURCE / package).rglob("*.py"))
        for name in re.findall(r'getLogger\("(konvene[^"]*)"\)', path.read_text("utf-8"))
    }
    assert set(LOGGERS) == used
    levels = parse_levels("konvene.groups=debug,konvene.group=debug,asyncio=debug")
    assert unknown_loggers(levels) == ["konvene.group"]


PROGRAM = """
import logging, threading, warnings
from konvene.broker.log_output import configure

class Destroyed:
    def __del__(self):
        raise ValueError("in a destructor")

configure("json", "error,konvene.quiet=debug,py.warnings=warning,konvene=warning")
warnings.warn("a deprecated setting")
logging.getLogger("konvene.quiet").debug("shown")
logging.getLogger("asyncio").info("not shown")
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
destroyed = Destroyed()
del destroyed
raise KeyError("at the end")
"""


def test_everything_that_a_process_writes_is_json() -> None:
    """Warnings, and exceptions in threads, in destructors and at the end of the process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    expected = [
        ("WARNING", "there is no logger konvene.quiet"),
        ("WARNING", "UserWarning: a deprecated setting"),
        ("DEBUG", "shown"),
        ("ERROR", "uncaught exception in thread worker: ZeroDivisionError"),
        ("ERROR", "ValueError('in a destructor')"),
        ("CRITICAL", "uncaught exception: KeyError('at the end')"),
    ]
    assert [line["level"] for line in lines] == [level for level, _ in expected]
    for line, (_, message) in zip(lines, expected, strict=True):
        assert message in line["message"]
    assert all("Traceback" in line["exception"] for line in lines[3:])
