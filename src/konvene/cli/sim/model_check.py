"""`konvene sim model-check`: all that can happen to a small group, one state after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, note, print_json

VIOLATED = 1
CLASSIC, CONSUMER, STREAMS, SHARE = "classic", "consumer", "streams", "share"


@click.command("model-check")
@click.option("--groups", "kind", type=click.Choice([CLASSIC, CONSUMER, STREAMS, SHARE]), default=CLASSIC,
              show_default=True, help="The kind of group.")  # fmt: skip
@click.option("--members", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Clients.")
@click.option("--partitions", type=click.IntRange(1, 8), default=2, show_default=True, metavar="N",
              help="Partitions of the topic; tasks with state in streams groups.")  # fmt: skip
@click.option("--faults", type=click.IntRange(0), default=1, show_default=True, metavar="N",
              help="How many faults strike at most.")  # fmt: skip
@click.option("--static", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="How many of the clients have an instance id.")  # fmt: skip
@click.option("--starts", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="How often each client is started at most.")  # fmt: skip
@click.option("--records", type=click.IntRange(0), default=1, show_default=True, metavar="N",
              help="How far a partition is read and committed; in classic groups only.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Look at so many states at most.")
@click.option("--depth", type=click.IntRange(1), metavar="N",
              help="Look at what happens in so many steps; not in classic groups.")  # fmt: skip
@click.option("--export", type=click.Path(path_type=Path, dir_okay=False, writable=True), metavar="FILE",
              help="Write the states, as JSON lines, and what leads from one to the other.")  # fmt: skip
@click.option("--dot", type=click.Path(path_type=Path, dir_okay=False, writable=True), metavar="FILE.dot",
              help="Write the graph for Graphviz; of use for tiny models.")  # fmt: skip
@json_option
def model_check(
    kind: str, members: int, partitions: int, faults: int, static: int, starts: int, records: int,
    limit: int | None, depth: int | None, export: Path | None, dot: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Look at every state of a small model on the real core, and at everything that can happen in it.

    \b
    konvene sim model-check
    konvene sim model-check --members 3 --faults 2 --limit 1000000
    konvene sim model-check --groups consumer --members 3 --partitions 1 --depth 12
    konvene sim model-check --groups streams --partitions 1 --faults 0
    konvene sim model-check --groups share --partitions 1 --faults 0
    """
    from konvene.sim.model_check import check_model
    from konvene.sim.model_check.consumer_groups import ConsumerGroupModel
    from konvene.sim.model_check.share_groups import ShareGroupModel
    from konvene.sim.model_check.streams_groups import StreamsGroupModel
    from konvene.sim.runs.parallel import quiet

    if kind != CLASSIC and (export is not None or dot is not None):
        raise click.UsageError(f"states of {kind} groups are not kept: there is nothing to --export or --dot")
    if kind == CLASSIC and depth is not None:
        raise click.UsageError("--depth is not for classic groups; they have --limit")
    progress = Progress(limit or 0, unit="states", beside_output=True)

    def told(looked_at: int, found: int, depth: int) -> None:
        progress.total = max(found, progress.total)
        progress.add(looked_at - progress.done, f"depth {depth}")

    try:
        with quiet():
            report: Any
            if kind != CLASSIC:
                worlds: dict[str, Any] = {
                    CONSUMER: ConsumerGroupModel,
                    STREAMS: StreamsGroupModel,
                    SHARE: ShareGroupModel,
                }
                world = worlds[kind](members, partitions, faults, static=static, joins=starts)
                report = world.search(limit, depth=depth, progress=told)
            else:
                report = check_model(
                    members, partitions, faults, static,
                    starts=starts, records=records, limit=limit, progress=told,
                )  # fmt: skip
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    finally:
        progress.clear()
    try:
        if export is not None:
            note(f"{report.export(export)} lines written to {export}")
        if dot is not None:
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
