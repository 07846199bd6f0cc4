"""`konvene explain transactions`: what groups committed in transactions, by whom, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from konvene.cli.explain.warehouse import Work, answers_of, logs_argument, work_options
from konvene.cli.options import fail
from konvene.cli.output import Table, iso, note, print_json_line, print_tables
from konvene.groups.history import duration

if TYPE_CHECKING:
    from konvene.pipeline.answers.transactions import Commit, Producer

MOST_SHOWN = 20
OUTCOMES = ("committed", "overtaken", "aborted", "pending")


@click.command()
@logs_argument()
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group. Repeatable.")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(OUTCOMES),
              help="Only what came to this; overtaken: committed, and a later commit counted. "
              "Repeatable.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help="Show so many commits, the newest [default: 20; with --json all].")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each commit, each on a line."
)
@work_options
def transactions(
    logs: tuple[str, ...], groups: tuple[str, ...], outcomes: tuple[str, ...], limit: int | None,
    as_json: bool, work: Work,
) -> None:  # fmt: skip
    """Tell what became of offsets that were committed in transactions, and whose they were.

    Producers have their names where the logs of __transaction_state are among LOGS, and ids otherwise.

    \b
    konvene explain transactions /var/kafka --group orders-app
    konvene explain transactions /var/kafka --outcome pending --json
    """
    with answers_of(logs, work) as gold:
        from konvene.pipeline.answers.transactions import commits, document, producers

        for group in groups:
            if group not in gold.groups:
                near = gold.near(group)
                fail(f"nothing is known of a group {group}", f"Is it {' or '.join(near)}?" if near else "")
        told = commits(gold, groups, outcomes)
        if as_json:
            for each in told[:limit]:
                print_json_line(document(each))
            return
        if not told:
            fail("no offset was committed in a transaction, as far as these logs tell", _hint(outcomes))
        shown = told[: limit or MOST_SHOWN]
        print_tables([_commits(shown), _producers(producers(told))])
        if len(told) > len(shown):
            note(f"{len(told) - len(shown):,} older ones are not shown; --limit {len(told)} shows all.")


def _hint(outcomes: tuple[str, ...]) -> str:
    return "Leave out --outcome to see all there is." if outcomes else "They may tell of plain commits."


def _commits(told: list[Commit]) -> Table:
    rows = [
        (
            iso(each.row["timestamp_ms"]), each.row["group_id"], each.row["topic"], each.row["partition"],
            each.row["committed_offset"], each.producer, each.row["producer_epoch"], each.outcome,
            None if each.open_ms is None else duration(each.open_ms),
        )
        for each in told
    ]  # fmt: skip
    heads = (
        "WRITTEN (UTC)", "GROUP", "TOPIC", "PARTITION", "OFFSET", "PRODUCER", "EPOCH", "OUTCOME", "AFTER",
    )  # fmt: skip
    return Table(heads, rows)


def _producers(found: list[Producer]) -> Table:
    rows = [
        (
            each.name, each.group_id, each.count, *(each.outcomes.get(outcome, 0) for outcome in OUTCOMES),
            None if each.longest_ms is None else duration(each.longest_ms),
        )
        for each in found
    ]  # fmt: skip
    heads = ("PRODUCER", "GROUP", "#COMMITS", *(f"#{outcome.upper()}" for outcome in OUTCOMES), "LONGEST")
    return Table(heads, rows)
