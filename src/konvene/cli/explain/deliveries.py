"""`konvene explain deliveries`: deliveries of share groups: redelivered, archived and stuck records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.explain.damage import note_damage
from konvene.cli.explain.show import with_clusters
from konvene.cli.explain.warehouse import Work, answers_of, logs_argument, require_groups, work_options
from konvene.cli.options import fail
from konvene.cli.output import Table, iso, note, print_json_line, print_tables, text_of
from konvene.groups.history import duration
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.pipeline.answers.deliveries import Delivery

DEFAULT_LIMIT = 20
MAX_MINUTES = 5


@click.command()
@logs_argument()
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; may be repeated.")
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help="Show only N share partitions, those with problems first "
              "[default: 20; with --json all].")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each share partition, each on a line."
)
@work_options
def deliveries(
    logs: tuple[str, ...], groups: tuple[str, ...], limit: int | None, as_json: bool, work: Work
) -> None:
    """Show deliveries of share groups: redelivered, archived and stuck records.

    LOGS must include __share_group_state; topics are shown by name if they include __consumer_offsets, too.

    \b
    konvene explain deliveries /var/kafka --group workers
    konvene explain deliveries localhost:9092 --json
    """
    with answers_of(logs, work) as gold:
        from konvene.pipeline.answers import Selection
        from konvene.pipeline.answers.deliveries import deliveries as found_in
        from konvene.pipeline.answers.deliveries import document, minutes, problems

        require_groups(gold, groups)
        note_damage(gold, Selection(groups))
        found = found_in(gold, groups)
        if as_json:
            for each in found[:limit]:
                print_json_line(document(each))
            return
        if not found:
            fail("no deliveries of share groups found in the logs",
                 "Do they include __share_group_state?")  # fmt: skip
        shown = found[: limit or DEFAULT_LIMIT]
        worst = minutes(gold, groups)
        print_tables([_partitions(shown), *([_minutes(worst[:MAX_MINUTES])] if worst else [])])
        _print_problems(shown, problems)
        if len(found) > len(shown):
            note(
                f"Not shown: {counted(len(found) - len(shown), 'share partition')}; --limit {len(found)} "
                "shows all."
            )
        if any(each.row["evidence"] != "observed" for each in shown):
            note("* The log is incomplete: these figures count only the records that remain.")


def _partitions(found: list[Delivery]) -> Table:
    heads = (
        "GROUP", "TOPIC", "PARTITION", "START", "DELIVERED", "REDELIVERED", "ACCEPTED", "RELEASED",
        "ARCHIVED", "IN-FLIGHT", "UNKNOWN", "BLOCKED-FOR",
    )  # fmt: skip
    rows = [_partition(each) for each in found]
    return with_clusters(Table(heads, rows), [each.row["cluster"] for each in found])


def _partition(each: Delivery) -> tuple[object, ...]:
    row = each.row
    has_start = row["deleted_ms"] is None and row["start_offset"] >= 0
    return (
        row["group_id"] + ("" if row["evidence"] == "observed" else " *"), row["topic"], row["partition"],
        row["start_offset"] if has_start else None, row["delivered"], row["redelivered"], row["acknowledged"],
        row["released"], row["archived"], row["in_flight"], row["untold"],
        duration(each.stood_ms) if row["in_flight"] or row["untold"] else None,
    )  # fmt: skip


def _minutes(worst: list[dict[str, Any]]) -> Table:
    heads = ("MINUTE (UTC)", "GROUP", "TOPIC", "PARTITION", "DELIVERED", "REDELIVERED", "ARCHIVED", "START")
    rows = [
        (
            (iso(row["minute_ms"]) or "")[:16], row["group_id"], row["topic"], row["partition"],
            row["delivered"], row["redelivered"], row["archived"], row["start_offset"],
        )
        for row in worst
    ]  # fmt: skip
    return with_clusters(Table(heads, rows), [row["cluster"] for row in worst])


def _print_problems(shown: list[Delivery], problems: Callable[[Delivery], Iterable[str]]) -> None:
    lines = [f"{each.row['group_id']}, {each.name}: {text}." for each in shown for text in problems(each)]
    if lines:
        click.echo()
    for line in lines[:DEFAULT_LIMIT]:
        click.echo(text_of(line))
