"""`konvene console`: a live page of a cluster's groups and topics, in the browser."""

from __future__ import annotations

import logging
import os
import sys
import time
from functools import partial
from importlib.util import find_spec

import click

from konvene.cli.options import Connect, cluster_options, fail, run

__all__ = ["check_console_installed", "console"]

MISSING = "the live page needs starlette and uvicorn, which are not installed"
DEFAULT_PORT = 8080


@click.command()
@click.option("--host", default="localhost", show_default=True,
              help="Address to listen on. If others can connect, a token is required.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True,
              help="Port to listen on; 0 chooses a free port.")  # fmt: skip
@click.option("--allow-changes", is_flag=True,
              help="Let the page produce records, reset offsets, remove members, delete groups and change "
              "settings.")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="A further name by which browsers may address the page, such as that of a proxy; may be "
              "repeated.")  # fmt: skip
@click.option("--token", envvar="KONVENE_CONSOLE_TOKEN", show_envvar=True,
              help="Token that the page requires [default: random, if others can connect].")  # fmt: skip
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input is closed.")
@cluster_options
def console(
    connect: Connect, host: str, port: int, allow_changes: bool, allowed_hosts: tuple[str, ...],
    token: str | None, with_parent: bool,
) -> None:  # fmt: skip
    """Show a cluster's groups and topics on a live page.

    Works with any Kafka cluster. The page changes nothing unless --allow-changes is given. Ctrl-C ends it.

    \b
    konvene console
    konvene console --bootstrap-server broker:9092 --port 8081
    konvene console --allow-changes
    """
    check_console_installed()
    is_json = os.environ.get("KONVENE_LOG_FORMAT") == "json"
    if is_json:
        _log_json()
    from konvene.console.server import CannotListen, ServerOptions
    from konvene.console.server import run as serve

    options = ServerOptions(host, port, allow_changes, tuple(map(str.lower, allowed_hosts)), token or None)

    async def job() -> None:
        import asyncio

        cluster = connect("konvene-console")
        serving = asyncio.ensure_future(serve(cluster, options, partial(_announce, is_json)))
        ending = asyncio.ensure_future(_stdin_closed()) if with_parent else None
        waiting = {serving} if ending is None else {serving, ending}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        except asyncio.CancelledError:
            pass  # Ctrl-C is how a server ends.
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    try:
        run(job)
    except CannotListen as error:
        option = "--console-port" if with_parent else "--port"
        hint = f"Choose another port with {option}; 0 chooses a free one." if error.is_in_use else ""
        if not is_json:
            fail(str(error), hint)
        logging.getLogger("konvene").critical("%s", f"{error}. {hint}" if hint else error)
        raise click.exceptions.Exit(1) from None


def check_console_installed() -> None:
    """Fail if a library of the live page is not installed."""
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        fail(MISSING, "pip install 'konvene[console]'")


def _log_json() -> None:
    """Make log lines JSON, as those of the broker beside which this process runs."""
    from konvene.broker import log_output

    log_output.configure(log_output.JSON, "warning")


def _announce(is_json: bool, url: str) -> None:
    line = f"konvene console at {url}\n"
    if is_json:
        from konvene.broker import log_output

        fields = {"event": "console-started", "url": url}
        line = log_output.json_line(line.strip(), fields, time.time())
    sys.stdout.write(line)
    sys.stdout.flush()


async def _stdin_closed() -> None:
    """Return when standard input is closed: the process that started this one has ended."""
    import asyncio

    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1024):
        pass
