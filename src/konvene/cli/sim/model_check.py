"""`konvene sim model-check`: explore all reachable states of a small group."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, note, print_json
from konvene.cli.sim.options import INTERRUPTED
from konvene.plurals import counted
from konvene.runtime.signals import stop_on_signal

VIOLATED = 1
CLASSIC, CONSUMER, STREAMS, SHARE = "classic", "consumer", "streams", "share"


class Bounds(NamedTuple):
    """Bounds of the search: the options of `model-check` that limit the model."""

    members: int
    partitions: int
    faults: int
    static: int
    starts: int
    records: int


@click.command("model-check")
@click.option("--groups", "kind", type=click.Choice([CLASSIC, CONSUMER, STREAMS, SHARE]), default=CLASSIC,
              show_default=True, help="The group type.")  # fmt: skip
@click.option("--members", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Clients.")
@click.option("--partitions", type=click.IntRange(1, 8), default=2, show_default=True, metavar="N",
              help="Partitions of the topic; stateful tasks in streams groups.")  # fmt: skip
@click.option("--faults", type=click.IntRange(0), default=1, show_default=True, metavar="N",
              help="Maximum number of faults.")  # fmt: skip
@click.option("--static", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="Number of static members.")  # fmt: skip
@click.option("--starts", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="Maximum number of starts of each client.")  # fmt: skip
@click.option("--records", type=click.IntRange(0), default=1, show_default=True, metavar="N",
              help="Records that are consumed and committed per partition; classic groups only.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Explore at most N states.")
@click.option("--depth", type=click.IntRange(1), metavar="N",
              help="Explore at most N steps; not for classic groups.")  # fmt: skip
@click.option("--export", type=click.Path(path_type=Path, dir_okay=False, writable=True), metavar="FILE",
              help="Write the states and transitions as JSON lines.")  # fmt: skip
@click.option("--dot", type=click.Path(path_type=Path, dir_okay=False, writable=True), metavar="FILE.dot",
              help="Write the state graph for Graphviz; useful for tiny models.")  # fmt: skip
@json_option
def model_check(
    kind: str, limit: int | None, depth: int | None, export: Path | None, dot: Path | None, as_json: bool,
    **bounds: int,
) -> None:  # fmt: skip
    """Explore every reachable state of a small group on the coordinator's own code, and check all invariants.

    Ctrl-C ends the search as --limit does, with the result for the states explored so far.

    \b
    konvene sim model-check
    konvene sim model-check --members 3 --faults 2 --limit 1000000
    konvene sim model-check --groups consumer --members 3 --partitions 1 --depth 12
    konvene sim model-check --groups streams --partitions 1 --faults 0
    konvene sim model-check --groups share --partitions 1 --faults 0
    """
    from konvene.sim.model_check import ModelCheckReport, check_model
    from konvene.sim.model_check.consumer_groups import ConsumerGroupModel
    from konvene.sim.model_check.report import SearchReport
    from konvene.sim.model_check.share_groups import ShareGroupModel
    from konvene.sim.model_check.streams_groups import StreamsGroupModel
    from konvene.sim.runs.parallel import quiet

    if kind != CLASSIC and (export is not None or dot is not None):
        raise click.UsageError(
            f"--export and --dot need classic groups: states of {kind} groups are not stored"
        )
    if kind == CLASSIC and depth is not None:
        raise click.UsageError("--depth is not supported for classic groups; use --limit")
    size = Bounds(**bounds)
    stop = threading.Event()
    progress = Progress(limit or 0, unit="states", beside_output=True)

    def report_progress(explored: int, found: int, depth: int) -> None:
        progress.total = max(found, progress.total)
        progress.add(explored - progress.done, f"{found - explored} found and not explored, depth {depth}")

    try:
        with quiet(), stop_on_signal(stop):
            report: ModelCheckReport | SearchReport
            if kind != CLASSIC:
                models: dict[str, type[ConsumerGroupModel | StreamsGroupModel | ShareGroupModel]] = {
                    CONSUMER: ConsumerGroupModel,
                    STREAMS: StreamsGroupModel,
                    SHARE: ShareGroupModel,
                }
                model = models[kind](
                    size.members, size.partitions, size.faults, static=size.static, joins=size.starts
                )
                report = model.search(limit, depth=depth, stop=stop.is_set, progress=report_progress)
            else:
                report = check_model(
                    size.members, size.partitions, size.faults, size.static,
                    starts=size.starts, records=size.records, limit=limit, stop=stop.is_set,
                    progress=report_progress,
                )  # fmt: skip
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    finally:
        progress.clear()
    try:
        if isinstance(report, ModelCheckReport) and export is not None:
            note(f"{counted(report.export(export), 'line')} written to {export}")
        if isinstance(report, ModelCheckReport) and dot is not None:
            dot.write_text(report.dot(), encoding="utf-8")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if as_json:
        print_json(report.as_dict())
    else:
        for line in report.lines():
            click.echo(line)
    if report.violation is not None:
        raise click.exceptions.Exit(VIOLATED)
    if stop.is_set() and report.left:
        note("interrupted: the states are kept in memory only, so another search begins anew")
        raise click.exceptions.Exit(INTERRUPTED)
