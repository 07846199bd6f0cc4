"""`konvene explain report`: a self-contained HTML page with timelines, rebalances and advice."""

from __future__ import annotations

from pathlib import Path

import click

from konvene.cli.explain.broker_log import broker_log_options
from konvene.cli.explain.damage import note_damage
from konvene.cli.explain.warehouse import (
    NO_GROUPS,
    Work,
    answers_of,
    logs_argument,
    require_groups,
    work_options,
)
from konvene.cli.options import fail
from konvene.plurals import counted


@click.command()
@logs_argument()
@click.option("--out", "target", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"),
              show_default=True, metavar="FILE", help="File to write.")  # fmt: skip
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; may be repeated.")
@click.option("--title", default="", metavar="TEXT", help="Title of the page.")
@work_options
@broker_log_options
def report(logs: tuple[str, ...], target: Path, groups: tuple[str, ...], title: str, work: Work) -> None:
    """Write a self-contained HTML page with timelines, rebalances and advice.

    \b
    konvene explain report /var/kafka --out report.html
    konvene explain report --warehouse tables --group orders-app
    """
    with answers_of(logs, work) as gold:
        from konvene.pipeline.answers import Selection
        from konvene.pipeline.answers.report import page

        require_groups(gold, groups)
        if not gold.groups:
            fail("no group found in the logs", NO_GROUPS)
        html = page(
            gold, Selection(tuple(groups)), title=title, source=", ".join(logs) or str(work.warehouse)
        )
        target.write_text(html, "utf-8")
        note_damage(gold, Selection(tuple(groups)))
    count = counted(len(groups or gold.groups), "group")
    click.echo(f"{target}: {count}, {counted(target.stat().st_size, 'byte')}")
