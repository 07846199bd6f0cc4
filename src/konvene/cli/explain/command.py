"""`konvene explain`: why groups rebalanced, from the logs of any broker, and what it cost.

A first word that is no subcommand is a log: `konvene explain /var/kafka --group orders-app`. The steps are
always the same: read what is new in the logs into tables, build the tables of rebalances, answer from them.
`follow` does so again and again, `report` makes a page, `tables` says where the tables are, `transactions`
what became of offsets that were committed in them, `deliveries` what became of the records of share groups.

The pipeline is imported when a command is called; it needs pyarrow (`pip install 'konvene[spark]'`).
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.explain.deliveries import deliveries
from konvene.cli.explain.follow import follow
from konvene.cli.explain.report import report
from konvene.cli.explain.show import (
    print_documents,
    print_rebalance,
    print_story,
    print_summary,
    story_document,
)
from konvene.cli.explain.tables import tables
from konvene.cli.explain.transactions import transactions
from konvene.cli.explain.warehouse import Work, answers_of, costs_of, logs_argument, work_options
from konvene.cli.options import fail
from konvene.cli.output import note, print_json

if TYPE_CHECKING:
    from konvene.pipeline.answers import Gold, Selection

LOGS = "logs"
MOST_SHOWN = 20
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_AGO_MS = {"ms": 1, "s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class ExplainGroup(click.Group):
    """What is no subcommand is a log. Ctrl-C is exit code 130, and so is SIGTERM: what is temporary goes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [LOGS, *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.commands.get(cmd_name) or self.commands[LOGS]

    def invoke(self, ctx: click.Context) -> Any:
        before = None
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "LOGS... [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS] LOGS...")


@click.group(cls=ExplainGroup)
def explain() -> None:
    """Tell from logs why groups rebalanced, what it cost, and what would help.

    LOGS are data directories, partitions' folders, segments, of konvene or of Apache Kafka, or host:port of a
    live broker. `konvene explain logs --help` lists the options.

    \b
    konvene explain /var/kafka
    konvene explain data --group orders-app --since 2h
    konvene explain data --group orders-app --why 17
    konvene explain localhost:9092 --warehouse tables
    """


for _command in (deliveries, follow, report, tables, transactions):
    explain.add_command(_command)


def _time(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """`2026-11-22T10:00`, milliseconds since 1970, or how long ago: `2h`, `30min`."""
    if text is None:
        return None
    if text.isdigit() and len(text) > 9:
        return int(text)
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return int(datetime.now(UTC).timestamp() * 1000 - float(ago[1]) * _AGO_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text}: write 2026-11-22T10:00 (UTC), or 2h for two hours ago.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


@explain.command(LOGS)
@logs_argument()
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group. Repeatable.")
@click.option("--since", callback=_time, metavar="TIME", help="Only from then on: 2026-11-22T10:00, or 2h.")
@click.option("--until", callback=_time, metavar="TIME", help="Only what began before.")
@click.option("--type", "group_type", type=click.Choice(["classic", "consumer", "share", "streams"]),
              help="Only groups of this type.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help="Show so many rebalances, the newest [default: 20; with --json all].")  # fmt: skip
@click.option("--why", "epoch", type=click.IntRange(0), metavar="EPOCH",
              help="Tell step by step how --group came to this epoch or generation.")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each rebalance, each on a line."
)
@work_options
def logs_command(
    logs: tuple[str, ...], groups: tuple[str, ...], since: int | None, until: int | None,
    group_type: str | None, limit: int | None, epoch: int | None, as_json: bool, work: Work,
) -> None:  # fmt: skip
    """Tell why groups rebalanced, newest first, then what all of it comes to.

    \b
    konvene explain /var/kafka
    konvene explain data --group orders-app --since 2026-11-22T10:00 --json
    konvene explain data --group orders-app --why 17
    """
    if epoch is not None and len(groups) != 1:
        raise click.UsageError("--why needs one --group.")
    with answers_of(logs, work) as gold:
        from konvene.pipeline.answers import Selection

        for group in groups:
            _there(gold, group)
        if epoch is not None:
            _why(gold, groups[0], epoch, as_json)
        else:
            _list(gold, Selection(groups, since, until, group_type), limit, as_json)


def _there(gold: Gold, group: str) -> None:
    """Say so where nothing is known of a group, and which may be meant."""
    if group in gold.groups:
        return
    near = gold.near(group)
    if near:
        fail(f"nothing is known of a group {group}", f"Is it {' or '.join(near)}?")
    some = ", ".join(gold.groups[:5])
    hint = f"Groups there are: {some}{', …' if len(gold.groups) > 5 else ''}." if some else _NO_GROUPS
    fail(f"nothing is known of a group {group}", hint)


_NO_GROUPS = "The logs tell of no group: is __consumer_offsets among them?"


def _list(gold: Gold, wanted: Selection, limit: int | None, as_json: bool) -> None:
    from konvene.pipeline.answers import summarise

    told = gold.select(wanted)
    if as_json:
        shown = told[:limit]
        print_documents(shown, costs_of(gold, shown))
        return
    if not told:
        fail("no group rebalanced, as far as these logs tell", _why_none(gold, wanted))
    shown = told[: limit or MOST_SHOWN]
    costs = costs_of(gold, shown)
    several = len({each.cluster for each in told}) > 1
    for each in shown:
        print_rebalance(each, costs.get(each.place), with_cluster=several)
    if len(told) > len(shown):
        note(f"{len(told) - len(shown):,} older ones are not shown; --limit {len(told)} shows all.")
    click.echo()
    print_summary(summarise(gold, wanted, told), told)
    _deliveries(gold, wanted)


def _deliveries(gold: Gold, wanted: Selection) -> None:
    """Say that there is more to tell of share groups, if there is."""
    from konvene.pipeline.answers.deliveries import deliveries as found_in
    from konvene.pipeline.answers.deliveries import summary

    if wanted.group_type in (None, "share"):
        text = summary(found_in(gold, wanted.groups))
        if text:
            note(f"Of the deliveries of share groups {text}: konvene explain deliveries tells of each.")


def _why_none(gold: Gold, wanted: Selection) -> str:
    if not gold.groups:
        return _NO_GROUPS
    if wanted.since_ms is not None or wanted.until_ms is not None or wanted.group_type is not None:
        return "Leave out --since, --until or --type to see all there is."
    return "They tell of commits, or of deliveries in share groups (konvene explain deliveries)."


def _why(gold: Gold, group: str, epoch: int, as_json: bool) -> None:
    from konvene.pipeline.answers import Selection, document, find, tell

    found = find(gold, group, epoch)
    if not found:
        epochs = sorted({r.to_epoch for r in gold.select(Selection((group,)))})
        hint = f"Those that are known: {_few(epochs)}." if epochs else "It did not rebalance in these logs."
        fail(f"{group} came to no epoch or generation {epoch}, as far as these logs tell", hint)
    if len(found) > 1 and not as_json:
        note(f"{group} came to {epoch} {len(found)} times; this is the last time.")
    rebalance = found[0]
    cost = costs_of(gold, [rebalance]).get(rebalance.place)
    story = tell(gold, rebalance, cost)
    if as_json:
        print_json(story_document(story, document(rebalance, cost, story.sentence)))
    else:
        print_story(story)


def _few(numbers: Sequence[int]) -> str:
    if len(numbers) > 12:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
