"""`konvene explain report`: one page that shows what happened, to open in a browser or send to somebody."""

from __future__ import annotations

from pathlib import Path

import click

from konvene.cli.explain.warehouse import Work, answers_of, logs_argument, work_options
from konvene.cli.options import fail


@click.command()
@logs_argument()
@click.option("--out", "target", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"),
              show_default=True, metavar="FILE", help="Where the page goes.")  # fmt: skip
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group. Repeatable.")
@click.option("--title", default="", metavar="TEXT", help="What the page is called.")
@work_options
def report(logs: tuple[str, ...], target: Path, groups: tuple[str, ...], title: str, work: Work) -> None:
    """Draw who had what and when, with every rebalance, as one HTML file that needs nothing else.

    \b
    konvene explain report /var/kafka --out report.html
    konvene explain report --warehouse tables --group orders-app
    """
    with answers_of(logs, work) as gold:
        from konvene.pipeline.answers import Selection
        from konvene.pipeline.answers.report import page

        for group in groups:
            if group not in gold.groups:
                near = gold.near(group)
                fail(f"nothing is known of a group {group}", f"Is it {' or '.join(near)}?" if near else "")
        if not gold.groups:
            fail("there is nothing to draw", "The logs tell of no group: is __consumer_offsets among them?")
        drawn = page(
            gold, Selection(tuple(groups)), title=title, source=", ".join(logs) or str(work.warehouse)
        )
        target.write_text(drawn, "utf-8")
    click.echo(
        f"{target}: {len(gold.groups) if not groups else len(groups)} groups, {target.stat().st_size:,} bytes"
    )
