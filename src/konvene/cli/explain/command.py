"""`konvene explain`: the causes and costs of rebalances, from the logs of any broker.

A first argument that is no subcommand is a log: `konvene explain /var/kafka --group orders-app`. Every
command reads what is new in the logs into tables, builds the gold tables, and answers from them. `follow`
repeats that, `report` writes a page, `tables` lists the tables, `optimize` and `vacuum` maintain them,
`transactions` shows transactional offset commits, `deliveries` shows deliveries of share groups, `damage`
shows what could not be read.

The pipeline is imported when a command runs; it needs pyarrow (`pip install 'konvene[explain]'`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.explain.broker_log import broker_log_options
from konvene.cli.explain.damage import damage, note_damage
from konvene.cli.explain.deliveries import deliveries
from konvene.cli.explain.durations import milliseconds
from konvene.cli.explain.follow import follow
from konvene.cli.explain.maintenance import optimize, vacuum
from konvene.cli.explain.report import report
from konvene.cli.explain.show import (
    print_documents,
    print_rebalance,
    print_summary,
    print_trace,
    trace_document,
)
from konvene.cli.explain.tables import tables
from konvene.cli.explain.transactions import transactions
from konvene.cli.explain.warehouse import (
    NO_GROUPS,
    Work,
    answers_of,
    costs_of,
    logs_argument,
    require_groups,
    work_options,
)
from konvene.cli.options import fail
from konvene.cli.output import note, print_json
from konvene.plurals import counted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from konvene.pipeline.answers import Gold, Selection

LOGS = "logs"
DEFAULT_LIMIT = 20


class ExplainGroup(click.Group):
    """A command group whose first argument may be a log. Ctrl-C and SIGTERM exit with code 130 after
    temporary files are deleted."""

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

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS] LOGS... | COMMAND"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of a call with logs, and the commands."""
        self.commands[LOGS].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        known = {item.value for item in found}
        options = self.commands[LOGS].shell_complete(ctx, incomplete)
        return [*found, *(item for item in options if item.value not in known)]


@click.group(cls=ExplainGroup)
def explain() -> None:
    """Explain from logs why groups rebalanced, what it cost, and how to avoid it.

    LOGS are data directories, partition directories or segments of konvene or Apache Kafka, or host:port of
    a live broker.

    \b
    konvene explain /var/kafka
    konvene explain data --group orders-app --since 2h
    konvene explain data --group orders-app --why 17
    konvene explain localhost:9092 --warehouse tables
    """


for _command in (damage, deliveries, follow, optimize, report, tables, transactions, vacuum):
    explain.add_command(_command)


def _time(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Return the time of an option in ms since 1970; None if the option is not given.

    It is written as `2026-11-22T10:00` (UTC), in ms since 1970, or as an age such as `2h` or `30min`."""
    if text is None:
        return None
    if text.isdigit() and len(text) > 9:
        return int(text)
    ago = milliseconds(text)
    if ago is not None:
        return int(datetime.now(UTC).timestamp() * 1000) - ago
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text}: write 2026-11-22T10:00 (UTC), or 2h for two hours ago.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


@explain.command(LOGS)
@logs_argument()
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; may be repeated.")
@click.option(
    "--since",
    callback=_time,
    metavar="TIME",
    help="Only rebalances that ended after: 2026-11-22T10:00, or 2h.",
)
@click.option("--until", callback=_time, metavar="TIME", help="Only rebalances that began before.")
@click.option("--type", "group_type", type=click.Choice(["classic", "consumer", "share", "streams"]),
              help="Only groups of this type.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help="Show only the newest N rebalances [default: 20; with --json all].")  # fmt: skip
@click.option("--why", "epoch", type=click.IntRange(0), metavar="EPOCH",
              help="Show the steps of the rebalance of --group to this epoch or generation.")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each rebalance, each on a line."
)
@work_options
@broker_log_options
def logs_command(
    logs: tuple[str, ...], groups: tuple[str, ...], since: int | None, until: int | None,
    group_type: str | None, limit: int | None, epoch: int | None, as_json: bool, work: Work,
) -> None:  # fmt: skip
    """Explain why groups rebalanced, newest first, followed by a summary.

    \b
    konvene explain /var/kafka
    konvene explain data --group orders-app --since 2026-11-22T10:00 --json
    konvene explain data --group orders-app --why 17
    """
    if epoch is not None and len(groups) != 1:
        raise click.UsageError("--why needs one --group.")
    with answers_of(logs, work) as gold:
        from konvene.pipeline.answers import Selection

        require_groups(gold, groups)
        if epoch is not None:
            _why(gold, groups[0], epoch, as_json)
        else:
            _list(gold, Selection(groups, since, until, group_type), limit, as_json)


def _list(gold: Gold, wanted: Selection, limit: int | None, as_json: bool) -> None:
    from konvene.pipeline.answers import summarise

    selected = gold.select(wanted)
    if as_json:
        shown = selected[:limit]
        print_documents(shown, costs_of(gold, shown), gold.damaged)
        note_damage(gold, wanted)
        return
    if not selected:
        note_damage(gold, wanted)
        fail("no rebalance found in the logs", _why_none(gold, wanted))
    shown = selected[: limit or DEFAULT_LIMIT]
    costs = costs_of(gold, shown)
    several_clusters = len({each.cluster for each in selected}) > 1
    for each in shown:
        print_rebalance(each, costs.get(each.key), with_cluster=several_clusters)
    if len(selected) > len(shown):
        note(
            f"Not shown: {counted(len(selected) - len(shown), 'older rebalance')}; --limit {len(selected)} "
            "shows all."
        )
    click.echo()
    print_summary(summarise(gold, wanted, selected), selected)
    _deliveries(gold, wanted)
    note_damage(gold, wanted)


def _deliveries(gold: Gold, wanted: Selection) -> None:
    """Print a note if deliveries of the selected share groups had problems, such as redelivered records."""
    from konvene.pipeline.answers.deliveries import deliveries as deliveries_of
    from konvene.pipeline.answers.deliveries import summary

    if wanted.group_type in (None, "share"):
        text = summary(deliveries_of(gold, wanted.groups))
        if text:
            note(f"Share groups: {text}; see konvene explain deliveries.")


def _why_none(gold: Gold, wanted: Selection) -> str:
    if not gold.groups:
        return NO_GROUPS
    if wanted.since_ms is not None or wanted.until_ms is not None or wanted.group_type is not None:
        return "Leave out --since, --until or --type to see all."
    return "The logs contain only commits, or deliveries of share groups (konvene explain deliveries)."


def _why(gold: Gold, group: str, epoch: int, as_json: bool) -> None:
    from konvene.pipeline.answers import Selection, document, find_rebalances, trace
    from konvene.pipeline.answers.damage import sentence as damage_sentence

    found = find_rebalances(gold, group, epoch)
    if not found:
        epochs = sorted({r.to_epoch for r in gold.select(Selection((group,)))})
        hint = f"Known ones: {_few(epochs)}." if epochs else "It did not rebalance in these logs."
        fail(f"{group} has no rebalance to epoch or generation {epoch} in the logs", hint)
    clusters = sorted({each.cluster or "unnamed" for each in found})
    if len(clusters) > 1:
        fail(
            f"{group} has a rebalance to {epoch} in {len(clusters)} clusters: {', '.join(clusters)}",
            "--cluster NAME selects one.",
        )
    if len(found) > 1 and not as_json:
        note(f"{group} reached {epoch} {counted(len(found), 'time')}; this is the last time.")
    rebalance = found[0]
    cost = costs_of(gold, [rebalance]).get(rebalance.key)
    steps = trace(gold, rebalance, cost)
    hole = gold.damaged.get(rebalance.key)
    if as_json:
        shown = document(rebalance, cost, steps.sentence, damaged=hole is not None)
        print_json(trace_document(steps, shown))
    else:
        print_trace(steps)
    if hole is not None:
        note(f"Records next to this rebalance are missing. {damage_sentence(hole)}")


def _few(numbers: Sequence[int]) -> str:
    if len(numbers) > 12:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
