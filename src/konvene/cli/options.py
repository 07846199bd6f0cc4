"""What commands share: connection options, running a coroutine, and error output.

An error is one line on standard error (what is wrong, and where), a second line with what to do if there is
something to do, and exit code 1. Nothing that a cluster, a network or a user can cause prints a traceback;
one that does appear is a bug."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from konvene.cli.output import note

if TYPE_CHECKING:
    from konvene.client.net.cluster import Cluster

__all__ = [
    "Failure", "client_properties", "cluster_options", "command_config_option", "connection_options",
    "explicit_server", "fail", "fail_all", "failure_of", "json_option", "open_cluster", "run",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

DEFAULT_SERVER = "localhost:9092"
SERVER_VARIABLE = "KONVENE_BOOTSTRAP_SERVER"
CONFIG_VARIABLE = "KONVENE_COMMAND_CONFIG"


class Failure(click.ClickException):
    """An error that ends the command with exit code 1; `hint` is what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: Any = None) -> None:
        click.echo(f"konvene: {self.format_message()}", err=True, file=file)
        if self.hint:
            click.echo(f"  {self.hint}", err=True, file=file)


def fail(message: str, hint: str = "") -> NoReturn:
    """End the command with an error: raise a `Failure`."""
    raise Failure(message, hint)


def fail_all(failures: Iterable[Failure]) -> None:
    """Print all failures but the last, and raise that one; do nothing if there are none."""
    pending = list(failures)
    for each in pending[:-1]:
        each.show()
    if pending:
        raise pending[-1]


def command_config_option(*aliases: str) -> Callable[[F], F]:
    """Return a decorator that adds --command-config, and further names of it, to a command."""
    return click.option(
        "--command-config",
        *aliases,
        "command_config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        show_envvar=True,
        help="Properties file with client settings, as for Kafka's tools: TLS, SASL, timeouts.",
    )


def connection_options(*config_aliases: str) -> Callable[[F], F]:
    """Return a decorator that adds --bootstrap-server, --command-config and --timeout to a command.

    The command gets the parameter `connect`, a function that returns a `Cluster`; it takes a client id and
    further settings, which override the file. `config_aliases` are further names of --command-config."""

    def decorate(command: F) -> F:
        @click.option(
            "--bootstrap-server",
            default=DEFAULT_SERVER,
            show_default=True,
            metavar="HOST:PORT[,HOST:PORT]",
            envvar=SERVER_VARIABLE,
            show_envvar=True,
            help="Servers to connect to.",
        )
        @command_config_option(*config_aliases)
        @click.option(
            "--timeout",
            type=click.IntRange(1),
            metavar="MS",
            help="Give up after this many milliseconds [default: 60000].",
        )
        @functools.wraps(command)
        def wrapped(
            *args: object,
            bootstrap_server: str,
            command_config: Path | None,
            timeout: int | None,
            **kwargs: object,
        ) -> object:
            _note_overridden_server(bootstrap_server)
            server = explicit_server(click.get_current_context(), bootstrap_server)

            def connect(client_id: str = "", properties: Mapping[str, str] | None = None) -> Cluster:
                return open_cluster(server, command_config, timeout, client_id, properties)

            return command(*args, connect=connect, **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate


cluster_options = connection_options()
"""Adds --bootstrap-server, --command-config and --timeout to a command: see `connection_options`."""


def explicit_server(context: click.Context, server: str | None) -> str | None:
    """Return the value of --bootstrap-server; None if it is only the built-in default."""
    source = context.get_parameter_source("bootstrap_server")
    return None if source is click.core.ParameterSource.DEFAULT else server


def open_cluster(
    bootstrap_server: str | None, command_config: Path | None, timeout_ms: int | None, client_id: str = "",
    properties: Mapping[str, str] | None = None,
) -> Cluster:  # fmt: skip
    """Return a client of a cluster with the settings of a properties file, which `properties` override.

    Without a server, `bootstrap.servers` of the file names it. The timeout, if given, limits each call,
    request and connection attempt. Raises `ClientError` for invalid settings."""
    from konvene.client.net.cluster import Cluster
    from konvene.client.net.settings import ClientSettings, read_properties, settings_in

    given = read_properties(command_config) if command_config else {}
    settings = settings_in({**given, **(properties or {})}, command_config)
    if client_id and settings.client_id == ClientSettings().client_id:
        settings = settings._replace(client_id=client_id)
    if timeout_ms is not None:
        settings = settings._replace(
            default_api_timeout_ms=timeout_ms,
            request_timeout_ms=min(settings.request_timeout_ms, timeout_ms),
            connect_timeout_ms=min(settings.connect_timeout_ms, timeout_ms),
        )
    if bootstrap_server is None:
        bootstrap_server = given.get("bootstrap.servers", DEFAULT_SERVER)
    return Cluster(bootstrap_server, settings)


def client_properties(texts: Sequence[str], option: str) -> tuple[dict[str, str], list[str]]:
    """Split the KEY=VALUE arguments of an option into the settings of connections (TLS, SASL, timeouts) and
    the others. Raises UsageError."""
    from konvene.client.net.settings import is_client_setting

    found, others = {}, []
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{option} {text}: write KEY=VALUE.")
        if is_client_setting(key.strip()):
            found[key.strip()] = value
        else:
            others.append(text)
    return found, others


def _note_overridden_server(server: str) -> None:
    """Print a note if the environment names another server than the profile in use."""
    context = click.get_current_context()
    of_profile = context.lookup_default("bootstrap_server")
    if (
        context.find_root().params.get("profile")
        and context.get_parameter_source("bootstrap_server") is click.core.ParameterSource.ENVIRONMENT
        and isinstance(of_profile, str)
        and of_profile != server
    ):
        note(f"{SERVER_VARIABLE}={server} overrides bootstrap-server = {of_profile} of the profile.")


def json_option(command: F) -> F:
    """Add --json to a command, passed as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def run(job: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run the coroutine of a command; raise `Failure` for a `ClientError`.

    SIGINT and SIGTERM cancel it, so that it can leave its group, and the exit code is 130."""
    import asyncio
    import signal

    from konvene.client.errors import ClientError

    async def cancel_on_signal() -> T:
        task: asyncio.Task[T] = asyncio.ensure_future(job())
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(each, task.cancel)
            except (NotImplementedError, RuntimeError, ValueError):
                break  # Not the main thread, or not supported: KeyboardInterrupt ends the command then.
        return await task

    try:
        return asyncio.run(cancel_on_signal())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise click.exceptions.Exit(130) from None
    except ClientError as error:
        raise failure_of(error) from error


def failure_of(error: Exception) -> Failure:
    """Convert an error of the client to a `Failure` with a hint."""
    from konvene.client.hints import hint_for

    return Failure(str(error), hint_for(error))


Connect = Callable[..., "Cluster"]
