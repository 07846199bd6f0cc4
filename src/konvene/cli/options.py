"""What commands share: how to reach a cluster, how to run, and how a failure is told.

A failure is one line on standard error that says what is wrong and where, a second one that says what to do
where there is something to do, and exit code 1. There is no traceback for anything that a cluster, a network
or a user can cause; one that does appear is a mistake of ours and worth a report.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from konvene.client.net.cluster import Cluster

__all__ = ["Failure", "cluster_options", "fail", "fail_all", "failure_of", "json_option", "run"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_SERVER = "localhost:9092"


class Failure(click.ClickException):
    """A command that could not do what it was asked: says why, ends with exit code 1."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: Any = None) -> None:
        click.echo(f"konvene: {self.format_message()}", err=True, file=file)
        if self.hint:
            click.echo(f"  {self.hint}", err=True, file=file)


def fail(message: str, hint: str = "") -> NoReturn:
    raise Failure(message, hint)


def fail_all(failures: Iterable[Failure]) -> None:
    """Tell them all, and end with the last, if there is any."""
    told = list(failures)
    for each in told[:-1]:
        each.show()
    if told:
        raise told[-1]


def cluster_options(command: F) -> F:
    """--bootstrap-server, --command-config, --timeout: gives the command a `connect` that makes a Cluster."""

    @click.option(
        "--bootstrap-server",
        default=DEFAULT_SERVER,
        show_default=True,
        metavar="HOST:PORT[,HOST:PORT]",
        envvar="KONVENE_BOOTSTRAP_SERVER",
        show_envvar=True,
        help="The server(s) to connect to.",
    )
    @click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Properties file with client settings, as Kafka's tools take it.",
    )
    @click.option(
        "--timeout",
        type=click.IntRange(1),
        metavar="MS",
        help="Give up after this many milliseconds [default: 60000].",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, bootstrap_server: str, command_config: Path | None, timeout: int | None, **kwargs: Any
    ) -> Any:
        def connect(client_id: str = "") -> Cluster:
            from konvene.client.net.cluster import Cluster
            from konvene.client.net.settings import ClientSettings, load_command_config

            settings = load_command_config(command_config) if command_config else ClientSettings()
            if client_id and settings.client_id == ClientSettings().client_id:
                settings = settings._replace(client_id=client_id)
            if timeout is not None:
                settings = settings._replace(
                    default_api_timeout_ms=timeout,
                    request_timeout_ms=min(settings.request_timeout_ms, timeout),
                    connect_timeout_ms=min(settings.connect_timeout_ms, timeout),
                )
            return Cluster(bootstrap_server, settings)

        return command(*args, connect=connect, **kwargs)

    return wrapped  # type: ignore[return-value]


def json_option(command: F) -> F:
    """--json, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def run(job: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine to its end and tell its failures.

    An interrupt (Ctrl-C, SIGTERM) cancels it, so that it can leave its group; then exit code 130."""
    import asyncio
    import signal

    from konvene.client.errors import ClientError

    async def whole() -> T:
        task: asyncio.Task[T] = asyncio.ensure_future(job())
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(each, task.cancel)
            except (NotImplementedError, RuntimeError, ValueError):
                break  # Not the main thread, or a platform without: KeyboardInterrupt does it then.
        return await task

    try:
        return asyncio.run(whole())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise click.exceptions.Exit(130) from None
    except ClientError as error:
        raise failure_of(error) from error


def failure_of(error: Exception) -> Failure:
    """What a user is told of an error of the client."""
    return Failure(str(error), _hint(error))


def _hint(error: Exception) -> str:
    """What to do about it, where that can be said."""
    from konvene.client import errors as e

    if isinstance(error, e.CannotConnect):
        return "Is a broker running there? Name another with --bootstrap-server HOST:PORT."
    if isinstance(error, e.RequestTimedOut):
        return "The broker may be busy or not a Kafka broker; --timeout MS waits longer."
    if isinstance(error, e.BadResponse):
        return "Check that --bootstrap-server names a Kafka listener without TLS or SASL."
    if isinstance(error, e.ConnectionLost):
        return "The broker ended the connection; a TLS or SASL listener does so to a plain client."
    if isinstance(error, e.KafkaError):
        return HINTS.get(error.name, "")
    return ""


HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`konvene topics list` shows the topics there are.",
    "GROUP_ID_NOT_FOUND": "`konvene groups list` shows the groups there are.",
    "TOPIC_ALREADY_EXISTS": "--if-not-exists makes that no error.",
    "NON_EMPTY_GROUP": "The group has members: stop them first.",
    "GROUP_SUBSCRIBED_TO_TOPIC": "Members subscribe to the topic: stop them first.",
    "INVALID_REPLICATION_FACTOR": "There are not that many brokers: give a smaller --replication-factor.",
    "COORDINATOR_NOT_AVAILABLE": "The offsets topic is not ready; try again in a moment.",
    "COORDINATOR_LOAD_IN_PROGRESS": "The coordinator is still loading; try again in a moment.",
    "TOPIC_AUTHORIZATION_FAILED": "The user lacks a right on the topic: see the cluster's ACLs.",
    "GROUP_AUTHORIZATION_FAILED": "The user lacks a right on the group: see the cluster's ACLs.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "The user lacks a right on the id: see the cluster's ACLs.",
    "TRANSACTIONAL_ID_NOT_FOUND": "`konvene transactions list` shows the transactional ids there are.",
    "PRODUCER_FENCED": "Another producer uses the transactional id, or the transaction's time was over.",
    "CLUSTER_AUTHORIZATION_FAILED": "The user lacks a right on the cluster: see its ACLs.",
    "UNSUPPORTED_COMPRESSION_TYPE": "Choose another --compression-codec.",
    "INCONSISTENT_GROUP_PROTOCOL": "The group's members use other assignors or another protocol.",
}

Connect = Callable[..., "Cluster"]
Job = Callable[[], Awaitable[Any]]
