"""`konvene explain transactions`: offsets that groups committed in transactions, and their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from konvene.cli.explain.damage import note_damage
from konvene.cli.explain.show import with_clusters
from konvene.cli.explain.warehouse import Work, answers_of, logs_argument, require_groups, work_options
from konvene.cli.options import fail
from konvene.cli.output import Table, iso, note, print_json_line, print_tables
from konvene.groups.history import duration
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.pipeline.answers.transactions import Commit, Producer

DEFAULT_LIMIT = 20
OUTCOMES = ("committed", "overtaken", "aborted", "pending")


@click.command()
@logs_argument()
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; may be repeated.")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(OUTCOMES),
              help="Only commits with this outcome; may be repeated. overtaken: the transaction "
              "committed, but a later commit in the log won.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help="Show only the newest N commits [default: 20; with --json all].")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each commit, each on a line."
)
@work_options
def transactions(
    logs: tuple[str, ...], groups: tuple[str, ...], outcomes: tuple[str, ...], limit: int | None,
    as_json: bool, work: Work,
) -> None:  # fmt: skip
    """Show offsets that were committed in transactions, with their producers and outcomes.

    Producers are shown by transactional id if LOGS include __transaction_state, otherwise by producer id.

    \b
    konvene explain transactions /var/kafka --group orders-app
    konvene explain transactions /var/kafka --outcome pending --json
    """
    with answers_of(logs, work) as gold:
        from konvene.pipeline.answers import Selection
        from konvene.pipeline.answers.transactions import commits, document, producers

        require_groups(gold, groups)
        note_damage(gold, Selection(groups))
        selected = commits(gold, groups, outcomes)
        if as_json:
            for each in selected[:limit]:
                print_json_line(document(each))
            return
        if not selected:
            fail("no transactional offset commit found in the logs", _hint(outcomes))
        shown = selected[: limit or DEFAULT_LIMIT]
        print_tables([_commits(shown), _producers(producers(selected))])
        if len(selected) > len(shown):
            note(
                f"Not shown: {counted(len(selected) - len(shown), 'older commit')}; --limit {len(selected)} "
                "shows all."
            )


def _hint(outcomes: tuple[str, ...]) -> str:
    return "Leave out --outcome to see all." if outcomes else "The logs may contain plain commits only."


def _commits(commits: list[Commit]) -> Table:
    rows = [
        (
            iso(each.row["timestamp_ms"]), each.row["group_id"], each.row["topic"], each.row["partition"],
            each.row["committed_offset"], each.producer, each.row["producer_epoch"], each.outcome,
            None if each.open_ms is None else duration(each.open_ms),
        )
        for each in commits
    ]  # fmt: skip
    heads = (
        "WRITTEN (UTC)", "GROUP", "TOPIC", "PARTITION", "OFFSET", "PRODUCER", "EPOCH", "OUTCOME", "AFTER",
    )  # fmt: skip
    return with_clusters(Table(heads, rows), [each.row["cluster"] for each in commits])


def _producers(found: list[Producer]) -> Table:
    rows = [
        (
            each.name, each.group_id, each.count, *(each.outcomes.get(outcome, 0) for outcome in OUTCOMES),
            None if each.longest_ms is None else duration(each.longest_ms),
        )
        for each in found
    ]  # fmt: skip
    heads = ("PRODUCER", "GROUP", "#COMMITS", *(f"#{outcome.upper()}" for outcome in OUTCOMES), "LONGEST")
    return with_clusters(Table(heads, rows), [each.cluster for each in found])
