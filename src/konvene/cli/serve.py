"""`konvene serve`: run a broker. `konvene.broker.app` implements it; this module parses the options."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from konvene.cli.console import check_console_installed
from konvene.cli.options import CONFIG_VARIABLE, fail
from konvene.cli.output import Progress

log = logging.getLogger("konvene")

CONSOLE_END_S = 5
"""How long the live page may take to end before it is killed."""


@click.command()
@click.option("--host", help="Address to listen on [default: this machine only].")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 chooses a free port [default: 9092]."
)
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Directory for the logs.")
@click.option(
    "--ephemeral", is_flag=True, help="Use a temporary data directory that is deleted when the broker stops."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Properties file with broker settings, as Kafka's server.properties.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="A broker setting; may be repeated; overrides the file.",
)
@click.option(
    "--assignor",
    "assignors",
    multiple=True,
    metavar="NAME",
    help="An additional server-side assignor, such as module:function; may be repeated.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port for Prometheus metrics and health checks; 0 chooses a free port [default: none].",
)
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="Address that clients connect to, as advertised.listeners [default: the one to listen on, or with"
    " --host 0.0.0.0 this machine's host name or address].",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="KONVENE_LOG_FORMAT",
    show_envvar=True,
    help="Format of the output: text, or a JSON object on each line.",
)
@click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    help="Port for the live page of `konvene console`; 0 chooses a free port [default: none].",
)
@click.option(
    "--console-allow-changes", is_flag=True, help="Let the live page change groups, topics and settings."
)
def serve(
    overrides: tuple[str, ...], console_port: int | None, console_allow_changes: bool, **options: Any
) -> None:
    """Run a broker.

    \b
    konvene serve --ephemeral
    konvene serve --data-dir ./data --set group.initial.rebalance.delay.ms=0
    konvene serve --assignor my_module:assign
    konvene serve --ephemeral --console-port 8080
    konvene serve --host 0.0.0.0 --advertise broker.example.org --log-format json

    KONVENE_LOG sets the level of log lines, and of single loggers: KONVENE_LOG=info,konvene.groups=debug.
    """
    if options["ephemeral"] and options["data_dir"] is not None:
        raise click.UsageError("--ephemeral and --data-dir cannot be used together.")
    pairs = []
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"--set {text}: write NAME=VALUE.")
        pairs.append((key.strip(), value.strip()))
    try:
        from konvene.broker.app import ServeOptions
        from konvene.broker.app import serve as run_broker
    except ImportError as error:
        fail(f"the broker cannot be loaded: {error}", "The installation is incomplete: reinstall konvene.")
    companion = None
    if console_port is not None:
        check_console_installed()
        companion = partial(_console, console_port, console_allow_changes, options["log_format"])
    started = ServeOptions(overrides=pairs, **options)
    raise click.exceptions.Exit(run_broker(started, _progress, companion))


@contextmanager
def _console(
    port: int, allow_changes: bool, log_format: str, bootstrap: str, is_secured: bool
) -> Iterator[None]:
    """Run the live page of the broker in another process during the block: it takes no time from the broker.

    To a secured listener it connects with the settings of KONVENE_COMMAND_CONFIG. The process ends when its
    standard input is closed, so also if this one is killed."""
    command = [sys.executable, "-m", "konvene", "console", "--with-parent", f"--port={port}"]
    command += ["--bootstrap-server", bootstrap, *(["--allow-changes"] if allow_changes else [])]
    environment = os.environ | {"KONVENE_LOG_FORMAT": log_format}
    if not is_secured:
        environment.pop(CONFIG_VARIABLE, None)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
    stopping = threading.Event()
    watching = threading.Thread(target=_warn_if_ended, args=(process, stopping), daemon=True)
    watching.start()
    try:
        yield
    finally:
        stopping.set()
        try:
            process.communicate(timeout=CONSOLE_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        watching.join()


def _warn_if_ended(process: subprocess.Popen[bytes], stopping: threading.Event) -> None:
    """Wait for the process, and log a warning if it ended by itself."""
    code = process.wait()
    if not stopping.is_set():
        reason = f"exit code {code}" if code >= 0 else f"signal {-code}"
        log.warning("the console has ended (%s); the broker serves on without it", reason)


def _progress(total: int) -> Callable[[str], None]:
    """Show a progress line while the broker opens `total` partitions, which takes long after a crash; return
    the function to call with each partition."""
    progress = Progress(total, unit="partitions", beside_output=True)

    def report_opened(partition: str) -> None:
        progress.add(1, partition)
        if progress.done >= progress.total:
            progress.clear()

    return report_opened
