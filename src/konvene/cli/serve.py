"""`konvene serve`: run a broker. All of it lives in `konvene.broker.app`; this reads the options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from konvene.cli.options import fail
from konvene.cli.output import Progress


@click.command()
@click.option("--host", help="Address to listen on [default: this machine only].")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one [default: 9092]."
)
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the logs live.")
@click.option("--ephemeral", is_flag=True, help="Keep nothing: the data goes when the broker stops.")
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
    metavar="KEY=VALUE",
    help="A setting; repeatable; wins over the file.",
)
@click.option(
    "--assignor",
    "assignors",
    multiple=True,
    metavar="NAME",
    help="One more server-side assignor, such as module:function; repeatable.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port to serve metrics on, for Prometheus; 0 takes a free one [default: none].",
)
def serve(
    host: str | None, port: int | None, data_dir: Path | None, ephemeral: bool, config: Path | None,
    overrides: tuple[str, ...], assignors: tuple[str, ...], metrics_port: int | None,
) -> None:  # fmt: skip
    """Run a broker.

    \b
    konvene serve --ephemeral
    konvene serve --data-dir ./data --set group.initial.rebalance.delay.ms=0
    konvene serve --assignor my_module:assign
    """
    if ephemeral and data_dir is not None:
        raise click.UsageError("--ephemeral and --data-dir contradict each other: give one of them.")
    pairs = []
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"--set {text}: write KEY=VALUE.")
        pairs.append((key.strip(), value.strip()))
    try:
        from konvene.broker.app import serve as run_broker
    except ImportError as error:
        fail(f"the broker cannot be loaded: {error}", "Is the installation whole? Try to reinstall konvene.")
    status = run_broker(host, port, data_dir, ephemeral, config, pairs, _progress, assignors, metrics_port)
    raise click.exceptions.Exit(status)


def _progress(total: int) -> Callable[[str], None]:
    """Tell of each of so many partitions that is open: after a crash there may be much to read."""
    progress = Progress(total, unit="partitions", beside_output=True)

    def told(partition: str) -> None:
        progress.add(1, partition)
        if progress.done >= progress.total:
            progress.clear()

    return told
