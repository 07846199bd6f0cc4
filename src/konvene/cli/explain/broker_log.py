"""The options `--broker-log` and `--broker-log-zone`: brokers' own logs as evidence of causes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from konvene.cli.output import note
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.cli.explain.warehouse import Work
    from konvene.pipeline.answers.broker_log.evidence import BrokerLog

__all__ = ["broker_log_of", "broker_log_options", "note_misfits"]

F = TypeVar("F", bound=Callable[..., object])


def broker_log_options(command: F) -> F:
    """Add --broker-log and --broker-log-zone to a command, below `work_options`."""

    @click.option("--broker-log", "broker_logs", multiple=True, metavar="PATH",
                  type=click.Path(path_type=Path, exists=True),
                  help="A broker's own log, or a directory with its files server.log*: evidence of causes "
                  "that the records do not show; may be repeated.")  # fmt: skip
    @click.option("--broker-log-zone", callback=_zone, metavar="ZONE",
                  help="Time zone of these logs, such as UTC, +02:00 or Europe/Berlin [default: this "
                  "machine's].")  # fmt: skip
    @functools.wraps(command)
    def wrapped(
        *args: object, work: Work, broker_logs: tuple[Path, ...], broker_log_zone: tzinfo | None,
        **kwargs: object,
    ) -> object:  # fmt: skip
        work = work._replace(broker_logs=broker_logs, broker_log_zone=broker_log_zone)
        return command(*args, work=work, **kwargs)

    return wrapped  # type: ignore[return-value]


def _zone(context: click.Context, parameter: click.Parameter, text: str | None) -> tzinfo | None:
    """Return the time zone that an option names."""
    if text is None:
        return None
    try:
        offset = datetime.strptime(text, "%z").tzinfo
    except ValueError:
        offset = None
    if offset is not None:
        return offset
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(f"{text}: write UTC, +02:00 or Europe/Berlin.") from None


def broker_log_of(work: Work) -> BrokerLog | None:
    """Read the logs of `--broker-log`; None without the option."""
    if not work.broker_logs:
        return None
    from konvene.pipeline.answers.broker_log.evidence import BrokerLog

    log = BrokerLog(work.broker_logs, work.broker_log_zone)
    if not log.events:
        note("The broker's log has no line of a group coordinator at level INFO.")
    return log


def note_misfits(log: BrokerLog | None) -> None:
    """Print a note if lines of a broker's log have other times than the records that they are about."""
    if log is not None and log.misfits:
        note(
            f"Lines of the broker's log about {counted(len(log.misfits), 'rebalance')} have other times than "
            "the records, and were ignored: --broker-log-zone names the time zone of the log."
        )
